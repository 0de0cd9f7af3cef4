//! Programs and maps in the kernel, and programs on sockets: no library has it in safe form.
#![allow(unsafe_code, reason = "setsockopt and bpf take pointers")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;

use crate::classic;
use crate::extended;
use crate::owner::OwnerProgram;

/// Has the kernel choose by `program` among the sockets of the SO_REUSEPORT group of `socket`, one
/// for all of them, those that join later included. It replaces the program that was there.
/// Sockets are counted in the order in which they were bound.
///
/// # Errors
/// `EINVAL` when the socket is not bound or SO_REUSEPORT was not set before.
pub fn attach_reuseport(socket: impl AsFd, program: &OwnerProgram) -> io::Result<()> {
    // The cast is between two layouts of struct sock_filter.
    const { assert!(size_of::<classic::Instruction>() == size_of::<libc::sock_filter>()) };
    const { assert!(align_of::<classic::Instruction>() == align_of::<libc::sock_filter>()) };
    let instructions = program.instructions();
    // No more than BPF_MAXINSNS.
    let len = u16::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = instructions.as_ptr().cast::<libc::sock_filter>().cast_mut();
    let filter = libc::sock_fprog { len, filter };
    // SAFETY: `filter` names `len` instructions that live for the call; the kernel copies them,
    // does not write through the pointer, and checks the program.
    unsafe { set_option(socket.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &filter) }
}

/// Has the kernel choose by address again.
///
/// # Errors
/// `ENOENT` when there was no program; `EINVAL` when the socket shares no port.
pub fn detach_reuseport(socket: impl AsFd) -> io::Result<()> {
    let unused: libc::c_int = 0;
    // SAFETY: the option takes an int without a meaning.
    unsafe { set_option(socket.as_fd(), libc::SO_DETACH_REUSEPORT_BPF, &unused) }
}

/// Attaches a program that is in the kernel.
pub(crate) fn attach_program(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program: libc::c_int = program.as_raw_fd();
    // SAFETY: the option takes an int, a descriptor, which the kernel checks.
    unsafe { set_option(socket, libc::SO_ATTACH_REUSEPORT_EBPF, &program) }
}

/// # Safety
/// `value` is of the type that the option takes, and what it points to is alive.
unsafe fn set_option<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is alive and of this size; the rest is the caller's promise.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Kinds of maps, with keys of 32 bits and values of 64 (`enum bpf_map_type` of linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Map {
    Array = 2,
    ReuseportSockets = 20,
}

/// Commands of bpf(2).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
/// BPF_PROG_TYPE_SK_REUSEPORT and BPF_SK_REUSEPORT_SELECT.
const SK_REUSEPORT: u32 = 21;
const SK_REUSEPORT_SELECT: u32 = 39;

/// The fields of `union bpf_attr` for [`MAP_CREATE`], as far as they are used.
#[repr(C)]
struct CreateMap {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
}

/// Those for elements of maps.
#[repr(C)]
struct Element {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Those for [`PROG_LOAD`].
#[repr(C)]
struct LoadProgram {
    kind: u32,
    len: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// # Safety
/// `fields` are those of the command, and what they point to is alive and as large as they say.
unsafe fn bpf<T>(command: libc::c_int, fields: &T) -> io::Result<libc::c_long> {
    // SAFETY: `fields` is alive and of this size; the rest is the caller's promise.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(fields), size_of::<T>())
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// The descriptor that bpf(2) made.
fn made(descriptor: libc::c_long) -> io::Result<OwnedFd> {
    let descriptor = RawFd::try_from(descriptor).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made it for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A map without entries.
pub(crate) fn create_map(kind: Map, entries: u32) -> io::Result<OwnedFd> {
    let fields = CreateMap { kind: kind as u32, key_size: 4, value_size: 8, entries, flags: 0 };
    // SAFETY: the fields are those of the command and point to nothing.
    unsafe { bpf(MAP_CREATE, &fields) }.and_then(made)
}

/// What a map of sockets takes.
pub(crate) fn socket_value(socket: BorrowedFd<'_>) -> u64 {
    // A descriptor is not negative.
    u64::from(socket.as_raw_fd().cast_unsigned())
}

/// Sets an entry.
pub(crate) fn update_map(map: BorrowedFd<'_>, key: u32, value: u64) -> io::Result<()> {
    let fields = Element::new(map, &key, Some(&value));
    // SAFETY: the fields are those of the command; key and value live, and have the sizes of all
    // our maps.
    unsafe { bpf(MAP_UPDATE_ELEM, &fields) }.map(drop)
}

/// Removes an entry.
pub(crate) fn delete_from_map(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    let fields = Element::new(map, &key, None);
    // SAFETY: as above; the command takes no value.
    unsafe { bpf(MAP_DELETE_ELEM, &fields) }.map(drop)
}

impl Element {
    fn new(map: BorrowedFd<'_>, key: &u32, value: Option<&u64>) -> Self {
        Self {
            map: map.as_raw_fd().cast_unsigned(),
            pad: 0,
            key: std::ptr::from_ref(key).addr() as u64,
            value: value.map_or(0, |value| std::ptr::from_ref(value).addr() as u64),
            flags: 0,
        }
    }
}

/// Loads a program for SO_REUSEPORT groups.
pub(crate) fn load_reuseport(instructions: &[extended::Instruction]) -> io::Result<OwnedFd> {
    const { assert!(size_of::<extended::Instruction>() == 8) };
    let license = c"Dual MIT/GPL";
    let mut name = [0; 16];
    name[..13].copy_from_slice(b"quicket_owner");
    let fields = LoadProgram {
        kind: SK_REUSEPORT,
        len: u32::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        instructions: instructions.as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
        interface: 0,
        attach_type: SK_REUSEPORT_SELECT,
    };
    // SAFETY: the fields are those of the command; instructions and license live, the license ends
    // with a zero; the kernel checks the program.
    unsafe { bpf(PROG_LOAD, &fields) }.and_then(made)
}
