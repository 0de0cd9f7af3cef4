//! What was on the wire: captured datagrams taken apart into packets, and decrypted with the
//! secrets that the ends have logged.

mod connection;
mod key_log;
mod keys;
pub(crate) mod pcap;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use quicket_engine::crypto::Aead;
use quicket_wire::frame::Frames;
use quicket_wire::{ConnectionId, EcnCodepoint, Frame, Header, PacketKind, Version};

use connection::Connection;
pub(crate) use connection::CryptoData;
use key_log::{ClientRandom, Secrets};
use pcap::Datagram;

/// A QUIC packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// When it was seen, since 1970.
    pub(crate) at: Duration,
    pub(crate) from_client: bool,
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) ecn: EcnCodepoint,
    /// Bytes of UDP payload of the datagram, counted with its first packet.
    pub(crate) datagram_len: usize,
    /// Bytes of the packet itself.
    pub(crate) len: usize,
    pub(crate) kind: PacketKind,
    pub(crate) version: Version,
    pub(crate) dcid: ConnectionId,
    pub(crate) scid: ConnectionId,
    /// The token of an Initial or Retry packet.
    pub(crate) token: Vec<u8>,
    /// What it holds, if it could be opened.
    pub(crate) content: Option<Content>,
}

/// What a packet holds.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    /// Which connection, in the order in which they began.
    pub(crate) connection: usize,
    pub(crate) number: u64,
    pub(crate) key_phase: bool,
    pub(crate) payload: Vec<u8>,
}

impl Content {
    fn of(connection: usize, opened: keys::Opened) -> Self {
        let keys::Opened { number, key_phase, payload } = opened;
        Self { connection, number, key_phase, payload }
    }
}

impl Packet {
    /// Its frames, up to the first that is not known.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        let payload = self.content.as_ref().map_or(&[][..], |content| &content.payload);
        Frames::new(payload).map_while(Result::ok)
    }
}

/// All that was seen at one place.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) packets: Vec<Packet>,
    /// The cipher of each connection.
    pub(crate) ciphers: Vec<Option<Aead>>,
    /// Datagrams that are of no connection.
    pub(crate) strays: Vec<Stray>,
}

/// A datagram that is of no connection, as a stateless reset seems to be (RFC 9000, Section 10.3).
#[derive(Clone, Debug)]
pub(crate) struct Stray {
    /// When it was seen, since 1970.
    pub(crate) at: Duration,
    pub(crate) from_client: bool,
    /// Its last bytes.
    pub(crate) tail: [u8; 16],
}

impl Trace {
    /// Takes `datagrams` apart, of which those to one of `servers` are from clients.
    pub(crate) fn new(datagrams: &[Datagram], servers: &[SocketAddr], key_log: &str) -> Self {
        let mut observer = Observer { log: key_log::parse(key_log), ..Observer::default() };
        // What tells of keys and connection IDs may come later than what needs it.
        observer.packets(datagrams, servers);
        observer.connections.iter_mut().for_each(Connection::rewind);
        observer.strays.clear();
        let packets = observer.packets(datagrams, servers);
        let ciphers = observer.connections.iter().map(|connection| connection.aead).collect();
        Self { packets, ciphers, strays: observer.strays }
    }

    /// The packets of a kind from one end.
    pub(crate) fn of(&self, kind: PacketKind, from_client: bool) -> impl Iterator<Item = &Packet> {
        self.packets
            .iter()
            .filter(move |packet| packet.kind == kind && packet.from_client == from_client)
    }

    /// What the TLS messages of a connection say, at one level and from one end.
    pub(crate) fn crypto(&self, connection: usize, kind: PacketKind, from_client: bool) -> Vec<u8> {
        let mut data = CryptoData::default();
        for packet in self.of(kind, from_client) {
            if packet.content.as_ref().is_some_and(|content| content.connection == connection) {
                for frame in packet.frames() {
                    if let Frame::Crypto(crypto) = frame {
                        data.add(crypto.offset, crypto.data);
                    }
                }
            }
        }
        data.contiguous()
    }
}

/// Takes datagrams apart.
#[derive(Default)]
struct Observer {
    log: HashMap<ClientRandom, Secrets>,
    connections: Vec<Connection>,
    strays: Vec<Stray>,
}

