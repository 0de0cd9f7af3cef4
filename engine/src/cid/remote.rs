//! The connection IDs that the peer gave us: by these we reach it (RFC 9000, Section 5.1).

use alloc::vec::Vec;

use quicket_wire::frame::{NewConnectionId, RetireConnectionId};
use quicket_wire::{ConnectionId, StatelessResetToken, TransportErrorCode};

use super::CidNumbers;
use crate::crypto::CryptoProvider;
use crate::error::TransportError;
use crate::path::{MAX_PATHS, PathKey};

/// The largest active_connection_id_limit that we announce.
const MAX_REMOTE_CIDS: usize = 8;
/// Unacknowledged RETIRE_CONNECTION_ID frames that are tracked, in multiples of the limit that we
/// announced. RFC 9000, Section 5.1.2 asks for two at least; a peer that makes us exceed the bound
/// by never acknowledging is closed down.
const RETIRING_PER_ACTIVE: usize = 4;

/// Paths that use one connection ID: more than one only when the peer's address changed under it
/// (RFC 9000, Section 9.5).
type Users = [Option<PathKey>; MAX_PATHS];

#[derive(Clone, Copy, Debug)]
struct Given {
    sequence: u64,
    cid: ConnectionId,
    token: Option<StatelessResetToken>,
    users: Users,
    /// It was used and put aside: it is not used again, and the peer not told.
    spent: bool,
}

impl Given {
    fn new(sequence: u64, cid: ConnectionId, token: Option<StatelessResetToken>) -> Self {
        Self { sequence, cid, token, users: [None; MAX_PATHS], spent: false }
    }

    fn is_used_by(&self, path: PathKey) -> bool {
        self.users.contains(&Some(path))
    }

    fn is_unused(&self) -> bool {
        !self.spent && self.has_no_users()
    }

    fn has_no_users(&self) -> bool {
        self.users.iter().all(Option::is_none)
    }
}

fn clamp_limit(active_connection_id_limit: u64) -> usize {
    usize::try_from(active_connection_id_limit).unwrap_or(MAX_REMOTE_CIDS).clamp(2, MAX_REMOTE_CIDS)
}

fn add_user(users: &mut Users, path: PathKey) {
    if !users.contains(&Some(path))
        && let Some(free) = users.iter_mut().find(|u| u.is_none())
    {
        *free = Some(path);
    }
}

fn remove_user(users: &mut Users, path: PathKey) {
    for user in users.iter_mut().filter(|u| **u == Some(path)) {
        *user = None;
    }
}

#[derive(Clone, Copy, Debug)]
struct Retiring {
    sequence: u64,
    in_flight: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Novelty {
    New,
    Seen,
    TooOld,
}

/// The newest sequence numbers seen, so that a repeated NEW_CONNECTION_ID does not bring back
/// what was retired.
#[derive(Clone, Copy, Debug)]
struct SeenSequences {
    largest: u64,
    /// Bit `n` stands for `largest - n`.
    window: u128,
}

impl SeenSequences {
    fn note(&mut self, sequence: u64) -> Novelty {
        if let Some(ahead) = sequence.checked_sub(self.largest).filter(|&n| n > 0) {
            let shift = u32::try_from(ahead).unwrap_or(u32::MAX);
            self.window = self.window.checked_shl(shift).unwrap_or(0) | 1;
            self.largest = sequence;
            return Novelty::New;
        }
        let behind = u32::try_from(self.largest.saturating_sub(sequence)).unwrap_or(u32::MAX);
        let Some(bit) = 1u128.checked_shl(behind) else { return Novelty::TooOld };
        let novelty = if self.window & bit == 0 { Novelty::New } else { Novelty::Seen };
        self.window |= bit;
        novelty
    }
}

/// The connection IDs that the peer gave us on one connection.
#[derive(Debug)]
pub(crate) struct RemoteCids {
    given: Vec<Given>,
    seen: SeenSequences,
    /// The active_connection_id_limit that we announced.
    limit: usize,
    /// The largest Retire Prior To seen.
    retire_prior_to: u64,
    retiring: Vec<Retiring>,
    /// Paths whose connection ID was retired while there was no other to take.
    waiting: Users,
    generation: u32,
}

impl RemoteCids {
    /// Begins with the peer's first connection ID, sequence number 0, used on `path`. A client
    /// that has not heard from the server begins with the one that it made up.
    ///
    /// `active_connection_id_limit` is what we announce (RFC 9000, Section 18.2).
    pub(crate) fn new(
        initial: ConnectionId,
        path: PathKey,
        active_connection_id_limit: u64,
    ) -> Self {
        let limit = clamp_limit(active_connection_id_limit);
        let mut first = Given::new(0, initial, None);
        add_user(&mut first.users, path);
        let mut given = Vec::with_capacity(limit.saturating_add(1));
        given.push(first);
        Self {
            given,
            seen: SeenSequences { largest: 0, window: 1 },
            limit,
            retire_prior_to: 0,
            retiring: Vec::with_capacity(limit),
            waiting: [None; MAX_PATHS],
            generation: 0,
        }
    }

