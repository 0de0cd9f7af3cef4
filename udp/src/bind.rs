//! Making sockets: address families, shared ports, buffer sizes.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::{UdpOption, UdpSocket};

/// How the UDP socket of an endpoint is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// The kernel's receive buffer, in bytes. What arrives while it is full is lost, so that it
    /// should hold what a path delivers while the process is not scheduled.
    pub receive_buffer: usize,
    /// The kernel's send buffer, in bytes.
    pub send_buffer: usize,
    /// Lets other sockets share the port (SO_REUSEPORT); all of them must set it. The kernel
    /// spreads incoming packets over them by address.
    pub reuse_port: bool,
    /// An IPv6 socket takes no IPv4 packets. When off, a socket bound to `[::]` serves both.
    pub only_v6: bool,
    /// Hands the kernel up to 64 datagrams in one call (UDP GSO), if it can.
    pub segmentation_offload: bool,
    /// Has the kernel choose by connection ID among the sockets of an endpoint with several
    /// workers, with a classic BPF program that takes no privileges
    /// (SO_ATTACH_REUSEPORT_CBPF); behind the switch, also among programs. Where it cannot, when off, with `reuse_port`, and for a socket
    /// that was bound elsewhere it chooses by address, and workers hand each other what is not
    /// theirs.
    pub route_by_connection_id: bool,
    /// Within which time answers should come for a thread that waits in a blocking call for data
    /// or a stream to ask the socket again and again instead of sleeping; zero: never. For a
    /// request and its answer on a fast network that takes half the time. 50 µs at first. It is
    /// tried for up to four times as long, ever more rarely while it is in vain.
    pub busy_poll: Duration,
    /// Further options, set before the socket is bound.
    pub options: Vec<UdpOption>,
    /// The local socket of a switch for packets (`quicket switch packets`): datagrams go through a port there, as whole
    /// frames in shared memory, instead of through the kernel. Endpoints know this. The address is one of this host and not all of
    /// them, and nobody shares it: there is one worker, and neither `reuse_port` nor `options`. The rings have the
    /// sizes of the buffers, rounded up to a power of two from 128 KiB to 8 MiB. Peers are programs with ports at the same
    /// switch, and hosts that its network devices lead to.
    pub port_of: Option<PathBuf>,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            receive_buffer: 4 << 20,
            send_buffer: 4 << 20,
            reuse_port: false,
            only_v6: false,
            segmentation_offload: true,
            route_by_connection_id: true,
            busy_poll: Duration::from_micros(50),
            options: Vec::new(),
            port_of: None,
        }
    }
}

/// A socket could not be made or bound: the fault of the environment or the address.
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

impl BindError {
    /// The address that was asked for.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the operating system said.
    pub const fn io_error(&self) -> &io::Error {
        &self.source
    }

    /// The same, for who has no use for the address.
    pub fn into_io_error(self) -> io::Error {
        self.source
    }

    /// Whether the system keeps the port to those who may have low ones (CAP_NET_BIND_SERVICE). An error without a
    /// number has words of its own and is not the system's: it is the switch's, or of the way to it.
    pub fn is_low_port(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
            && (1..1024).contains(&self.address.port())
            && self.source.raw_os_error().is_some()
    }

    /// What the operating system said of an address.
    pub const fn new(address: SocketAddr, source: io::Error) -> Self {
        Self { address, source }
    }
}

/// In words, for it is what a `main` that returns the error shows.
impl fmt::Debug for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} (BindError)")
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot bind UDP socket to {}: {}", self.address, self.source)?;
        match self.source.kind() {
            io::ErrorKind::AddrInUse => f.write_str(
                "; choose another port, or set reuse_port on every socket that shares it",
            ),
            io::ErrorKind::AddrNotAvailable => {
                f.write_str("; no interface of this host has the address")
            }
            _ if self.is_low_port() => f.write_str(
                "; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE",
            ),
            _ => match self.source.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EAFNOSUPPORT) => {
                    f.write_str("; this host has no support for the address family")
                }
                Some(Errno::EMFILE) => f.write_str(
                    "; the process has as many files open as it may: close some, or raise the \
                     limit (ulimit -n, LimitNOFILE= of a service)",
                ),
                Some(Errno::ENFILE) => f.write_str(
                    "; the host has as many files open as it may: raise the limit with sysctl -w \
                     fs.file-max=…",
                ),
                Some(Errno::ENOBUFS | Errno::ENOMEM) => {
                    f.write_str("; the kernel has no memory left for sockets")
                }
                _ => Ok(()),
            },
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<BindError> for io::Error {
    fn from(error: BindError) -> Self {
        Self::new(error.source.kind(), error)
    }
}

