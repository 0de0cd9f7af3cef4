//! The functions that come after these: those of the C library, or of what else is preloaded.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that comes next. It is looked for at the first call, which may come before this
/// library's constructors have run.
#[derive(Debug)]
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Its address.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.find() } else { address }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero.
        let mut address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            address = missing as *mut c_void;
        }
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Stands for a function that the C library does not have.
extern "C" fn missing() -> isize {
    set_errno(libc::ENOSYS);
    -1
}

/// Sets the thread's error number.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the function returns the address of a variable of this thread.
    unsafe { *libc::__errno_location() = number }
}

/// The next function of a name and type.
macro_rules! next {
    ($name:ident: $type:ty) => {{
        static NEXT: $crate::next::Next = {
            // A name of C has no zero within.
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => $crate::next::Next::new(name),
                Err(_) => $crate::next::Next::new(c""),
            }
        };
        #[allow(unused_unsafe, reason = "callers are unsafe blocks for its call")]
        let function =
            // SAFETY: a function of this name has this type.
            unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(NEXT.address()) };
        function
    }};
}

/// Declares functions by their first argument, a descriptor: to the next of the same name, or to a
/// function of Quicket with these arguments.
macro_rules! by_descriptor {
    ($($name:ident($fd:ident: c_int $(, $argument:ident: $kind:ty)*) -> $result:ty
        = $ours:ident($($given:expr),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($fd: c_int $(, $argument: $kind)*) -> $result {
                type Function = unsafe extern "C" fn(c_int $(, $kind)*) -> $result;
                match $crate::whose($fd) {
                    // SAFETY: the arguments are the caller's.
                    $crate::Whose::System => unsafe {
                        $crate::next::next!($name: Function)($fd $(, $argument)*)
                    },
                    // SAFETY: the arguments are the caller's, and addresses are checked.
                    $crate::Whose::Quicket => unsafe { quicket_c::$ours($($given),*) },
                    $crate::Whose::Nobody => $crate::no_descriptor(),
                }
            }
        )*
    };
}

pub(crate) use {by_descriptor, next};
