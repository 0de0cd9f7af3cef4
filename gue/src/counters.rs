/// Defines a type of counters, each with what it counts, which is also what people are told of it.
///
/// For whoever carries packets; this crate counts nothing itself.
#[macro_export]
macro_rules! counters {
    ($(#[$on:meta])* $type:ident: $($(#[doc = $doc:literal])* $name:ident),* $(,)?) => {
        $(#[$on])*
        #[derive(Debug, Default)]
        pub struct $type {
            $($(#[doc = $doc])* pub $name: ::core::sync::atomic::AtomicU64,)*
        }

        impl $type {
            /// Names and values, in the order of the declaration.
            #[must_use]
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(::core::sync::atomic::Ordering::Relaxed)),)*]
            }

            /// What the counter of this name counts; `None` if there is none.
            #[must_use]
            pub fn help(name: &str) -> Option<&'static str> {
                match name {
                    $(stringify!($name) => Some(concat!($($doc),*)),)*
                    _ => None,
                }
            }
        }
    };
}
