//! The TUN device of a tunnel, or TAP for one that carries Ethernet, with offloads and one queue per worker.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;

use crate::sys;

/// One queue of a device. Reads and writes are of one packet or super-packet each, after its
/// header (see `vnet`), and do not wait.
#[derive(Debug)]
pub(crate) struct Queue {
    file: File,
}

/// Where the system shows a device.
fn shown(name: &str) -> PathBuf {
    Path::new("/sys/class/net").join(name)
}

/// Whether there is a device of this name in this network namespace. The folder of another
/// namespace may be mounted, so that the system is asked, too.
fn exists(name: &str) -> bool {
    nix::net::if_::if_nametoindex(name).is_ok()
}

fn open() -> io::Result<File> {
    let path = "/dev/net/tun";
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Makes the device, or takes the one that an earlier run has left, with as many queues as there
/// are workers. A new one gets the MTU; an old one keeps what it was given.
pub(crate) fn attach(
    name: &str,
    ethernet: bool,
    workers: usize,
    mtu: u16,
) -> io::Result<Vec<Queue>> {
    let old = exists(name);
    let kind = if ethernet { libc::IFF_TAP } else { libc::IFF_TUN };
    let mut flags = kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if workers > 1 {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    let mut queues = Vec::new();
    for _ in 0..workers {
        let file = open()?;
        sys::set_interface(&file, name, flags)?;
        let tcp = sys::TUN_F_CSUM | sys::TUN_F_TSO4 | sys::TUN_F_TSO6 | sys::TUN_F_TSO_ECN;
        // Datagrams of UDP since Linux 6.2.
        sys::set_offload(&file, tcp | sys::TUN_F_USO4 | sys::TUN_F_USO6)
            .or_else(|_| sys::set_offload(&file, tcp))?;
        queues.push(Queue { file });
    }
    if let (false, Some(queue)) = (old, queues.first()) {
        sys::set_persist(&queue.file, true)?;
        sys::set_mtu(&UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, name, mtu)?;
    }
    Ok(queues)
}

/// Removes a device that was kept.
///
/// # Errors
///
/// When there is no TUN device of that name, or a program uses it.
pub fn remove_device(name: &str) -> io::Result<()> {
    if !exists(name) {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such device"));
    }
    // The flags that it was made with; without them, those of a device with one queue.
    let shown = std::fs::read_to_string(shown(name).join("tun_flags")).unwrap_or_default();
    let flags =
        shown.trim().strip_prefix("0x").and_then(|digits| i32::from_str_radix(digits, 16).ok());
    let kinds = libc::IFF_TUN | libc::IFF_TAP | libc::IFF_MULTI_QUEUE;
    let flags = flags.map_or(libc::IFF_TUN, |flags| flags & kinds);
    let flags = flags | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let file = open()?;
    sys::set_interface(&file, name, flags).map_err(|error| match error.raw_os_error() {
        // Of another kind, or its flags are not to be seen here.
        Some(libc::EINVAL) => {
            let text = format!("it is no device of a tunnel; ip link del {name} removes any");
            io::Error::new(error.kind(), text)
        }
        _ => error,
    })?;
    sys::set_persist(&file, false)
}

/// Sets the MTU of a device that has the one of before.
pub(crate) fn follow_mtu(name: &str, before: u16, mtu: u16) -> io::Result<()> {
    let any = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    if sys::mtu(&any, name)? == u32::from(before) {
        sys::set_mtu(&any, name, mtu)?;
    }
    Ok(())
}

impl Queue {
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    pub(crate) fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.file).write_vectored(parts)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
