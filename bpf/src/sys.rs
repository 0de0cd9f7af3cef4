//! Programs and maps in the kernel, and programs on sockets: no library has it in safe form.
#![allow(unsafe_code, reason = "setsockopt, bpf and mmap take pointers")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, slice};

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
    attach(socket.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, program.instructions())
}

/// Has a socket receive what a program lets through, as much of it as the program says.
pub(crate) fn attach_filter(
    socket: BorrowedFd<'_>,
    program: &[classic::Instruction],
) -> io::Result<()> {
    attach(socket, libc::SO_ATTACH_FILTER, program)
}

fn attach(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    instructions: &[classic::Instruction],
) -> io::Result<()> {
    // The cast is between two layouts of struct sock_filter.
    const { assert!(size_of::<classic::Instruction>() == size_of::<libc::sock_filter>()) };
    const { assert!(align_of::<classic::Instruction>() == align_of::<libc::sock_filter>()) };
    // No more than BPF_MAXINSNS.
    let len = u16::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = instructions.as_ptr().cast::<libc::sock_filter>().cast_mut();
    let filter = libc::sock_fprog { len, filter };
    // SAFETY: both options take this type. `filter` names `len` instructions that live for the call; the kernel copies
    // them, does not write through the pointer, and checks the program.
    unsafe { set_option(socket, option, &filter) }
}

/// Has a packet socket (packet(7)) receive packets of a protocol of Ethernet that come by a device.
pub(crate) fn bind_packets(socket: BorrowedFd<'_>, protocol: u16, device: u32) -> io::Result<()> {
    let index = device.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is alive and of this length; the kernel only reads it.
    let answer =
        unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has each packet of a packet socket begin with a header that says what is left to the device (`struct virtio_net_hdr`).
pub(crate) fn expect_virtual_headers(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option takes an int, which is alive and of this size.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            PACKET_VNET_HDR,
            std::ptr::from_ref(&on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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

/// Of linux/if_packet.h.
const PACKET_VNET_HDR: libc::c_int = 15;

/// Kinds of maps (`enum bpf_map_type` of linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Map {
    Hash = 1,
    Array = 2,
    LruHash = 9,
    /// Sockets of AF_XDP.
    XdpSockets = 17,
    /// An array whose values begin where a page of memory does: with BPF_F_MMAPABLE.
    AlignedArray = 2 | 0x400 << 8,
}

impl Map {
    /// Kind and flags.
    fn parts(self) -> (u32, u32) {
        (self as u32 & 0xff, self as u32 >> 8)
    }
}

/// Commands of bpf(2).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
const LINK_DETACH: libc::c_int = 34;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
/// BPF_PROG_TYPE_XDP and BPF_XDP.
const XDP: u32 = 6;
const XDP_ATTACH: u32 = 37;
/// Bytes of the verifier's log.
const LOG: usize = 1 << 20;
/// How often a program is loaded while signals come.
const ATTEMPTS: u32 = 32;

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

fn create(kind: Map, key_size: u32, value_size: u32, entries: u32) -> io::Result<OwnedFd> {
    let (kind, flags) = kind.parts();
    let fields = CreateMap { kind, key_size, value_size, entries, flags };
    // SAFETY: the fields are those of the command and point to nothing.
    unsafe { bpf(MAP_CREATE, &fields) }.and_then(made)
}

/// A map with keys and values of known lengths.
#[derive(Debug)]
pub(crate) struct Table<const KEY: usize, const VALUE: usize> {
    map: OwnedFd,
}

impl<const KEY: usize, const VALUE: usize> Table<KEY, VALUE> {
    /// A table without entries, or for the kinds that are arrays with entries of zeros.
    pub(crate) fn new(kind: Map, entries: u32) -> io::Result<Self> {
        Ok(Self { map: create(kind, KEY as u32, VALUE as u32, entries)? })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Sets an entry.
    pub(crate) fn set(&self, key: &[u8; KEY], value: &[u8; VALUE]) -> io::Result<()> {
        let fields = self.element(key, value.as_ptr().expose_provenance());
        // SAFETY: the fields are those of the command; key and value live and have the lengths that
        // the map was made with.
        unsafe { bpf(MAP_UPDATE_ELEM, &fields) }.map(drop)
    }

    /// Removes an entry.
    pub(crate) fn remove(&self, key: &[u8; KEY]) -> io::Result<()> {
        let fields = self.element(key, 0);
        // SAFETY: the fields are those of the command, which takes no value; the key lives and has the length that
        // the map was made with.
        unsafe { bpf(MAP_DELETE_ELEM, &fields) }.map(drop)
    }

    fn element(&self, key: &[u8; KEY], value: usize) -> Element {
        let map = self.map.as_raw_fd().cast_unsigned();
        Element {
            map,
            pad: 0,
            key: key.as_ptr().expose_provenance() as u64,
            value: value as u64,
            flags: 0,
        }
    }
}

/// An array of pairs of numbers that programs count in and this process reads.
#[derive(Debug)]
pub(crate) struct SharedArray {
    map: OwnedFd,
    /// Two for each entry.
    numbers: NonNull<AtomicU64>,
    entries: usize,
}

// SAFETY: the numbers are atomic, and the mapping is this object's alone until it is dropped.
unsafe impl Send for SharedArray {}
// SAFETY: as above; nothing but atomic loads is done through a shared reference.
unsafe impl Sync for SharedArray {}

impl SharedArray {
    /// Octets of an entry.
    const ENTRY: usize = 16;

    /// Zeros.
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        let map = create(Map::AlignedArray, 4, Self::ENTRY as u32, entries)?;
        let entries = entries as usize;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping, where the kernel likes, of a map that is as long as that.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                entries * Self::ENTRY,
                protection,
                flags,
                map.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let numbers = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { map, numbers, entries })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Both numbers of an entry; zeros if there is none.
    pub(crate) fn get(&self, entry: u32) -> [u64; 2] {
        // SAFETY: two numbers for each entry are mapped, at the beginning of a page, for as long as
        // this object lives; programs change them, so they are atomic.
        let all = unsafe { slice::from_raw_parts(self.numbers.as_ptr(), 2 * self.entries) };
        let at = 2 * entry as usize;
        [at, at + 1].map(|at| all.get(at).map_or(0, |number| number.load(Ordering::Relaxed)))
    }
}

impl Drop for SharedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and nobody has it any more.
        unsafe { libc::munmap(self.numbers.as_ptr().cast(), self.entries * Self::ENTRY) };
    }
}

