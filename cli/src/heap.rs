//! The heap, mimalloc's, and that of the C library beside it, from which ciphers take their memory: the one place of
//! this program with unsafe code.

use mimalloc::MiMalloc;

/// What each request allocates is much, small, and freed soon, often by another thread: a gateway answers a sixth more
/// requests in the same time than with the allocator of glibc. It is built to ask for no huge pages (`no_thp`): with them a
/// page of 4 KiB that is touched costs 2 MiB of memory.
#[global_allocator]
static HEAP: MiMalloc = MiMalloc;

/// What glibc keeps at the end of an arena once it is free, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: libc::c_int = 4 << 20;
/// From this size on, an allocation is a mapping of its own, in bytes: above pieces of files, which
/// come and go, and below what large streams keep.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED: libc::c_int = 1 << 20;

/// How many pages of a size of allocations a thread has at most when it takes another one back: one that was full, and of which it
/// frees some. Left alone mimalloc has no such limit. What other threads free in a thread's pages stays with it until it allocates:
/// after a load an idle thread of a server had 25 MiB.
const PAGES: core::ffi::c_long = 1;
/// The number of that limit among mimalloc's options (`mi_option_page_max_reclaim`); the crate names few of them.
const PAGE_MAX_RECLAIM: libmimalloc_sys::mi_option_t = 41;
/// With another number of options that may be another one: look in mimalloc.h.
const _: () = assert!(libmimalloc_sys::_mi_option_last == 47);

/// Has both heaps keep little of what is free. Call before there are other threads.
#[allow(unsafe_code, reason = "no safe function does it")]
pub(crate) fn keep_little() {
    // SAFETY: `mi_option_set_default` takes two numbers and no pointer, and does nothing with an option that it does not know. It
    // is not to be called while other threads do: only this program's main thread does, before it starts any.
    unsafe { libmimalloc_sys::mi_option_set_default(PAGE_MAX_RECLAIM, PAGES) };
    trim_early();
}

/// Has glibc keep little of what is free. Left alone it learns from large allocations to keep up to 64
/// MiB at the end of each arena, and has eight arenas for each processor.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "no safe function does it")]
fn trim_early() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let arenas = libc::c_int::try_from(2 * processors).unwrap_or(libc::c_int::MAX);
    for (what, value) in [
        (libc::M_TRIM_THRESHOLD, KEPT),
        (libc::M_MMAP_THRESHOLD, MAPPED),
        (libc::M_ARENA_MAX, arenas),
    ] {
        // SAFETY: `mallopt` takes two numbers and no pointer, and refuses what it does not know. It is
        // not to be called while other threads change the same settings: only this program's main
        // thread does, before it starts any.
        if unsafe { libc::mallopt(what, value) } == 0 {
            log::debug!("glibc does not take {value} for setting {what}");
        }
    }
}

/// Others do as they do.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const fn trim_early() {}

/// Returns pages without anything in use to the system, of both heaps.
pub(crate) fn give_back() {
    collect();
    trim();
}

/// Returns pages without anything in use to the system, of mimalloc's. It does so by itself a second after they were freed, but
/// only while somebody allocates. What other threads keep for themselves stays: it comes free when they allocate, or end.
#[allow(unsafe_code, reason = "no safe function does it")]
pub(crate) fn collect() {
    // SAFETY: `mi_collect` takes a flag, whether to return all, and no pointer. It touches what is free: of the calling
    // thread's heap, and of the memory that all threads share, which it takes as an allocation does.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// The same of the C library, where it is glibc.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "no safe function does it")]
fn trim() {
    // SAFETY: `malloc_trim` takes a number, how much to leave at the top of the heap, and no pointer.
    // It locks each arena as an allocation does (MT-Safe in glibc's manual), so that it may run beside
    // any thread that allocates, and it touches only pages that belong to no allocation.
    unsafe { libc::malloc_trim(0) };
}

/// Others return what is free by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "no safe function does it")]
    fn the_option_has_its_number() {
        // SAFETY: `mi_option_get` takes a number and no pointer.
        let of = |option| unsafe { libmimalloc_sys::mi_option_get(option) };
        // The options of these numbers are what they are taken for: no limit, and the one beside it, across threads.
        assert_eq!((of(PAGE_MAX_RECLAIM), of(PAGE_MAX_RECLAIM + 1)), (-1, 32));
    }
}
