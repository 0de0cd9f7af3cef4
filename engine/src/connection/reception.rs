//! What has come and waits: packets for their keys or the cipher, handshake data for TLS.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use quicket_wire::Header;

use super::receive::{Arrival, Opened};

/// How many packets may wait for keys (RFC 9001, Section 5.7 permits; the bound is ours).
const MAX_WAITING: usize = 32;
/// ... and how many bytes of those without keys: nobody has proved yet to be the peer.
const MAX_WAITING_BYTES: usize = 64 << 10;

/// A packet that cannot be opened yet: its keys are missing or the cipher is busy.
pub(super) struct WaitingPacket {
    pub(super) arrival: Arrival,
    pub(super) header: Header,
    pub(super) bare: Option<Opened>,
    pub(super) data: Vec<u8>,
}

/// What waits, and which packets are taken at all.
pub(super) struct Reception {
    /// Oldest first.
    waiting: VecDeque<WaitingPacket>,
    /// Try the packets that wait: keys came, or the cipher may be done.
    retry: bool,
    /// CRYPTO data came that TLS has not seen.
    crypto: bool,
    /// The peer may send the fixed bit at random (RFC 9287).
    takes_any_fixed_bit: bool,
}

impl Reception {
    pub(super) const fn new(takes_any_fixed_bit: bool) -> Self {
        Self { waiting: VecDeque::new(), retry: false, crypto: false, takes_any_fixed_bit }
    }

    /// Gives back memory without packets.
    pub(super) fn trim(&mut self) {
        self.waiting.shrink_to_fit();
    }

    /// Whether the peer may send the fixed bit at random, as it has announced (RFC 9287).
    pub(super) fn set_takes_any_fixed_bit(&mut self, takes_any: bool) {
        self.takes_any_fixed_bit = takes_any;
    }

    /// Whether a packet with this fixed bit is valid (RFC 9000, Sections 17.2 and 17.3.1;
    /// RFC 9287, Section 3).
    #[inline]
    pub(super) fn takes_fixed_bit(&self, bit: bool) -> bool {
        bit || self.takes_any_fixed_bit
    }

    /// Keeps a packet until there are keys or the cipher is done; false if there is no room.
    pub(super) fn keep(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        packet: &[u8],
        bare: Option<Opened>,
    ) -> bool {
        let mut data = Vec::new();
        let waiting: usize = self.waiting.iter().map(|waiting| waiting.data.len()).sum();
        let too_large = bare.is_none() && waiting.saturating_add(packet.len()) > MAX_WAITING_BYTES;
        let full = too_large || self.waiting.len() >= MAX_WAITING;
        if full || data.try_reserve_exact(packet.len()).is_err() {
            return false;
        }
        data.extend_from_slice(packet);
        let (arrival, header) = (*arrival, header.clone());
        self.waiting.push_back(WaitingPacket { arrival, header, bare, data });
        true
    }

    /// How many packets wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The packet that has waited longest.
    pub(super) fn pop(&mut self) -> Option<WaitingPacket> {
        self.waiting.pop_front()
    }

    /// Packets that wait are to be tried: keys came, or the cipher may be done.
    pub(super) fn try_again(&mut self) {
        self.retry = true;
    }

    /// True once after that.
    pub(super) fn take_retry(&mut self) -> bool {
        core::mem::take(&mut self.retry)
    }

    /// CRYPTO data came.
    pub(super) fn on_crypto(&mut self) {
        self.crypto = true;
    }

    /// True once after that.
    pub(super) fn take_crypto(&mut self) -> bool {
        core::mem::take(&mut self.crypto)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::FourTuple;
    use crate::time::Time;
    use quicket_wire::EcnCodepoint;

    /// Keeps `len` bytes of a 1-RTT packet.
    fn keep(reception: &mut Reception, len: usize, bare: Option<Opened>) -> bool {
        let address = core::net::SocketAddr::from(([127, 0, 0, 1], 443));
        let arrival = Arrival {
            now: Time::ZERO,
            tuple: FourTuple { local: address, remote: address },
            path: None,
            ecn: EcnCodepoint::NotEct,
            datagram_len: len,
        };
        let packet = alloc::vec![0x40; len];
        let header = Header::parse(&packet, 0).unwrap();
        reception.keep(&arrival, &header, &packet, bare)
    }

    #[test]
    fn few_packets_wait_and_few_bytes_without_keys() {
        let mut reception = Reception::new(false);
        assert!((0..MAX_WAITING).all(|_| keep(&mut reception, 100, None)));
        assert!(!keep(&mut reception, 100, None));
        assert!(reception.pop().is_some());
        assert!(!keep(&mut reception, MAX_WAITING_BYTES, None));
        let opened = Some(Opened { number: 1, payload: 10 });
        assert!(keep(&mut reception, MAX_WAITING_BYTES, opened));
        assert_eq!(reception.waiting(), MAX_WAITING);
    }

    #[test]
    fn the_oldest_packet_is_first() {
        let mut reception = Reception::new(false);
        assert!([30, 40].into_iter().all(|len| keep(&mut reception, len, None)));
        assert_eq!([30, 40].map(|_| reception.pop().unwrap().data.len()), [30, 40]);
    }

    #[test]
    fn news_count_once() {
        let mut reception = Reception::new(false);
        reception.try_again();
        assert_eq!([0, 1].map(|_| reception.take_retry()), [true, false]);
        reception.on_crypto();
        assert_eq!([0, 1].map(|_| reception.take_crypto()), [true, false]);
    }

    /// RFC 9287, Section 3.
    #[test]
    fn a_fixed_bit_of_zero_is_for_those_who_said_so() {
        let mut reception = Reception::new(false);
        assert_eq!([false, true].map(|bit| reception.takes_fixed_bit(bit)), [false, true]);
        reception.set_takes_any_fixed_bit(true);
        assert_eq!([false, true].map(|bit| reception.takes_fixed_bit(bit)), [true, true]);
    }
}
