//! What an exchange hears beside its answer: that its request is malformed, and what the client is told first.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use h3::error::Code;
use quicket_h3::Violation;

use super::{INTERIM, Interim};

/// What an exchange hears from those who read its request and its answer. Clones lead to the same one. One task waits
/// here, for both at the same time.
#[derive(Clone, Default)]
pub(super) struct Aside(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    wrong: Option<Violation>,
    /// No more than [`INTERIM`].
    interim: VecDeque<Interim>,
    waker: Option<Waker>,
    /// The request has become a tunnel.
    is_tunnel: bool,
}

impl Aside {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request is malformed. What was said first counts.
    pub(super) fn refuse(&self, violation: Violation) {
        let mut state = self.lock();
        state.wrong.get_or_insert(violation);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// What is wrong with the request, as far as that is known.
    pub(super) fn refused(&self) -> Option<Violation> {
        self.lock().wrong
    }

    /// Waits until something is wrong with the request. Cancel safe.
    pub(super) async fn refusal(&self) -> Violation {
        self.wait(|state| state.wrong).await
    }

    /// Has a head sent before the answer. A client that takes them slowly does without.
    pub(super) fn tell(&self, interim: Interim) {
        let mut state = self.lock();
        if state.interim.len() < INTERIM {
            state.interim.push_back(interim);
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// The next head that was to be sent, if there is one.
    pub(super) fn told(&self) -> Option<Interim> {
        self.lock().interim.pop_front()
    }

    /// Waits for a head that is to be sent. Cancel safe.
    pub(super) async fn interim(&self) -> Interim {
        self.wait(|state| state.interim.pop_front()).await
    }

    /// The request has become a tunnel: what it sends is data of another protocol.
    pub(super) fn become_tunnel(&self) {
        self.lock().is_tunnel = true;
    }

    /// What a client is told whose data is no longer wanted. An answer is worth as much without it (RFC 9114, Section 4.1);
    /// a tunnel is cut, as a connection of TCP that is reset (RFC 9220, Section 3).
    pub(super) fn unwanted(&self) -> Code {
        if self.lock().is_tunnel { Code::H3_REQUEST_CANCELLED } else { Code::H3_NO_ERROR }
    }

    async fn wait<T>(&self, mut take: impl FnMut(&mut State) -> Option<T>) -> T {
        poll_fn(|cx| {
            let mut state = self.lock();
            if let Some(taken) = take(&mut state) {
                return Poll::Ready(taken);
            }
            match &mut state.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_h3::Scope;
    use std::pin::pin;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_both_hears_of_each() {
        let aside = Aside::default();
        let heard = aside.clone();
        let hearing = tokio::spawn(async move {
            let (mut refusal, mut heads) = (pin!(heard.refusal()), 0);
            loop {
                tokio::select! {
                    biased;
                    violation = &mut refusal => return (violation, heads),
                    _ = heard.interim() => heads += 1,
                }
            }
        });
        for _ in 0..3 {
            tokio::task::yield_now().await;
            aside.tell(Interim::Continue);
        }
        tokio::task::yield_now().await;
        let reason = "a test";
        let violation = Violation { scope: Scope::Stream, code: Code::H3_MESSAGE_ERROR, reason };
        aside.refuse(violation);
        aside.refuse(Violation { reason: "another", ..violation });
        let (refused, heads) = timeout(Duration::from_secs(1), hearing).await.unwrap().unwrap();
        assert_eq!((refused.reason, heads), ("a test", 3));
    }

    #[test]
    fn heads_that_nobody_sends_are_few() {
        let aside = Aside::default();
        (0..10).for_each(|_| aside.tell(Interim::Continue));
        assert_eq!(std::iter::from_fn(|| aside.told()).count(), INTERIM);
    }
}
