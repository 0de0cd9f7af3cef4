//! Locks that know who holds them. No function of the application runs under one, but for a few that are asked where the
//! answer is needed at once, and whose documentation forbids to use connections: `KeyLog::taker`,
//! `ChooseClientPolicy::choose`, `ServerConfig::admission_by_hello`, `StrikeRegister::refused`, and `Capture` (docs/threads.md). If one of these did, or another one
//! by a fault of ours, and used what is locked, it would wait for itself; it panics instead, with a message that says why.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

thread_local! {
    /// How many of these locks the thread holds. Its address names the thread.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Nobody: no variable has this address.
const NOBODY: usize = 0;

fn this_thread() -> usize {
    HELD.with(|held| std::ptr::from_ref(held).addr())
}

/// A lock that knows who holds it.
#[derive(Debug)]
pub(crate) struct Held<T> {
    value: Mutex<T>,
    holder: AtomicUsize,
    /// It may be taken while another one is held.
    is_inner: bool,
}

impl<T> Held<T> {
    /// A lock that is taken first: a connection's.
    pub(super) const fn outer(value: T) -> Self {
        Self { value: Mutex::new(value), holder: AtomicUsize::new(NOBODY), is_inner: false }
    }

    /// A lock that is also taken under an outer one.
    pub(super) const fn inner(value: T) -> Self {
        Self { value: Mutex::new(value), holder: AtomicUsize::new(NOBODY), is_inner: true }
    }

    /// Waits until others are through.
    ///
    /// # Panics
    ///
    /// If this thread holds it; in builds with assertions also if an outer one is taken under another one, as two threads
    /// would wait for each other some day.
    pub(super) fn lock(&self) -> HeldGuard<'_, T> {
        debug_assert!(
            self.is_inner || none_held() || self.holder.load(Ordering::Relaxed) == this_thread(),
            "a connection is locked while this thread holds another lock, against the order in docs/threads.md"
        );
        let value = match self.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Others may change it meanwhile, but never to this thread or from it.
                assert!(
                    self.holder.load(Ordering::Relaxed) != this_thread(),
                    "a connection or endpoint is used while this thread has it locked, and would wait for \
                     itself: a fault of Quicket, please report it with the functions above"
                );
                self.value.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        HELD.with(|held| held.set(held.get() + 1));
        self.holder.store(this_thread(), Ordering::Relaxed);
        HeldGuard { value, holder: &self.holder }
    }
}

/// True if this thread holds none of these locks, so that it may take any.
pub(super) fn none_held() -> bool {
    HELD.with(Cell::get) == 0
}

/// Ends the calls of functions that must not wait: who they would wait for may be this thread.
///
/// # Panics
///
/// If this thread holds one of these locks.
pub(super) fn assert_none_held() {
    assert!(
        none_held(),
        "this thread waits for the network with a connection locked, and would keep others from \
         receiving: a fault of Quicket, please report it with the functions above"
    );
}

/// Unlocks when dropped.
#[derive(Debug)]
pub(crate) struct HeldGuard<'a, T> {
    value: MutexGuard<'a, T>,
    holder: &'a AtomicUsize,
}

impl<T> Drop for HeldGuard<'_, T> {
    fn drop(&mut self) {
        self.holder.store(NOBODY, Ordering::Relaxed);
        HELD.with(|held| held.set(held.get().saturating_sub(1)));
    }
}

impl<T> Deref for HeldGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for HeldGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn who_would_wait_for_itself_is_told() {
        let lock = Held::outer(());
        let message = |panic: Box<dyn std::any::Any + Send>| *panic.downcast::<&str>().unwrap();
        let guard = lock.lock();
        let again = catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.lock())));
        assert!(message(again.unwrap_err()).contains("a fault of Quicket"));
        assert!(
            message(catch_unwind(assert_none_held).unwrap_err()).contains("a fault of Quicket")
        );
        drop(guard);
        drop(lock.lock());
        assert_none_held();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn who_takes_locks_against_their_order_is_told() {
        let (connection, shared) = (Held::outer(()), Held::inner(()));
        let guard = connection.lock();
        drop(shared.lock());
        drop(guard);
        let _shared = shared.lock();
        let told = catch_unwind(std::panic::AssertUnwindSafe(|| drop(connection.lock())));
        assert!(told.unwrap_err().downcast::<&str>().unwrap().contains("against the order"));
    }
}
