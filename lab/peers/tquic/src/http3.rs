//! HTTP/3, which TQUIC has.

use std::collections::BTreeMap;
use std::path::Path;

use quicket_peer_common::files;
use quicket_peer_common::streams::{DATAGRAM, Downloads, Exchange, read};
use quicket_workload::bench::Failure;
use tquic::Connection;
use tquic::h3::connection::Http3Connection;
use tquic::h3::{Header, Http3Config, Http3Error, Http3Event, NameValue};

use crate::client::Work;

fn start(conn: &mut Connection) -> Result<Http3Connection, Failure> {
    Ok(Http3Connection::new_with_quic_conn(conn, &Http3Config::new()?)?)
}

/// The client's end.
pub struct Http3 {
    session: Option<Http3Connection>,
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
            let id = session.stream_new(conn)?;
            session.send_headers(conn, id, &request, true)?;
            downloads.open.insert(id, (path, Exchange::default()));
        }
        let mut buffer = [0; DATAGRAM];
        loop {
            let (id, event) = match session.poll(conn) {
                Ok(next) => next,
                Err(Http3Error::Done) => break,
                Err(error) => return Err(error.into()),
            };
            let Some((path, exchange)) = downloads.open.get_mut(&id) else { continue };
            match event {
                Http3Event::Headers { headers, .. } => {
                    let status = headers.iter().find(|header| header.name() == b":status");
                    if status.is_none_or(|status| status.value() != b"200") {
                        return Err(format!("{path}: the server did not answer 200").into());
                    }
                }
                Http3Event::Data => {
                    while let Ok(len) = session.recv_body(conn, id, &mut buffer) {
                        exchange.input.extend_from_slice(&buffer[..len]);
                    }
                }
                Http3Event::Finished => {
                    let out = downloads.out.as_deref();
                    files::store(out, downloads.number, path, &exchange.input)?;
                    downloads.open.remove(&id);
                }
                Http3Event::Reset(_) => {
                    return Err(format!("{path}: the stream was reset").into());
                }
                Http3Event::GoAway | Http3Event::PriorityUpdate => {}
            }
        }
        Ok(downloads.is_done())
    }
}

/// The server's end.
pub struct Answers {
    session: Http3Connection,
    /// Bodies, and how much of them was sent.
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
                Err(Http3Error::Done) => break,
                Err(error) => return Err(error.into()),
            };
            if let Http3Event::Headers { headers, .. } = event {
                let path = headers.iter().find(|header| header.name() == b":path");
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
            self.session.send_headers(conn, id, &headers, body.content.is_none())?;
            body.begun = true;
        }
        let Some(content) = &body.content else { return Ok(true) };
        while body.sent < content.len() {
            let rest = content[body.sent..].to_vec();
            match self.session.send_body(conn, id, rest.into(), true) {
                Ok(len) => body.sent += len,
                // Headers that had waited have left.
                Err(Http3Error::NoError) => {}
                Err(Http3Error::Done | Http3Error::StreamBlocked) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}
