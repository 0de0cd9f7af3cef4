//! What a server does over a connection.

use std::collections::BTreeMap;
use std::path::Path;

use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3};

use super::exchange::Exchange;
use super::http3::Http3Answers;
use super::{Connection, DATAGRAM, Streams};
use crate::files;

/// The code of a stream whose file is not there.
const NOT_FOUND: u64 = 1;

/// The streams of one connection.
#[derive(Default)]
pub struct Answers {
    open: BTreeMap<u64, Exchange>,
    http3: Http3Answers,
}

impl Answers {
    /// Does what can be done now.
    ///
    /// # Errors
    ///
    /// When the connection is over.
    pub fn go_on(
        &mut self,
        conn: &mut dyn Connection,
        folder: Option<&Path>,
    ) -> Result<(), Failure> {
        let protocol = conn.protocol();
        if protocol == ALPN_H3.as_bytes() {
            self.http3.serve(conn, folder)
        } else if protocol == ALPN_ECHO.as_bytes() {
            self.echo(conn)
        } else {
            self.serve(conn, folder)
        }
    }

    /// Echoes what can be echoed now.
    fn echo(&mut self, streams: &mut dyn Streams) -> Result<(), Failure> {
        let mut buffer = [0; DATAGRAM];
        while let Some(len) = streams.receive_datagram(&mut buffer)? {
            streams.send_datagram(&buffer[..len])?;
        }
        self.exchange(streams, |_, exchange, _, _| {
            exchange.out.append(&mut exchange.input);
            exchange.ends = exchange.complete;
            Ok(())
        })
    }

    /// Serves files over HTTP/0.9 as far as that can be done now.
    fn serve(&mut self, streams: &mut dyn Streams, folder: Option<&Path>) -> Result<(), Failure> {
        self.exchange(streams, |streams, exchange, id, is_new| {
            if is_new {
                match content(folder, &exchange.input) {
                    Ok(content) => (exchange.out, exchange.ends) = (content, true),
                    Err(_) => streams.reset(id, NOT_FOUND)?,
                }
            }
            Ok(())
        })
    }

    /// `answer` is told whether a request has become complete.
    fn exchange(
        &mut self,
        streams: &mut dyn Streams,
        answer: impl Fn(&mut dyn Streams, &mut Exchange, u64, bool) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for id in streams.readable() {
            self.open.entry(id).or_default();
        }
        for (&id, exchange) in &mut self.open {
            let was_complete = exchange.complete;
            exchange.pull(streams, id)?;
            answer(streams, exchange, id, exchange.complete && !was_complete)?;
            exchange.push(streams, id)?;
        }
        self.open.retain(|id, exchange| !exchange.given_up && !streams.is_closed(*id));
        Ok(())
    }
}

/// What a request for HTTP/0.9 gets.
fn content(folder: Option<&Path>, request: &[u8]) -> Result<Vec<u8>, Failure> {
    let request = std::str::from_utf8(request)?;
    let path = request.trim_end().strip_prefix("GET ").ok_or("the request is no GET")?;
    read(folder, path)
}

/// The file that a path names.
pub(super) fn read(folder: Option<&Path>, path: &str) -> Result<Vec<u8>, Failure> {
    let folder = folder.ok_or("no folder to serve; start with --www")?;
    Ok(std::fs::read(files::locate(folder, path)?)?)
}
