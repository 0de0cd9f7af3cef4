//! Keys of one direction at one level, found by trying.

use std::collections::VecDeque;

use quicket_engine::crypto::{Aead, CryptoProvider, HeaderKey, OpenJob, PacketKey, Secret};
use quicket_handshake::AwsLcProvider;
use quicket_wire::header::{header_sample, key_phase, unprotect};
use quicket_wire::{ConnectionId, Header, Side, Version, packet_number};

/// Generations of keys that are there at once: the one before, the present one and the next.
const MAX_GENERATIONS: usize = 3;

/// A packet without its protection.
pub(crate) struct Opened {
    pub(crate) number: u64,
    pub(crate) key_phase: bool,
    pub(crate) payload: Vec<u8>,
}

/// Keys of one direction at one level. 1-RTT keys follow key updates (RFC 9001, Section 6).
pub(crate) struct Keys {
    version: Version,
    header: Box<dyn HeaderKey>,
    /// The secret of generation 0, from which all others come.
    first: Secret,
    /// Generations that may be in use, one after the other.
    generations: VecDeque<Generation>,
    /// The latest that was in use.
    generation: u64,
    /// One above the largest packet number.
    expected: u64,
}

/// Keys between two key updates.
struct Generation {
    number: u64,
    key: Box<dyn PacketKey>,
    secret: Secret,
}

impl Generation {
    fn new(number: u64, version: Version, secret: Secret) -> Self {
        Self { number, key: AwsLcProvider.packet_key(version, &secret), secret }
    }
}

impl Keys {
    fn new(version: Version, secret: Secret) -> Self {
        Self {
            version,
            header: AwsLcProvider.header_key(version, &secret),
            generations: VecDeque::from([Generation::new(0, version, secret.clone())]),
            first: secret,
            generation: 0,
            expected: 0,
        }
    }

    /// Those of Initial packets: the client's, and the server's (RFC 9001, Section 5.2).
    pub(crate) fn initial(version: Version, dcid: &ConnectionId) -> [Self; 2] {
        let (server, client) = AwsLcProvider.initial_secrets(version, dcid, Side::Client);
        [Self::new(version, client), Self::new(version, server)]
    }

    /// The candidates for a logged secret: its length says which hash, not which cipher.
    pub(crate) fn candidates(version: Version, secret: &[u8]) -> Vec<Self> {
        Aead::ALL
            .into_iter()
            .filter_map(|aead| Some(Self::new(version, Secret::new(aead, secret)?)))
            .collect()
    }

    pub(crate) const fn aead(&self) -> Aead {
        self.first.aead()
    }

    /// Forgets which packets came, for another look at the same ones.
    pub(crate) fn rewind(&mut self) {
        (self.generation, self.expected) = (0, 0);
        if self.generations.front().is_none_or(|oldest| oldest.number > 0) {
            let first = Generation::new(0, self.version, self.first.clone());
            self.generations = VecDeque::from([first]);
        }
    }

    /// Opens a packet, if these keys do.
    pub(crate) fn open(&mut self, packet: &[u8], header: &Header) -> Option<Opened> {
        let mask = self.header.mask(header_sample(packet, header.pn_offset)?);
        let mut plain = packet.to_vec();
        let (pn_len, truncated) = unprotect(&mut plain, header.pn_offset, mask)?;
        let number = packet_number::decode(truncated, pn_len, self.expected);
        let key_phase = !header.is_long() && key_phase(*plain.first()?);
        let header_len = header.pn_offset + pn_len;
        for generation in self.possible(header.is_long(), key_phase) {
            let mut packet = plain.clone();
            let job = &mut OpenJob { packet_number: number, header_len, packet: &mut packet };
            let keys = self.keys_of(generation)?;
            if let Ok(len) = keys.key.open(job) {
                self.generation = self.generation.max(generation);
                self.expected = self.expected.max(number + 1);
                let payload = packet.get(header_len..header_len + len)?.to_vec();
                return Some(Opened { number, key_phase, payload });
            }
        }
        None
    }

