//! What ICMP says of datagrams that were sent: the socket's error queue.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};

use crate::address::canonical;
use crate::{Port, UdpSocket};

/// How much of the datagram is looked at: its header.
const QUOTED: usize = 64;
/// Room for the error, and for what else the kernel tells of a datagram.
const CONTROL: usize = 512;
/// How many messages are taken in one turn.
const MESSAGES_PER_TURN: usize = 64;

/// ICMP's types and codes that count (RFC 792, RFC 4443, RFC 1122, Section 3.2.2.1). What concerns
/// the MTU is left to probes (RFC 8899): they need nobody's word.
const V4_UNREACHABLE: u8 = 3;
const V4_PORT: u8 = 3;
const V4_TOO_BIG: u8 = 4;
const V6_UNREACHABLE: u8 = 1;
const V6_PORT: u8 = 4;

/// Why a datagram did not reach its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Nobody listens on the port.
    Port,
    /// The host or its network cannot be reached, or it is prohibited.
    Host,
}

/// What became of a datagram.
#[derive(Debug)]
pub struct Undelivered<'a> {
    /// Where it was sent. The kernel, or the switch, has made sure that it was from this socket's port.
    pub remote: SocketAddr,
    /// What ICMP says.
    pub what: Unreachable,
    /// Its beginning, as far as the message has it.
    pub quoted: &'a [u8],
}

/// Whether the kernel keeps ICMP messages, and whether there may be some.
#[derive(Debug, Default)]
pub(crate) struct Icmp {
    is_kept: AtomicBool,
    has_come: AtomicBool,
}

impl Icmp {
    /// A call has failed. Returns whether that may be what ICMP says of an earlier send: Linux reports it once, on
    /// the next call, which is not made then. It may concern anybody, and what the call was for is unharmed.
    pub(crate) fn explains(&self, error: &io::Error) -> bool {
        use io::ErrorKind::{
            ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable,
            WouldBlock,
        };
        let explains = match error.kind() {
            ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable => true,
            WouldBlock | Interrupted => false,
            // Some codes are told as errors that otherwise mean something else, such as EACCES.
            _ => self.is_kept.load(Ordering::Relaxed),
        };
        if explains {
            self.has_come.store(true, Ordering::Relaxed);
        }
        explains
    }
}

impl UdpSocket {
    /// Returns whether ICMP messages may have come since it was asked last: a call has failed, or somebody has
    /// [said so](Self::note_error). While there are none, the queue need not be looked at.
    pub fn may_have_errors(&self) -> bool {
        if self.port.as_deref().is_some_and(Port::has_errors) {
            return true;
        }
        let has_come = &self.icmp.has_come;
        has_come.load(Ordering::Relaxed) && has_come.swap(false, Ordering::Relaxed)
    }

    /// A poll has found an error.
    pub fn note_error(&self) {
        self.icmp.has_come.store(true, Ordering::Relaxed);
    }

