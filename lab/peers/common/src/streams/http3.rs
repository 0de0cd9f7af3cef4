//! HTTP/3, by implementations that have it.

use std::collections::BTreeMap;
use std::path::Path;

use quicket_workload::bench::Failure;

use super::answers::read;
use super::downloads::Downloads;
use super::exchange::Exchange;
use super::{Connection, DATAGRAM};
use crate::files;

/// What comes on the stream of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Headers: the path of a request, or the status of an answer.
    Headers(String),
    /// A part of a body.
    Data,
    /// The end.
    Finished,
    /// The other end has given the stream up.
    Reset,
    /// What is of no interest.
    Other,
}

impl Event {
    /// What the fields of a header section say.
    pub fn headers<'a>(mut fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let found = fields.find(|(name, _)| matches!(*name, b":path" | b":status"));
        let value = found.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
        Self::Headers(value.unwrap_or_default())
    }
}

impl Downloads {
    /// Does what can be done now; true when all is done.
    pub(super) fn go_on_http3(
        &mut self,
        conn: &mut dyn Connection,
        authority: &str,
    ) -> Result<bool, Failure> {
        while let Some(path) = self.waiting.pop_front() {
            let headers = [
                (":method", "GET"),
                (":scheme", "https"),
                (":authority", authority),
                (":path", path.as_str()),
            ];
            let Some(id) = conn.request(&headers)? else {
                self.waiting.push_front(path);
                break;
            };
            self.open.insert(id, (path, Exchange::default()));
        }
        let mut buffer = [0; DATAGRAM];
        while let Some((id, event)) = conn.poll()? {
            let Some((path, exchange)) = self.open.get_mut(&id) else { continue };
            match event {
                Event::Headers(status) if status != "200" => {
                    return Err(format!("{path}: the server did not answer 200").into());
                }
                Event::Data => {
                    while let Some(len) = conn.receive_body(id, &mut buffer) {
                        exchange.input.extend_from_slice(&buffer[..len]);
                    }
                }
                Event::Finished => {
                    files::store(self.out.as_deref(), self.number, path, &exchange.input)?;
                    self.open.remove(&id);
                }
                Event::Reset => return Err(format!("{path}: the stream was reset").into()),
                Event::Headers(_) | Event::Other => {}
            }
        }
        Ok(self.is_done())
    }
}

/// The server's end.
#[derive(Default)]
pub(super) struct Http3Answers {
    open: BTreeMap<u64, Answer>,
}

#[derive(Default)]
struct Answer {
    content: Option<Vec<u8>>,
    begun: bool,
    sent: usize,
}

impl Http3Answers {
    /// Serves files as far as that can be done now.
    pub(super) fn serve(
        &mut self,
        conn: &mut dyn Connection,
        folder: Option<&Path>,
    ) -> Result<(), Failure> {
        while let Some((id, event)) = conn.poll()? {
            if let Event::Headers(path) = event {
                let content = read(folder, &path).ok();
                self.open.insert(id, Answer { content, ..Answer::default() });
            }
        }
        let ids: Vec<u64> = self.open.keys().copied().collect();
        for id in ids {
            if let Some(answer) = self.open.get_mut(&id)
                && answer.push(conn, id)?
            {
                self.open.remove(&id);
            }
        }
        Ok(())
    }
}

impl Answer {
    /// Sends what can be sent now; true when that is all.
    fn push(&mut self, conn: &mut dyn Connection, id: u64) -> Result<bool, Failure> {
        if !self.begun {
            let status = if self.content.is_some() { "200" } else { "404" };
            self.begun = conn.respond(id, status, self.content.is_none())?;
            if !self.begun {
                return Ok(false);
            }
        }
        let Some(content) = &self.content else { return Ok(true) };
        while let Some(len) = conn.send_body(id, &content[self.sent..])? {
            self.sent += len;
            if self.sent == content.len() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
