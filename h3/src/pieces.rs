//! Memory of what was received, used again.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// The largest piece that is handed to h3 at once, in bytes.
const PIECE: usize = 64 << 10;
/// A piece below this is memory of its own: a large buffer would be mostly empty.
const SMALL: usize = PIECE / 4;
/// How many buffers a connection keeps for pieces to come, at most: 1 MiB.
const KEPT: usize = 16;

/// Whether a piece is one of many, most likely.
pub(crate) const fn is_large(bytes: &[u8]) -> bool {
    bytes.len() >= SMALL
}

/// The buffers of a connection's pieces. When several are freed together, the allocator gives their
/// memory back to the system, and has it cleared page by page for the next ones: that costs more
/// than the copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces(Arc<Mutex<Vec<Vec<u8>>>>);

impl Pieces {
    /// A copy of bytes, [`PIECE`] of them at most.
    pub(crate) fn copy(&self, bytes: &[u8]) -> Bytes {
        let bytes = &bytes[..bytes.len().min(PIECE)];
        if !is_large(bytes) {
            return Bytes::copy_from_slice(bytes);
        }
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = kept.unwrap_or_else(|| Vec::with_capacity(PIECE));
        buffer.extend_from_slice(bytes);
        Bytes::from_owner(Piece { buffer, of: self.clone() })
    }
}

/// A buffer that goes back when nobody has the piece any more.
struct Piece {
    buffer: Vec<u8>,
    of: Pieces,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut kept = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_nobody_has_the_piece() {
        let pieces = Pieces::default();
        let first = pieces.copy(&[1; PIECE + 1]);
        assert_eq!(first, [1; PIECE][..]);
        let place = first.as_ptr();
        let part = first.slice(1..3);
        drop(first);
        let second = pieces.copy(&[2; SMALL]);
        assert_ne!(second.as_ptr(), place, "somebody has a part of it");
        assert_eq!(part, [1; 2][..]);
        drop(part);
        assert_eq!(pieces.copy(&[3; SMALL]).as_ptr(), place);
        assert_eq!(pieces.copy(b"abc"), b"abc"[..]);
        let many: Vec<Bytes> = (0..2 * KEPT).map(|_| pieces.copy(&[4; PIECE])).collect();
        drop(many);
        assert_eq!(pieces.0.lock().unwrap().len(), KEPT);
    }
}
