//! Exact reads over a protocol that hands out whatever comes.

use super::{Peer, Protocol};
use crate::bench::{Arrival, Failure, Transfer};

/// What a thread needs to drive one connection after the other.
pub struct Lane<P: Protocol> {
    pub(super) buffers: P::Buffers,
    /// Has come, but was not asked for yet.
    ahead: Vec<u8>,
}

impl<P: Protocol> Default for Lane<P> {
    fn default() -> Self {
        Self { buffers: P::Buffers::default(), ahead: Vec::new() }
    }
}

impl<P: Protocol> Lane<P> {
    /// Forgets what came over the last connection.
    pub(super) fn clear(&mut self) {
        self.ahead.clear();
    }

    pub(super) fn write(&mut self, channel: &mut P::Channel, data: &[u8]) -> Result<(), Failure> {
        P::write(channel, &mut self.buffers, data)
    }

    /// Fills `wanted`; `Closed` if the peer closes before the first byte.
    pub(super) fn read_exact(
        &mut self,
        channel: &mut P::Channel,
        wanted: &mut [u8],
    ) -> Result<Peer, Failure> {
        let Self { buffers, ahead } = self;
        while ahead.len() < wanted.len() {
            let peer = P::read(channel, buffers, &mut |bytes| ahead.extend_from_slice(bytes))?;
            if peer == Peer::Closed {
                return if ahead.is_empty() {
                    Ok(Peer::Closed)
                } else {
                    Err("the peer closed in the middle of a message".into())
                };
            }
        }
        wanted.copy_from_slice(&ahead[..wanted.len()]);
        ahead.drain(..wanted.len());
        Ok(Peer::Open)
    }

    /// Reads a transfer and checks it.
    pub(super) fn receive(
        &mut self,
        channel: &mut P::Channel,
        transfer: Transfer,
    ) -> Result<(), Failure> {
        let mut arrival = Arrival::of(transfer);
        arrival.take(&std::mem::take(&mut self.ahead));
        while !arrival.complete() {
            let peer = P::read(channel, &mut self.buffers, &mut |bytes| arrival.take(bytes))?;
            if peer == Peer::Closed {
                break;
            }
        }
        arrival.finish()
    }

    /// Hands the length of what comes to `more` as long as that says so.
    pub(super) fn count(
        &mut self,
        channel: &mut P::Channel,
        more: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), Failure> {
        loop {
            let mut length = 0;
            let peer = P::read(channel, &mut self.buffers, &mut |bytes| length += bytes.len())?;
            if !more(length) {
                return Ok(());
            }
            if peer == Peer::Closed {
                return Err("the peer closed".into());
            }
        }
    }
}
