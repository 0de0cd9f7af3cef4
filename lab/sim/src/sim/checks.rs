//! Promises of the engine that are checked from the outside while a simulation runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use quicket_engine::crypto::Direction;
use quicket_engine::time::Time;
use quicket_engine::{Observation, Observer};
use quicket_wire::{Frame, PacketKind};

/// RFC 9000, Section 8.1: what may be sent to an address that is not validated, in multiples of
/// what came from it.
const AMPLIFICATION_LIMIT: u64 = 3;

/// RFC 9000, Section 14: the UDP payload that every path carries, in bytes.
const FULL_SIZE: usize = 1_200;

/// What an [`Observer`] saw that bears on the validation of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// A Handshake packet was processed: its sender holds the handshake keys.
    HandshakePacket,
    /// A PATH_CHALLENGE goes out.
    ChallengeSent([u8; 8]),
    /// A PATH_RESPONSE was received.
    ResponseReceived([u8; 8]),
    /// A PATH_RESPONSE is in the packet under construction.
    ResponseSent,
    /// A packet was processed.
    PacketReceived,
    /// The peer was followed to this address.
    Moved(SocketAddr),
}

impl Note {
    /// True if the note is about a packet that is not sent yet.
    pub(super) fn is_pending(self) -> bool {
        matches!(self, Self::ChallengeSent(_) | Self::ResponseSent)
    }
}

/// Notes of one host, written by the observers of its connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Vec<Note>>>);

impl Notes {
    pub(super) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, note: Note) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }
}

/// Observes one connection: takes notes, and prints everything when asked to.
pub(super) struct Watcher {
    pub(super) notes: Notes,
    /// Name of the connection, to print before each line; `None` prints nothing.
    pub(super) trace: Option<String>,
}

impl Observer for Watcher {
    fn observe(&mut self, now: Time, observation: &Observation<'_>) {
        if let Some(name) = &self.trace {
            eprintln!("{now:?} {name}: {observation:?}");
        }
        match observation {
            Observation::Packet { direction, kind, content, .. } => {
                if *direction == Direction::Receive {
                    self.notes.push(Note::PacketReceived);
                    if *kind == PacketKind::Handshake {
                        self.notes.push(Note::HandshakePacket);
                    }
                }
                for frame in content.frames().flatten() {
                    match (direction, frame) {
                        (Direction::Send, Frame::PathChallenge(challenge)) => {
                            self.notes.push(Note::ChallengeSent(challenge.data));
                        }
                        (Direction::Send, Frame::PathResponse(_)) => {
                            self.notes.push(Note::ResponseSent)
                        }
                        (Direction::Receive, Frame::PathResponse(response)) => {
                            self.notes.push(Note::ResponseReceived(response.data));
                        }
                        _ => {}
                    }
                }
            }
            Observation::PathChanged { remote, .. } => self.notes.push(Note::Moved(*remote)),
            _ => {}
        }
    }
}

/// What went to and came from one address.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    received: u64,
    /// What must be counted of it: genuine packets since the host last followed the peer there.
    genuine: u64,
    /// Validated since then.
    proved: bool,
    /// The latest datagram, and whether it is in `genuine`.
    latest: (u64, bool),
    sent: u64,
    validated: bool,
}

/// Bytes per address of the peers of one host (RFC 9000, Section 8).
#[derive(Debug, Default)]
pub(super) struct AddressBook {
    accounts: BTreeMap<SocketAddr, Account>,
    challenges: BTreeMap<[u8; 8], SocketAddr>,
}

impl AddressBook {
    pub(super) fn received(&mut self, remote: SocketAddr, len: usize) {
        let account = self.accounts.entry(remote).or_default();
        account.received += len as u64;
        account.latest = (len as u64, false);
    }

    /// The address is known to be the peer's, as by a token.
    pub(super) fn validated(&mut self, remote: SocketAddr) {
        let account = self.accounts.entry(remote).or_default();
        account.validated = true;
        account.proved = true;
    }

    /// Notes taken while a datagram from `remote` was processed, on a connection whose peer was at `peer` before.
    pub(super) fn after_receiving(&mut self, remote: SocketAddr, peer: SocketAddr, notes: &[Note]) {
        for note in notes {
            match note {
                // RFC 9000, Section 8.1: its keys come of what was sent there, wherever it came from.
                Note::HandshakePacket => self.validated(peer),
                Note::PacketReceived => {
                    let account = self.accounts.entry(remote).or_default();
                    let (len, counted) = &mut account.latest;
                    if !std::mem::replace(counted, true) {
                        account.genuine += *len;
                    }
                }
                // It may have forgotten in between what it knew of the address.
                Note::Moved(to) => {
                    let account = self.accounts.entry(*to).or_default();
                    account.genuine = account.latest.0;
                    account.proved = false;
                }
                // RFC 9000, Section 8.2.3: whatever path the response took.
                Note::ResponseReceived(data) => {
                    if let Some(challenged) = self.challenges.remove(data) {
                        self.validated(challenged);
                    }
                }
                Note::ChallengeSent(_) | Note::ResponseSent => {}
            }
        }
    }

