//! Streams and datagrams that come back as they went, as the client sees them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quiche::{Connection, Error, Shutdown};
use quicket_workload::bench::Failure;
use quicket_workload::peer::{
    ClientArguments, ECHO_DATAGRAM_LENGTH, ECHO_STREAM_LENGTH, Event, RESET_CODE, STOP_CODE,
    echo_payload, emit,
};

use crate::DATAGRAM;
use crate::client::Work;
use crate::exchange::Exchange;

/// Streams open at once.
const CONCURRENCY: usize = 100;
/// How long a datagram's echo may take before the datagram is sent again.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often one datagram is sent.
const ATTEMPTS: u32 = 5;

pub struct Echo {
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
    pub fn new(arguments: &ClientArguments) -> Self {
        let ClientArguments { resets, streams, datagrams, .. } = *arguments;
        let (open, sent) = (BTreeMap::new(), None);
        Self { resets, streams, datagrams, begun: 0, open, datagram: 0, sent, attempts: 0, lost: 0 }
    }

    fn streams(&mut self, conn: &mut Connection) -> Result<(), Failure> {
        while self.open.len() < CONCURRENCY
            && conn.peer_streams_left_bidi() > 0
            && self.begun < self.resets + self.streams
        {
            let (id, number) = (u64::from(self.begun) * 4, self.begun);
            let mut exchange = Exchange::request(echo_payload(number, ECHO_STREAM_LENGTH));
            exchange.ends = number >= self.resets;
            exchange.push(conn, id)?;
            self.open.insert(id, (number, exchange));
            self.begun += 1;
        }
        for (&id, (number, exchange)) in &mut self.open {
            exchange.push(conn, id)?;
            exchange.pull(conn, id)?;
            if *number < self.resets {
                if !exchange.input.is_empty() {
                    conn.stream_shutdown(id, Shutdown::Write, RESET_CODE.into())?;
                    conn.stream_shutdown(id, Shutdown::Read, STOP_CODE.into())?;
                    exchange.given_up = true;
                }
            } else if exchange.given_up || (exchange.complete && exchange.input != exchange.out) {
                return Err(format!("the echo of stream {number} differs").into());
            }
        }
        self.open.retain(|_, (_, exchange)| !exchange.complete && !exchange.given_up);
        Ok(())
    }

    fn datagrams(&mut self, conn: &mut Connection) -> Result<(), Failure> {
        let mut buffer = [0; DATAGRAM];
        loop {
            let payload = echo_payload(self.datagram, ECHO_DATAGRAM_LENGTH);
            match conn.dgram_recv(&mut buffer) {
                Ok(len) if buffer[..len] == payload[..] => {
                    (self.sent, self.attempts) = (None, 0);
                    self.datagram += 1;
                }
                Ok(_) => {}
                Err(Error::Done) => break,
                Err(error) => return Err(error.into()),
            }
        }
        if self.datagram < self.datagrams && self.sent.is_none_or(|at| at.elapsed() > PATIENCE) {
            if self.attempts == ATTEMPTS {
                return Err(format!("datagram {} was not echoed", self.datagram).into());
            }
            self.lost += u32::from(self.attempts > 0);
            conn.dgram_send(&echo_payload(self.datagram, ECHO_DATAGRAM_LENGTH))?;
            self.attempts += 1;
            self.sent = Some(Instant::now());
        }
        Ok(())
    }
}

impl Work for Echo {
    fn go_on(&mut self, conn: &mut Connection) -> Result<bool, Failure> {
        self.streams(conn)?;
        if !self.open.is_empty() || self.begun < self.resets + self.streams {
            return Ok(false);
        }
        self.datagrams(conn)?;
        let done = self.datagram == self.datagrams;
        if done {
            let Self { streams, datagrams, lost, .. } = *self;
            emit(&Event::Echo { connection: 1, streams, datagrams, datagrams_lost: lost });
        }
        Ok(done)
    }
}
