//! The packets of one packet number space that were sent and whose fate matters.
//!
//! Packet `n` sits at index `n - base` of a ring, its frames in a second ring that all packets
//! share, so that nothing is allocated per packet. Two bits per packet, kept in blocks of 64,
//! say whether it is outstanding or was declared lost: a range of an ACK is handled 64 packets
//! at a time, and what earlier ACKs have covered costs next to nothing to hear again.

use alloc::collections::VecDeque;
use core::ops::RangeInclusive;

use super::PathKey;
use crate::SentFrame;
use crate::congestion::RateSnapshot;
use crate::time::Time;

/// Packets in a block, the unit in which the rings are released.
const BLOCK: u64 = 64;
const BLOCK_LEN: usize = BLOCK as usize;
/// The most packets kept. A peer that lets this many go by without acknowledging the oldest is
/// sent no more in this packet number space.
pub(crate) const MAX_TRACKED_PACKETS: usize = 1 << 18;
/// Packets that elicit no ACK may never get one. Once this many packets are kept, the oldest are
/// forgotten if they are all of that kind.
const MAX_IDLE_PACKETS: usize = 512;
/// This many packets, and so many more for each that asks for an ACK, are kept for a peer that
/// acknowledges none of them, or late ACKs of what was lost.
const MAX_SILENT_PACKETS: usize = 1 << 14;
const SILENT_PER_ELICITING: usize = 8;
/// How many skipped packet numbers are remembered.
const MAX_SKIPPED: usize = 32;
/// Room for frames that is made ahead of each packet.
const FRAME_HEADROOM: usize = 16;
/// Rings of at most this many entries are never given back to the allocator.
const SMALL_RING: usize = 256;

/// A packet that was sent, or an unused packet number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentPacket {
    /// When it was sent.
    pub(crate) time_sent: Time,
    /// The state of delivery when it was sent.
    pub(crate) rate: RateSnapshot,
    /// Absolute index of its first frame in the frame ring.
    first_frame: u64,
    frame_count: u16,
    /// Its length in bytes, with header and AEAD tag, without UDP and IP.
    pub(crate) size: u16,
    /// The path it was sent on.
    pub(crate) path: PathKey,
    /// It asks for an ACK.
    pub(crate) ack_eliciting: bool,
    /// It counts toward bytes in flight (RFC 9002, Section 2).
    pub(crate) in_flight: bool,
    /// It probes for a larger path MTU, so that its loss means no congestion
    /// (RFC 9000, Section 14.4).
    pub(crate) mtu_probe: bool,
    /// It was marked ECT.
    pub(crate) ecn_ect: bool,
}

/// What the sender knows of a packet when it closes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentInfo {
    /// When it is sent.
    pub(crate) time_sent: Time,
    /// Its length in bytes, without UDP and IP.
    pub(crate) size: u16,
    /// The path it is sent on.
    pub(crate) path: PathKey,
    /// It asks for an ACK.
    pub(crate) ack_eliciting: bool,
    /// It counts toward bytes in flight: it asks for an ACK or carries PADDING.
    pub(crate) in_flight: bool,
    /// It probes for a larger path MTU.
    pub(crate) mtu_probe: bool,
    /// It is marked ECT.
    pub(crate) ecn_ect: bool,
    /// What `PathCongestion::on_sent` returned for it; the default if it is not in flight.
    pub(crate) rate: RateSnapshot,
}

/// Bit `n` stands for packet `n` of the block.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    outstanding: u64,
    lost: u64,
}

/// How an ACK finds a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acked {
    /// It was outstanding.
    New,
    /// It had been declared lost.
    Spurious,
}

/// The frames of one packet.
pub(super) struct Frames<'a> {
    ring: &'a VecDeque<SentFrame>,
    next: usize,
    end: usize,
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a SentFrame;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let frame = self.ring.get(self.next);
        self.next = self.next.saturating_add(1);
        frame
    }
}

/// The packets of one packet number space that were sent and are neither settled nor forgotten.
#[derive(Debug, Default)]
pub(super) struct SentPackets {
    /// The packet number of `packets[0]`.
    base: u64,
    packets: VecDeque<SentPacket>,
    blocks: VecDeque<Block>,
    /// No packet below is outstanding.
    cursor: u64,
    frames: VecDeque<SentFrame>,
    /// The absolute index of `frames[0]`.
    frames_base: u64,
    /// The absolute index of the first frame of the packet under construction.
    pending_frames: u64,
    /// Packet numbers that were left out, ascending.
    skipped: VecDeque<u64>,
    ack_eliciting_outstanding: usize,
}

