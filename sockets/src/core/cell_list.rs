//! Connections that are to be seen to later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::cell::Cell;

/// Connections in the order in which they came. Whether there are any is known without a lock.
#[derive(Default)]
pub(super) struct CellList {
    cells: Mutex<Vec<Arc<Cell>>>,
    any: AtomicBool,
}

impl CellList {
    /// Adds one; true if it is the first.
    pub(super) fn push(&self, cell: &Arc<Cell>) -> bool {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(cell));
        !self.any.swap(true, Ordering::SeqCst)
    }

    /// Takes all of them.
    pub(super) fn take(&self) -> Vec<Arc<Cell>> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::SeqCst);
        std::mem::take(&mut *cells)
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::SeqCst)
    }
}
