//! The heap of the C library: the one place of this program with unsafe code.

/// What glibc keeps at the end of an arena once it is free, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: libc::c_int = 4 << 20;
/// From this size on, an allocation is a mapping of its own, in bytes: above pieces of files, which
/// come and go, and below what large streams keep.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED: libc::c_int = 1 << 20;

/// Has glibc keep little of what is free. Left alone it learns from large allocations to keep up to 64
/// MiB at the end of each arena, and has eight arenas for each processor. Call before there are other
/// threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "no safe function does it")]
pub(crate) fn keep_little() {
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

/// Others keep what they keep.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) const fn keep_little() {}

/// Returns pages without anything in use to the system, as far as the C library can: glibc's. True if
/// there were any.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "no safe function does it")]
pub(crate) fn give_back() -> bool {
    // SAFETY: `malloc_trim` takes a number, how much to leave at the top of the heap, and no pointer.
    // It locks each arena as an allocation does (MT-Safe in glibc's manual), so that it may run beside
    // any thread that allocates, and it touches only pages that belong to no allocation.
    unsafe { libc::malloc_trim(0) != 0 }
}

/// Others return what is free by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) const fn give_back() -> bool {
    false
}
