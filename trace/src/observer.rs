//! Takes datagrams apart.

use quicket_engine::crypto::Aead;
use quicket_wire::{Header, PacketKind, RetryPacket};

use crate::connection::Connection;
use crate::headers::Datagram;
use crate::key_log::KeyLog;
use crate::keys::Keys;
use crate::{Content, Packet};

/// Connections that an observer follows, unless it is told another number.
pub const MAX_CONNECTIONS: usize = 4096;

/// Takes datagrams apart, and follows the connections that they are of.
pub struct Observer {
    log: KeyLog,
    connections: Vec<Connection>,
    most: usize,
    beyond: u64,
}

impl Observer {
    /// One that opens what the secrets of a log open.
    #[must_use]
    pub const fn new(log: KeyLog) -> Self {
        Self { log, connections: Vec::new(), most: MAX_CONNECTIONS, beyond: 0 }
    }

    /// Follows so many connections at most; packets of others are not opened.
    #[must_use]
    pub const fn most(mut self, connections: usize) -> Self {
        self.most = connections;
        self
    }

    /// Packets that would have begun a connection beyond the most that are followed.
    #[must_use]
    pub const fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Forgets which packets came, and not what they have told of keys and connection IDs: for another look at the same
    /// datagrams, as what tells may come later than what needs it.
    pub fn rewind(&mut self) {
        self.connections.iter_mut().for_each(Connection::rewind);
        self.beyond = 0;
    }

    /// The cipher of each connection, in the order in which they began.
    pub fn ciphers(&self) -> impl Iterator<Item = Option<Aead>> {
        self.connections.iter().map(|connection| connection.aead)
    }

    /// Whether a datagram to a server, or from one, is of a connection that is known, as far as its first packet's
    /// connection ID tells.
    #[must_use]
    pub fn knows(&self, from_client: bool, payload: &[u8]) -> bool {
        if payload.first().is_none_or(|first| first & 0x80 == 0) {
            return self
                .connections
                .iter()
                .any(|one| one.short_dcid_len(from_client, payload).is_some_and(|len| len > 0));
        }
        let header = Header::parse(payload, 0);
        header.is_ok_and(|header| {
            self.connections.iter().any(|one| one.may_own(from_client, &header.dcid))
        })
    }

    /// Takes a datagram apart: its packets, until one that is of no connection.
    pub fn datagram(
        &mut self,
        datagram: &Datagram,
        from_client: bool,
        mut on_packet: impl FnMut(Packet),
    ) {
        let mut rest = datagram.payload.as_slice();
        let mut datagram_len = datagram.len;
        while let Some(mut packet) = self.packet(datagram, from_client, &mut rest) {
            packet.datagram_len = std::mem::take(&mut datagram_len);
            on_packet(packet);
        }
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
            PacketKind::Retry => RetryPacket::parse(packet, &header)
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
            if self.connections.len() < self.most {
                self.connections.push(Connection::started(header));
            } else {
                self.beyond += 1;
            }
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

impl std::fmt::Debug for Observer {
    /// Secrets are not shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer")
            .field("connections", &self.connections.len())
            .field("beyond", &self.beyond)
            .finish_non_exhaustive()
    }
}

/// True if a datagram begins a connection: its first packet is an Initial one that opens with the keys that its own
/// Destination Connection ID gives to clients (RFC 9001, Section 5.2).
#[must_use]
pub fn is_first_of_client(payload: &[u8]) -> bool {
    let Ok(header) = Header::parse(payload, 0) else { return false };
    if header.kind != PacketKind::Initial || !header.version.is_supported() {
        return false;
    }
    let [mut client, _] = Keys::initial(header.version, &header.dcid);
    payload.get(..header.end).is_some_and(|packet| client.open(packet, &header).is_some())
}
