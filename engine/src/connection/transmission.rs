//! What goes out: datagrams that are written and not sealed, and what holds back others.

use alloc::boxed::Box;

use super::keys::Keys;
use super::sealing::{Draft, SealQueue, Sealing, Unsealed};
use super::transmit::Transmit;
use crate::congestion::PathCongestion;
use crate::random::Random;
use crate::time::Time;

/// The transmit buffer's packets, and when there may be others.
#[derive(Default)]
pub(super) struct Transmission {
    queue: SealQueue,
    /// Waits for the cipher.
    draft: Option<Box<Draft<Transmit>>>,
    /// A client's first Handshake packet is among those to be sealed.
    discard_initial: bool,
    /// The fixed bit is sent at random (RFC 9287).
    grease_fixed_bit: bool,
    /// The pacer has nothing leave before.
    pacing_until: Option<Time>,
}

/// What became of a draft.
pub(super) enum Finished {
    /// All of it is sealed. `discard_initial` if it has a client's first Handshake packet, with
    /// which its Initial keys go (RFC 9001, Section 4.9.1).
    Ready { transmit: Transmit, discard_initial: bool },
    /// The cipher needs more time.
    NotYet,
    /// It is given up, and others may follow.
    Discarded,
    /// The cipher refused. Nothing may be sent, now or later.
    Failed,
}

impl Transmission {
    /// Gives back memory without packets.
    pub(super) fn trim(&mut self) {
        self.queue.trim();
    }

    /// The peer takes any fixed bit, and we are to send it at random, or not.
    pub(super) fn set_grease_fixed_bit(&mut self, grease: bool) {
        self.grease_fixed_bit = grease;
    }

    /// The fixed bit of the next packet.
    pub(super) fn fixed_bit(&self, rng: &mut dyn Random) -> bool {
        !self.grease_fixed_bit || rng.next_u64() & 1 == 1
    }

    /// Those of the next 64 packets.
    pub(super) fn fixed_bits(&self, rng: &mut dyn Random) -> u64 {
        if self.grease_fixed_bit { rng.next_u64() } else { u64::MAX }
    }

    /// A packet is written.
    #[inline]
    pub(super) fn push(&mut self, packet: Unsealed) {
        self.queue.push(packet);
    }

    /// A packet is written but for `body`, with which its plaintext ends: seals it at once.
    #[inline]
    pub(super) fn seal_apart(
        &mut self,
        keys: &Keys,
        packet: &Unsealed,
        buf: &mut [u8],
        body: &[u8],
    ) {
        self.queue.seal_apart(keys, packet, buf, body);
    }

    /// Seals what is written, if it is enough for a batch; false if no more packets are of use in
    /// this buffer.
    #[inline]
    pub(super) fn goes_on(&mut self, keys: &Keys, buf: &mut [u8]) -> bool {
        if self.queue.is_full() {
            self.queue.seal_ahead(keys, buf);
        }
        self.queue.takes_more()
    }

    /// False if no more packets are of use in this buffer.
    #[inline]
    pub(super) fn takes_more(&self) -> bool {
        self.queue.takes_more()
    }

    /// Client: a Handshake packet is written, while there are Initial keys or not.
    pub(super) fn on_handshake_packet(&mut self, has_initial: bool) {
        self.discard_initial = has_initial;
    }

    /// True while a draft waits for the cipher.
    pub(super) fn has_draft(&self) -> bool {
        self.draft.is_some()
    }

    /// The draft that waits for the cipher.
    pub(super) fn take_draft(&mut self) -> Option<Box<Draft<Transmit>>> {
        self.draft.take()
    }

    /// Forgets a draft that is not to be sent any more.
    pub(super) fn abandon(&mut self, draft: Draft<Transmit>) {
        self.queue.abandon(draft);
    }

    /// Seals what is still to be sealed of a draft.
    pub(super) fn finish(
        &mut self,
        keys: &Keys,
        buf: &mut [u8],
        draft: Draft<Transmit>,
    ) -> Finished {
        match self.queue.finish(keys, buf, draft) {
            Sealing::Done(transmit) => {
                let discard_initial = core::mem::take(&mut self.discard_initial);
                Finished::Ready { transmit, discard_initial }
            }
            Sealing::NotYet(draft) => {
                self.draft = Some(Box::new(draft));
                Finished::NotYet
            }
            Sealing::Discarded => {
                self.discard_initial = false;
                Finished::Discarded
            }
            Sealing::Failed => Finished::Failed,
        }
    }

    /// Whether ack-eliciting frames may be sent now: window and pacing (RFC 9002, Section 7).
    pub(super) fn may_elicit(
        &mut self,
        now: Time,
        congestion: &mut PathCongestion,
        size: usize,
    ) -> bool {
        if !congestion.can_send(size as u64) {
            self.pacing_until = None;
            return false;
        }
        self.pacing_until = congestion.pacing_delay(now);
        self.pacing_until.is_none()
    }

    /// When the pacer has more leave; `None` if it is not what nothing leaves for.
    pub(super) fn pacing_until(&self) -> Option<Time> {
        self.pacing_until
    }

    /// Time has passed.
    pub(super) fn on_timeout(&mut self, now: Time) {
        self.pacing_until.take_if(|at| *at <= now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid::test_support::TestRandom;
    use crate::time::Duration;

    /// RFC 9287, Section 3.1.
    #[test]
    fn the_fixed_bit_is_random_for_peers_that_take_any() {
        let (mut transmission, mut rng) = (Transmission::default(), TestRandom::new(1));
        assert!((0..64).all(|_| transmission.fixed_bit(&mut rng)));
        assert_eq!(transmission.fixed_bits(&mut rng), u64::MAX);
        transmission.set_grease_fixed_bit(true);
        let set = (0..640).filter(|_| transmission.fixed_bit(&mut rng)).count();
        assert!((200..440).contains(&set), "{set}");
        assert!((10..54).contains(&transmission.fixed_bits(&mut rng).count_ones()));
    }

    #[test]
    fn pacing_ends_when_its_time_has_come() {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let mut transmission = Transmission { pacing_until: Some(at(2)), ..Default::default() };
        transmission.on_timeout(at(1));
        assert_eq!(transmission.pacing_until(), Some(at(2)));
        transmission.on_timeout(at(2));
        assert_eq!(transmission.pacing_until(), None);
    }
}