impl UdpSocket {
    /// Makes a socket and binds it.
    ///
    /// # Errors
    ///
    /// When the address cannot be had, or the system refuses an option.
    pub fn bind(address: SocketAddr, config: &UdpConfig) -> Result<Self, BindError> {
        let bind = || -> io::Result<Self> {
            let socket =
                Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
            if address.is_ipv6() {
                socket.set_only_v6(config.only_v6)?;
            }
            if config.reuse_port {
                socket.set_reuse_port(true)?;
            }
            for option in &config.options {
                option.set(SockRef::from(&socket))?;
            }
            socket.bind(&address.into())?;
            size_buffers(&socket, config)?;
            Self::new(socket.into())
        };
        bind().map_err(|source| BindError { address, source })
    }

    /// Takes a socket that is bound already.
    ///
    /// # Errors
    ///
    /// When the system refuses an option.
    pub fn adopt(io: std::net::UdpSocket, config: &UdpConfig) -> io::Result<Self> {
        for option in &config.options {
            option.set(SockRef::from(&io))?;
        }
        size_buffers(&SockRef::from(&io), config)?;
        Self::new(io)
    }
}

/// Makes one more socket at the address of another, which shares its port: with the same options and as
/// large buffers.
///
/// # Errors
///
/// When the address cannot be shared, such as with a socket of another user, or this process may not set
/// an option that the other one has.
pub fn twin(of: &impl AsFd) -> io::Result<std::net::UdpSocket> {
    let of = SockRef::from(of);
    let (bound, domain) = (of.local_addr()?, of.domain()?);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(of.only_v6()?)?;
    }
    socket.set_recv_buffer_size(granted(of.recv_buffer_size()?))?;
    socket.set_send_buffer_size(granted(of.send_buffer_size()?))?;
    UdpOption::copy_all(SockRef::from(&*of), SockRef::from(&socket))?;
    socket.set_reuse_port(true)?;
    socket.bind(&bound)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Asks for the configured buffers and says so once when the kernel grants less.
fn size_buffers(socket: &Socket, config: &UdpConfig) -> io::Result<()> {
    static RECEIVE_WARNED: AtomicBool = AtomicBool::new(false);
    static SEND_WARNED: AtomicBool = AtomicBool::new(false);
    socket.set_recv_buffer_size(config.receive_buffer)?;
    socket.set_send_buffer_size(config.send_buffer)?;
    let receive = granted(socket.recv_buffer_size()?);
    if let Some(warning) = shortfall("receive", "net.core.rmem_max", receive, config.receive_buffer)
        && !RECEIVE_WARNED.swap(true, Ordering::Relaxed)
    {
        log::warn!("{warning}");
    }
    let send = granted(socket.send_buffer_size()?);
    if let Some(warning) = shortfall("send", "net.core.wmem_max", send, config.send_buffer)
        && !SEND_WARNED.swap(true, Ordering::Relaxed)
    {
        log::warn!("{warning}");
    }
    Ok(())
}

/// What the kernel granted of what was asked: Linux reports twice that, for its bookkeeping.
const fn granted(reported: usize) -> usize {
    if cfg!(target_os = "linux") { reported / 2 } else { reported }
}

/// What to tell the administrator when a buffer is smaller than asked.
fn shortfall(which: &str, sysctl: &str, granted: usize, wanted: usize) -> Option<String> {
    (granted < wanted).then(|| {
        format!(
            "the UDP {which} buffer has {granted} bytes instead of {wanted}, bursts may be lost; \
             allow more with: sysctl -w {sysctl}={wanted}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_says_what_to_do() {
        let config = UdpConfig::default();
        let first = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config).unwrap();
        let error = UdpSocket::bind(first.local_addr(), &config).unwrap_err();
        assert_eq!(error.io_error().kind(), io::ErrorKind::AddrInUse);
        let text = error.to_string();
        assert!(text.contains("another port") && text.contains("reuse_port"), "{text}");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_foreign_address_says_so() {
        let error =
            UdpSocket::bind("192.0.2.1:0".parse().unwrap(), &UdpConfig::default()).unwrap_err();
        assert!(error.to_string().contains("no interface of this host"), "{error}");
    }

    #[test]
    fn a_port_can_be_shared_on_request() {
        let config = UdpConfig { reuse_port: true, ..UdpConfig::default() };
        let first = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config).unwrap();
        let second = UdpSocket::bind(first.local_addr(), &config).unwrap();
        assert_eq!(first.local_addr(), second.local_addr());
    }

    #[test]
    fn a_small_buffer_names_the_setting_and_the_value() {
        let text = shortfall("receive", "net.core.rmem_max", 212_992, 4 << 20).unwrap();
        assert!(text.contains("sysctl -w net.core.rmem_max=4194304"), "{text}");
        assert_eq!(shortfall("send", "net.core.wmem_max", 10, 10), None);
    }
}
