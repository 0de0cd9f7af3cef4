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

/// Returns pages without anything in use to the system. mimalloc does so by itself a second after they were freed, but
/// only while somebody allocates.
#[allow(unsafe_code, reason = "no safe function does it")]
pub(crate) fn give_back() {
    // SAFETY: `mi_collect` takes a flag, whether to return all, and no pointer. It touches what is free: of the calling
    // thread's heap, and of the memory that all threads share, which it takes as an allocation does.
    unsafe { libmimalloc_sys::mi_collect(true) };
    trim();
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
