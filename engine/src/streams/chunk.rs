//! Received data that is taken out in its buffer.

use alloc::vec::Vec;
use core::ops::Range;

/// Received data in the buffer in which it was put together. Nothing is borrowed: it can be looked at
/// while the connection goes on.
///
/// The buffer counts among the connection's memory until it is given back
/// ([`Connection::give_back`](crate::Connection::give_back)).
#[derive(Debug, Default)]
pub struct Chunk {
    buffer: Vec<u8>,
    /// Where the next bytes are.
    first: Range<usize>,
    /// Where those behind them are: the data wraps around the end of the buffer.
    second: Range<usize>,
    fin: bool,
}

impl Chunk {
    pub(super) const fn new(buffer: Vec<u8>, first: Range<usize>, second: Range<usize>) -> Self {
        Self { buffer, first, second, fin: false }
    }

    pub(super) fn with_fin(self, fin: bool) -> Self {
        Self { fin, ..self }
    }

    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// The next bytes; empty once all are taken.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(self.first.clone()).unwrap_or_default()
    }

    /// How many bytes are left.
    pub fn len(&self) -> usize {
        self.first.len().saturating_add(self.second.len())
    }

    /// True if all bytes are taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stream ends behind the chunk.
    pub const fn fin(&self) -> bool {
        self.fin
    }

    /// The stream ends behind [`Chunk::bytes`].
    pub fn is_last(&self) -> bool {
        self.fin && self.second.is_empty()
    }

    /// Takes up to `len` of [`Chunk::bytes`].
    pub fn advance(&mut self, len: usize) {
        self.first.start = self.first.end.min(self.first.start.saturating_add(len));
        if self.first.is_empty() {
            self.first = core::mem::take(&mut self.second);
        }
    }
}
