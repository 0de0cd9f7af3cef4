//! What ICMP says of a packet that was sent: errors, which quote it (RFC 792; RFC 4443, Section 3).
//!
//! Nobody vouches for them: whoever can guess the ends of a flow can write one. A stack decides what it believes, as RFC 5927
//! says for TCP, and RFC 9000, Section 14.2.1, for QUIC.

use std::net::IpAddr;

use crate::counters::Reason;
use crate::frame::{self, Ends, is_portless, packet, step_over};
use crate::tuple::{Key, Tuple};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Octets of a header of ICMP.
const HEADER: usize = 8;
/// What both ports of a transport header take.
const PORTS: usize = 4;

/// What has become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody listens on the port.
    Port,
    /// The host or its network cannot be reached, or an administrator forbids it.
    Host,
    /// It was longer than packets may be on the way, in octets (RFC 1191; RFC 8201). 0 is what routers say that do not know.
    TooBig {
        /// The longest that may be there.
        mtu: u32,
    },
    /// Its time to live was over, or that of its fragments.
    TimeExceeded,
    /// Something is wrong with its header.
    Parameter,
}

/// An error of ICMP that has come as a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// Who says so: a router, or the destination.
    pub reporter: IpAddr,
    /// What it means.
    pub failure: Failure,
    /// Type and code, as they are there.
    pub kind: (u8, u8),
    /// From where the packet was.
    pub source: Tuple,
    /// ... and to where.
    pub destination: Tuple,
    /// The beginning of the packet from its transport header on, as far as it is quoted: 8 octets at least with TCP and UDP, if
    /// who quotes keeps to RFC 792.
    pub quoted: &'a [u8],
}

impl<'a> Report<'a> {
    /// Reads a frame, whose lengths and checksums the switch has checked. None if it is no error of ICMP.
    #[must_use]
    pub fn read(frame: &'a [u8]) -> Option<Self> {
        let Message { source, is_v4, octets } = Message::of(frame).ok()?;
        let (head, behind) = octets.split_first_chunk::<HEADER>()?;
        let failure = failure(is_v4, head)?;
        let (ends, quoted) = quoted(is_v4, behind).ok()?;
        Some(Self {
            reporter: source,
            failure,
            kind: (head[0], head[1]),
            source: ends.source.into(),
            destination: ends.destination.into(),
            quoted,
        })
    }
}

/// Checks a frame that may be an error of ICMP, and says which flow it is about: its source is where the packet went that is
/// quoted, as if the answer came from there, and its destination from where that was.
pub(crate) fn check(frame: &[u8]) -> Result<Ends, Reason> {
    let outer = frame::check(frame)?;
    let Message { is_v4, octets, .. } = Message::of(frame)?;
    let (head, behind) = octets.split_first_chunk::<HEADER>().ok_or(Reason::Length)?;
    failure(is_v4, head).ok_or(Reason::Protocol)?;
    let (Ends { source, destination }, _) = quoted(is_v4, behind)?;
    // It goes to who has sent the packet (RFC 1122, Section 3.2.2).
    if outer.destination.address != source.address {
        return Err(Reason::Destination);
    }
    Ok(Ends { source: destination, destination: source })
}

/// A message of ICMP in a frame.
struct Message<'a> {
    source: IpAddr,
    is_v4: bool,
    octets: &'a [u8],
}

impl<'a> Message<'a> {
    fn of(frame: &'a [u8]) -> Result<Self, Reason> {
        let (is_v4, packet) = packet(frame).ok_or(Reason::NotIp)?;
        let half = |at: usize| -> Result<usize, Reason> {
            let octets = packet.get(at..).and_then(|rest| rest.first_chunk());
            octets.map(|octets| u16::from_be_bytes(*octets).into()).ok_or(Reason::Length)
        };
        let (source, protocol, octets): (IpAddr, _, _) = if is_v4 {
            let header = packet.first_chunk::<20>().ok_or(Reason::Length)?;
            let octets = packet.get(usize::from(header[0] & 0xf) * 4..half(2)?);
            let source = [header[12], header[13], header[14], header[15]];
            (source.into(), header[9], octets.ok_or(Reason::Length)?)
        } else {
            let header = packet.first_chunk::<40>().ok_or(Reason::Length)?;
            let rest = packet.get(40..40 + half(4)?).ok_or(Reason::Length)?;
            let (protocol, octets) = step_over(header[6], rest)?;
            let source: [u8; 16] = header[8..24].try_into().map_err(|_| Reason::Length)?;
            (source.into(), protocol, octets)
        };
        if protocol != if is_v4 { ICMP } else { ICMPV6 } {
            return Err(Reason::Protocol);
        }
        Ok(Self { source, is_v4, octets })
    }
}

/// What a message says; none if it is no error, or one that hosts are not to heed (RFC 6633: source quench).
fn failure(is_v4: bool, head: &[u8; HEADER]) -> Option<Failure> {
    let [kind, code, _, _, word @ ..] = *head;
    Some(match (is_v4, kind, code) {
        (true, 3, 3) | (false, 1, 4) => Failure::Port,
        (true, 3, 4) => Failure::TooBig { mtu: u16::from_be_bytes([word[2], word[3]]).into() },
        (true, 3, _) | (false, 1, _) => Failure::Host,
        (false, 2, _) => Failure::TooBig { mtu: u32::from_be_bytes(word) },
        (true, 11, _) | (false, 3, _) => Failure::TimeExceeded,
        (true, 12, _) | (false, 4, _) => Failure::Parameter,
        _ => return None,
    })
}

/// The ends of a packet that is quoted, of which the first octets are there, and what is behind its headers of IP. Its lengths
/// and checksums are not looked at: they are of a packet on its way, that was cut off.
fn quoted(is_v4: bool, packet: &[u8]) -> Result<(Ends, &[u8]), Reason> {
    let (protocol, addresses, rest) = if is_v4 {
        let header = packet.first_chunk::<20>().ok_or(Reason::Length)?;
        let len = usize::from(header[0] & 0xf) * 4;
        if header[0] >> 4 != 4 || len < 20 {
            return Err(Reason::Headers);
        }
        // The first fragment has ports, others have not: a router may have cut a packet that allows it.
        if u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0 {
            return Err(Reason::Fragment);
        }
        let rest = packet.get(len..).ok_or(Reason::Length)?;
        (header[9], &header[12..], rest)
    } else {
        let header = packet.first_chunk::<40>().ok_or(Reason::Length)?;
        if header[0] >> 4 != 6 {
            return Err(Reason::Headers);
        }
        let (protocol, rest) = step_over(header[6], &packet[40..])?;
        (protocol, &packet[8..40], rest)
    };
    let ports = match protocol {
        TCP | UDP => *rest.first_chunk::<PORTS>().ok_or(Reason::Length)?,
        _ if is_portless(protocol) => [0; PORTS],
        _ => return Err(Reason::Protocol),
    };
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let key = |address: &[u8], [high, low]: [u8; 2]| {
        let port = u16::from_be_bytes([high, low]);
        match (<[u8; 4]>::try_from(address), <[u8; 16]>::try_from(address)) {
            (Ok(address), _) => Ok(Key::v4(address, protocol, port)),
            (_, Ok(address)) => Key::v6(address, protocol, port).ok_or(Reason::Address),
            _ => Err(Reason::Length),
        }
    };
    let [s0, s1, d0, d1] = ports;
    Ok((Ends { source: key(source, [s0, s1])?, destination: key(destination, [d0, d1])? }, rest))
}

#[cfg(test)]
#[path = "icmp_tests.rs"]
pub(crate) mod tests;
