//! The application of most simulations: asks for what its [`Workload`] says, and serves whatever
//! the peer asks for.

use std::collections::{BTreeMap, BTreeSet};

use quicket_engine::random::Random;
use quicket_engine::time::{Duration, Time};
use quicket_engine::{Event, OpenError, StreamEvent};
use quicket_wire::{Dir, StreamId};

use super::datagrams::{DatagramLoad, Datagrams};
use super::streams::{Incoming, Outgoing, Progress};
use super::{App, AppContext, Tally};
use crate::rng::SimRng;

/// What one side wants of the other.
///
/// A request is a stream of this side's: bidirectional ones get a response of the length that
/// their header names, unidirectional ones do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// How many requests.
    pub requests: u64,
    /// How many of them at once.
    pub parallel: usize,
    /// Their length in bytes, from and to.
    pub request_len: (u64, u64),
    /// The length of their responses in bytes, from and to.
    pub response_len: (u64, u64),
    /// One in so many is unidirectional; 0 for none, 1 for all.
    pub unidirectional: u64,
    /// One in so many is reset midway; 0 for none.
    pub reset_one_in: u64,
    /// One in so many responses is stopped midway; 0 for none.
    pub stop_one_in: u64,
    /// Datagrams beside the streams.
    pub datagrams: Option<DatagramLoad>,
    /// Starts before the handshake is complete, if early data may be sent.
    pub early: bool,
    /// Updates the keys after every so many requests; 0 for never.
    pub key_update_every: u64,
    /// Silence after each `parallel` requests, which then start and end together; zero for none.
    pub pause: Duration,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            requests: 1,
            parallel: 1,
            request_len: (100, 100),
            response_len: (1_000, 1_000),
            unidirectional: 0,
            reset_one_in: 0,
            stop_one_in: 0,
            datagrams: None,
            early: false,
            key_update_every: 0,
            pause: Duration::ZERO,
        }
    }
}

impl Workload {
    /// Nothing: the application only serves.
    pub fn none() -> Self {
        Self { requests: 0, ..Self::default() }
    }

    /// One request, for a response of `len` bytes.
    pub fn download(len: u64) -> Self {
        Self { response_len: (len, len), ..Self::default() }
    }

    /// One unidirectional stream of `len` bytes.
    pub fn upload(len: u64) -> Self {
        Self { request_len: (len, len), unidirectional: 1, ..Self::default() }
    }

    /// `requests` small requests, `parallel` of them at once.
    pub fn requests(requests: u64, parallel: usize) -> Self {
        Self { requests, parallel, ..Self::default() }
    }
}

/// A stream with both its directions, as far as it has them.
#[derive(Debug)]
struct Exchange {
    outgoing: Option<Outgoing>,
    incoming: Option<Incoming>,
    /// All that was sent is acknowledged.
    finished: bool,
}

impl Exchange {
    fn is_over(&self) -> bool {
        let sent = self.outgoing.as_ref().is_none_or(|out| match out.progress {
            Progress::Open => false,
            Progress::Complete => self.finished,
            Progress::GivenUp => true,
        });
        let received = self.incoming.as_ref().is_none_or(|i| i.progress != Progress::Open);
        sent && received
    }
}

/// See the module.
#[derive(Debug)]
pub struct WorkApp {
    workload: Workload,
    ready: bool,
    started: u64,
    /// When the silence between requests ends.
    silent_until: Option<Time>,
    ours: BTreeMap<StreamId, Exchange>,
    theirs: BTreeMap<StreamId, Exchange>,
    /// Streams that the peer stopped, some of them before we knew them.
    stopped: BTreeSet<StreamId>,
    datagrams: Option<Datagrams>,
    tally: Tally,
    closed: bool,
}

impl WorkApp {
    /// An application that does `workload` and serves the peer.
    pub fn new(workload: Workload) -> Self {
        let datagrams = workload.datagrams.clone().map(Datagrams::new);
        Self {
            workload,
            ready: false,
            started: 0,
            silent_until: None,
            ours: BTreeMap::new(),
            theirs: BTreeMap::new(),
            stopped: BTreeSet::new(),
            datagrams,
            tally: Tally::default(),
            closed: false,
        }
    }

