//! First packets of clients over QUIC: which server name do they ask for?

use std::net::SocketAddr;
use std::time::Instant;

use quicket::{Arrived, HeldDatagram};
use quicket_engine::time::Time;
use quicket_handshake::AwsLcProvider;
use quicket_switch::FirstPackets;
use quicket_switch::first_packet::{Knock, Reading, Unread};
use quicket_switch::registry::AddressId;
use quicket_wire::{ClientHello, ConnectionId, PacketKind, Version};

/// What came of reading a first packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// All of the ClientHello is here: the name that it asks for, and what was held before this datagram.
    Name { name: Option<String>, held: Vec<HeldDatagram> },
    /// The datagram is held until the rest is here.
    Held,
    /// Its packets cannot be opened with keys of its own connection ID: it begins nothing.
    Later,
    /// It is no first packet that anybody could read: the gateway does with it what it does with all of them.
    Unreadable,
    /// It is dropped, for this reason.
    Dropped(&'static str),
}

/// All that are half-read, of all addresses and workers.
#[derive(Debug)]
pub(super) struct Hellos {
    first: FirstPackets,
    began: Instant,
}

impl Hellos {
    pub(super) fn new(secret: [u8; 8]) -> Self {
        Self { first: FirstPackets::new(secret), began: Instant::now() }
    }

    /// How many datagrams were held and lost.
    pub(super) const fn lost(&self) -> u64 {
        self.first.lost()
    }

    /// Reads a first packet, or one of 0-RTT, which may overtake it.
    pub(super) fn read(
        &mut self,
        arrived: &Arrived<'_>,
        kind: PacketKind,
        version: Version,
        dcid: ConnectionId,
    ) -> Read {
        let Arrived { remote, local, ecn, bytes, .. } = *arrived;
        let since = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = Time::from_nanos(since);
        let address = AddressId::ONLY;
        let knock = Knock { address, version, dcid, remote, local, ecn, bytes };
        let reading = match kind {
            PacketKind::ZeroRtt => self.first.hold_early(now, &knock),
            _ => self.first.read(&AwsLcProvider, now, &knock),
        };
        match reading {
            Reading::Whole { message, held } => match ClientHello::parse(&message) {
                // The outer name, if the inner one is encrypted.
                Ok(hello) => Read::Name { name: hello.server_name().map(ToOwned::to_owned), held },
                Err(_) => Read::Unreadable,
            },
            Reading::More => Read::Held,
            Reading::Dropped(Unread::Undecryptable) => Read::Later,
            Reading::Dropped(Unread::Malformed | Unread::NoClientHello) => Read::Unreadable,
            Reading::Dropped(Unread::TooLarge) => Read::Dropped("a ClientHello that is too large"),
            Reading::Dropped(Unread::Duplicate) => Read::Dropped("a first packet that came twice"),
            Reading::Dropped(Unread::Rate) => Read::Dropped("first packets come too fast"),
        }
    }
}

/// What an origin's datagram says of its connection ID: the Source Connection ID of a long header.
pub(super) fn source_id(datagram: &[u8]) -> Option<ConnectionId> {
    if datagram.first()? & 0x80 == 0 {
        return None;
    }
    let header = quicket_wire::InvariantHeader::parse(datagram).ok()?;
    // Version Negotiation repeats what the client has chosen (RFC 8999, Section 6). A Retry has one of the origin's.
    if header.kind() == PacketKind::VersionNegotiation {
        return None;
    }
    ConnectionId::new(header.scid)
}

/// An address of the same kind, with a port that the system chooses.
pub(super) fn any_port(like: SocketAddr) -> SocketAddr {
    use std::net::{Ipv4Addr, Ipv6Addr};
    match like {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_origin_has_chosen_is_its_connection_id() {
        let long = |version: u8| [0xc0, 0, 0, 0, version, 2, 1, 1, 3, 7, 8, 9, 0, 0, 0, 1];
        assert_eq!(source_id(&long(1)), ConnectionId::new(&[7, 8, 9]));
        assert_eq!(source_id(&long(0)), None, "Version Negotiation");
        assert_eq!(source_id(&[0x40; 30]), None, "a short header");
        assert_eq!(source_id(&[]), None);
    }
}