    /// Gives back memory beyond what is kept.
    pub(crate) fn trim(&mut self) {
        self.given.shrink_to_fit();
        self.retiring.shrink_to_fit();
    }

    /// Takes another limit before it is announced.
    pub(crate) fn set_limit(&mut self, active_connection_id_limit: u64) {
        self.limit = clamp_limit(active_connection_id_limit);
    }

    /// The lowest and the highest sequence number, and that of the one that `path` uses.
    pub(crate) fn numbers(&self, path: PathKey) -> CidNumbers {
        let numbers = || self.given.iter().map(|given| given.sequence);
        let active = self.given.iter().find(|given| given.is_used_by(path));
        CidNumbers {
            first: numbers().min().unwrap_or_default(),
            last: numbers().max().unwrap_or_default(),
            active: active.map(|given| given.sequence),
        }
    }

    /// Lets `path` use the connection ID of this number from now on; all lower ones count as
    /// used. False if the peer has not given it, or it was used already.
    pub(crate) fn switch_to(&mut self, path: PathKey, sequence: u64) -> bool {
        let free = |given: &&mut Given| given.sequence == sequence && given.is_unused();
        let Some(next) = self.given.iter_mut().find(free) else { return false };
        add_user(&mut next.users, path);
        for lower in self.given.iter_mut().filter(|given| given.sequence < sequence) {
            remove_user(&mut lower.users, path);
            lower.spent = true;
        }
        self.generation = self.generation.wrapping_add(1);
        true
    }

    /// Retires all connection IDs below this number; paths that used them take others.
    ///
    /// # Errors
    ///
    /// As [`Self::release`].
    pub(crate) fn retire_prior_to(&mut self, sequence: u64) -> Result<(), TransportError> {
        self.retire_below(sequence)?;
        self.serve_waiting();
        Ok(())
    }

    /// Replaces the first connection ID by the one that the server chose, in a Retry or in its
    /// first Initial packet (RFC 9000, Section 7.2).
    pub(crate) fn set_initial(&mut self, cid: ConnectionId) {
        if let Some(first) = self.given.iter_mut().find(|g| g.sequence == 0) {
            first.cid = cid;
        }
    }

    /// The stateless_reset_token transport parameter, which belongs to sequence number 0
    /// (RFC 9000, Section 18.2).
    pub(crate) fn set_initial_token(&mut self, token: StatelessResetToken) {
        if let Some(first) = self.given.iter_mut().find(|g| g.sequence == 0) {
            first.token = Some(token);
            self.generation = self.generation.wrapping_add(1);
        }
    }

    /// The connection ID of the server's preferred_address, sequence number 1
    /// (RFC 9000, Section 9.6).
    pub(crate) fn add_preferred(&mut self, cid: ConnectionId, token: StatelessResetToken) {
        if self.seen.note(1) == Novelty::New {
            self.given.push(Given::new(1, cid, Some(token)));
        }
    }

    /// Handles a NEW_CONNECTION_ID frame.
    ///
    /// # Errors
    ///
    /// PROTOCOL_VIOLATION, FRAME_ENCODING_ERROR or CONNECTION_ID_LIMIT_ERROR, as RFC 9000,
    /// Sections 5.1.1, 5.1.2 and 19.15 have it.
    pub(crate) fn on_new_connection_id(
        &mut self,
        frame: &NewConnectionId,
    ) -> Result<(), TransportError> {
        self.check(frame)?;
        match self.seen.note(frame.sequence_number) {
            Novelty::Seen => {}
            // Late: to be retired before it was ever used (RFC 9000, Section 19.15).
            Novelty::New if frame.sequence_number < self.retire_prior_to => {
                self.retire_sequence(frame.sequence_number)?;
            }
            Novelty::New => self.given.push(Given::new(
                frame.sequence_number,
                frame.connection_id,
                Some(frame.stateless_reset_token),
            )),
            // Retired long ago, or never seen: retiring it (again) is right in both cases.
            Novelty::TooOld => {
                if self.given.iter().all(|g| g.sequence != frame.sequence_number) {
                    self.retire_sequence(frame.sequence_number)?;
                }
            }
        }
        self.retire_below(frame.retire_prior_to)?;
        // RFC 9000, Section 5.1.1: counted after additions and retirements.
        if self.given.len() > self.limit {
            return Err(error(
                TransportErrorCode::CONNECTION_ID_LIMIT_ERROR,
                "more connection IDs than active_connection_id_limit",
            ));
        }
        self.serve_waiting();
        Ok(())
    }

