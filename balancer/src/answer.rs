//! Clients are told of datagrams that are too long for the way to their server: fragmentation needed
//! (RFC 792, RFC 1191) or packet too big (RFC 4443, Section 3.2), as a router on this way would.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, socket,
};
use quicket_gue::{MAX_ICMP, Packet, too_big};

use crate::flows::Flow;
use crate::inner::{Headers, MAX_HEADER, header_len};

/// Errors that a worker sends in a second (RFC 4443, Section 2.4 (f)).
const ERRORS_PER_SECOND: u32 = 100;
/// Octets of GUE, which are in front of the client's packet.
const GUE: usize = 4;

/// What answers.
#[derive(Debug)]
pub(crate) struct Answers {
    /// None where the system does not permit it, or has no IPv6.
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
    allowance: Allowance,
}

/// How many errors may still be sent.
#[derive(Debug)]
struct Allowance {
    second: u32,
    left: u32,
}

impl Allowance {
    fn take(&mut self, now: u32) -> bool {
        if self.second != now {
            *self = Self { second: now, left: ERRORS_PER_SECOND };
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

impl Answers {
    /// Opens sockets, as far as that is permitted: it takes CAP_NET_RAW.
    pub(crate) fn open() -> Self {
        let raw = |family| {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            socket(family, SockType::Raw, flags, SockProtocol::Raw).ok()
        };
        Self {
            v4: raw(AddressFamily::Inet),
            v6: raw(AddressFamily::Inet6),
            allowance: Allowance { second: 0, left: ERRORS_PER_SECOND },
        }
    }

    /// Tells a client that its datagram is longer than `max_payload` octets; says whether it has been
    /// told. `headers` are those of its packets.
    pub(crate) fn too_long(
        &mut self,
        flow: &Flow,
        headers: &Headers,
        payload: &[u8],
        max_payload: usize,
        now: u32,
    ) -> bool {
        let socket = if flow.client.is_ipv4() { &self.v4 } else { &self.v6 };
        let Some(socket) = socket else { return false };
        if !self.allowance.take(now) {
            return false;
        }
        let mut error = [0; MAX_ICMP];
        let len = write(flow, headers, payload, max_payload, &mut error);
        len > 0 && send(socket, flow.client, &error[..len]).is_ok()
    }
}

/// Writes the error with its header of IP, and returns its length; 0 if none may be sent.
fn write(
    flow: &Flow,
    headers: &Headers,
    payload: &[u8],
    max_payload: usize,
    out: &mut [u8; MAX_ICMP],
) -> usize {
    let mut header = [0; MAX_HEADER];
    let len = headers.write(payload, &mut header);
    let packet = [&header[GUE..len], payload].concat();
    let mtu = max_payload + header_len(flow) - GUE;
    let Ok(packet) = Packet::parse(&packet) else { return 0 };
    too_big(&packet, mtu as u16, out).unwrap_or(0)
}

/// Sends a packet with its header of IP.
fn send(socket: &OwnedFd, mut to: SocketAddr, packet: &[u8]) -> io::Result<()> {
    to.set_port(0);
    let to = SockaddrStorage::from(to);
    sendto(socket.as_raw_fd(), packet, &to, MsgFlags::MSG_NOSIGNAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(client: &str, local: &str, payload: usize, max: usize) -> Vec<u8> {
        let flow = Flow { client: client.parse().unwrap(), local: local.parse().unwrap() };
        let headers = Headers::new(&flow, 2, 60);
        let mut out = [0; MAX_ICMP];
        let len = write(&flow, &headers, &vec![7; payload], max, &mut out);
        out[..len].to_vec()
    }

    #[test]
    fn a_client_learns_what_its_packets_may_have() {
        let error = told("198.51.100.7:5000", "192.0.2.1:443", 1441, 1440);
        let packet = Packet::parse(&error).unwrap();
        assert_eq!(packet.source.to_string(), "192.0.2.1", "from the address that it sent to");
        assert_eq!(packet.destination.to_string(), "198.51.100.7");
        let icmp = packet.payload();
        assert_eq!((icmp[..2].to_vec(), &icmp[6..8]), (vec![3, 4], &1468u16.to_be_bytes()[..]));
        assert_eq!(icmp[8 + 20..8 + 24], [0x13, 0x88, 1, 0xbb], "the ports of the datagram");
        let error = told("[2001:db8::7]:5000", "[2001:db8::1]:443", 1441, 1420);
        let packet = Packet::parse(&error).unwrap();
        assert_eq!(
            packet.payload()[..8],
            [2, 0, packet.payload()[2], packet.payload()[3], 0, 0, 5, 188]
        );
        assert_eq!(told("224.0.0.1:5000", "192.0.2.1:443", 1441, 1440), [0; 0], "no group is told");
    }

    #[test]
    fn so_many_a_second_and_no_more() {
        let mut allowance = Allowance { second: 0, left: ERRORS_PER_SECOND };
        let mut taken = |now| (0..1000).filter(|_| allowance.take(now)).count() as u32;
        assert_eq!([taken(0), taken(0), taken(7), taken(8)], [100, 0, 100, 100]);
    }
}
