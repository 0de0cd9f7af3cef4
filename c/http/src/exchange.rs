//! A request and its answer, one step after the other.

use std::ffi::c_int;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use quicket_client::{Answer, Body, Client, Error, Writer};
use tokio::task::JoinHandle;

use crate::client::{Deadline, Http};
use crate::error::Failure;
use crate::fields::Fields;

/// Fields that a request may have.
const MAX_FIELDS: usize = 256;
/// Bytes of their names and values.
const MAX_FIELD_BYTES: usize = 64 << 10;
/// How much of a body is copied at once.
const PIECE: usize = 64 << 10;

/// A request and its answer.
#[derive(Debug)]
pub(crate) struct Exchange {
    stage: Stage,
    /// Where the rest of the body comes from.
    writer: Option<Writer>,
    fields: Fields,
    /// What was received and not read yet.
    unread: Bytes,
    over: bool,
    trailers: Option<Fields>,
    /// The last of all: where nobody else has it, it waits until its connections have ended, one of which the answer
    /// above keeps.
    http: Arc<Http>,
}

/// How far it has come.
#[derive(Debug)]
enum Stage {
    /// It is not sent.
    New {
        request: Request<()>,
        field_bytes: usize,
    },
    /// The answer is awaited by a task.
    Sent(JoinHandle<Result<Answer, Error>>),
    Answered(Box<Answer>),
    Failed(Failure),
}

/// What is known of an answer's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    pub(crate) early_data: quicket::EarlyData,
    pub(crate) path_changes: u64,
    pub(crate) smoothed_rtt: std::time::Duration,
    pub(crate) remote: std::net::SocketAddr,
}

fn is_sent() -> Failure {
    Failure::invalid("the request is sent already")
}

fn is_not_sent() -> Failure {
    Failure::invalid("the request is not sent yet")
}

impl Exchange {
    pub(crate) fn new(http: Arc<Http>, method: &[u8], url: &[u8]) -> Result<Self, Failure> {
        http.client()?;
        let method = Method::from_bytes(method);
        let method = method.map_err(|_| Failure::invalid("the method is no token"))?;
        let url = std::str::from_utf8(url).map_err(|_| Failure::invalid("the URL is no text"))?;
        let uri: Uri = url.parse().map_err(|error| {
            // It may have a password in it.
            let shown = if url.contains('@') { "the URL" } else { url };
            Failure::invalid(format_args!("{shown}: {error}"))
        })?;
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        Client::check(&request).map_err(|error| Failure::from(&error))?;
        Ok(Self {
            stage: Stage::New { request, field_bytes: 0 },
            writer: None,
            fields: Fields::default(),
            unread: Bytes::new(),
            over: false,
            trailers: None,
            http,
        })
    }

    /// Fails in a forked process.
    pub(crate) fn is_here(&self) -> Result<(), Failure> {
        self.http.client().map(drop)
    }

    pub(crate) fn add_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Failure> {
        let Stage::New { request, field_bytes } = &mut self.stage else { return Err(is_sent()) };
        let known = HeaderName::from_bytes(name);
        let wrong = || Failure::invalid("a name of a field is a token");
        let known = known.map_err(|_| wrong())?;
        let value = HeaderValue::from_bytes(value);
        let value = value.map_err(|_| {
            Failure::invalid(format_args!("the value of {known} has bytes that no field may have"))
        })?;
        Client::check_field(&known, &value).map_err(|error| Failure::from(&error))?;
        let bytes = *field_bytes + known.as_str().len() + value.len();
        let fields: &mut HeaderMap = request.headers_mut();
        if fields.len() >= MAX_FIELDS || bytes > MAX_FIELD_BYTES {
            let words = format_args!("more than {MAX_FIELDS} fields or {MAX_FIELD_BYTES} bytes");
            return Err(Failure::new(libc::E2BIG, words));
        }
        *field_bytes = bytes;
        fields.append(known, value);
        Ok(())
    }

    /// Sends it, with all of its body.
    pub(crate) fn send(&mut self, body: Option<Bytes>) -> Result<(), Failure> {
        self.begin(body.map_or_else(Body::empty, Body::from))
    }

    /// Sends it, with a body that is written.
    pub(crate) fn send_head(&mut self) -> Result<(), Failure> {
        let (writer, body) = Body::channel();
        self.begin(body)?;
        self.writer = Some(writer);
        Ok(())
    }

    fn begin(&mut self, body: Body) -> Result<(), Failure> {
        let Stage::New { request, .. } = &mut self.stage else { return Err(is_sent()) };
        let (client, handle) = (self.http.client()?.clone(), self.http.handle()?);
        let request = std::mem::take(request);
        let task = handle.spawn(async move { client.send(request, body).await });
        self.stage = Stage::Sent(task);
        Ok(())
    }

    /// Writes to the body; how much of it, until the time is over.
    pub(crate) fn write(&mut self, data: &[u8], milliseconds: c_int) -> Result<usize, Failure> {
        let Some(writer) = &mut self.writer else {
            return Err(Failure::invalid(
                "the request has no body that is written, or it has ended",
            ));
        };
        let mut taken = 0;
        let done = self.http.wait(Deadline::after(milliseconds), async {
            for piece in data.chunks(PIECE) {
                // The piece is not lost if the time is over.
                if !writer.ready().await || !writer.write(Bytes::copy_from_slice(piece)).await {
                    return Err(Failure::new(libc::EPIPE, "nobody reads the rest of the body"));
                }
                taken += piece.len();
            }
            Ok(())
        });
        match done.and_then(|done| done) {
            Err(_) if taken > 0 => Ok(taken),
            done => done.map(|()| taken),
        }
    }

