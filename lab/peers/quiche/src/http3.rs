//! HTTP/3, which quiche has.

use std::collections::BTreeMap;
use std::path::Path;

use quiche::Connection;
use quiche::h3::{self, Event, Header, NameValue};
use quicket_peer_common::files;
use quicket_peer_common::streams::{DATAGRAM, Downloads, Exchange, read};
use quicket_workload::bench::Failure;

use crate::client::Work;

fn start(conn: &mut Connection) -> Result<h3::Connection, Failure> {
    Ok(h3::Connection::with_transport(conn, &h3::Config::new()?)?)
}

/// The client's end.
pub struct Http3 {
    session: Option<h3::Connection>,
    authority: String,
    downloads: Downloads,
}

impl Http3 {
    pub fn new(authority: String, downloads: Downloads) -> Self {
        Self { session: None, authority, downloads }
    }
}

impl Work for Http3 {
    fn go_on(&mut self, conn: &mut Connection) -> Result<bool, Failure> {
        let session = match &mut self.session {
            Some(session) => session,
            empty => empty.insert(start(conn)?),
        };
        let downloads = &mut self.downloads;
        while let Some(path) = downloads.waiting.pop_front() {
            let request = [
                Header::new(b":method", b"GET"),
                Header::new(b":scheme", b"https"),
                Header::new(b":authority", self.authority.as_bytes()),
                Header::new(b":path", path.as_bytes()),
            ];
            match session.send_request(conn, &request, true) {
                Ok(id) => _ = downloads.open.insert(id, (path, Exchange::default())),
                Err(h3::Error::StreamBlocked | h3::Error::TransportError(_)) => {
                    downloads.waiting.push_front(path);
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let mut buffer = [0; DATAGRAM];
        loop {
            let (id, event) = match session.poll(conn) {
                Ok(next) => next,
                Err(h3::Error::Done) => break,
                Err(error) => return Err(error.into()),
            };
            let Some((path, exchange)) = downloads.open.get_mut(&id) else { continue };
            match event {
                Event::Headers { list, .. } => {
                    let status = list.iter().find(|header| header.name() == b":status");
                    if status.is_none_or(|status| status.value() != b"200") {
                        return Err(format!("{path}: the server did not answer 200").into());
                    }
                }
                Event::Data => {
                    while let Ok(len) = session.recv_body(conn, id, &mut buffer) {
                        exchange.input.extend_from_slice(&buffer[..len]);
                    }
                }
                Event::Finished => {
                    let out = downloads.out.as_deref();
                    files::store(out, downloads.number, path, &exchange.input)?;
                    downloads.open.remove(&id);
                }
                Event::Reset(_) => return Err(format!("{path}: the stream was reset").into()),
                _ => {}
            }
        }
        Ok(downloads.is_done())
    }
}

/// The server's end.
pub struct Answers {
    session: h3::Connection,
    /// Bodies, and how much of them was sent; no headers were sent while there is `None`.
    bodies: BTreeMap<u64, Body>,
}

struct Body {
    content: Option<Vec<u8>>,
    begun: bool,
    sent: usize,
}

impl Answers {
    pub fn new(conn: &mut Connection) -> Result<Self, Failure> {
        Ok(Self { session: start(conn)?, bodies: BTreeMap::new() })
    }

    pub fn go_on(&mut self, conn: &mut Connection, folder: Option<&Path>) -> Result<(), Failure> {
        loop {
            let (id, event) = match self.session.poll(conn) {
                Ok(next) => next,
                Err(h3::Error::Done) => break,
                Err(error) => return Err(error.into()),
            };
            if let Event::Headers { list, .. } = event {
                let path = list.iter().find(|header| header.name() == b":path");
                let path = path.map(|path| String::from_utf8_lossy(path.value()).into_owned());
                let content = read(folder, path.as_deref().unwrap_or_default()).ok();
                self.bodies.insert(id, Body { content, begun: false, sent: 0 });
            }
        }
        let ids: Vec<u64> = self.bodies.keys().copied().collect();
        for id in ids {
            if self.send(conn, id)? {
                self.bodies.remove(&id);
            }
        }
        Ok(())
    }

    /// Sends what can be sent now; true when that is all.
    fn send(&mut self, conn: &mut Connection, id: u64) -> Result<bool, Failure> {
        let Some(body) = self.bodies.get_mut(&id) else { return Ok(true) };
        if !body.begun {
            let status: &[u8] = if body.content.is_some() { b"200" } else { b"404" };
            let headers = [Header::new(b":status", status)];
            match self.session.send_response(conn, id, &headers, body.content.is_none()) {
                Ok(()) => body.begun = true,
                Err(h3::Error::StreamBlocked) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        let Some(content) = &body.content else { return Ok(true) };
        loop {
            match self.session.send_body(conn, id, &content[body.sent..], true) {
                Ok(len) => body.sent += len,
                Err(h3::Error::Done) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            if body.sent == content.len() {
                return Ok(true);
            }
        }
    }
}