impl SentPackets {
    /// The number of the next packet.
    pub(super) fn next_packet_number(&self) -> u64 {
        self.base.saturating_add(self.packets.len() as u64)
    }

    /// How many ack-eliciting packets are outstanding.
    pub(super) fn ack_eliciting_outstanding(&self) -> usize {
        self.ack_eliciting_outstanding
    }

    /// Makes room for one more packet. False at the bound, or when memory is exhausted.
    pub(super) fn reserve(&mut self) -> bool {
        let count = self.packets.len();
        if count >= MAX_IDLE_PACKETS && count.is_multiple_of(BLOCK_LEN) {
            // Without ACKs nobody else would forget packets that elicit none. Lost ones are not
            // remembered at any price: how long is for the peer to say, by the round trip time.
            let keep_since = if self.is_long() { Time::from_nanos(u64::MAX) } else { Time::ZERO };
            self.release(keep_since);
        }
        !self.is_full()
            && self.packets.try_reserve(1).is_ok()
            && self.blocks.try_reserve(1).is_ok()
            && self.frames.try_reserve(FRAME_HEADROOM).is_ok()
    }

    /// True at the bound: nothing can be sent before the peer acknowledges, or something is lost.
    pub(super) fn is_full(&self) -> bool {
        self.packets.len() >= MAX_TRACKED_PACKETS
    }

    /// True if few packets that ask for ACKs, which do not come, keep many others from being
    /// forgotten.
    pub(super) fn is_clogged(&self) -> bool {
        // Only when the next call of `reserve` releases what is settled then.
        self.is_long()
            && self.packets.len().is_multiple_of(BLOCK_LEN)
            && self.blocks.front().is_some_and(|block| {
                self.any_in_front(block.outstanding, |packet| packet.in_flight)
            })
    }

    /// True if more packets are kept than those in flight account for.
    fn is_long(&self) -> bool {
        let allowed = self.ack_eliciting_outstanding.saturating_mul(SILENT_PER_ELICITING);
        self.packets.len() > MAX_SILENT_PACKETS.saturating_add(allowed)
    }

    /// Adds a frame to the packet under construction.
    pub(super) fn push_frame(&mut self, frame: SentFrame) {
        self.frames.push_back(frame);
    }

    /// How many frames the packet under construction has.
    pub(super) fn pending_frames(&self) -> usize {
        self.frames_end().saturating_sub(self.pending_frames) as usize
    }

    /// Drops the frames of the packet under construction.
    pub(super) fn discard_pending_frames(&mut self) {
        let keep = self.pending_frames.saturating_sub(self.frames_base) as usize;
        self.frames.truncate(keep);
    }

    /// Closes the packet under construction.
    pub(super) fn push(&mut self, info: &SentInfo) -> u64 {
        let number = self.next_packet_number();
        let packet = SentPacket {
            time_sent: info.time_sent,
            rate: info.rate,
            first_frame: self.pending_frames,
            frame_count: u16::try_from(self.pending_frames()).unwrap_or(u16::MAX),
            size: info.size,
            path: info.path,
            ack_eliciting: info.ack_eliciting,
            in_flight: info.in_flight,
            mtu_probe: info.mtu_probe,
            ecn_ect: info.ecn_ect,
        };
        self.pending_frames = self.frames_end();
        self.ack_eliciting_outstanding =
            self.ack_eliciting_outstanding.saturating_add(usize::from(packet.ack_eliciting));
        self.push_slot(packet, true);
        number
    }

    /// Leaves out a packet number.
    pub(super) fn skip(&mut self) {
        if self.skipped.len() == MAX_SKIPPED {
            self.skipped.pop_front();
        }
        self.skipped.push_back(self.next_packet_number());
        let slot = SentPacket { first_frame: self.pending_frames, ..SentPacket::default() };
        self.push_slot(slot, false);
    }

    fn push_slot(&mut self, packet: SentPacket, outstanding: bool) {
        let bit = self.packets.len() as u64 % BLOCK;
        if bit == 0 {
            self.blocks.push_back(Block::default());
        }
        if let Some(block) = self.blocks.back_mut() {
            block.outstanding |= u64::from(outstanding) << bit;
        }
        self.packets.push_back(packet);
    }

