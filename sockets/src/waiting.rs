//! Futures of poll functions.

use std::future::poll_fn;
use std::task::Poll;

use crate::core::{Waiter, WaiterId};

/// Takes a party that waits no more off the lists, whichever way the wait ends.
struct Registration<F: FnMut(WaiterId)> {
    id: WaiterId,
    registered: bool,
    unregister: F,
}

impl<F: FnMut(WaiterId)> Drop for Registration<F> {
    fn drop(&mut self) {
        if self.registered {
            (self.unregister)(self.id);
        }
    }
}

/// Waits until `poll` has an answer. When dropped before, nothing has happened, and `unregister`
/// makes that nothing is left behind.
pub(crate) async fn wait<T>(
    mut poll: impl FnMut(Waiter<'_>) -> Poll<T>,
    unregister: impl FnMut(WaiterId),
) -> T {
    let mut registration = Registration { id: WaiterId::unique(), registered: false, unregister };
    poll_fn(|context| {
        let waiter = Waiter::task(registration.id, context.waker());
        let answer = poll(waiter);
        registration.registered |= answer.is_pending();
        answer
    })
    .await
}