/// How many processors there may be: the highest number in a list such as `0-3,8` and one more. A
/// container may show another list than the kernel's own, so what the C library says counts as well.
pub(crate) fn possible_processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    let listed = last.and_then(|last| last.checked_add(1)).ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: the call takes a number and points to nothing.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    Ok(listed.max(usize::try_from(configured).unwrap_or(0)))
}

/// Loads a program for packets that devices have just received. Its name is what others see of it.
pub(crate) fn load_xdp(
    name: [u8; 16],
    instructions: &[extended::Instruction],
) -> io::Result<OwnedFd> {
    const { assert!(size_of::<extended::Instruction>() == 8) };
    let license = c"Dual MIT/GPL";
    let mut fields = LoadProgram {
        kind: XDP,
        len: u32::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        instructions: instructions.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
        interface: 0,
        attach_type: XDP_ATTACH,
    };
    // SAFETY: the fields are those of the command; instructions and license live, the license ends
    // with a zero; the kernel checks the program.
    let error = match unsafe { load_patiently(&fields) } {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => error,
        // What the verifier refuses has this error as well as a missing capability.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => error,
        loaded => return loaded,
    };
    // Once more, for the verifier's reason.
    let mut log = vec![0_u8; LOG];
    (fields.log_level, fields.log_size) = (1, LOG as u32);
    fields.log = log.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: as above, and the log lives and is as large as it says.
    if let Ok(loaded) = unsafe { load_patiently(&fields) } {
        return Ok(loaded);
    }
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = text.trim_end_matches('\0').lines().collect();
    let last = lines.get(lines.len().saturating_sub(6)..).unwrap_or_default().join("; ");
    Err(io::Error::new(error.kind(), format!("{error}: {last}")))
}

