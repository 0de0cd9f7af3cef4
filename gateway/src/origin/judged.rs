//! The body of an answer, whose end says whether its server is well.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use super::Rules;
use super::server::UnderWay;
use crate::{Body, BodyError};

/// The body of an answer. It counts as under way until it is dropped.
pub(super) struct Judged {
    body: Body,
    under_way: UnderWay,
    rules: Rules,
    is_open: bool,
}

impl Judged {
    /// A body that breaks off is a failure of the server, and one that ends a success. One that the client
    /// does not take to its end is neither.
    pub(super) fn body(body: Body, under_way: UnderWay, rules: Rules) -> Body {
        let mut judged = Self { body, under_way, rules, is_open: true };
        judged.look();
        judged.boxed_unsync()
    }

    /// A body that says nothing more of the server.
    pub(super) fn settled(body: Body, under_way: UnderWay, rules: Rules) -> Body {
        Self { body, under_way, rules, is_open: false }.boxed_unsync()
    }

    fn look(&mut self) {
        if self.body.is_end_stream() {
            self.end(true);
        }
    }

    fn end(&mut self, is_well: bool) {
        if !std::mem::replace(&mut self.is_open, false) {
            return;
        }
        let health = &self.under_way.server().health;
        match is_well {
            true => health.succeeded(),
            false => health.failed(self.rules.max_failures, self.rules.pause),
        }
    }
}

impl http_body::Body for Judged {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(_))) => self.look(),
            Poll::Ready(Some(Err(_))) => self.end(false),
            Poll::Ready(None) => self.end(true),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