    fn check(&self, frame: &NewConnectionId) -> Result<(), TransportError> {
        if self.given.iter().any(|g| g.cid.is_empty()) {
            return Err(error(
                TransportErrorCode::PROTOCOL_VIOLATION,
                "NEW_CONNECTION_ID from a peer of zero-length connection IDs",
            ));
        }
        if frame.connection_id.is_empty() {
            return Err(error(
                TransportErrorCode::FRAME_ENCODING_ERROR,
                "NEW_CONNECTION_ID of zero length",
            ));
        }
        if frame.retire_prior_to > frame.sequence_number {
            return Err(error(
                TransportErrorCode::FRAME_ENCODING_ERROR,
                "Retire Prior To above Sequence Number",
            ));
        }
        let contradicts = |g: &Given| {
            let same_sequence = g.sequence == frame.sequence_number;
            let same_cid = g.cid == frame.connection_id;
            let other_token = g.token.is_some_and(|t| t != frame.stateless_reset_token);
            same_sequence != same_cid || (same_cid && other_token)
        };
        if self.given.iter().any(contradicts) {
            return Err(error(
                TransportErrorCode::PROTOCOL_VIOLATION,
                "connection ID, sequence number and reset token contradict an earlier frame",
            ));
        }
        Ok(())
    }

    fn retire_below(&mut self, retire_prior_to: u64) -> Result<(), TransportError> {
        if retire_prior_to <= self.retire_prior_to {
            return Ok(());
        }
        self.retire_prior_to = retire_prior_to;
        while let Some(index) = self.given.iter().position(|g| g.sequence < retire_prior_to) {
            self.retire_index(index)?;
        }
        Ok(())
    }

    /// Forgets a connection ID and queues its RETIRE_CONNECTION_ID; its paths wait for another.
    fn retire_index(&mut self, index: usize) -> Result<(), TransportError> {
        if index >= self.given.len() {
            return Ok(());
        }
        let retired = self.given.remove(index);
        for path in retired.users.into_iter().flatten() {
            add_user(&mut self.waiting, path);
        }
        self.generation = self.generation.wrapping_add(1);
        self.retire_sequence(retired.sequence)
    }

    fn retire_sequence(&mut self, sequence: u64) -> Result<(), TransportError> {
        if self.retiring.iter().any(|r| r.sequence == sequence) {
            return Ok(());
        }
        // RFC 9000, Section 5.1.2: may be treated as CONNECTION_ID_LIMIT_ERROR.
        if self.retiring.len() >= self.limit.saturating_mul(RETIRING_PER_ACTIVE) {
            return Err(error(
                TransportErrorCode::CONNECTION_ID_LIMIT_ERROR,
                "too many connection IDs to retire at once",
            ));
        }
        self.retiring.push(Retiring { sequence, in_flight: false });
        Ok(())
    }

    /// Gives unused connection IDs to the paths that lost theirs.
    fn serve_waiting(&mut self) {
        for slot in 0..self.waiting.len() {
            let Some(path) = self.waiting.get(slot).copied().flatten() else { continue };
            if self.take_unused(path).is_none() {
                return;
            }
        }
    }

    /// The connection ID that `path` uses; `None` if it has none and nothing can be sent on it
    /// until the peer gives us another.
    #[inline]
    pub(crate) fn get(&self, path: PathKey) -> Option<ConnectionId> {
        self.given.iter().find(|g| g.is_used_by(path)).map(|g| g.cid)
    }

    /// Takes a connection ID that was never used, for a new path (RFC 9000, Section 9.5). A path
    /// that has one already keeps it. With zero-length connection IDs all paths share the one.
    pub(crate) fn take_unused(&mut self, path: PathKey) -> Option<ConnectionId> {
        if let Some(cid) = self.get(path) {
            return Some(cid);
        }
        let unused = self
            .given
            .iter_mut()
            .filter(|g| g.is_unused() || g.cid.is_empty())
            .min_by_key(|g| g.sequence)?;
        add_user(&mut unused.users, path);
        let cid = unused.cid;
        remove_user(&mut self.waiting, path);
        self.generation = self.generation.wrapping_add(1);
        Some(cid)
    }

