//! Bodies, tunnels and streams that flow no faster than the file allows: for a service, and for a client's address.
//!
//! A piece goes on as it comes, and the next one, of this body or of another, waits until it is paid for. So pieces are never held here, and who
//! sends them is slowed down as by a slow reader.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::Sleep;

use crate::clients::Clients;
use crate::{Body, BodyError};

/// What may flow at once after a while of silence, as time.
const BURST: Duration = Duration::from_millis(250);

/// Which way a body flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// From clients.
    Received,
    /// To clients.
    Sent,
}

/// Until when what has flowed is paid for, each way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paid([Instant; 2]);

impl Paid {
    pub(crate) const fn new(now: Instant) -> Self {
        Self([now; 2])
    }

    /// Pays for so many bytes; how long they take at this rate, beyond what may come at once.
    pub(crate) fn pay(
        &mut self,
        flow: Flow,
        bytes: usize,
        per_second: u64,
        now: Instant,
    ) -> Duration {
        let paid = &mut self.0[flow as usize];
        let nanos = (bytes as u128) * 1_000_000_000 / u128::from(per_second.max(1));
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let from = (*paid).max(now.checked_sub(BURST).unwrap_or(now));
        *paid = from.checked_add(cost).unwrap_or(from);
        paid.saturating_duration_since(now)
    }
}

/// The rate of a site, or of a private protocol.
#[derive(Debug)]
pub(crate) struct Rate {
    per_second: u64,
    /// Begun, or taken over from the configuration before, with the first body.
    account: OnceLock<Arc<Account>>,
}

/// What it has paid for, and may have, whichever configuration its requests came by.
#[derive(Debug)]
pub(crate) struct Account {
    per_second: AtomicU64,
    paid: Mutex<Paid>,
}

impl Rate {
    pub(crate) const fn new(per_second: u64) -> Self {
        Self { per_second, account: OnceLock::new() }
    }

    pub(crate) fn account(&self) -> Arc<Account> {
        let begin = || {
            let paid = Mutex::new(Paid::new(Instant::now()));
            Arc::new(Account { per_second: AtomicU64::new(self.per_second), paid })
        };
        Arc::clone(self.account.get_or_init(begin))
    }

    /// Goes on with the account of the configuration before. What flows already does so at this rate, too.
    pub(crate) fn take_over(&self, account: &Arc<Account>) {
        account.per_second.store(self.per_second, Ordering::Relaxed);
        // Where bodies flowed already, they have one.
        let _ = self.account.set(Arc::clone(account));
    }
}

impl Account {
    fn pay(&self, flow: Flow, bytes: usize) -> Duration {
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        paid.pay(flow, bytes, self.per_second.load(Ordering::Relaxed), Instant::now())
    }
}

impl Flow {
    /// The other way.
    pub(crate) const fn back(self) -> Self {
        match self {
            Self::Received => Self::Sent,
            Self::Sent => Self::Received,
        }
    }
}

/// Waits until what has flowed is paid for. `still` is called each second, for those who look out for silence.
pub(crate) async fn rest(mut owed: Duration, still: impl Fn()) {
    const STEP: Duration = Duration::from_secs(1);
    while !owed.is_zero() {
        let step = owed.min(STEP);
        tokio::time::sleep(step).await;
        still();
        owed = owed.saturating_sub(step);
    }
}

/// Who pays for the bodies of a request.
#[derive(Clone, Default)]
pub(crate) struct Payers {
    /// A site, or a private protocol.
    pub(crate) service: Option<Arc<Account>>,
    /// An address, and its rate.
    pub(crate) client: Option<(Arc<Clients>, IpAddr, u64)>,
}

impl std::fmt::Debug for Payers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payers").finish_non_exhaustive()
    }
}

impl Payers {
    /// A body that flows as fast as all of them allow.
    pub(crate) fn pace(&self, flow: Flow, body: Body) -> Body {
        if (self.service.is_none() && self.client.is_none()) || body.is_end_stream() {
            return body;
        }
        Paced { body, flow, payers: self.clone(), begun: false, wait: None }.boxed_unsync()
    }

    /// Pays for so many bytes; how long to wait before more may flow.
    pub(crate) fn pay(&self, flow: Flow, bytes: usize) -> Duration {
        let service = self.service.as_ref().map(|account| account.pay(flow, bytes));
        let client = self.client.as_ref().map(|(clients, address, per_second)| {
            // Its connection is there: nobody has made it up.
            clients.pay(*address, flow, bytes, *per_second, true)
        });
        service.max(client).unwrap_or_default()
    }
}

struct Paced {
    body: Body,
    flow: Flow,
    payers: Payers,
    begun: bool,
    wait: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.begun {
            // What others have flowed before is paid for first: many short bodies are as a long one.
            self.begun = true;
            let delay = self.payers.pay(self.flow, 0);
            self.wait = (!delay.is_zero()).then(|| Box::pin(tokio::time::sleep(delay)));
        }
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let delay = self.payers.pay(self.flow, data.len());
            // The end of a body waits for nothing.
            if !delay.is_zero() && !self.body.is_end_stream() {
                self.wait = Some(Box::pin(tokio::time::sleep(delay)));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_flows_is_paid_for_each_way() {
        let begun = Instant::now();
        let mut paid = Paid::new(begun);
        let mut at = |flow, millis, bytes| {
            paid.pay(flow, bytes, 1000, begun + Duration::from_millis(millis)).as_millis()
        };
        assert_eq!(at(Flow::Sent, 0, 500), 500);
        assert_eq!(at(Flow::Sent, 100, 500), 900, "both");
        assert_eq!(at(Flow::Received, 100, 100), 0, "the other way, after a while of silence");
        assert_eq!(at(Flow::Sent, 5_000, 250), 0, "no more than a burst is saved");
        assert_eq!(at(Flow::Sent, 5_000, 1000), 1000);
    }

    #[test]
    fn no_number_is_too_large() {
        let now = Instant::now();
        let mut paid = Paid::new(now);
        assert!(paid.pay(Flow::Sent, usize::MAX, 1, now) > Duration::from_secs(1 << 30));
        assert_eq!(paid.pay(Flow::Received, 1 << 20, u64::MAX, now), Duration::ZERO);
    }
}
