//! Connections that are over, whose segments may still come (TIME-WAIT: RFC 9293, Section 3.6.1).
//!
//! smoltcp keeps a whole socket for each, ten seconds long. Here it is a row in a table.

use std::collections::{HashMap, VecDeque};

use smoltcp::time::Instant;

use crate::segment::{Ends, Header, Reply};

/// How long a connection stays in TIME-WAIT: twice the time that a segment lives, of which others say 30 s, too.
pub const TIME_WAIT: std::time::Duration = std::time::Duration::from_secs(60);
/// Connections in TIME-WAIT: beyond that, the oldest is forgotten.
pub const MAX_TIME_WAIT: usize = 65_536;
/// How far beyond the last sequence number the next connection begins: more than a window without scaling.
const APART: u32 = 65_537;

#[derive(Clone, Copy, Debug)]
struct Row {
    /// The next sequence number of the other side.
    expected: u32,
    /// The next of this side.
    sequence: u32,
    until: Instant,
    /// Its entry in the order, which is looked at then.
    entry: Instant,
}

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No such connection is here.
    Unknown,
    Ignore,
    Answer(Reply),
    /// It begins another connection between the same ends, in which this side begins with this sequence number or a
    /// later one. The row is gone.
    Reopen(u32),
}

#[derive(Debug, Default)]
pub(crate) struct TimeWait {
    rows: HashMap<Ends, Row>,
    /// In the order in which they are looked at. Entries whose row is gone, or has another one, are passed over; a row that
    /// has got more time gets another entry then.
    order: VecDeque<(Instant, Ends)>,
}

impl TimeWait {
    /// A connection is over. `sequence` and `expected` are the next numbers of this and the other side.
    pub(crate) fn insert(&mut self, ends: Ends, sequence: u32, expected: u32, now: Instant) {
        self.expire(now);
        while self.order.len() >= MAX_TIME_WAIT {
            if let Some((entry, ends)) = self.order.pop_front()
                && self.rows.get(&ends).is_some_and(|row| row.entry == entry)
            {
                self.rows.remove(&ends);
            }
        }
        let until = now + TIME_WAIT.into();
        self.rows.insert(ends, Row { expected, sequence, until, entry: until });
        self.order.push_back((until, ends));
    }

    pub(crate) fn contains(&self, ends: &Ends, now: Instant) -> bool {
        self.rows.get(ends).is_some_and(|row| row.until > now)
    }

    /// Judges a segment. `may_reopen`: somebody listens.
    pub(crate) fn judge(
        &mut self,
        ends: &Ends,
        header: &Header,
        may_reopen: bool,
        now: Instant,
    ) -> Verdict {
        let Some(row) = self.rows.get(ends).filter(|row| row.until > now).copied() else {
            return Verdict::Unknown;
        };
        // A reset would end TIME-WAIT too early (RFC 1337, Section 3).
        if header.is_rst() {
            return Verdict::Ignore;
        }
        // Without timestamps, a later sequence number says that the segment is none of the old ones (RFC 6191,
        // Section 2; RFC 1122, Section 4.2.2.13).
        let is_later = header.sequence.wrapping_sub(row.expected).cast_signed() > 0;
        if header.is_request() && is_later && may_reopen {
            self.rows.remove(ends);
            return Verdict::Reopen(row.sequence.wrapping_add(APART));
        }
        // The other side has not heard the acknowledgment of its FIN (RFC 9293, Section 3.10.7.4): once more from the
        // beginning.
        if header.is_fin() && header.end() == row.expected {
            self.rows.insert(*ends, Row { until: now + TIME_WAIT.into(), ..row });
        }
        if header.end() == header.sequence && header.sequence == row.expected {
            return Verdict::Ignore;
        }
        let Row { sequence, expected, .. } = row;
        Verdict::Answer(Reply::Acknowledgment { sequence, acknowledgment: expected, window: 0 })
    }

    fn expire(&mut self, now: Instant) {
        while let Some((entry, ends)) = self.order.front().copied().filter(|(at, _)| *at <= now) {
            self.order.pop_front();
            match self.rows.get_mut(&ends) {
                Some(row) if row.entry != entry => {}
                Some(row) if row.until > now => {
                    row.entry = row.until;
                    // Not in order, but by no more than that it stays a little longer.
                    self.order.push_back((row.until, ends));
                }
                _ => drop(self.rows.remove(&ends)),
            }
        }
    }

    /// The sequence number with which another connection between the same ends may begin, if they are in TIME-WAIT. The row
    /// is gone.
    pub(crate) fn take(&mut self, ends: &Ends, now: Instant) -> Option<u32> {
        let row = self.rows.remove(ends).filter(|row| row.until > now)?;
        Some(row.sequence.wrapping_add(APART))
    }
}

#[cfg(test)]
#[path = "time_wait_tests.rs"]
mod tests;
