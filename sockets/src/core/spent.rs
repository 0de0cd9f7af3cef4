//! Buffers on their way back to their connection.
//!
//! The application may let go of received data on any thread, while another one has the connection
//! locked. So it leaves the buffer here, and the connection takes it when data is taken out next.

use std::sync::{Mutex, PoisonError};

use quicket_engine::{Chunk, Connection};

/// Buffers that the application needs no more: no more than it was given at once.
#[derive(Debug, Default)]
pub(crate) struct Spent(Mutex<Vec<Chunk>>);

impl Spent {
    /// Leaves a buffer.
    pub(crate) fn leave(&self, chunk: Chunk) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(chunk);
    }

    /// Gives all to their connection.
    pub(crate) fn return_to(&self, engine: &mut Connection) {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.drain(..).for_each(|chunk| engine.give_back(chunk));
    }

    /// Gives back the memory of the list, where it is empty.
    pub(crate) fn trim(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).shrink_to_fit();
    }
}
