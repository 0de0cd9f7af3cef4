//! Downloads over HTTP/0.9, as the client sees them.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use quiche::Connection;
use quicket_peer_common::files;
use quicket_workload::bench::Failure;

use crate::client::Work;
use crate::exchange::Exchange;

/// Requests under way at once.
const CONCURRENCY: usize = 100;

pub struct Downloads {
    pub number: u64,
    pub out: Option<PathBuf>,
    pub waiting: VecDeque<String>,
    pub open: BTreeMap<u64, (String, Exchange)>,
    pub next_stream: u64,
}

impl Downloads {
    pub fn new(number: u64, out: Option<PathBuf>, paths: &[String]) -> Self {
        let waiting = paths.iter().cloned().collect();
        Self { number, out, waiting, open: BTreeMap::new(), next_stream: 0 }
    }
}

impl Work for Downloads {
    fn go_on(&mut self, conn: &mut Connection) -> Result<bool, Failure> {
        while self.open.len() < CONCURRENCY
            && conn.peer_streams_left_bidi() > 0
            && let Some(path) = self.waiting.pop_front()
        {
            let mut exchange = Exchange::request(format!("GET {path}\r\n").into_bytes());
            // Counts as open from here on.
            exchange.push(conn, self.next_stream)?;
            self.open.insert(self.next_stream, (path, exchange));
            self.next_stream += 4;
        }
        for (&id, (path, exchange)) in &mut self.open {
            exchange.push(conn, id)?;
            exchange.pull(conn, id)?;
            if exchange.given_up {
                return Err(format!("{path}: the server reset the stream").into());
            }
            if exchange.complete {
                files::store(self.out.as_deref(), self.number, path, &exchange.input)?;
            }
        }
        self.open.retain(|_, (_, exchange)| !exchange.complete);
        Ok(self.open.is_empty() && self.waiting.is_empty())
    }
}
