//! Received data that belongs to the application.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::core::Spent;

/// Received bytes of a stream, in the buffer in which they came: up to 64 KiB.
///
/// They can be kept, and given to other threads. Their buffer counts among the memory of the connection
/// ([`EndpointConfig::memory`](crate::EndpointConfig)) until this is dropped; the connection may have ended
/// by then.
pub struct Chunk {
    bytes: Bytes,
    last: bool,
}

enum Bytes {
    /// A buffer of the connection.
    Own { chunk: quicket_engine::Chunk, spent: Arc<Spent> },
    /// Where others share the buffer.
    Copy(Vec<u8>),
}

impl Chunk {
    /// Takes what lies in one piece out of `chunk`, which is gone if that is all.
    pub(crate) fn take_from(
        rest: &mut Option<quicket_engine::Chunk>,
        spent: Arc<Spent>,
    ) -> Option<Self> {
        let mut chunk = rest.take()?;
        let last = chunk.is_last();
        if chunk.bytes().len() == chunk.len() {
            return Some(Self { bytes: Bytes::Own { chunk, spent }, last });
        }
        let bytes = chunk.bytes().to_vec();
        chunk.advance(bytes.len());
        *rest = Some(chunk);
        Some(Self { bytes: Bytes::Copy(bytes), last })
    }

    /// True if the stream is known to end behind it. The end may also come by itself.
    pub const fn is_last(&self) -> bool {
        self.last
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Own { chunk, .. } => chunk.bytes(),
            Bytes::Copy(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("len", &self.len()).field("last", &self.last).finish()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Bytes::Own { chunk, spent } = &mut self.bytes {
            spent.leave(std::mem::take(chunk));
        }
    }
}
