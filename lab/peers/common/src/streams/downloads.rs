//! Downloads as the client sees them; over HTTP/0.9 here.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use quicket_workload::bench::Failure;

use super::Streams;
use super::exchange::Exchange;
use crate::files;

/// Requests under way at once.
const CONCURRENCY: usize = 100;

pub(super) struct Downloads {
    pub(super) number: u64,
    pub(super) out: Option<PathBuf>,
    pub(super) waiting: VecDeque<String>,
    pub(super) open: BTreeMap<u64, (String, Exchange)>,
    begun: u64,
}

impl Downloads {
    pub(super) fn new(number: u64, out: Option<PathBuf>, paths: &[String]) -> Self {
        let waiting = paths.iter().cloned().collect();
        Self { number, out, waiting, open: BTreeMap::new(), begun: 0 }
    }

    /// Whether all have come.
    pub(super) fn is_done(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }

    /// Does what can be done now; true when all is done.
    pub(super) fn go_on(&mut self, streams: &mut dyn Streams) -> Result<bool, Failure> {
        while self.open.len() < CONCURRENCY
            && !self.waiting.is_empty()
            && streams.open(self.begun)?
        {
            let Some(path) = self.waiting.pop_front() else { break };
            let id = self.begun * 4;
            let mut exchange = Exchange::request(format!("GET {path}\r\n").into_bytes());
            // Counts as open from here on.
            exchange.push(streams, id)?;
            self.open.insert(id, (path, exchange));
            self.begun += 1;
        }
        for (&id, (path, exchange)) in &mut self.open {
            exchange.push(streams, id)?;
            exchange.pull(streams, id)?;
            if exchange.given_up {
                return Err(format!("{path}: the server reset the stream").into());
            }
            if exchange.complete {
                files::store(self.out.as_deref(), self.number, path, &exchange.input)?;
            }
        }
        self.open.retain(|_, (_, exchange)| !exchange.complete);
        Ok(self.is_done())
    }
}
