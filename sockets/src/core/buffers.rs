//! Buffers for bursts, reused.

use std::sync::{Mutex, PoisonError};

use quicket_udp::MAX_BURST;

/// Room for one burst.
pub(crate) type Buffer = Box<[u8]>;

/// How many free buffers are kept; as many threads can transmit at once without allocating.
const KEPT: usize = 16;

/// Free buffers.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    free: Mutex<Vec<Buffer>>,
}

impl BufferPool {
    /// A buffer of [`MAX_BURST`] bytes with arbitrary contents.
    pub(crate) fn take(&self) -> Buffer {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| vec![0; MAX_BURST].into_boxed_slice())
    }

    /// Lets go of all that are free.
    pub(crate) fn release(&self) {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    }

    /// Gives one back.
    pub(crate) fn give(&self, buffer: Buffer) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT {
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_buffers_are_kept_until_they_are_released() {
        let pool = BufferPool::default();
        let taken: Vec<_> = (0..2 * KEPT).map(|_| pool.take()).collect();
        taken.into_iter().for_each(|buffer| pool.give(buffer));
        let kept = || pool.free.lock().unwrap().capacity();
        assert!((KEPT..=2 * KEPT).contains(&kept()));
        pool.release();
        assert_eq!(kept(), 0);
        assert_eq!(pool.take().len(), MAX_BURST);
    }
}
