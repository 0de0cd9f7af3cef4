//! Packets that are written but not yet sealed: sealed together, and again if the cipher says
//! "not yet".
//!
//! What is to be sent is a [`Draft`] until [`SealQueue::finish`] has sealed every packet of it:
//! nothing else makes a transmission of one. A packet that cannot be sealed spoils the whole
//! buffer, whoever had it sealed and whenever.

use alloc::vec::Vec;

use quicket_wire::protect;

use super::keys::{DirectionKeys, Keys};
use crate::crypto::{CipherError, HEADER_SAMPLE_LEN, Level, SealJob};

/// A packet in the transmit buffer that waits for its AEAD and header protection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsealed {
    pub(crate) level: Level,
    pub(crate) packet_number: u64,
    /// Offsets into the transmit buffer.
    pub(crate) start: usize,
    pub(crate) pn_offset: usize,
    pub(crate) payload: usize,
    pub(crate) end: usize,
}

/// What a buffer is to become whose packets are not all sealed. Only [`SealQueue::finish`] takes
/// it out again.
#[derive(Debug)]
pub(crate) struct Draft<T>(T);

impl<T> Draft<T> {
    pub(crate) fn new(content: T) -> Self {
        Self(content)
    }
}

/// What became of a draft.
#[must_use]
#[derive(Debug)]
pub(crate) enum Sealing<T> {
    /// All of it is sealed.
    Done(T),
    /// The cipher needs more time: finish it later.
    NotYet(Draft<T>),
    /// The keys of one of its packets are discarded. Nothing of it may be sent; other drafts may.
    Discarded,
    /// The cipher refused. Nothing may be sent, now or later.
    Failed,
}

/// Why packets of the buffer at hand can never be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoiled {
    /// Their keys were discarded while the cipher was busy.
    KeysDiscarded,
    /// The cipher failed. That is final.
    CipherFailed,
}

/// How a batch was left.
enum Batch {
    Sealed(usize),
    Spoiled(Spoiled),
}

/// The packets of one transmit buffer.
#[derive(Debug, Default)]
pub(crate) struct SealQueue {
    packets: Vec<Unsealed>,
    spoiled: Option<Spoiled>,
}

/// Packets handed to the cipher at once: few enough to still be in the first-level cache.
const BATCH: usize = 8;

impl SealQueue {
    pub(crate) fn push(&mut self, packet: Unsealed) {
        self.packets.push(packet);
    }

    /// Gives back memory without packets.
    pub(crate) fn trim(&mut self) {
        self.packets.shrink_to_fit();
    }

    /// Enough for a batch.
    pub(crate) fn is_full(&self) -> bool {
        self.packets.len() >= BATCH
    }

    /// False if no more packets are of use in this buffer: the cipher is busy, or some packet
    /// cannot be sealed.
    pub(crate) fn takes_more(&self) -> bool {
        self.spoiled.is_none() && !self.is_full()
    }

    /// Seals what is queued, while it is in the cache. What stands in the way is remembered for
    /// [`SealQueue::finish`].
    pub(crate) fn seal_ahead(&mut self, keys: &Keys, buf: &mut [u8]) {
        let mut done = 0usize;
        while self.spoiled.is_none() {
            let rest = self.packets.get(done..).unwrap_or(&[]);
            let Some(first) = rest.first() else { break };
            let run = rest.iter().take(BATCH).take_while(|p| p.level == first.level).count();
            match seal_run(keys, rest.get(..run).unwrap_or(&[]), buf) {
                Batch::Sealed(sealed) => {
                    done = done.saturating_add(sealed);
                    if sealed < run {
                        break;
                    }
                }
                Batch::Spoiled(how) => self.spoiled = Some(how),
            }
        }
        self.packets.drain(..done.min(self.packets.len()));
    }

    /// Seals a packet at once whose plaintext ends with `body`, which is not in the buffer. What stands in the way is remembered for
    /// [`SealQueue::finish`]. Only for keys that [say so](seals_apart).
    pub(crate) fn seal_apart(
        &mut self,
        keys: &Keys,
        packet: &Unsealed,
        buf: &mut [u8],
        body: &[u8],
    ) {
        let sealed = match keys.sending(packet.level) {
            Some(keys) => seal_one(keys, packet, buf, body).map_err(|_| Spoiled::CipherFailed),
            None => Err(Spoiled::KeysDiscarded),
        };
        self.spoiled = self.spoiled.or(sealed.err());
    }

    /// Seals what is left of a draft, in order. The bytes of one that may not be sent are erased.
    pub(crate) fn finish<T>(&mut self, keys: &Keys, buf: &mut [u8], draft: Draft<T>) -> Sealing<T> {
        self.seal_ahead(keys, buf);
        let Some(how) = self.spoiled else {
            return if self.packets.is_empty() {
                Sealing::Done(draft.0)
            } else {
                Sealing::NotYet(draft)
            };
        };
        self.packets.clear();
        buf.fill(0);
        match how {
            Spoiled::KeysDiscarded => {
                self.spoiled = None;
                Sealing::Discarded
            }
            Spoiled::CipherFailed => Sealing::Failed,
        }
    }

