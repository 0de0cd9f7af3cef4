//! The body of an answer, which holds the connection that it comes by.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::one::{One, Rest};
use super::pool::Pool;
use super::two::{self, Share};
use crate::{Body, BodyError};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

/// The connection that an answer comes by.
pub(super) enum Lease {
    /// It can be used again after the answer.
    One { pool: Arc<Pool>, one: One },
    /// It is shared.
    Two(Share),
}

/// The body of an answer.
pub(super) struct Held {
    rest: Rest,
    lease: Option<Lease>,
}

impl Held {
    /// The body of an answer that comes by a connection, with what the connection does not have of it.
    pub(super) fn body(rest: Rest, lease: Lease) -> Body {
        let mut held = Self { rest, lease: Some(lease) };
        if held.is_end_stream() {
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
        let Self { rest, lease } = &mut *self;
        let polled = match (lease, rest) {
            (Some(Lease::One { one, .. }), rest) => one.poll_frame(cx, rest),
            (Some(Lease::Two(_)), Some(rest)) => {
                Pin::new(rest).poll_frame(cx).map_err(two::of_body)
            }
            _ => Poll::Ready(None),
        };
        match &polled {
            Poll::Ready(Some(Err(_))) => self.lease = None,
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Ok(_))) if self.is_end_stream() => self.end(),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match (&self.lease, &self.rest) {
            (Some(Lease::One { one, .. }), rest) => one.is_end_stream(rest),
            (Some(Lease::Two(_)), Some(rest)) => rest.is_end_stream(),
            _ => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.lease, &self.rest) {
            (Some(Lease::One { one, .. }), rest) => one.size_hint(rest),
            (Some(Lease::Two(_)), Some(rest)) => rest.size_hint(),
            _ => SizeHint::with_exact(0),
        }
    }
}