    /// True between requests while the workload has it so.
    fn is_silent(&mut self, now: Time) -> bool {
        if self.workload.pause.is_zero() || self.started == 0 {
            return false;
        }
        if !self.ours.is_empty() || self.started == self.workload.requests {
            return true;
        }
        let until = *self.silent_until.get_or_insert(now + self.workload.pause);
        if until <= now {
            self.silent_until = None;
        }
        until > now
    }

    fn start_requests(&mut self, cx: &mut AppContext<'_>) -> Result<(), String> {
        if self.is_silent(cx.now) {
            return Ok(());
        }
        while self.started < self.workload.requests && self.ours.len() < self.workload.parallel {
            let dir =
                if cx.rng.one_in(self.workload.unidirectional) { Dir::Uni } else { Dir::Bidi };
            let id = match cx.connection.open(dir) {
                Ok(id) => id,
                Err(OpenError::StreamLimit) => return Ok(()),
                Err(error) => return Err(format!("open failed: {error:?}")),
            };
            if id.initiator() != cx.side || id.dir() != dir {
                return Err(format!("open gave a stream of another kind: {}", u64::from(id)));
            }
            self.started += 1;
            let exchange = self.exchange(cx, id);
            self.ours.insert(id, exchange);
            let every = self.workload.key_update_every;
            if every > 0 && self.started.is_multiple_of(every) {
                // Refused while an earlier update is not acknowledged, which is no failure.
                let _ = cx.connection.update_keys(cx.now);
            }
        }
        Ok(())
    }

    fn exchange(&self, cx: &mut AppContext<'_>, id: StreamId) -> Exchange {
        let rng = &mut *cx.rng;
        let length = |rng: &mut SimRng, (low, high): (u64, u64)| rng.between(low, high);
        let request = length(rng, self.workload.request_len);
        let response = length(rng, self.workload.response_len);
        let bidirectional = id.dir() == Dir::Bidi;
        let mut outgoing =
            Outgoing::new(id, cx.side, Some(if bidirectional { response } else { 0 }), request);
        if rng.one_in(self.workload.reset_one_in) {
            outgoing = outgoing.reset_at(rng.below(request.max(1)));
        }
        let incoming = bidirectional.then(|| {
            let incoming = Incoming::response(id, cx.side.peer(), Some(response));
            if rng.one_in(self.workload.stop_one_in) {
                incoming.stop_at(rng.below(response.max(1)))
            } else {
                incoming
            }
        });
        Exchange { outgoing: Some(outgoing), incoming, finished: false }
    }

    /// Takes all streams that the peer opened.
    fn accept(&mut self, cx: &mut AppContext<'_>) -> Result<(), String> {
        for dir in [Dir::Bidi, Dir::Uni] {
            while let Some(id) = cx.connection.accept(dir) {
                if id.initiator() == cx.side || id.dir() != dir {
                    return Err(format!("accept gave a stream of another kind: {}", u64::from(id)));
                }
                self.tally.streams_early += u64::from(cx.connection.is_early_data(id));
                let incoming = Some(Incoming::request(id, cx.side.peer()));
                let exchange = Exchange { outgoing: None, incoming, finished: false };
                if self.theirs.insert(id, exchange).is_some() {
                    return Err(format!("stream {} was accepted twice", u64::from(id)));
                }
            }
        }
        Ok(())
    }

    fn pump(&mut self, cx: &mut AppContext<'_>) -> Result<(), String> {
        for (id, exchange) in self.ours.iter_mut().chain(&mut self.theirs) {
            pump(cx, exchange, self.stopped.contains(id), &mut self.tally)?;
            count(exchange, &mut self.tally);
        }
        self.ours.retain(|_, exchange| !exchange.is_over());
        self.theirs.retain(|_, exchange| !exchange.is_over());
        Ok(())
    }