    /// Forgets a draft that is not to be sent any more.
    pub(crate) fn abandon<T>(&mut self, _: Draft<T>) {
        self.packets.clear();
        self.spoiled = self.spoiled.filter(|how| *how == Spoiled::CipherFailed);
    }
}

/// True if 1-RTT packets are best sealed with what they carry still elsewhere.
pub(crate) fn seals_apart(keys: &Keys) -> bool {
    !keys.is_1rtt_plain()
        && keys.sending(Level::OneRtt).is_some_and(|keys| keys.packet.seals_apart())
}

/// AEAD, then header protection, of one packet whose plaintext ends with `body`.
fn seal_one(
    keys: &DirectionKeys,
    packet: &Unsealed,
    buf: &mut [u8],
    body: &[u8],
) -> Result<(), CipherError> {
    let bytes = buf.get_mut(packet.start..packet.end).ok_or(CipherError::Failed)?;
    let header_len = packet.payload.saturating_sub(packet.start);
    let number = packet.packet_number;
    let mut job = SealJob { packet_number: number, header_len, packet: &mut *bytes };
    keys.packet.seal_apart(&mut job, body)?;
    let pn_offset = packet.pn_offset.saturating_sub(packet.start);
    // RFC 9001, Section 5.4.2: as if the packet number had four bytes.
    let sample = bytes.get(pn_offset.saturating_add(4)..).and_then(<[u8]>::first_chunk);
    let mask = keys.header.mask(sample.ok_or(CipherError::Failed)?);
    protect(bytes, pn_offset, mask);
    Ok(())
}

/// Seals packets of one level, from the first on.
#[inline(never)] // keeps the batch out of the frame of `poll_transmit`
fn seal_run(keys: &Keys, batch: &[Unsealed], buf: &mut [u8]) -> Batch {
    let Some(level) = batch.first().map(|packet| packet.level) else { return Batch::Sealed(0) };
    if level == Level::OneRtt && keys.is_1rtt_plain() {
        return Batch::Sealed(batch.len());
    }
    let Some(keys) = keys.sending(level) else { return Batch::Spoiled(Spoiled::KeysDiscarded) };
    match seal_with(keys, batch, buf) {
        Ok(sealed) => Batch::Sealed(sealed),
        Err(CipherError::NotYet) => Batch::Sealed(0),
        Err(CipherError::Failed) => Batch::Spoiled(Spoiled::CipherFailed),
    }
}

/// AEAD, then header protection; returns how many packets have both.
fn seal_with(
    keys: &DirectionKeys,
    batch: &[Unsealed],
    buf: &mut [u8],
) -> Result<usize, CipherError> {
    let mut rest = &mut *buf;
    let mut offset = 0;
    let mut packets = batch.iter();
    let mut misplaced = false;
    let mut jobs: [SealJob<'_>; BATCH] = core::array::from_fn(|_| {
        let empty = SealJob { packet_number: 0, header_len: 0, packet: &mut [] };
        let Some(packet) = packets.next() else { return empty };
        let range = packet.start.saturating_sub(offset)..packet.end.saturating_sub(offset);
        let Some((head, tail)) = core::mem::take(&mut rest).split_at_mut_checked(range.end) else {
            misplaced = true;
            return empty;
        };
        rest = tail;
        offset = packet.end;
        SealJob {
            packet_number: packet.packet_number,
            header_len: packet.payload.saturating_sub(packet.start),
            packet: head.get_mut(range.start..).unwrap_or(&mut []),
        }
    });
    let jobs = jobs.get_mut(..batch.len()).filter(|_| !misplaced).ok_or(CipherError::Failed)?;
    let sealed = keys.packet.seal_batch(jobs)?;
    // A cipher that claims more than it was given is not to be trusted with any.
    let done = batch.get(..sealed).ok_or(CipherError::Failed)?;
    let mut samples = [[0; HEADER_SAMPLE_LEN]; BATCH];
    for (sample, packet) in samples.iter_mut().zip(done) {
        // RFC 9001, Section 5.4.2: as if the packet number had four bytes.
        let at = packet.pn_offset.saturating_add(4);
        let bytes = buf.get(at..at.saturating_add(HEADER_SAMPLE_LEN)).ok_or(CipherError::Failed)?;
        sample.copy_from_slice(bytes);
    }
    let mut masks = [[0; 5]; BATCH];
    let samples = samples.get(..sealed).ok_or(CipherError::Failed)?;
    let masks = masks.get_mut(..sealed).ok_or(CipherError::Failed)?;
    keys.header.masks(samples, masks);
    for (mask, packet) in masks.iter().zip(done) {
        let bytes = buf.get_mut(packet.start..packet.end).ok_or(CipherError::Failed)?;
        protect(bytes, packet.pn_offset.saturating_sub(packet.start), *mask);
    }
    Ok(sealed)
}
