//! The connection IDs that we issued: by these the peer reaches us (RFC 9000, Section 5.1.1).

use alloc::vec;
use alloc::vec::Vec;

use quicket_wire::frame::{NewConnectionId, RetireConnectionId};
use quicket_wire::{ConnectionId, StatelessResetToken, TransportErrorCode};

use super::CidNumbers;
use crate::error::TransportError;
use crate::time::{Duration, Earliest, Time};

/// The most connection IDs that a peer gets at a time, whatever it asks for.
const MAX_LOCAL_CIDS: usize = 8;
/// The most retired connection IDs that still lead to the connection for a while.
const MAX_LINGERING: usize = 8;
/// Active, lingering and waiting to be retired by the peer, all together.
const MAX_HELD: usize = 2 * MAX_LOCAL_CIDS + MAX_LINGERING;
/// Connection IDs that may be issued at once ...
const CHURN_BURST: u32 = 32;
/// ... and how long it takes until one more may be.
const CHURN_INTERVAL: Duration = Duration::from_millis(100);

/// What the endpoint must do about its routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CidEvent {
    /// Packets to this connection ID belong to the connection.
    Added(ConnectionId),
    /// They no longer do.
    Retired(ConnectionId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// A NEW_CONNECTION_ID frame waits to be sent.
    Pending,
    InFlight,
    /// The peer knows the connection ID.
    Known,
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    sequence: u64,
    cid: ConnectionId,
    token: StatelessResetToken,
    delivery: Delivery,
    /// The endpoint has been told of it.
    announced: bool,
    /// When a retired connection ID stops leading here.
    lingers_until: Option<Time>,
}

/// The connection IDs that we issued on one connection.
#[derive(Debug)]
pub(crate) struct LocalCids {
    /// In order of sequence numbers.
    issued: Vec<Issued>,
    next_sequence: u64,
    retire_prior_to: u64,
    /// What the peer keeps at a time, and no more than [`MAX_LOCAL_CIDS`].
    limit: usize,
    zero_length: bool,
    /// How many may be issued before the next refill.
    allowance: u32,
    refilled: Time,
}

impl LocalCids {
    /// Begins with the Source Connection ID of our first packets, which has sequence number 0
    /// (RFC 9000, Section 5.1.1). The endpoint knows it already.
    pub(crate) fn new(initial: ConnectionId) -> Self {
        let issued = vec![Issued {
            sequence: 0,
            cid: initial,
            token: StatelessResetToken([0; 16]),
            delivery: Delivery::Known,
            announced: true,
            lingers_until: None,
        }];
        Self {
            issued,
            next_sequence: 1,
            retire_prior_to: 0,
            limit: 1,
            zero_length: initial.is_empty(),
            allowance: CHURN_BURST,
            refilled: Time::ZERO,
        }
    }

    /// Adds the connection ID of our preferred_address transport parameter, which has sequence
    /// number 1 (RFC 9000, Section 5.1.1). Must come before any other is issued.
    pub(crate) fn add_preferred(&mut self, cid: ConnectionId, token: StatelessResetToken) {
        if !self.zero_length && self.next_sequence == 1 {
            self.push(cid, token, Delivery::Known);
        }
    }

    /// The peer's active_connection_id_limit (RFC 9000, Section 18.2). Connection IDs are issued
    /// from then on.
    pub(crate) fn set_peer_limit(&mut self, active_connection_id_limit: u64) {
        let limit = usize::try_from(active_connection_id_limit).unwrap_or(usize::MAX);
        self.limit = limit.min(MAX_LOCAL_CIDS);
    }

    /// How many connection IDs to [`Self::issue`] now. Bounded by the peer's limit, and by a rate
    /// when the peer retires them without end (RFC 9000, Section 21.9).
    pub(crate) fn wanted(&mut self, now: Time) -> usize {
        if self.zero_length {
            return 0;
        }
        self.refill(now);
        let missing = self
            .limit
            .saturating_sub(self.active_count())
            .min(MAX_HELD.saturating_sub(self.issued.len()));
        missing.min(usize::try_from(self.allowance).unwrap_or(usize::MAX))
    }

