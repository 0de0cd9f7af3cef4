//! A network device whose packets a process reads and writes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;

/// A device (`/dev/net/tun`), which exists as long as it is open. Reads and writes are of one IP
/// packet each, and do not wait.
#[derive(Debug)]
pub(super) struct Device {
    file: File,
}

/// What the system is asked for: a name and flags, in the form of `struct ifreq` of linux/if.h.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

mod ioctl {
    // TUNSETIFF of linux/if_tun.h, which says that its argument is an int, and takes a Request.
    nix::ioctl_readwrite_bad!(
        set_interface,
        nix::request_code_write!(b'T', 202, size_of::<nix::libc::c_int>()),
        super::Request
    );
}

impl Device {
    /// Makes a device in the network namespace of this thread.
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        let mut request = Request { name: [0; libc::IFNAMSIZ], flags, rest: [0; 22] };
        for (to, from) in request.name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
            *to = from;
        }
        // SAFETY: the file is open, and the request is a whole `struct ifreq` (16 + 24 bytes),
        // which TUNSETIFF reads, and into which it writes the name.
        unsafe { ioctl::set_interface(file.as_raw_fd(), &raw mut request) }?;
        Ok(Self { file })
    }

    /// Another handle of the same device.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()? })
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Read for Device {
    fn read(&mut self, packet: &mut [u8]) -> io::Result<usize> {
        self.file.read(packet)
    }
}

impl Write for Device {
    fn write(&mut self, packet: &[u8]) -> io::Result<usize> {
        self.file.write(packet)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
