//! Threads that Quicket starts work for it.

use std::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};
use quicket_c::Inside;

use crate::next::next;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

struct Work {
    start: Start,
    argument: *mut c_void,
}

extern "C" fn work(work: *mut c_void) -> *mut c_void {
    // SAFETY: made from a box by `pthread_create`, for this thread alone.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    let _inside = Inside::enter();
    (work.start)(work.argument)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    type Function =
        unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;
    let next = next!(pthread_create: Function);
    if !Inside::is() {
        // SAFETY: the arguments are the caller's.
        return unsafe { next(thread, attributes, start, argument) };
    }
    let boxed = Box::into_raw(Box::new(Work { start, argument })).cast::<c_void>();
    // SAFETY: the arguments are the caller's, but for the start, which takes what it is given.
    let answer = unsafe { next(thread, attributes, work, boxed) };
    if answer != 0 {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(boxed.cast::<Work>()) });
    }
    answer
}