    /// Ends the body.
    pub(crate) fn finish(&mut self, milliseconds: c_int) -> Result<(), Failure> {
        let Some(writer) = &self.writer else {
            return Err(Failure::invalid(
                "the request has no body that is written, or it has ended",
            ));
        };
        self.http.wait(Deadline::after(milliseconds), writer.ready())?;
        if let Some(writer) = self.writer.take() {
            // There is room. Where nobody reads any more, the answer says why.
            self.http.wait(Deadline::NEVER, writer.finish())?;
        }
        Ok(())
    }

    /// Waits for status and fields.
    pub(crate) fn status(&mut self, milliseconds: c_int) -> Result<u16, Failure> {
        self.status_by(Deadline::after(milliseconds))
    }

    fn status_by(&mut self, deadline: Deadline) -> Result<u16, Failure> {
        if let Stage::Sent(task) = &mut self.stage {
            let ended = self.http.wait(deadline, task)?;
            self.stage = match ended {
                Ok(Ok(answer)) => {
                    self.fields = Fields::from(answer.head().headers());
                    Stage::Answered(Box::new(answer))
                }
                Ok(Err(error)) => Stage::Failed(Failure::from(&error)),
                Err(error) => Stage::Failed(Failure::new(libc::EIO, error)),
            };
        }
        match &self.stage {
            Stage::New { .. } => Err(is_not_sent()),
            Stage::Answered(answer) => Ok(answer.head().status().as_u16()),
            Stage::Failed(failure) => Err(failure.clone()),
            Stage::Sent(_) => Err(Failure::again()),
        }
    }

    /// The answer that is there.
    fn answer(&mut self) -> Result<&mut Answer, Failure> {
        match &mut self.stage {
            Stage::New { .. } => Err(is_not_sent()),
            Stage::Answered(answer) => Ok(answer),
            Stage::Failed(failure) => Err(failure.clone()),
            Stage::Sent(_) => Err(Failure::invalid("the answer is not there yet")),
        }
    }

    /// The fields before the content, after the status.
    pub(crate) fn fields(&mut self) -> Result<&Fields, Failure> {
        self.answer()?;
        Ok(&self.fields)
    }

    /// The fields behind the content, after they were waited for.
    pub(crate) fn behind(&mut self) -> Result<&Fields, Failure> {
        self.answer()?;
        self.trailers.as_ref().ok_or_else(|| Failure::invalid("trailers were not waited for"))
    }

    /// The next content, of at most so many bytes; none at the end.
    pub(crate) fn read(&mut self, room: usize, milliseconds: c_int) -> Result<Bytes, Failure> {
        if room == 0 {
            return Ok(Bytes::new());
        }
        // One for both the status and the content.
        let deadline = Deadline::after(milliseconds);
        self.status_by(deadline)?;
        while self.unread.is_empty() && !self.over {
            let http = Arc::clone(&self.http);
            let answer = self.answer()?;
            match http.wait(deadline, answer.data())? {
                Ok(Some(piece)) => self.unread = piece,
                Ok(None) => self.over = true,
                Err(error) => return Err(self.fail(&error)),
            }
        }
        let room = room.min(self.unread.len());
        Ok(self.unread.split_to(room))
    }

    /// Waits for the fields behind the content; how many there are.
    pub(crate) fn trailers(&mut self, milliseconds: c_int) -> Result<usize, Failure> {
        self.answer()?;
        if !self.over || !self.unread.is_empty() {
            return Err(Failure::invalid(
                "trailers come behind the content, which is not read yet",
            ));
        }
        if self.trailers.is_none() {
            let http = Arc::clone(&self.http);
            match http.wait(Deadline::after(milliseconds), self.answer()?.trailers())? {
                Ok(fields) => {
                    self.trailers = Some(fields.as_ref().map(Fields::from).unwrap_or_default());
                }
                Err(error) => return Err(self.fail(&error)),
            }
        }
        Ok(self.trailers.as_ref().map_or(0, Fields::len))
    }

    fn fail(&mut self, error: &Error) -> Failure {
        let failure = Failure::from(error);
        self.stage = Stage::Failed(failure.clone());
        failure
    }

    pub(crate) fn info(&mut self) -> Result<Info, Failure> {
        let connection = self.answer()?.connection();
        let stats = connection.stats();
        Ok(Info {
            early_data: connection.early_data(),
            path_changes: stats.counters.path_changes,
            smoothed_rtt: stats.path.smoothed_rtt,
            remote: connection.remote_addr(),
        })
    }

    /// Ends it. In a forked process nothing of it may be touched.
    pub(crate) fn end(self) {
        if self.http.is_inherited() {
            std::mem::forget(self);
        }
    }
}

impl Drop for Stage {
    /// Who waits for no answer wants none.
    fn drop(&mut self) {
        if let Self::Sent(task) = self {
            task.abort();
        }
    }
}
