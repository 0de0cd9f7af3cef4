//! Which requests a server takes, as the transport knows it and h3 does not tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use h3::quic::StreamId;
use tokio::sync::{Notify, SetOnce};

use crate::frames::Settings;

/// Which requests the server of a connection takes. Clones share what they know.
#[derive(Clone, Debug)]
pub struct Acceptance(Arc<State>);

#[derive(Debug)]
struct State {
    /// Requests that wait for a stream.
    waiting: AtomicUsize,
    /// The first request that the server does not answer, or [`UNSAID`].
    end: AtomicU64,
    /// That has changed. A channel would take a third of a KiB of each connection, also of those that are a server's.
    ends: Notify,
    /// Whether it takes requests of extended CONNECT, once its SETTINGS are here.
    extended_connect: SetOnce<bool>,
    /// How long the peer takes field sections.
    max_section: AtomicU64,
}

/// No stream has this number (RFC 9000, Section 2.1).
const UNSAID: u64 = u64::MAX;

impl Default for Acceptance {
    fn default() -> Self {
        Self(Arc::new(State {
            waiting: AtomicUsize::new(0),
            end: AtomicU64::new(UNSAID),
            ends: Notify::new(),
            extended_connect: SetOnce::new(),
            max_section: AtomicU64::new(Settings::default().max_section),
        }))
    }
}

impl Acceptance {
    /// True while a request waits until the server allows another stream (RFC 9000, Section 4.6).
    pub fn is_full(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// True once the server has said that it takes no more requests: by GOAWAY (RFC 9114, Section 5.2).
    pub fn is_over(&self) -> bool {
        self.0.end.load(Ordering::Acquire) != UNSAID
    }

    /// Waits until the server has said that it did nothing with the request of this stream, and never will. It may
    /// be sent again over another connection, whatever it is (RFC 9114, Section 5.2).
    ///
    /// Cancel safe.
    pub async fn left_out(&self, stream: StreamId) {
        let stream = stream.into_inner();
        loop {
            // Who is told between the look and the wait hears of it, too.
            let told = self.0.ends.notified();
            if stream >= self.0.end.load(Ordering::Acquire) {
                return;
            }
            told.await;
        }
    }

    /// Waits for the server's SETTINGS: true if they allow extended CONNECT, which clients must not use otherwise
    /// (RFC 9220, Section 3). For ever, if they do not come.
    ///
    /// Cancel safe.
    pub async fn takes_extended_connect(&self) -> bool {
        *self.0.extended_connect.wait().await
    }

    /// The peer has sent its SETTINGS.
    pub(crate) fn settles(&self, settings: Settings) {
        self.0.max_section.store(settings.max_section, Ordering::Relaxed);
        // There is one SETTINGS frame at most (RFC 9114, Section 7.2.4).
        let _ = self.0.extended_connect.set(settings.extended_connect);
    }

    /// How long the peer takes field sections, as they are decoded: any, as long as its SETTINGS are not here
    /// (RFC 9114, Section 7.2.4.2).
    pub(crate) fn max_section(&self) -> u64 {
        self.0.max_section.load(Ordering::Relaxed)
    }

    /// The server has named the first request that it does not answer.
    pub(crate) fn ends_before(&self, stream: u64) {
        self.0.end.store(stream, Ordering::Release);
        self.0.ends.notify_waiters();
    }

    pub(crate) fn wait(&self) -> Waiting {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self.clone())
    }
}

/// A request that waits for a stream.
#[derive(Debug)]
pub(crate) struct Waiting(Acceptance);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn is_left_out(acceptance: &Acceptance, stream: u64) -> bool {
        let stream = StreamId::try_from(stream).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        pin!(acceptance.left_out(stream)).poll(&mut cx).is_ready()
    }

    #[test]
    fn requests_from_the_one_that_is_named_on_are_left_out() {
        let acceptance = Acceptance::default();
        assert!(!acceptance.is_over() && !is_left_out(&acceptance, 0));
        acceptance.ends_before(8);
        let left_out = [0, 4, 8, 12].map(|stream| is_left_out(&acceptance, stream));
        assert_eq!((acceptance.is_over(), left_out), (true, [false, false, true, true]));
        acceptance.ends_before(4);
        assert!(is_left_out(&acceptance, 4));
    }

    #[test]
    fn extended_connect_is_known_once_settings_are_here() {
        let mut cx = Context::from_waker(Waker::noop());
        for takes in [false, true] {
            let acceptance = Acceptance::default();
            let told = pin!(acceptance.takes_extended_connect()).poll(&mut cx);
            assert_eq!(told, Poll::Pending);
            acceptance.settles(Settings { extended_connect: takes, ..Settings::default() });
            let told = pin!(acceptance.takes_extended_connect()).poll(&mut cx);
            assert_eq!(told, Poll::Ready(takes));
        }
    }

    #[test]
    fn it_is_full_as_long_as_somebody_waits() {
        let acceptance = Acceptance::default();
        let (first, second) = (acceptance.wait(), acceptance.clone().wait());
        drop(first);
        assert!(acceptance.is_full());
        drop(second);
        assert!(!acceptance.is_full());
    }
}