    /// Has the kernel keep ICMP messages, or the port by which datagrams come, or not; those that were not taken are forgotten then.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn keep_errors(&self, on: bool) -> io::Result<()> {
        if let Some(port) = &self.port {
            port.keep_errors(on);
            return Ok(());
        }
        self.icmp.is_kept.store(on, Ordering::Relaxed);
        if self.is_v6 {
            setsockopt(&self.io, sockopt::Ipv6RecvErr, &on)?;
        }
        // A socket for both families gets those of both; one for IPv6 alone may refuse.
        match setsockopt(&self.io, sockopt::Ipv4RecvErr, &on) {
            Err(error) if !self.is_v6 => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Takes the messages that are there, a bounded number of them.
    ///
    /// # Errors
    ///
    /// When the queue cannot be read.
    pub fn take_errors(&self, mut each: impl FnMut(Undelivered<'_>)) -> io::Result<()> {
        if let Some(port) = &self.port {
            port.take_errors(&mut each);
            return Ok(());
        }
        // On the heap, where it is aligned as control messages must be.
        let mut control = vec![0; CONTROL];
        for _ in 0..MESSAGES_PER_TURN {
            let mut quoted = [0; QUOTED];
            let mut parts = [IoSliceMut::new(&mut quoted)];
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let fd = self.io.as_raw_fd();
            let taken =
                recvmsg::<SockaddrStorage>(fd, &mut parts, Some(control.as_mut_slice()), flags);
            let (remote, what, len) = match taken {
                Ok(message) => {
                    let what = message.cmsgs().ok().and_then(|mut all| {
                        all.find_map(|control| match control {
                            ControlMessageOwned::Ipv4RecvErr(error, _)
                            | ControlMessageOwned::Ipv6RecvErr(error, _) => meaning(&error),
                            _ => None,
                        })
                    });
                    (message.address.as_ref().and_then(socket_addr), what, message.bytes)
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if let (Some(remote), Some(what)) = (remote, what) {
                let quoted = quoted.get(..len).unwrap_or_default();
                each(Undelivered { remote: canonical(remote), what, quoted });
            }
        }
        Ok(())
    }
}

fn socket_addr(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

/// What an error means for who sent the datagram; `None` if nothing.
fn meaning(error: &libc::sock_extended_err) -> Option<Unreachable> {
    match (error.ee_origin, error.ee_type, error.ee_code) {
        (libc::SO_EE_ORIGIN_ICMP, V4_UNREACHABLE, V4_PORT)
        | (libc::SO_EE_ORIGIN_ICMP6, V6_UNREACHABLE, V6_PORT) => Some(Unreachable::Port),
        (libc::SO_EE_ORIGIN_ICMP, V4_UNREACHABLE, V4_TOO_BIG) => None,
        (libc::SO_EE_ORIGIN_ICMP, V4_UNREACHABLE, _)
        | (libc::SO_EE_ORIGIN_ICMP6, V6_UNREACHABLE, _) => Some(Unreachable::Host),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::UdpConfig;

    #[test]
    fn a_call_tells_that_there_is_something_to_take() {
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpConfig::default());
        let (socket, closed) = (socket.unwrap(), closed_port("127.0.0.1"));
        let mut buffers = crate::ReceiveBuffers::new();
        let mut receive = || match socket.receive(&mut buffers) {
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            Ok(_) => panic!("nothing was sent"),
        };
        receive();
        assert!(!socket.may_have_errors());
        socket.keep_errors(true).unwrap();
        // On loopback the answer is there when the call returns.
        socket.io.send_to(b"hello", closed).unwrap();
        receive();
        assert!(socket.may_have_errors());
        assert!(!socket.may_have_errors(), "it is told once");
        let mut taken = 0;
        socket.take_errors(|error| taken += u32::from(error.remote == closed)).unwrap();
        assert_eq!(taken, 1);
    }

    fn closed_port(ip: &str) -> SocketAddr {
        let ip: std::net::IpAddr = ip.parse().unwrap();
        std::net::UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap()
    }

    #[test]
    fn a_closed_port_is_told_with_the_datagram_that_found_it() {
        for (bound, target) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")]
        {
            let socket = UdpSocket::bind(bound.parse().unwrap(), &UdpConfig::default()).unwrap();
            let target = closed_port(target);
            let send =
                || socket.io.send_to(b"hello", crate::address::for_socket(target, socket.is_v6));
            send().unwrap();
            socket.take_errors(|error| panic!("{error:?} was not asked for")).unwrap();
            socket.keep_errors(true).unwrap();
            // The first may be refused for what the one before has met.
            send().or_else(|_| send()).unwrap();
            let mut seen = Vec::new();
            let start = Instant::now();
            while seen.is_empty() && start.elapsed() < Duration::from_secs(20) {
                socket
                    .take_errors(|error| {
                        seen.push((error.remote, error.what, error.quoted.to_vec()));
                    })
                    .unwrap();
            }
            assert_eq!(seen, [(target, Unreachable::Port, b"hello".to_vec())], "{bound}");
            socket.keep_errors(false).unwrap();
        }
    }
}