    fn frames_end(&self) -> u64 {
        self.frames_base.saturating_add(self.frames.len() as u64)
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.base)?).ok()
    }

    /// The packet with this number, if it is still kept.
    pub(super) fn get(&self, number: u64) -> Option<&SentPacket> {
        self.packets.get(self.index(number)?)
    }

    /// The frames of a packet that [`Self::get`] gave.
    pub(super) fn frames(&self, packet: &SentPacket) -> Frames<'_> {
        frames_of(&self.frames, self.frames_base, packet)
    }

    /// True if an unused packet number is in `range`, as far as they are remembered.
    pub(super) fn any_skipped_in(&self, range: &RangeInclusive<u64>) -> bool {
        self.skipped.iter().any(|number| range.contains(number))
    }

    /// How many packets were sent after `number`, up to and with `last`: numbers that were left out
    /// are none, as far as they are remembered.
    pub(super) fn count_between(&self, number: u64, last: u64) -> u64 {
        let skipped = self.skipped.iter().filter(|skipped| (number..=last).contains(skipped));
        last.saturating_sub(number).saturating_sub(skipped.count() as u64)
    }

    /// The lowest outstanding packet at or after `from`, unless it is above `to`.
    pub(super) fn next_outstanding(&self, from: u64, to: u64) -> Option<u64> {
        let from = from.max(self.cursor).max(self.base);
        let first = usize::try_from(from.saturating_sub(self.base) / BLOCK).ok()?;
        let mut start = self.base.saturating_add((first as u64).saturating_mul(BLOCK));
        let mut mask = u64::MAX << (from.saturating_sub(self.base) % BLOCK);
        for block in self.blocks.iter().skip(first) {
            let bits = block.outstanding & mask;
            if start > to {
                return None;
            }
            if bits != 0 {
                let number = start.saturating_add(u64::from(bits.trailing_zeros()));
                return (number <= to).then_some(number);
            }
            mask = u64::MAX;
            start = start.saturating_add(BLOCK);
        }
        None
    }

    /// Settles the packets of `range` that an ACK covers, and reports them in ascending order.
    pub(super) fn ack(
        &mut self,
        range: RangeInclusive<u64>,
        mut report: impl FnMut(Acked, u64, &SentPacket, Frames<'_>),
    ) {
        let (low, high) = (*range.start().max(&self.base), *range.end());
        let next = self.next_packet_number();
        if low > high || low >= next {
            return;
        }
        let (low, high) = (
            low.saturating_sub(self.base),
            high.min(next.saturating_sub(1)).saturating_sub(self.base),
        );
        let (first, last) = (low / BLOCK, high / BLOCK);
        let count = last.saturating_sub(first).saturating_add(1) as usize;
        let blocks = self.blocks.iter_mut().skip(first as usize).take(count);
        for (n, block) in (first..).zip(blocks) {
            let from = if n == first { u64::MAX << (low % BLOCK) } else { u64::MAX };
            let to = if n == last {
                u64::MAX >> (BLOCK - 1).saturating_sub(high % BLOCK)
            } else {
                u64::MAX
            };
            let lost = block.lost & from & to;
            let mut bits = block.outstanding & from & to | lost;
            block.outstanding &= !bits;
            block.lost &= !bits;
            while bits != 0 {
                let bit = bits.trailing_zeros();
                bits &= bits.saturating_sub(1);
                let index = n.saturating_mul(BLOCK).saturating_add(u64::from(bit));
                let Some(packet) = self.packets.get(index as usize) else { return };
                let how = if lost >> bit & 1 == 1 { Acked::Spurious } else { Acked::New };
                if how == Acked::New && packet.ack_eliciting {
                    self.ack_eliciting_outstanding =
                        self.ack_eliciting_outstanding.saturating_sub(1);
                }
                let frames = frames_of(&self.frames, self.frames_base, packet);
                report(how, self.base.saturating_add(index), packet, frames);
            }
        }
    }

    /// Takes an outstanding packet off the outstanding ones. With `remember`, a late ACK for it
    /// is reported as [`Acked::Spurious`].
    pub(super) fn lose(&mut self, number: u64, remember: bool) {
        let Some(index) = self.index(number) else { return };
        let mask = 1u64 << (index as u64 % BLOCK);
        let Some(block) = self.blocks.get_mut(index / BLOCK_LEN) else { return };
        if block.outstanding & mask == 0 {
            return;
        }
        block.outstanding &= !mask;
        if remember {
            block.lost |= mask;
        }
        if self.packets.get(index).is_some_and(|packet| packet.ack_eliciting) {
            self.ack_eliciting_outstanding = self.ack_eliciting_outstanding.saturating_sub(1);
        }
    }

    /// True if `number` was sent and acknowledged; false if it is too old to tell.
    pub(super) fn is_acked(&self, number: u64) -> bool {
        let Some(index) = self.index(number) else { return false };
        let Some(block) = self.blocks.get(index / BLOCK_LEN) else { return false };
        index < self.packets.len()
            && (block.outstanding | block.lost) >> (index as u64 % BLOCK) & 1 == 0
            && !self.skipped.contains(&number)
    }

    /// Releases what is settled at the front of the ring. Packets that were declared lost are
    /// kept if they were sent after `keep_since`.
    pub(super) fn release(&mut self, keep_since: Time) {
        while self.packets.len() as u64 >= BLOCK && self.front_is_settled(keep_since) {
            if let Some(block) = self.blocks.pop_front() {
                self.forget_front(block);
            }
            self.base = self.base.saturating_add(BLOCK);
        }
        self.cursor = self.cursor.max(self.base);
        if let Some(number) = self.next_outstanding(self.cursor, u64::MAX) {
            self.cursor = number;
        } else {
            self.cursor = self.next_packet_number();
        }
        self.release_frames();
        self.shrink();
    }

    fn front_is_settled(&self, keep_since: Time) -> bool {
        let Some(block) = self.blocks.front() else { return false };
        if block.outstanding != 0
            && (self.packets.len() < MAX_IDLE_PACKETS
                || self.any_in_front(block.outstanding, |packet| packet.in_flight))
        {
            return false;
        }
        !self.any_in_front(block.lost, |packet| packet.time_sent >= keep_since)
    }

    /// True if a packet of the first block whose bit is set `fits`.
    fn any_in_front(&self, bits: u64, fits: impl Fn(&SentPacket) -> bool) -> bool {
        let mut packets = self.packets.iter().take(BLOCK_LEN).enumerate();
        bits != 0 && packets.any(|(n, packet)| bits >> n & 1 == 1 && fits(packet))
    }

    fn forget_front(&mut self, block: Block) {
        let count = self.packets.len().min(BLOCK_LEN);
        for (n, packet) in self.packets.drain(..count).enumerate() {
            if block.outstanding >> n & 1 == 1 && packet.ack_eliciting {
                self.ack_eliciting_outstanding = self.ack_eliciting_outstanding.saturating_sub(1);
            }
        }
    }

    fn release_frames(&mut self) {
        let keep_from = self.packets.front().map_or(self.pending_frames, |p| p.first_frame);
        let count = keep_from.saturating_sub(self.frames_base);
        let count = self.frames.len().min(count as usize);
        self.frames.drain(..count);
        self.frames_base = self.frames_base.saturating_add(count as u64);
    }

    /// Forgets all packets and gives their memory back, if none of them matters to anybody any
    /// more; false if one does. For connections that have gone quiet: packets that elicit no ACK
    /// may stay outstanding for as long as that.
    pub(super) fn trim(&mut self) -> bool {
        let matters = |number: u64| self.get(number).is_some_and(|packet| packet.in_flight);
        let mut next = self.next_outstanding(0, u64::MAX);
        while let Some(number) = next {
            if matters(number) {
                return false;
            }
            next = self.next_outstanding(number.saturating_add(1), u64::MAX);
        }
        if self.pending_frames() > 0 {
            return false;
        }
        self.base = self.next_packet_number();
        self.cursor = self.base;
        self.frames_base = self.pending_frames;
        self.packets = VecDeque::new();
        self.blocks = VecDeque::new();
        self.frames = VecDeque::new();
        self.skipped.shrink_to_fit();
        self.ack_eliciting_outstanding = 0;
        true
    }

    /// Gives memory back after a burst.
    fn shrink(&mut self) {
        let capacity = self.packets.capacity();
        if capacity > SMALL_RING && self.packets.len() < capacity / 16 {
            self.packets.shrink_to(capacity / 4);
            self.frames.shrink_to(self.frames.capacity() / 4);
            self.blocks.shrink_to(self.blocks.capacity() / 4);
        }
    }

    /// How many packets and frames are kept.
    #[cfg(test)]
    pub(super) fn memory(&self) -> (usize, usize) {
        (self.packets.len(), self.frames.len())
    }
}

fn frames_of<'a>(ring: &'a VecDeque<SentFrame>, base: u64, packet: &SentPacket) -> Frames<'a> {
    let next = packet.first_frame.saturating_sub(base) as usize;
    Frames { ring, next, end: next.saturating_add(usize::from(packet.frame_count)) }
}