    /// Connection IDs that count against the peer's limit. Those below our Retire Prior To do
    /// not: the frame that asks for more also asks to retire them (RFC 9000, Section 5.1.1).
    fn active_count(&self) -> usize {
        let active = |i: &&Issued| i.lingers_until.is_none() && i.sequence >= self.retire_prior_to;
        self.issued.iter().filter(active).count()
    }

    fn refill(&mut self, now: Time) {
        let intervals =
            now.since(self.refilled).as_nanos().checked_div(CHURN_INTERVAL.as_nanos()).unwrap_or(0);
        if intervals > 0 {
            let more = u32::try_from(intervals).unwrap_or(u32::MAX);
            self.allowance = self.allowance.saturating_add(more).min(CHURN_BURST);
            self.refilled = now;
        }
    }

    /// Issues a connection ID and returns its sequence number. The caller has asked
    /// [`Self::wanted`] before and made `cid` unique within its endpoint.
    pub(crate) fn issue(&mut self, cid: ConnectionId, token: StatelessResetToken) -> u64 {
        self.allowance = self.allowance.saturating_sub(1);
        self.push(cid, token, Delivery::Pending)
    }

    fn push(&mut self, cid: ConnectionId, token: StatelessResetToken, delivery: Delivery) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence = self.next_sequence.saturating_add(1);
        self.issued.push(Issued {
            sequence,
            cid,
            token,
            delivery,
            announced: false,
            lingers_until: None,
        });
        sequence
    }

    /// Asks the peer to retire all connection IDs that it has (RFC 9000, Section 5.1.2): the next
    /// ones issued say so. Refused, with false, while an earlier request is still unanswered, so
    /// that what waits to be retired stays bounded.
    pub(crate) fn rotate(&mut self) -> bool {
        let answered = self
            .issued
            .iter()
            .all(|i| i.lingers_until.is_some() || i.sequence >= self.retire_prior_to);
        if self.zero_length || !answered {
            return false;
        }
        self.retire_prior_to = self.next_sequence;
        true
    }

    /// Asks the peer to retire those below this number: the next ones issued say so. Refused,
    /// with false, as [`Self::rotate`] is.
    pub(crate) fn retire_prior_to(&mut self, sequence: u64) -> bool {
        let answered = self
            .issued
            .iter()
            .all(|i| i.lingers_until.is_some() || i.sequence >= self.retire_prior_to);
        let fits = sequence > self.retire_prior_to && sequence < self.next_sequence;
        if self.zero_length || !answered || !fits {
            return false;
        }
        self.retire_prior_to = sequence;
        true
    }

    /// The lowest and the highest number of those that the peer has not retired.
    pub(crate) fn numbers(&self) -> CidNumbers {
        let numbers =
            || self.issued.iter().filter(|i| i.lingers_until.is_none()).map(|i| i.sequence);
        CidNumbers {
            first: numbers().min().unwrap_or_default(),
            last: numbers().max().unwrap_or_default(),
            active: None,
        }
    }

    /// A RETIRE_CONNECTION_ID frame arrived in a packet to `used`. The connection ID leads here
    /// for `linger` more, for packets that were reordered on the way.
    ///
    /// # Errors
    ///
    /// PROTOCOL_VIOLATION, as RFC 9000, Section 19.16 has it.
    pub(crate) fn on_retire(
        &mut self,
        now: Time,
        frame: &RetireConnectionId,
        used: &ConnectionId,
        linger: Duration,
    ) -> Result<(), TransportError> {
        let violation = |reason| {
            Err(TransportError::at(
                TransportErrorCode::PROTOCOL_VIOLATION,
                RetireConnectionId::TYPE,
                reason,
            ))
        };
        if self.zero_length {
            return violation("RETIRE_CONNECTION_ID for a zero-length connection ID");
        }
        if frame.sequence_number >= self.next_sequence {
            return violation("RETIRE_CONNECTION_ID for a connection ID that was never issued");
        }
        let Some(retired) = self.issued.iter_mut().find(|i| i.sequence == frame.sequence_number)
        else {
            return Ok(());
        };
        if retired.cid == *used {
            return violation("RETIRE_CONNECTION_ID for the connection ID that its packet used");
        }
        if retired.lingers_until.is_none() {
            retired.lingers_until = Some(now + linger);
            retired.delivery = Delivery::Known;
            self.bound_lingering(now);
        }
        Ok(())
    }

    /// Ends the lingering of the oldest when there are too many.
    fn bound_lingering(&mut self, now: Time) {
        let lingering =
            self.issued.iter().filter(|i| i.lingers_until.is_some_and(|t| t > now)).count();
        if lingering > MAX_LINGERING
            && let Some(oldest) = self
                .issued
                .iter_mut()
                .filter(|i| i.lingers_until.is_some_and(|t| t > now))
                .min_by_key(|i| i.lingers_until)
        {
            oldest.lingers_until = Some(now);
        }
    }

    /// What the endpoint must do next about its routes; `None` when it is up to date.
    pub(crate) fn poll_event(&mut self, now: Time) -> Option<CidEvent> {
        if let Some(new) = self.issued.iter_mut().find(|i| !i.announced) {
            new.announced = true;
            return Some(CidEvent::Added(new.cid));
        }
        let gone = self.issued.iter().position(|i| i.lingers_until.is_some_and(|t| t <= now))?;
        Some(CidEvent::Retired(self.issued.remove(gone).cid))
    }

    /// When to ask [`Self::poll_event`] and [`Self::wanted`] again.
    pub(crate) fn timeout(&self) -> Option<Time> {
        let issued = self.issued.iter();
        let linger = issued.fold(Earliest::NEVER, |first, issued| first.or(issued.lingers_until));
        let held_up = self.allowance == 0 && !self.zero_length && self.active_count() < self.limit;
        linger.or(held_up.then(|| self.refilled + CHURN_INTERVAL)).get()
    }

    /// The next NEW_CONNECTION_ID frame to send.
    pub(crate) fn next_frame(&self) -> Option<NewConnectionId> {
        let pending = self.issued.iter().find(|i| i.delivery == Delivery::Pending)?;
        Some(NewConnectionId {
            sequence_number: pending.sequence,
            // Never above the frame's own number (RFC 9000, Section 19.15).
            retire_prior_to: self.retire_prior_to.min(pending.sequence),
            connection_id: pending.cid,
            stateless_reset_token: pending.token,
        })
    }

    /// The frame of this sequence number was sent.
    pub(crate) fn on_frame_sent(&mut self, sequence: u64) {
        self.set_delivery(sequence, Delivery::InFlight);
    }

    /// The frame was lost; it is repeated as it was (RFC 9000, Section 13.3).
    pub(crate) fn on_frame_lost(&mut self, sequence: u64) {
        self.set_delivery(sequence, Delivery::Pending);
    }

    /// The frame was acknowledged.
    pub(crate) fn on_frame_acked(&mut self, sequence: u64) {
        self.set_delivery(sequence, Delivery::Known);
    }

    /// Gives back memory beyond what is issued.
    pub(crate) fn trim(&mut self) {
        self.issued.shrink_to_fit();
    }

    fn set_delivery(&mut self, sequence: u64, delivery: Delivery) {
        let entry = self.issued.iter_mut().find(|i| i.sequence == sequence);
        if let Some(entry) = entry.filter(|i| i.delivery != Delivery::Known) {
            entry.delivery = delivery;
        }
    }

    /// The sequence number of one of our connection IDs; `None` if it is not, or no longer, ours.
    #[inline]
    pub(crate) fn sequence_of(&self, cid: &ConnectionId) -> Option<u64> {
        self.issued.iter().find(|i| i.cid == *cid).map(|i| i.sequence)
    }
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
