//! The body of a request.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use h3::server::RequestStream;
use http::{HeaderMap, header};
use http_body::{Frame, SizeHint};
use quicket_h3::{RecvStream, Scope, Violation};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::Interim;
use super::aside::Aside;
use crate::BodyError;
use crate::look::look;
use crate::request::content_length;

type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// What follows of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Data,
    Trailers,
    End,
}

/// The body of a request.
pub(super) struct Incoming {
    /// None once it is read to its end elsewhere.
    reading: Option<Reading>,
    /// What was looked at already, and not given out.
    first: Option<Result<Frame<Bytes>, BodyError>>,
    /// Where the client waits to be told to go on.
    continues: Option<Aside>,
    /// How long trailers may take once the body is there.
    patience: Duration,
}

impl Incoming {
    /// The body of a request with these fields. What is wrong with it is told to `aside`, as is when clients that wait
    /// for 100 (Continue) should get it.
    pub(super) fn new(
        stream: RequestStream<RecvStream, Bytes>,
        fields: &HeaderMap,
        aside: Aside,
        patience: Duration,
    ) -> Self {
        // What is no length is refused later.
        let expected = content_length(fields).ok().flatten();
        // RFC 9110, Section 10.1.1.
        let is_waiting = fields
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let continues = is_waiting.then(|| aside.clone());
        let reading = Reading { stream, expected, received: 0, state: State::Data, aside };
        Self { reading: Some(reading), first: None, continues, patience }
    }

    /// Looks at what has come, without waiting for more: most requests have no body, which is known only once
    /// the end of the stream was read, and may then go to another server if one fails.
    pub(super) async fn look(&mut self) {
        self.first = look(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Polled {
        match &mut self.reading {
            Some(reading) => reading.poll(cx),
            None => Poll::Ready(None),
        }
    }
}

impl Drop for Incoming {
    /// An origin that has all bytes of a body is not interested in what follows. That may be wrong still, and the
    /// client must hear of it (RFC 9114, Section 4.1.2). One who is to send no more of a body is told that this is no
    /// error (RFC 9114, Section 4.1): it would not have to believe the answer otherwise.
    fn drop(&mut self) {
        let Some(mut reading) = self.reading.take() else { return };
        if !reading.is_complete() {
            if reading.state != State::End {
                reading.stream.stop_sending(reading.aside.unwanted());
            }
            return;
        }
        // Without a runtime the gateway is about to end.
        if let Ok(runtime) = Handle::try_current() {
            let patience = self.patience;
            runtime.spawn(async move {
                let rest = poll_fn(|cx| {
                    while let Some(Ok(_)) = ready!(reading.poll(cx)) {}
                    Poll::Ready(())
                });
                // A client that takes too long has its answer nevertheless.
                let _ = timeout(patience, rest).await;
            });
        }
    }
}

/// Reads the stream of a request, and checks it.
struct Reading {
    stream: RequestStream<RecvStream, Bytes>,
    /// The length that the client has announced.
    expected: Option<u64>,
    received: u64,
    state: State,
    aside: Aside,
}

impl Reading {
    /// Whether all of the announced body has come, and not the stream's end.
    fn is_complete(&self) -> bool {
        self.state != State::End && self.expected == Some(self.received)
    }

    /// RFC 9114, Section 4.1.2: a body of another length than announced is malformed. To an origin it
    /// could be the beginning of another request.
    fn check(&mut self, is_end: bool) -> Result<(), BodyError> {
        let is_wrong = self.expected.is_some_and(|expected| {
            self.received > expected || (is_end && self.received < expected)
        });
        if !is_wrong {
            return Ok(());
        }
        let code = Code::H3_MESSAGE_ERROR;
        self.stream.stop_sending(code);
        let reason = "a body of another length than announced";
        let violation = Violation { scope: Scope::Stream, code, reason };
        self.aside.refuse(violation);
        Err(violation.into())
    }

    fn failed(&self, error: StreamError) -> BodyError {
        if let Some(violation) = Violation::of(&error) {
            self.aside.refuse(violation);
        }
        error.into()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Polled {
        let polled = self.poll_stream(cx);
        if matches!(polled, Poll::Ready(Some(Err(_)))) {
            self.state = State::End;
        }
        polled
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Polled {
        if self.state == State::Data {
            let data = ready!(self.stream.poll_recv_data(cx));
            let data = data.map(|data| data.map(|mut data| data.copy_to_bytes(data.remaining())));
            if let Some(data) = data.map_err(|error| self.failed(error))? {
                self.received = self.received.saturating_add(data.len() as u64);
                self.check(false)?;
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            self.check(true)?;
            self.state = State::Trailers;
        }
        if self.state == State::Trailers {
            let trailers = ready!(self.stream.poll_recv_trailers(cx));
            let trailers = trailers.map_err(|error| self.failed(error))?;
            self.state = State::End;
            if let Some(trailers) = trailers {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
        }
        Poll::Ready(None)
    }
}

impl http_body::Body for Incoming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        let polled = self.poll(cx);
        let continues = self.continues.take();
        if let Some(continues) = continues.filter(|_| polled.is_pending()) {
            continues.tell(Interim::Continue);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none()
            && self.reading.as_ref().is_none_or(|reading| reading.state == State::End)
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(|first| first.as_ref().ok()?.data_ref());
        let first = first.map_or(0, |data| data.len() as u64);
        let announced = self
            .reading
            .as_ref()
            .and_then(|reading| Some(reading.expected?.saturating_sub(reading.received)));
        announced
            .map_or_else(SizeHint::default, |left| SizeHint::with_exact(left.saturating_add(first)))
    }
}