    /// Takes the protection of the header away, of a packet that is not all there.
    pub(crate) fn peek(&mut self, packet: &[u8], header: &Header) -> Option<Opened> {
        let mask = self.header.mask(header_sample(packet, header.pn_offset)?);
        let mut plain = packet.to_vec();
        let (pn_len, truncated) = unprotect(&mut plain, header.pn_offset, mask)?;
        let number = packet_number::decode(truncated, pn_len, self.expected);
        self.expected = self.expected.max(number + 1);
        let key_phase = !header.is_long() && key_phase(*plain.first()?);
        Some(Opened { number, key_phase, payload: Vec::new() })
    }

    /// The generations that a packet may be of: the present one or its neighbours.
    fn possible(&self, is_long: bool, key_phase: bool) -> Vec<u64> {
        let now = self.generation;
        if is_long || (now % 2 == 1) == key_phase {
            return vec![now];
        }
        [Some(now + 1), now.checked_sub(1)].into_iter().flatten().collect()
    }

    /// The keys of a generation that is there, or of the next.
    fn keys_of(&mut self, generation: u64) -> Option<&Generation> {
        while let Some(last) = self.generations.back()
            && last.number < generation
        {
            let next = AwsLcProvider.next_secret(self.version, &last.secret);
            let next = Generation::new(last.number + 1, self.version, next);
            self.generations.push_back(next);
            if self.generations.len() > MAX_GENERATIONS {
                self.generations.pop_front();
            }
        }
        self.generations.iter().find(|keys| keys.number == generation)
    }
}

#[cfg(test)]
mod tests {
    use quicket_engine::crypto::{SealJob, TAG_LEN};
    use quicket_wire::header::protect;

    use super::*;

    /// A packet with a short header and a frame PING.
    fn sealed(secrets: &[Secret], generation: usize, number: u32) -> Vec<u8> {
        let key = AwsLcProvider.packet_key(Version::V1, &secrets[generation]);
        let mut packet = vec![0x43 | ((generation as u8 & 1) << 2)];
        packet.extend(number.to_be_bytes());
        let header_len = packet.len();
        packet.push(1);
        packet.extend([0; TAG_LEN]);
        let packet_number = number.into();
        key.seal(&mut SealJob { packet_number, header_len, packet: &mut packet }).unwrap();
        let header = AwsLcProvider.header_key(Version::V1, &secrets[0]);
        let mask = header.mask(header_sample(&packet, 1).unwrap());
        protect(&mut packet, 1, mask).unwrap();
        packet
    }

    #[test]
    fn key_updates_are_followed_in_bounded_memory_and_once_more() {
        let mut secrets = vec![Secret::new(Aead::Aes128Gcm, &[7; 32]).unwrap()];
        for n in 0..50 {
            secrets.push(AwsLcProvider.next_secret(Version::V1, &secrets[n]));
        }
        let mut keys = Keys::new(Version::V1, secrets[0].clone());
        let open = |keys: &mut Keys, generation, number| {
            let packet = sealed(&secrets, generation, number);
            let opened = keys.open(&packet, &Header::parse(&packet, 0).unwrap());
            assert!(keys.generations.len() <= MAX_GENERATIONS);
            opened.map(|opened| opened.number)
        };
        for _ in 0..2 {
            for generation in 0..50 {
                let number = 10 * generation as u32;
                assert_eq!(open(&mut keys, generation, number + 1), Some(u64::from(number) + 1));
                if let Some(before) = generation.checked_sub(1) {
                    // One that comes late.
                    assert_eq!(open(&mut keys, before, number), Some(u64::from(number)));
                }
                if let Some(long_ago) = generation.checked_sub(2) {
                    assert_eq!(open(&mut keys, long_ago, number), None);
                }
            }
            keys.rewind();
        }
    }
}
