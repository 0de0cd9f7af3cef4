//! The body of an answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::client::RequestStream;
use h3::error::Code;
use http::{Method, Response, StatusCode};
use http_body::{Frame, SizeHint};
use quicket_h3::{RecvStream, Scope, Violation};

use super::connection::Share;
use super::fault;
use super::upload::Upload;
use crate::BodyError;
use crate::look::look;
use crate::request::content_length;

/// RFC 9114, Section 4.1.2.
const WRONG_LENGTH: Violation = Violation {
    scope: Scope::Stream,
    code: Code::H3_MESSAGE_ERROR,
    reason: "a body of another length than announced",
};

type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// What follows of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Data,
    Trailers,
    End,
}

/// The body of an answer. Dropped before its end, it is no longer wanted, nor is what is left of the request.
pub(super) struct Received {
    stream: RequestStream<RecvStream, Bytes>,
    /// The length that the server has announced.
    expected: Option<u64>,
    received: u64,
    state: State,
    /// What was looked at already, and not given out.
    first: Option<Result<Frame<Bytes>, BodyError>>,
    held: Option<(Upload, Share)>,
}

impl Received {
    /// The body behind this head.
    pub(super) fn new(
        mut stream: RequestStream<RecvStream, Bytes>,
        answer: &Response<()>,
        method: &Method,
        held: (Upload, Share),
    ) -> Result<Self, Violation> {
        let Ok(announced) = content_length(answer.headers()) else {
            stream.stop_sending(Code::H3_MESSAGE_ERROR);
            let reason = "Content-Length that is no number, or several";
            return Err(Violation { reason, ..WRONG_LENGTH });
        };
        // RFC 9110, Section 6.4.1: whatever these announce, they have no body.
        let is_empty = method == Method::HEAD
            || matches!(answer.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let expected = if is_empty { Some(0) } else { announced };
        let (received, state, first) = (0, State::Data, None);
        Ok(Self { stream, expected, received, state, first, held: Some(held) })
    }

    /// Looks at what has come, without waiting for more.
    pub(super) async fn look(&mut self) {
        self.first = look(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Polled {
        let mut polled = self.poll_stream(cx);
        // The server waits for the rest of the request, perhaps, and will not get it.
        if polled.is_pending()
            && let Some((upload, _)) = &mut self.held
            && let Poll::Ready(error) = upload.poll_client_failed(cx)
        {
            polled = Poll::Ready(Some(Err(error)));
        }
        match &polled {
            Poll::Ready(Some(Err(_))) => {
                self.stream.stop_sending(Code::H3_REQUEST_CANCELLED);
                (self.state, self.held) = (State::End, None);
            }
            Poll::Ready(None) => self.end(),
            _ => {}
        }
        polled
    }

    fn end(&mut self) {
        self.state = State::End;
        if let Some((mut upload, _share)) = self.held.take() {
            upload.release();
        }
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Polled {
        if self.state == State::Data {
            let data = ready!(self.stream.poll_recv_data(cx)).map_err(fault::plain)?;
            let data = data.map(|mut data| data.copy_to_bytes(data.remaining()));
            if let Some(data) = data {
                self.received = self.received.saturating_add(data.len() as u64);
                self.check(false)?;
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            self.check(true)?;
            self.state = State::Trailers;
        }
        if self.state == State::Trailers {
            let trailers = ready!(self.stream.poll_recv_trailers(cx)).map_err(fault::plain)?;
            self.end();
            if let Some(trailers) = trailers {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
        }
        Poll::Ready(None)
    }

    /// To a client of HTTP/1.1 it could be the beginning of another answer.
    fn check(&self, is_end: bool) -> Result<(), BodyError> {
        let is_wrong = self.expected.is_some_and(|expected| {
            self.received > expected || (is_end && self.received < expected)
        });
        if is_wrong { Err(WRONG_LENGTH.into()) } else { Ok(()) }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if self.state != State::End {
            self.stream.stop_sending(Code::H3_REQUEST_CANCELLED);
        }
    }
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None if self.state == State::End => Poll::Ready(None),
            None => self.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.state == State::End
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(|first| first.as_ref().ok()?.data_ref());
        let first = first.map_or(0, |data| data.len() as u64);
        let left = self.expected.map(|expected| expected.saturating_sub(self.received));
        left.map_or_else(SizeHint::default, |left| SizeHint::with_exact(left.saturating_add(first)))
    }
}
