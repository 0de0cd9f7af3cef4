//! What the server does over a connection.

use std::collections::BTreeMap;
use std::path::Path;

use quiche::{Connection, Error, Shutdown};
use quicket_peer_common::files;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3};

use crate::DATAGRAM;
use crate::exchange::Exchange;
use crate::http3::Answers as Http3;

/// The code of a stream whose file is not there.
const NOT_FOUND: u64 = 1;

/// The streams of one connection.
#[derive(Default)]
pub struct Answers {
    open: BTreeMap<u64, Exchange>,
    http3: Option<Http3>,
}

impl Answers {
    /// Does what can be done now.
    pub fn go_on(&mut self, conn: &mut Connection, folder: Option<&Path>) -> Result<(), Failure> {
        if conn.application_proto() == ALPN_H3.as_bytes() {
            let http3 = match &mut self.http3 {
                Some(http3) => http3,
                empty => empty.insert(Http3::new(conn)?),
            };
            return http3.go_on(conn, folder);
        }
        let echoes = conn.application_proto() == ALPN_ECHO.as_bytes();
        if echoes {
            echo_datagrams(conn)?;
        }
        for id in conn.readable().filter(|id| id % 4 == 0) {
            self.open.entry(id).or_default();
        }
        for (&id, exchange) in &mut self.open {
            let was_complete = exchange.complete;
            exchange.pull(conn, id)?;
            if echoes {
                exchange.out.append(&mut exchange.input);
                exchange.ends = exchange.complete;
            } else if exchange.complete && !was_complete {
                match content(folder, &exchange.input) {
                    Ok(content) => (exchange.out, exchange.ends) = (content, true),
                    Err(_) => conn.stream_shutdown(id, Shutdown::Write, NOT_FOUND)?,
                }
            }
            exchange.push(conn, id)?;
        }
        self.open.retain(|id, exchange| !exchange.given_up && !conn.stream_closed(*id));
        Ok(())
    }
}

/// What a request for HTTP/0.9 gets.
fn content(folder: Option<&Path>, request: &[u8]) -> Result<Vec<u8>, Failure> {
    let request = std::str::from_utf8(request)?;
    let path = request.trim_end().strip_prefix("GET ").ok_or("the request is no GET")?;
    read(folder, path)
}

pub fn read(folder: Option<&Path>, path: &str) -> Result<Vec<u8>, Failure> {
    let folder = folder.ok_or("no folder to serve; start with --www")?;
    Ok(std::fs::read(files::locate(folder, path)?)?)
}

fn echo_datagrams(conn: &mut Connection) -> Result<(), Failure> {
    let mut buffer = [0; DATAGRAM];
    loop {
        match conn.dgram_recv(&mut buffer) {
            Ok(len) => conn.dgram_send(&buffer[..len])?,
            Err(Error::Done) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