impl Observer {
    fn packets(&mut self, datagrams: &[Datagram], servers: &[SocketAddr]) -> Vec<Packet> {
        let mut packets = Vec::new();
        for datagram in datagrams {
            let from_client = servers.contains(&datagram.to);
            let mut rest = datagram.payload.as_slice();
            let mut datagram_len = datagram.len;
            while let Some(mut packet) = self.packet(datagram, from_client, &mut rest) {
                packet.datagram_len = std::mem::take(&mut datagram_len);
                packets.push(packet);
            }
            // Nothing was taken from it.
            if rest.len() == datagram.payload.len()
                && let Some(&tail) = rest.last_chunk()
            {
                self.strays.push(Stray { at: datagram.at, from_client, tail });
            }
        }
        packets
    }

    /// Takes the next packet from the front of `rest`.
    fn packet(
        &mut self,
        datagram: &Datagram,
        from_client: bool,
        rest: &mut &[u8],
    ) -> Option<Packet> {
        let bytes = *rest;
        let (header, content) = if bytes.first()? & 0x80 == 0 {
            self.short(bytes, from_client, datagram.payload.len() == datagram.len)?
        } else {
            let header = Header::parse(bytes, 0).ok()?;
            let content = self.long(bytes.get(..header.end)?, &header, from_client);
            (header, content)
        };
        let (packet, later) = bytes.split_at_checked(header.end)?;
        *rest = later;
        let token = match header.kind {
            PacketKind::Initial => packet.get(header.token.clone())?.to_vec(),
            PacketKind::Retry => quicket_wire::RetryPacket::parse(packet, &header)
                .map_or_else(|_| Vec::new(), |retry| retry.token.to_vec()),
            _ => Vec::new(),
        };
        let (client, server) =
            if from_client { (datagram.from, datagram.to) } else { (datagram.to, datagram.from) };
        Some(Packet {
            at: datagram.at,
            from_client,
            client,
            server,
            ecn: datagram.ecn,
            datagram_len: 0,
            len: packet.len(),
            kind: header.kind,
            version: header.version,
            dcid: header.dcid,
            scid: header.scid,
            token,
            content,
        })
    }

    fn long(&mut self, packet: &[u8], header: &Header, from_client: bool) -> Option<Content> {
        let known = |one: &Connection| one.may_own(from_client, &header.dcid);
        let starts = from_client && header.kind == PacketKind::Initial;
        if starts && header.version.is_supported() && !self.connections.iter().any(known) {
            self.connections.push(Connection::started(header));
        }
        if header.kind == PacketKind::Retry {
            for connection in self.connections.iter_mut().filter(|one| known(one)) {
                connection.retried(header);
                connection.keys_are_stale();
            }
            return None;
        }
        if !header.kind.carries_frames() {
            return None;
        }
        self.open(packet, header, from_client, known)
    }

    fn short(
        &mut self,
        packet: &[u8],
        from_client: bool,
        is_whole: bool,
    ) -> Option<(Header, Option<Content>)> {
        let mut lengths: Vec<usize> = self
            .connections
            .iter()
            .filter_map(|one| one.short_dcid_len(from_client, packet))
            .collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut unopened = None;
        for &length in lengths.iter().rev() {
            let header = Header::parse(packet, length).ok()?;
            let known = |one: &Connection| one.short_dcid_len(from_client, packet) == Some(length);
            let content = if is_whole {
                self.open(packet, &header, from_client, known)
            } else {
                self.peek(packet, &header, from_client, known)
            };
            if content.is_some() {
                return Some((header, content));
            }
            unopened = Some((header, None));
        }
        unopened
    }

    /// Looks at the header of a packet that is not all there.
    fn peek(
        &mut self,
        packet: &[u8],
        header: &Header,
        from_client: bool,
        known: impl Fn(&Connection) -> bool,
    ) -> Option<Content> {
        let mut connections = self.connections.iter_mut().enumerate().rev();
        connections.find_map(|(number, connection)| {
            let opened = known(connection).then(|| connection.peek(from_client, packet, header))?;
            Some(Content::of(number, opened?))
        })
    }

    /// Tries the latest connection first: the earlier ones may have ended.
    fn open(
        &mut self,
        packet: &[u8],
        header: &Header,
        from_client: bool,
        known: impl Fn(&Connection) -> bool,
    ) -> Option<Content> {
        for (number, connection) in self.connections.iter_mut().enumerate().rev() {
            if known(connection)
                && let Some(opened) = connection.open(from_client, packet, header, &self.log)
            {
                return Some(Content::of(number, opened));
            }
        }
        None
    }
}
