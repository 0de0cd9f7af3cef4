//! What happened to the packets of a run, for people who look for the cause of a failure.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use quicket_engine::time::Time;
use quicket_wire::EcnCodepoint;

use crate::link::{DropReason, Fate};

/// One packet that was sent into the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When it was sent.
    pub at: Time,
    /// Its source as the sender wrote it.
    pub src: SocketAddr,
    /// Its destination as the sender wrote it.
    pub dst: SocketAddr,
    /// Bytes of UDP payload.
    pub len: usize,
    /// Its ECN field when it was sent.
    pub ecn: EcnCodepoint,
    /// The first byte of its payload, which tells long from short headers.
    pub first_byte: u8,
    /// What became of it.
    pub outcome: Outcome,
}

/// What the network did with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A link took it.
    Link(Fate),
    /// A tap of the test took it away.
    Tapped,
    /// There is no path to its destination.
    Unroutable,
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.at.as_nanos() / 1_000;
        let form = if self.first_byte & 0x80 == 0 { "short" } else { "long" };
        write!(
            f,
            "{:>6}.{:06} {} > {} {:>5} B {form:<5} {:?}: ",
            micros / 1_000_000,
            micros % 1_000_000,
            self.src,
            self.dst,
            self.len,
            self.ecn
        )?;
        match self.outcome {
            Outcome::Tapped => f.write_str("dropped by the test"),
            Outcome::Unroutable => f.write_str("no path"),
            Outcome::Link(Fate::Dropped(reason)) => f.write_str(reason_text(reason)),
            Outcome::Link(Fate::Passed(treatment)) => {
                write!(f, "takes {:?}", treatment.arrives - self.at)?;
                let marks = [
                    (treatment.corrupted, "corrupted"),
                    (treatment.reordered, "held back"),
                    (treatment.duplicated, "duplicated"),
                    (treatment.marked, "marked CE"),
                ];
                marks.iter().filter(|(on, _)| *on).try_for_each(|(_, text)| write!(f, ", {text}"))
            }
        }
    }
}

fn reason_text(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Loss => "lost",
        DropReason::BurstLoss => "lost in a burst",
        DropReason::Listed => "dropped by number",
        DropReason::Queue => "dropped by a full queue",
        DropReason::Mtu => "dropped, larger than the MTU",
        DropReason::Blackhole => "dropped in a black hole",
    }
}

/// The latest packets of a run.
#[derive(Clone, Debug)]
pub struct PacketLog {
    entries: VecDeque<LogEntry>,
    capacity: usize,
    total: u64,
}

impl PacketLog {
    /// A log of the latest `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        Self { entries: VecDeque::new(), capacity, total: 0 }
    }

    /// Adds a packet; the oldest goes when the log is full.
    pub fn push(&mut self, entry: LogEntry) {
        self.total += 1;
        if self.entries.len() >= self.capacity {
            self.entries.pop_front();
        }
        if self.capacity > 0 {
            self.entries.push_back(entry);
        }
    }

    /// The packets still known, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter()
    }

    /// All packets ever added.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The latest `count` packets as text, one per line.
    pub fn tail(&self, count: usize) -> String {
        let skip = self.entries.len().saturating_sub(count);
        self.entries.iter().skip(skip).map(|entry| format!("{entry}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Treatment;
    use quicket_engine::time::Duration;

    fn entry(ms: u64, outcome: Outcome) -> LogEntry {
        LogEntry {
            at: Time::ZERO + Duration::from_millis(ms),
            src: "10.0.0.1:1".parse().unwrap(),
            dst: "10.0.0.2:2".parse().unwrap(),
            len: 1_200,
            ecn: EcnCodepoint::Ect0,
            first_byte: 0xc0,
            outcome,
        }
    }

    #[test]
    fn only_the_latest_are_kept() {
        let mut log = PacketLog::new(2);
        for ms in 0..5 {
            log.push(entry(ms, Outcome::Tapped));
        }
        let kept: Vec<Time> = log.entries().map(|e| e.at).collect();
        assert_eq!(kept, [3, 4].map(|ms| Time::ZERO + Duration::from_millis(ms)));
        assert_eq!(log.total(), 5);
        assert_eq!(log.tail(1).lines().count(), 1);
    }

    #[test]
    fn lines_say_what_happened() {
        let treatment = Treatment {
            arrives: Time::ZERO + Duration::from_millis(1_020),
            corrupted: false,
            reordered: false,
            duplicated: true,
            marked: true,
        };
        let line = entry(1_005, Outcome::Link(Fate::Passed(treatment))).to_string();
        assert_eq!(
            line,
            "     1.005000 10.0.0.1:1 > 10.0.0.2:2  1200 B long  Ect0: takes 15ms, duplicated, marked CE"
        );
    }
}
