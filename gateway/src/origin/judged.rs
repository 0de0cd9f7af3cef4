//! The body of an answer, whose end says whether its server is well.

use std::task::Poll;

use bytes::Bytes;
use http_body_util::BodyExt;
use quicket_front::{Polled, Watch, Watched};

use super::Rules;
use super::server::UnderWay;
use crate::{Body, BodyError};

/// Who judges a server by the body of its answer, which counts as under way until it is dropped.
pub(super) struct Judge {
    under_way: UnderWay,
    rules: Rules,
    is_open: bool,
}

impl Judge {
    /// A body that breaks off is a failure of the server, and one that ends a success. One that the client
    /// does not take to its end is neither.
    pub(super) fn body<B>(body: B, under_way: UnderWay, rules: Rules) -> Body
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Send + Unpin + 'static,
    {
        let mut judge = Self { under_way, rules, is_open: true };
        if body.is_end_stream() {
            judge.end(true);
        }
        Watched::new(body, judge).boxed_unsync()
    }

    /// A body that says nothing more of the server.
    pub(super) fn settled<B>(body: B, under_way: UnderWay, rules: Rules) -> Body
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Send + Unpin + 'static,
    {
        Watched::new(body, Self { under_way, rules, is_open: false }).boxed_unsync()
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

impl Watch for Judge {
    fn on_frame(&mut self, polled: &Polled, is_end: bool) {
        match polled {
            Poll::Ready(Some(Ok(_))) if is_end => self.end(true),
            Poll::Ready(Some(Err(_))) => self.end(false),
            Poll::Ready(None) => self.end(true),
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
    }
}
