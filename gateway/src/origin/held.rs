//! The body of an answer, which holds the connection that it comes by.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::one::One;
use super::pool::Pool;
use super::two::Share;
use crate::{Body, BodyError};

/// The connection that an answer comes by.
pub(super) enum Lease {
    /// It can be used again after the answer.
    One { pool: Arc<Pool>, one: One },
    /// It is shared.
    Two(Share),
}

/// The body of an answer.
pub(super) struct Held {
    body: Incoming,
    lease: Option<Lease>,
}

impl Held {
    pub(super) fn body(body: Incoming, lease: Lease) -> Body {
        let mut held = Self { body, lease: Some(lease) };
        if held.body.is_end_stream() {
            held.end();
        }
        held.boxed_unsync()
    }

    /// Only what is read to its end leaves a connection of HTTP/1.1 that can be used again.
    fn end(&mut self) {
        match self.lease.take() {
            Some(Lease::One { pool, one }) => pool.give_back(one),
            Some(Lease::Two(share)) => drop(share),
            None => {}
        }
    }
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(Lease::One { one, .. }) = &mut self.lease {
            one.drive(cx);
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Err(_))) => self.lease = None,
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => self.end(),
            _ => {}
        }
        polled.map_err(BodyError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
