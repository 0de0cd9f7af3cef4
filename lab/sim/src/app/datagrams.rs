//! Datagrams beside streams (RFC 9221): sent at a pace, echoed, checked.

use std::collections::BTreeSet;

use quicket_engine::time::{Duration, Time};

use quicket_engine::WhenFull;

use super::{AppContext, Pattern, Tally};

/// How many datagrams to send, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramLoad {
    /// How many.
    pub count: u64,
    /// Their length in bytes, from and to; the connection's limit lowers it.
    pub len: (u64, u64),
    /// The time between two.
    pub interval: Duration,
}

/// Length of a datagram's number, with which it begins; the answer's has the highest bit set.
const NUMBER_LEN: usize = 8;
/// Marks answers.
const ANSWER: u64 = 1 << 63;

/// Sends datagrams and collects their answers.
#[derive(Debug)]
pub(super) struct Datagrams {
    load: DatagramLoad,
    sent: u64,
    next: Option<Time>,
    answered: BTreeSet<u64>,
}

impl Datagrams {
    pub(super) fn new(load: DatagramLoad) -> Self {
        Self { load, sent: 0, next: None, answered: BTreeSet::new() }
    }

    /// Datagrams may be lost: it is done when all were sent.
    pub(super) fn is_done(&self) -> bool {
        self.sent == self.load.count
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.next.filter(|_| !self.is_done())
    }

    pub(super) fn poll(
        &mut self,
        cx: &mut AppContext<'_>,
        ready: bool,
        tally: &mut Tally,
    ) -> Result<(), String> {
        if ready {
            self.send_due(cx, tally)?;
        }
        while let Some((number, _)) = receive(cx)? {
            tally.datagrams_received += 1;
            if number & ANSWER == 0 {
                return Err("a datagram was answered with a question".to_owned());
            }
            let number = number & !ANSWER;
            if number >= self.sent || !self.answered.insert(number) {
                return Err(format!("datagram {number} was answered twice, or never sent"));
            }
        }
        Ok(())
    }

    fn send_due(&mut self, cx: &mut AppContext<'_>, tally: &mut Tally) -> Result<(), String> {
        let mut next = self.next.unwrap_or(cx.now);
        while next <= cx.now && !self.is_done() {
            let Some(limit) = cx.connection.max_datagram_size() else {
                return Err("the peer takes no datagrams".to_owned());
            };
            let (low, high) = self.load.len;
            let len = (cx.rng.between(low, high) as usize).clamp(NUMBER_LEN, limit);
            let datagram = content(self.sent, len);
            cx.connection
                .send_datagram(&datagram, WhenFull::DropOldest)
                .map_err(|error| format!("datagram of {len} bytes: {error:?}"))?;
            self.sent += 1;
            tally.datagrams_sent += 1;
            next += self.load.interval;
        }
        self.next = Some(next);
        Ok(())
    }

    /// Answers the peer's datagrams.
    pub(super) fn echo(cx: &mut AppContext<'_>, tally: &mut Tally) -> Result<(), String> {
        while let Some((number, len)) = receive(cx)? {
            tally.datagrams_received += 1;
            if number & ANSWER == 0 {
                // An answer that does not go out is as good as one that is lost.
                let limit = cx.connection.max_datagram_size().unwrap_or(0);
                let answer = content(number | ANSWER, len);
                if len <= limit
                    && cx.connection.send_datagram(&answer, WhenFull::DropOldest).is_ok()
                {
                    tally.datagrams_sent += 1;
                }
            }
        }
        Ok(())
    }
}

/// Takes and checks the next datagram; returns its number and its length.
fn receive(cx: &mut AppContext<'_>) -> Result<Option<(u64, usize)>, String> {
    let Some(datagram) = cx.connection.peek_datagram() else { return Ok(None) };
    let (number, len) = (check(datagram)?, datagram.len());
    cx.connection.pop_datagram();
    Ok(Some((number, len)))
}

fn content(number: u64, len: usize) -> Vec<u8> {
    let mut datagram = vec![0; len];
    Pattern::new(number).fill(0, &mut datagram);
    datagram[..NUMBER_LEN].copy_from_slice(&number.to_be_bytes());
    datagram
}

/// Checks a datagram and returns its number.
fn check(datagram: &[u8]) -> Result<u64, String> {
    let (number, rest) = datagram
        .split_first_chunk::<NUMBER_LEN>()
        .ok_or_else(|| format!("a datagram of {} bytes was never sent", datagram.len()))?;
    let number = u64::from_be_bytes(*number);
    match Pattern::new(number).first_difference(NUMBER_LEN as u64, rest) {
        Some(at) => Err(format!("datagram {number:#x}: wrong byte at offset {at}")),
        None => Ok(number),
    }
}