    /// True if the peer chose not to use connection IDs: all paths share the empty one.
    pub(crate) fn is_zero_length(&self) -> bool {
        self.given.iter().any(|g| g.cid.is_empty())
    }

    /// How many connection IDs [`Self::take_unused`] could still give.
    pub(crate) fn unused(&self) -> usize {
        self.given.iter().filter(|g| g.is_unused()).count()
    }

    /// Lets the new path `to` use the connection ID of `from`: right only when the peer's address
    /// changed while it kept using the same connection ID of ours (RFC 9000, Section 9.5).
    pub(crate) fn share(&mut self, from: PathKey, to: PathKey) -> Option<ConnectionId> {
        if let Some(cid) = self.get(to) {
            return Some(cid);
        }
        let shared = self.given.iter_mut().find(|g| g.is_used_by(from))?;
        add_user(&mut shared.users, to);
        Some(shared.cid)
    }

    /// The path is gone: its connection ID is retired unless another path uses it too.
    ///
    /// # Errors
    ///
    /// CONNECTION_ID_LIMIT_ERROR when the peer does not acknowledge what was retired before.
    pub(crate) fn release(&mut self, path: PathKey) -> Result<(), TransportError> {
        remove_user(&mut self.waiting, path);
        let Some(index) = self.given.iter().position(|g| g.is_used_by(path)) else {
            return Ok(());
        };
        if let Some(given) = self.given.get_mut(index) {
            remove_user(&mut given.users, path);
            if !given.has_no_users() || given.cid.is_empty() {
                return Ok(());
            }
        }
        self.retire_index(index)
    }

    /// Changes the connection ID of a path, so that observers cannot link what follows to what
    /// came before (RFC 9000, Section 5.1). False if there is no unused one.
    ///
    /// # Errors
    ///
    /// As [`Self::release`].
    pub(crate) fn rotate(&mut self, path: PathKey) -> Result<bool, TransportError> {
        if self.unused() == 0 {
            return Ok(false);
        }
        self.release(path)?;
        Ok(self.take_unused(path).is_some())
    }

    /// The next RETIRE_CONNECTION_ID frame to send.
    pub(crate) fn next_frame(&self) -> Option<RetireConnectionId> {
        let pending = self.retiring.iter().find(|r| !r.in_flight)?;
        Some(RetireConnectionId { sequence_number: pending.sequence })
    }

    /// The frame of this sequence number was sent.
    pub(crate) fn on_frame_sent(&mut self, sequence: u64) {
        self.set_in_flight(sequence, true);
    }

    /// The frame was lost.
    pub(crate) fn on_frame_lost(&mut self, sequence: u64) {
        self.set_in_flight(sequence, false);
    }

    /// The frame was acknowledged.
    pub(crate) fn on_frame_acked(&mut self, sequence: u64) {
        self.retiring.retain(|r| r.sequence != sequence);
    }

    fn set_in_flight(&mut self, sequence: u64, in_flight: bool) {
        if let Some(entry) = self.retiring.iter_mut().find(|r| r.sequence == sequence) {
            entry.in_flight = in_flight;
        }
    }

    /// The stateless reset tokens that the peer may use: those of connection IDs in use, neither
    /// of unused nor of retired ones (RFC 9000, Section 10.3.1).
    pub(crate) fn reset_tokens(&self) -> impl Iterator<Item = &StatelessResetToken> {
        self.given.iter().filter(|g| !g.is_unused()).filter_map(|g| g.token.as_ref())
    }

    /// True if `token` is one of [`Self::reset_tokens`]; all are compared, in constant time
    /// (RFC 9000, Section 10.3.1).
    pub(crate) fn is_reset_token(&self, crypto: &dyn CryptoProvider, token: &[u8; 16]) -> bool {
        self.reset_tokens().fold(false, |found, t| found | crypto.constant_time_eq(&t.0, token))
    }

    /// Changes whenever [`Self::reset_tokens`] may have, so that an endpoint that keeps an index
    /// of tokens knows when to read them again.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }
}

fn error(code: TransportErrorCode, reason: &'static str) -> TransportError {
    TransportError::at(code, NewConnectionId::TYPE, reason)
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
