//! Streams and datagrams that come back as they went, as the client sees them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quicket_workload::bench::Failure;
use quicket_workload::peer::{
    ClientArguments, ECHO_DATAGRAM_LENGTH, ECHO_STREAM_LENGTH, Event, RESET_CODE, STOP_CODE,
    echo_payload, emit,
};

use super::exchange::Exchange;
use super::{DATAGRAM, Streams};

/// Streams open at once.
const CONCURRENCY: usize = 100;
/// How long a datagram's echo may take before the datagram is sent again.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often one datagram is sent.
const ATTEMPTS: u32 = 5;

pub(super) struct Echo {
    resets: u32,
    streams: u32,
    datagrams: u32,
    /// Streams that were begun: first those to be given up.
    begun: u32,
    open: BTreeMap<u64, (u32, Exchange)>,
    /// The datagram that is waited for, and since when.
    datagram: u32,
    sent: Option<Instant>,
    attempts: u32,
    lost: u32,
}

impl Echo {
    pub(super) fn new(arguments: &ClientArguments) -> Self {
        let ClientArguments { resets, streams, datagrams, .. } = *arguments;
        let (open, sent) = (BTreeMap::new(), None);
        Self { resets, streams, datagrams, begun: 0, open, datagram: 0, sent, attempts: 0, lost: 0 }
    }

    fn streams(&mut self, streams: &mut dyn Streams) -> Result<(), Failure> {
        while self.open.len() < CONCURRENCY
            && self.begun < self.resets + self.streams
            && streams.open(self.begun.into())?
        {
            let (id, number) = (u64::from(self.begun) * 4, self.begun);
            let mut exchange = Exchange::request(echo_payload(number, ECHO_STREAM_LENGTH));
            exchange.ends = number >= self.resets;
            exchange.push(streams, id)?;
            self.open.insert(id, (number, exchange));
            self.begun += 1;
        }
        for (&id, (number, exchange)) in &mut self.open {
            exchange.push(streams, id)?;
            exchange.pull(streams, id)?;
            if *number < self.resets {
                if !exchange.input.is_empty() {
                    streams.reset(id, RESET_CODE.into())?;
                    streams.stop(id, STOP_CODE.into())?;
                    exchange.given_up = true;
                }
            } else if exchange.given_up || (exchange.complete && exchange.input != exchange.out) {
                return Err(format!("the echo of stream {number} differs").into());
            }
        }
        self.open.retain(|_, (_, exchange)| !exchange.complete && !exchange.given_up);
        Ok(())
    }

    fn datagrams(&mut self, streams: &mut dyn Streams) -> Result<(), Failure> {
        let mut buffer = [0; DATAGRAM];
        while let Some(len) = streams.receive_datagram(&mut buffer)? {
            if buffer[..len] == echo_payload(self.datagram, ECHO_DATAGRAM_LENGTH)[..] {
                (self.sent, self.attempts) = (None, 0);
                self.datagram += 1;
            }
        }
        if self.datagram < self.datagrams && self.sent.is_none_or(|at| at.elapsed() > PATIENCE) {
            if self.attempts == ATTEMPTS {
                return Err(format!("datagram {} was not echoed", self.datagram).into());
            }
            self.lost += u32::from(self.attempts > 0);
            streams.send_datagram(&echo_payload(self.datagram, ECHO_DATAGRAM_LENGTH))?;
            self.attempts += 1;
            self.sent = Some(Instant::now());
        }
        Ok(())
    }

    /// Does what can be done now; true when all is done.
    pub(super) fn go_on(&mut self, streams: &mut dyn Streams) -> Result<bool, Failure> {
        self.streams(streams)?;
        if !self.open.is_empty() || self.begun < self.resets + self.streams {
            return Ok(false);
        }
        self.datagrams(streams)?;
        let done = self.datagram == self.datagrams;
        if done {
            let Self { streams, datagrams, lost, .. } = *self;
            emit(&Event::Echo { connection: 1, streams, datagrams, datagrams_lost: lost });
        }
        Ok(done)
    }
}