    /// RFC 9000, Sections 8.2.1 and 8.2.2: a datagram with PATH_CHALLENGE or PATH_RESPONSE has 1200
    /// bytes, unless the anti-amplification limit forbids it. `limited` hosts are held to that;
    /// they need not count everything that came from there.
    pub(super) fn check_expanded(
        &self,
        remote: SocketAddr,
        len: usize,
        limited: bool,
    ) -> Result<(), String> {
        let account = self.accounts.get(&remote).copied().unwrap_or_default();
        let budget = (AMPLIFICATION_LIMIT * account.genuine).saturating_sub(account.sent);
        // The engine keeps a little of its budget for further challenges.
        let forbidden = limited && !account.proved && budget < FULL_SIZE as u64 + 200;
        if len < FULL_SIZE && !forbidden {
            return Err(format!(
                "a datagram of {len} bytes to {remote} carries PATH_CHALLENGE or PATH_RESPONSE \
                 (RFC 9000, Section 8.2.1)"
            ));
        }
        Ok(())
    }

    /// A datagram goes to `remote`; `notes` were taken while it was written.
    pub(super) fn sent(
        &mut self,
        remote: SocketAddr,
        len: usize,
        notes: &[Note],
    ) -> Result<(), String> {
        for note in notes {
            if let Note::ChallengeSent(data) = note {
                self.challenges.insert(*data, remote);
            }
        }
        let account = self.accounts.entry(remote).or_default();
        account.sent += len as u64;
        if !account.validated && account.sent > AMPLIFICATION_LIMIT * account.received {
            return Err(format!(
                "amplification: {} bytes sent to {remote}, which is not validated and sent {} \
                 (RFC 9000, Section 8.1)",
                account.sent, account.received
            ));
        }
        Ok(())
    }
}

/// How often a timer may fire at one instant without anything else happening.
const MAX_TIMEOUTS_IN_A_ROW: u32 = 8;

/// Sees to it that timers of one connection advance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimerCheck {
    last: Option<Time>,
    in_a_row: u32,
    /// Timeouts handled in all.
    pub(super) total: u64,
}

impl TimerCheck {
    /// A timeout is handled at `now`.
    pub(super) fn fired(&mut self, now: Time) -> Result<(), String> {
        self.total += 1;
        if self.last != Some(now) {
            self.last = Some(now);
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        if self.in_a_row > MAX_TIMEOUTS_IN_A_ROW {
            return Err(format!(
                "spin: the timer fired {} times at {now:?} and is due again",
                self.in_a_row - 1
            ));
        }
        Ok(())
    }

    /// Something was received or sent, after which a timer may be due at once.
    pub(super) fn progress(&mut self) {
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn three_times_what_came_may_go_out_before_validation() {
        let mut book = AddressBook::default();
        book.received(address(1), 1_200);
        assert!(book.sent(address(1), 3_600, &[]).is_ok());
        assert!(book.sent(address(1), 1, &[]).unwrap_err().contains("amplification"));
        // Where it comes from proves nothing of that address.
        book.after_receiving(address(2), address(1), &[Note::HandshakePacket]);
        assert!(book.sent(address(1), 100_000, &[]).is_ok());
        assert!(book.sent(address(2), 1, &[]).is_err(), "nothing came from there");
    }

    #[test]
    fn response_validates_the_challenged_address() {
        let mut book = AddressBook::default();
        book.received(address(2), 1_200);
        book.sent(address(2), 1_200, &[Note::ChallengeSent([7; 8])]).unwrap();
        book.after_receiving(address(1), address(1), &[Note::ResponseReceived([8; 8])]);
        assert!(book.sent(address(2), 9_999, &[]).is_err());
        book.after_receiving(address(1), address(1), &[Note::ResponseReceived([7; 8])]);
        assert!(book.sent(address(2), 9_999, &[]).is_ok());
    }

    #[test]
    fn timers_that_do_not_advance_are_a_spin() {
        let mut check = TimerCheck::default();
        for nanos in 0..100 {
            check.fired(Time::from_nanos(nanos)).unwrap();
        }
        let now = Time::from_nanos(500);
        let spins = (0..20).find(|_| check.fired(now).is_err());
        assert_eq!(spins, Some(MAX_TIMEOUTS_IN_A_ROW as i32));
    }
}
