//! What is to be seen to later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Items in the order in which they came. Whether there are any is known without a lock.
pub(super) struct List<T> {
    items: Mutex<Vec<T>>,
    any: AtomicBool,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), any: AtomicBool::new(false) }
    }
}

impl<T> List<T> {
    /// Adds one; true if it is the first.
    pub(super) fn push(&self, item: T) -> bool {
        self.items().push(item);
        !self.any.swap(true, Ordering::SeqCst)
    }

    /// Takes all of them.
    pub(super) fn take(&self) -> Vec<T> {
        self.take_if(|_| true)
    }

    /// Takes those that are `wanted`.
    pub(super) fn take_if(&self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut items = self.items();
        let taken = items.extract_if(.., |item| wanted(item)).collect();
        self.any.store(!items.is_empty(), Ordering::SeqCst);
        taken
    }

    /// Looks at the first.
    pub(super) fn first<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        if self.is_empty() { None } else { self.items().first().map(look) }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::SeqCst)
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.items().len()
    }

    fn items(&self) -> MutexGuard<'_, Vec<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