/// Loads a program; again, a few times, where a signal has ended the kernel's check.
///
/// # Safety
/// As for [`bpf`].
unsafe fn load_patiently(fields: &LoadProgram) -> io::Result<OwnedFd> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        // SAFETY: the caller's promise.
        match unsafe { bpf(PROG_LOAD, fields) }.and_then(made) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && attempts < ATTEMPTS => {}
            result => return result,
        }
    }
}

/// The fields of `union bpf_attr` for [`PROG_TEST_RUN`], as far as they are used.
#[repr(C)]
struct TestRun {
    program: u32,
    answer: u32,
    len_in: u32,
    len_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    nanoseconds: u32,
    rest: [u64; 5],
}

/// Has a program look at a packet `repeat` times: its last answer, the packet as it is then, and
/// how long it takes each time, in nanoseconds.
pub(crate) fn run(
    program: BorrowedFd<'_>,
    packet: &[u8],
    repeat: u32,
) -> io::Result<(u32, Vec<u8>, u32)> {
    // Programs put headers in front.
    let mut out = vec![0; packet.len() + 256];
    let mut fields = TestRun {
        program: program.as_raw_fd().cast_unsigned(),
        answer: 0,
        len_in: u32::try_from(packet.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        len_out: u32::try_from(out.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        data_in: packet.as_ptr().expose_provenance() as u64,
        data_out: out.as_mut_ptr().expose_provenance() as u64,
        repeat,
        nanoseconds: 0,
        rest: [0; 5],
    };
    let pointer = std::ptr::from_mut(&mut fields);
    // SAFETY: the fields are those of the command, which writes to them, too; both buffers live and
    // are as large as they say.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, pointer, size_of::<TestRun>()) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    out.truncate(fields.len_out as usize);
    Ok((fields.answer, out, fields.nanoseconds))
}

/// The fields for [`LINK_CREATE`], as far as they are used.
#[repr(C)]
struct CreateLink {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Those for [`LINK_UPDATE`].
#[repr(C)]
struct UpdateLink {
    link: u32,
    program: u32,
    flags: u32,
    old: u32,
}

/// Attaches a program to a device until the link is closed.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd().cast_unsigned();
    let fields = CreateLink { program, interface, attach_type: XDP_ATTACH, flags };
    // SAFETY: the fields are those of the command and point to nothing.
    unsafe { bpf(LINK_CREATE, &fields) }.and_then(made)
}

/// Puts another program in the place of the one that a link has attached; no packet meets none.
pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let [link, program] = [link, program].map(|fd| fd.as_raw_fd().cast_unsigned());
    let fields = UpdateLink { link, program, flags: 0, old: 0 };
    // SAFETY: the fields are those of the command and point to nothing.
    unsafe { bpf(LINK_UPDATE, &fields) }.map(drop)
}

/// The fields of `union bpf_attr` for [`OBJ_GET_INFO_BY_FD`].
#[repr(C)]
struct GetInfo {
    descriptor: u32,
    len: u32,
    info: u64,
}

/// The beginning of `struct bpf_link_info`, of a link of XDP.
#[derive(Default)]
#[repr(C, align(8))]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    pad: u32,
    interface: u32,
    rest: [u32; 3],
}

/// The number of the device that a program is attached to, in that device's network namespace; 0 if it has gone.
pub(crate) fn link_interface(link: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = LinkInfo::default();
    let fields = GetInfo {
        descriptor: link.as_raw_fd().cast_unsigned(),
        len: size_of::<LinkInfo>() as u32,
        info: std::ptr::from_mut(&mut info).expose_provenance() as u64,
    };
    // SAFETY: the fields are those of the command; `info` lives, nobody else has it, and the kernel writes no more than `len`
    // octets there.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &fields) }?;
    Ok(info.interface)
}

/// Ends what a link has attached, whoever else has a descriptor of it.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    let link = link.as_raw_fd().cast_unsigned();
    // SAFETY: the command has this field alone, and it points to nothing.
    unsafe { bpf(LINK_DETACH, &link) }.map(drop)
}
