//! The functions that come after these: those of the C library, or of what else is preloaded.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Declares the names.
macro_rules! names {
    ($($name:ident)*) => {
        /// The name of a function that this library stands before.
        #[allow(non_camel_case_types, reason = "they are those of the C library")]
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Name { $($name),* }

        const NAMES: &[&CStr] = &[
            $(
                // A name of C has no zero within.
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            ),*
        ];
    };
}

names! {
    socket socketpair bind listen accept accept4 connect __connect shutdown getsockname getpeername
    getsockopt setsockopt
    send __send sendto sendmsg sendmmsg write __write writev sendfile sendfile64
    recv recvfrom recvmsg recvmmsg read __read readv __read_chk __recv_chk __recvfrom_chk
    close __close dup dup2 dup3 fcntl fcntl64 __fcntl ioctl eventfd
    poll __poll ppoll __poll_chk __ppoll_chk select __select pselect epoll_ctl
    fdopen preadv2 preadv64v2 pwritev2 pwritev64v2 splice tee vmsplice
    pthread_create
}

static ADDRESSES: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(null_mut()) }; NAMES.len()];

/// All are looked for when the library is loaded: a handler of a signal, or a child that shares
/// memory, must not have to.
#[used]
#[unsafe(link_section = ".init_array")]
static FIND_ALL: extern "C" fn() = find_all;

extern "C" fn find_all() {
    for index in 0..NAMES.len() {
        find(index);
    }
}

#[cold]
#[inline(never)]
fn find(index: usize) -> *mut c_void {
    let (Some(name), Some(place)) = (NAMES.get(index), ADDRESSES.get(index)) else {
        return missing as *mut c_void;
    };
    // SAFETY: the name ends with a zero.
    let mut address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if address.is_null() {
        address = missing as *mut c_void;
    }
    place.store(address, Ordering::Relaxed);
    address
}

impl Name {
    /// The address of the next function of this name. A call may come before this library's
    /// constructors have run.
    pub(crate) fn address(self) -> *mut c_void {
        let known = self.known();
        if known.is_null() { find(self as usize) } else { known }
    }

    /// The same without looking for it; null before it was looked for.
    #[inline]
    pub(crate) fn known(self) -> *mut c_void {
        let place = ADDRESSES.get(self as usize);
        place.map_or(null_mut(), |place| place.load(Ordering::Relaxed))
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
    ($name:ident: $type:ty) => {
        $crate::next::next!(@ $crate::next::Name::$name.address(), $type)
    };
    (@ $address:expr, $type:ty) => {{
        let address = $address;
        #[allow(unused_unsafe, reason = "callers are unsafe blocks for its call")]
        // SAFETY: a function of this name has this type.
        let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(address) };
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

                // By itself, so that the way past it needs no room on the stack.
                #[cold]
                #[inline(never)]
                unsafe extern "C" fn not_the_systems(
                    $fd: c_int $(, $argument: $kind)*
                ) -> $result {
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

                let known = $crate::next::Name::$name.known();
                if quicket_c::kind($fd) != quicket_c::Kind::Other || known.is_null() {
                    // SAFETY: the arguments are the caller's.
                    return unsafe { not_the_systems($fd $(, $argument)*) };
                }
                // SAFETY: the arguments are the caller's.
                unsafe { $crate::next::next!(@ known, Function)($fd $(, $argument)*) }
            }
        )*
    };
}

/// Declares functions by their first argument, as [`by_descriptor`], of which descriptors that were lent have their own.
macro_rules! by_owner {
    ($($name:ident($fd:ident: c_int $(, $argument:ident: $kind:ty)*) -> $result:ty
        = $ours:ident, $lent:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($fd: c_int $(, $argument: $kind)*) -> $result {
                type Function = unsafe extern "C" fn(c_int $(, $kind)*) -> $result;
                match $crate::whose($fd) {
                    $crate::Whose::System => {
                        if $crate::lent::is_on() && !quicket_c::Inside::is() {
                            // SAFETY: the arguments are the caller's.
                            if let Some(answer) = unsafe { $crate::lent::$lent($fd $(, $argument)*) } {
                                return answer;
                            }
                        }
                        // SAFETY: the arguments are the caller's.
                        unsafe { $crate::next::next!($name: Function)($fd $(, $argument)*) }
                    }
                    // SAFETY: the arguments are the caller's, and addresses are checked.
                    $crate::Whose::Quicket => unsafe { quicket_c::$ours($fd $(, $argument)*) },
                    $crate::Whose::Nobody => $crate::no_descriptor(),
                }
            }
        )*
    };
}

/// Declares functions that receive, as [`by_descriptor`], which of descriptors that were lent hear why nothing more comes.
macro_rules! receiving {
    ($($name:ident($fd:ident: c_int $(, $argument:ident: $kind:ty)*) = $ours:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($fd: c_int $(, $argument: $kind)*) -> ssize_t {
                type Function = unsafe extern "C" fn(c_int $(, $kind)*) -> ssize_t;

                // By itself, so that the way past it needs no room on the stack.
                #[cold]
                #[inline(never)]
                unsafe extern "C" fn not_the_systems(
                    $fd: c_int $(, $argument: $kind)*
                ) -> ssize_t {
                    match $crate::whose($fd) {
                        $crate::Whose::System => {
                            // SAFETY: the arguments are the caller's.
                            let answer = unsafe {
                                $crate::next::next!($name: Function)($fd $(, $argument)*)
                            };
                            $crate::lent::received($fd, answer)
                        }
                        // SAFETY: the arguments are the caller's, and addresses are checked.
                        $crate::Whose::Quicket => unsafe { quicket_c::$ours($fd $(, $argument)*) },
                        $crate::Whose::Nobody => $crate::no_descriptor(),
                    }
                }

                let known = $crate::next::Name::$name.known();
                if quicket_c::kind($fd) != quicket_c::Kind::Other
                    || known.is_null()
                    || $crate::lent::is_on()
                {
                    // SAFETY: the arguments are the caller's.
                    return unsafe { not_the_systems($fd $(, $argument)*) };
                }
                // SAFETY: the arguments are the caller's.
                unsafe { $crate::next::next!(@ known, Function)($fd $(, $argument)*) }
            }
        )*
    };
}

pub(crate) use {by_descriptor, by_owner, next, receiving};