    /// All that was sent on a stream is acknowledged.
    fn on_finished(&mut self, id: StreamId) -> Result<(), String> {
        let exchange = self.ours.get_mut(&id).or_else(|| self.theirs.get_mut(&id));
        let Some(exchange) = exchange.filter(|exchange| !exchange.finished) else {
            return Err(format!("stream {} finished twice", u64::from(id)));
        };
        let sent = exchange.outgoing.as_ref().map(|out| out.progress);
        if sent != Some(Progress::Complete) {
            return Err(format!("stream {} finished before its end", u64::from(id)));
        }
        exchange.finished = true;
        count(exchange, &mut self.tally);
        Ok(())
    }
}

/// Moves one stream on. The answer to a request is begun once its header is there. What the peer
/// has `stopped` is given up.
fn pump(
    cx: &mut AppContext<'_>,
    exchange: &mut Exchange,
    stopped: bool,
    tally: &mut Tally,
) -> Result<(), String> {
    if let Some(incoming) = &mut exchange.incoming {
        tally.received += incoming.pump(cx)?;
        let id = incoming.id();
        let answers = id.dir() == Dir::Bidi && id.initiator() != cx.side;
        if answers && exchange.outgoing.is_none() {
            let response = match (incoming.header(), incoming.progress) {
                (Some(response), _) => Some(Outgoing::new(id, cx.side, None, response)),
                // Given up before it said what it wanted: answer with a reset too.
                (None, Progress::GivenUp) => Some(Outgoing::new(id, cx.side, None, 0).reset_at(0)),
                (None, _) => None,
            };
            exchange.outgoing = response;
        }
    }
    if let Some(outgoing) = &mut exchange.outgoing {
        if stopped && outgoing.progress == Progress::Open {
            outgoing.progress = Progress::GivenUp;
        }
        tally.sent += outgoing.pump(cx)?;
    }
    Ok(())
}

/// Counts the directions that have come to an end since the last call.
fn count(exchange: &mut Exchange, tally: &mut Tally) {
    if let Some(incoming) = exchange.incoming.as_mut().filter(|incoming| !incoming.counted) {
        incoming.counted = incoming.progress != Progress::Open;
        match incoming.progress {
            Progress::Complete => tally.streams_received += 1,
            Progress::GivenUp => tally.streams_given_up += 1,
            Progress::Open => {}
        }
    }
    let finished = exchange.finished;
    if let Some(outgoing) = exchange.outgoing.as_mut().filter(|outgoing| !outgoing.counted) {
        match outgoing.progress {
            Progress::Complete if finished => tally.streams_sent += 1,
            Progress::GivenUp => tally.streams_given_up += 1,
            Progress::Complete | Progress::Open => return,
        }
        outgoing.counted = true;
    }
}

impl App for WorkApp {
    fn on_event(&mut self, _: &mut AppContext<'_>, event: &Event) -> Result<(), String> {
        match event {
            Event::EarlyDataReady => self.ready |= self.workload.early,
            Event::HandshakeComplete => self.ready = true,
            Event::Closed(_) => self.closed = true,
            Event::Stream(StreamEvent::Stopped { id, .. }) => {
                self.stopped.insert(*id);
            }
            Event::Stream(StreamEvent::Finished { id }) => return self.on_finished(*id),
            _ => {}
        }
        Ok(())
    }

    fn poll(&mut self, cx: &mut AppContext<'_>) -> Result<(), String> {
        if self.closed {
            return Ok(());
        }
        self.accept(cx)?;
        loop {
            self.pump(cx)?;
            // Requests that have ended made room for others, which may end at once.
            let before = self.started;
            if self.ready {
                self.start_requests(cx)?;
            }
            if self.started == before {
                break;
            }
        }
        match &mut self.datagrams {
            Some(datagrams) => datagrams.poll(cx, self.ready, &mut self.tally),
            None => Datagrams::echo(cx, &mut self.tally),
        }
    }

    fn is_done(&self) -> bool {
        let requests = self.started == self.workload.requests && self.ours.is_empty();
        requests && self.datagrams.as_ref().is_none_or(Datagrams::is_done)
    }

    fn next_time(&self) -> Option<Time> {
        if self.closed {
            return None;
        }
        let datagrams = self.datagrams.as_ref().and_then(Datagrams::next_time);
        datagrams.into_iter().chain(self.silent_until).min()
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
