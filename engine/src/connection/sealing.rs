//! Packets that are written but not yet sealed: sealed together, and again if the cipher says
//! "not yet".

use alloc::vec::Vec;

use quicket_wire::protect;

use super::keys::Keys;
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

/// How far sealing got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sealing {
    Done,
    /// The cipher needs more time.
    NotYet,
    /// The cipher refused; nothing of the buffer may be sent.
    Failed,
}

/// The packets of one transmit buffer.
#[derive(Debug, Default)]
pub(crate) struct SealQueue {
    packets: Vec<Unsealed>,
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

    pub(crate) fn is_full(&self) -> bool {
        self.packets.len() >= BATCH
    }

    /// Seals what is queued, in order.
    pub(crate) fn seal(&mut self, keys: &Keys, buf: &mut [u8]) -> Sealing {
        let mut done = 0;
        let outcome = loop {
            let rest = self.packets.get(done..).unwrap_or(&[]);
            let Some(first) = rest.first() else { break Sealing::Done };
            let run = rest.iter().take(BATCH).take_while(|p| p.level == first.level).count();
            let batch = rest.get(..run).unwrap_or(&[]);
            match seal_run(keys, batch, buf) {
                Ok(sealed) => {
                    done = done.saturating_add(sealed);
                    if sealed < run {
                        break Sealing::NotYet;
                    }
                }
                Err(_) => break Sealing::Failed,
            }
        };
        self.packets.drain(..done);
        if outcome == Sealing::Failed {
            self.packets.clear();
        }
        outcome
    }
}

/// Seals packets of one level; returns how many.
#[inline(never)] // keeps the batch out of the frame of `poll_transmit`
fn seal_run(keys: &Keys, batch: &[Unsealed], buf: &mut [u8]) -> Result<usize, CipherError> {
    let Some(level) = batch.first().map(|packet| packet.level) else { return Ok(0) };
    if level == Level::OneRtt && keys.is_1rtt_plain() {
        return Ok(batch.len());
    }
    let keys = keys.sending(level).ok_or(CipherError::Failed)?;
    let mut rest = &mut *buf;
    let mut offset = 0;
    let mut packets = batch.iter();
    let mut jobs: [SealJob<'_>; BATCH] = core::array::from_fn(|_| {
        let empty = SealJob { packet_number: 0, header_len: 0, packet: &mut [] };
        let Some(packet) = packets.next() else { return empty };
        let range = packet.start.saturating_sub(offset)..packet.end.saturating_sub(offset);
        let Some((head, tail)) = core::mem::take(&mut rest).split_at_mut_checked(range.end) else {
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
    let sealed = keys.packet.seal_batch(jobs.get_mut(..batch.len()).unwrap_or(&mut []))?;
    let done = batch.get(..sealed).unwrap_or(&[]);
    let mut samples = [[0; HEADER_SAMPLE_LEN]; BATCH];
    for (sample, packet) in samples.iter_mut().zip(done) {
        // RFC 9001, Section 5.4.2: as if the packet number had four bytes.
        let at = packet.pn_offset.saturating_add(4);
        let bytes = buf.get(at..at.saturating_add(HEADER_SAMPLE_LEN)).ok_or(CipherError::Failed)?;
        sample.copy_from_slice(bytes);
    }
    let mut masks = [[0; 5]; BATCH];
    let (samples, masks) = (samples.get(..sealed), masks.get_mut(..sealed));
    if let (Some(samples), Some(masks)) = (samples, masks) {
        keys.header.masks(samples, masks);
        for (mask, packet) in masks.iter().zip(done) {
            let bytes = buf.get_mut(packet.start..packet.end).ok_or(CipherError::Failed)?;
            protect(bytes, packet.pn_offset.saturating_sub(packet.start), *mask);
        }
    }
    Ok(sealed)
}
