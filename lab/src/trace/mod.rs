//! All that was on the wire, in memory.

pub(crate) mod pcap;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use quicket_engine::crypto::Aead;
use quicket_trace::{KeyLog, Observer};
use quicket_wire::{Frame, PacketKind};

#[cfg(test)]
pub(crate) use quicket_trace::Content;
pub(crate) use quicket_trace::{CryptoData, Datagram, Packet, tls};

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
        let mut log = KeyLog::default();
        log.add(key_log);
        let mut observer = Observer::new(log);
        // What tells of keys and connection IDs may come later than what needs it.
        Self::look(&mut observer, datagrams, servers);
        observer.rewind();
        let mut trace = Self::look(&mut observer, datagrams, servers);
        trace.ciphers = observer.ciphers().collect();
        trace
    }

    fn look(observer: &mut Observer, datagrams: &[Datagram], servers: &[SocketAddr]) -> Self {
        let mut trace = Self::default();
        for datagram in datagrams {
            let from_client = servers.contains(&datagram.to);
            let before = trace.packets.len();
            observer.datagram(datagram, from_client, |packet| trace.packets.push(packet));
            if trace.packets.len() == before
                && let Some(&tail) = datagram.payload.last_chunk()
            {
                trace.strays.push(Stray { at: datagram.at, from_client, tail });
            }
        }
        trace
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
        data.contiguous().to_vec()
    }
}
