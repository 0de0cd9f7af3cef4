//! Keys of one direction at one level, found by trying.

use quicket_engine::crypto::{Aead, CryptoProvider, HeaderKey, OpenJob, PacketKey, Secret};
use quicket_handshake::AwsLcProvider;
use quicket_wire::header::{header_sample, key_phase, unprotect};
use quicket_wire::{ConnectionId, Header, Side, Version, packet_number};

/// A packet without its protection.
pub(super) struct Opened {
    pub(super) number: u64,
    pub(super) key_phase: bool,
    pub(super) payload: Vec<u8>,
}

/// Keys of one direction at one level. 1-RTT keys follow key updates (RFC 9001, Section 6).
pub(super) struct Keys {
    version: Version,
    header: Box<dyn HeaderKey>,
    /// Keys and secret of each generation that was in use, and of the next.
    generations: Vec<(Box<dyn PacketKey>, Secret)>,
    generation: usize,
    /// One above the largest packet number.
    expected: u64,
}

impl Keys {
    fn new(version: Version, secret: Secret) -> Self {
        Self {
            version,
            header: AwsLcProvider.header_key(version, &secret),
            generations: vec![(AwsLcProvider.packet_key(version, &secret), secret)],
            generation: 0,
            expected: 0,
        }
    }

    /// Those of Initial packets: the client's, and the server's (RFC 9001, Section 5.2).
    pub(super) fn initial(version: Version, dcid: &ConnectionId) -> [Self; 2] {
        let (server, client) = AwsLcProvider.initial_secrets(version, dcid, Side::Client);
        [Self::new(version, client), Self::new(version, server)]
    }

    /// The candidates for a logged secret: its length says which hash, not which cipher.
    pub(super) fn candidates(version: Version, secret: &[u8]) -> Vec<Self> {
        Aead::ALL
            .into_iter()
            .filter_map(|aead| Some(Self::new(version, Secret::new(aead, secret)?)))
            .collect()
    }

    pub(super) fn aead(&self) -> Option<Aead> {
        self.generations.first().map(|(_, secret)| secret.aead())
    }

    /// Forgets which packets came, for another look at the same ones.
    pub(super) fn rewind(&mut self) {
        (self.generation, self.expected) = (0, 0);
    }

    /// Opens a packet, if these keys do.
    pub(super) fn open(&mut self, packet: &[u8], header: &Header) -> Option<Opened> {
        let mask = self.header.mask(header_sample(packet, header.pn_offset)?);
        let mut plain = packet.to_vec();
        let (pn_len, truncated) = unprotect(&mut plain, header.pn_offset, mask)?;
        let number = packet_number::decode(truncated, pn_len, self.expected);
        let key_phase = !header.is_long() && key_phase(*plain.first()?);
        let header_len = header.pn_offset + pn_len;
        for generation in self.possible(header.is_long(), key_phase) {
            let mut packet = plain.clone();
            let job = &mut OpenJob { packet_number: number, header_len, packet: &mut packet };
            let (key, _) = self.generation_keys(generation)?;
            if let Ok(len) = key.open(job) {
                self.generation = self.generation.max(generation);
                self.expected = self.expected.max(number + 1);
                let payload = packet.get(header_len..header_len + len)?.to_vec();
                return Some(Opened { number, key_phase, payload });
            }
        }
        None
    }

    /// Takes the protection of the header away, of a packet that is not all there.
    pub(super) fn peek(&mut self, packet: &[u8], header: &Header) -> Option<Opened> {
        let mask = self.header.mask(header_sample(packet, header.pn_offset)?);
        let mut plain = packet.to_vec();
        let (pn_len, truncated) = unprotect(&mut plain, header.pn_offset, mask)?;
        let number = packet_number::decode(truncated, pn_len, self.expected);
        self.expected = self.expected.max(number + 1);
        let key_phase = !header.is_long() && key_phase(*plain.first()?);
        Some(Opened { number, key_phase, payload: Vec::new() })
    }

    /// The generations that a packet may be of: the present one or its neighbours.
    fn possible(&self, is_long: bool, key_phase: bool) -> Vec<usize> {
        let now = self.generation;
        if is_long || (now % 2 == 1) == key_phase {
            return vec![now];
        }
        [Some(now + 1), now.checked_sub(1)].into_iter().flatten().collect()
    }

    fn generation_keys(&mut self, generation: usize) -> Option<&(Box<dyn PacketKey>, Secret)> {
        while self.generations.len() <= generation {
            let (_, secret) = self.generations.last()?;
            let next = AwsLcProvider.next_secret(self.version, secret);
            self.generations.push((AwsLcProvider.packet_key(self.version, &next), next));
        }
        self.generations.get(generation)
    }
}
