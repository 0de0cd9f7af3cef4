//! What a device does to frames before anybody sees them, as far as that has to be off, and how many queues it sends by
//! (SIOCETHTOOL).
#![allow(unsafe_code, reason = "ioctl takes a pointer")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Commands (linux/ethtool.h).
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;
const GET_CHANNELS: u32 = 0x3c;
/// Flags there.
const RECEIVE_VLAN: u32 = 1 << 8;
const LARGE_RECEIVE: u32 = 1 << 15;

/// Offloads that a frame's tags and length depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// The tag of a VLAN is taken out of the frame, where a program does not see it (`rx-vlan-offload`).
    pub vlan: bool,
    /// Segments of TCP are put together (`large-receive-offload`): the system switches that off for programs, and not
    /// on again.
    pub large_receive: bool,
}

impl Offloads {
    /// Those of a device. One that cannot say has none.
    ///
    /// # Errors
    ///
    /// When the system has no sockets left.
    pub(super) fn of(device: &str) -> io::Result<Self> {
        let flags = flags_of(&socket()?, device, GET_FLAGS, 0).unwrap_or(0);
        let (vlan, large_receive) = (flags & RECEIVE_VLAN != 0, flags & LARGE_RECEIVE != 0);
        Ok(Self { vlan, large_receive })
    }

    /// Sets them, and leaves others as they are.
    ///
    /// # Errors
    ///
    /// What the system says: the device may have no choice.
    pub(super) fn set(self, device: &str) -> io::Result<()> {
        let socket = socket()?;
        let mut flags = flags_of(&socket, device, GET_FLAGS, 0)?;
        flags &= !(RECEIVE_VLAN | LARGE_RECEIVE);
        flags |= if self.vlan { RECEIVE_VLAN } else { 0 };
        flags |= if self.large_receive { LARGE_RECEIVE } else { 0 };
        flags_of(&socket, device, SET_FLAGS, flags).map(drop)
    }

    /// What is on here and not there.
    pub(super) const fn without(self, other: Self) -> Self {
        Self {
            vlan: self.vlan && !other.vlan,
            large_receive: self.large_receive && !other.large_receive,
        }
    }

    /// What is on in either.
    pub(super) const fn with(self, other: Self) -> Self {
        Self {
            vlan: self.vlan || other.vlan,
            large_receive: self.large_receive || other.large_receive,
        }
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?)
}

/// By how many queues a device sends. It may not be able to say.
///
/// # Errors
///
/// What the system says.
pub(super) fn transmit_queues(device: &str) -> io::Result<u32> {
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    call(&socket()?, device, &mut channels)?;
    Ok(channels.transmit.saturating_add(channels.combined))
}

/// What SIOCETHTOOL reads and writes.
///
/// # Safety
///
/// A type is as long as what the kernel takes for each command that a value of it can have.
unsafe trait Argument {}

/// `struct ethtool_channels`.
#[derive(Default)]
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

// SAFETY: its command is `GET_CHANNELS`, and it has the fields of that command's structure.
unsafe impl Argument for Channels {}

// SAFETY: its command is `GET_FLAGS` or `SET_FLAGS`, and it has the fields of their structure.
unsafe impl Argument for Value {}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Reads or sets flags; returns them.
fn flags_of(socket: &OwnedFd, device: &str, command: u32, flags: u32) -> io::Result<u32> {
    let mut value = Value { command, data: flags };
    call(socket, device, &mut value)?;
    Ok(value.data)
}

fn call<T: Argument>(socket: &OwnedFd, device: &str, value: &mut T) -> io::Result<()> {
    // SAFETY: zeros are a value of this structure of numbers, and no name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last octet stays zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(value).cast();
    // SAFETY: the request names a device and a value, of which its command reads and writes no more than there is
    // (`Argument`); both live for the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
