//! Connections of HTTP/1.1 to servers: each carries one request at a time (RFC 9112).

mod by_hyper;

use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use self::by_hyper::ByHyper;
use super::connect::Link;
use super::hints::Hints;
use super::message;
use super::pool::Unanswered;
use crate::tunnel::Abort;
use crate::{Body, BodyError};

/// A connection of HTTP/1.1.
pub(super) struct One {
    /// Whom it leads to.
    address: Option<SocketAddr>,
    way: Way,
    /// Has it end with a reset, once it is another protocol's.
    abort: Abort,
}

enum Way {
    /// Nothing was sent on it.
    Fresh(Link),
    Hyper(ByHyper),
    /// It is becoming hyper's, or is gone.
    Gone,
}

/// The body of an answer.
pub(super) type Rest = Option<Incoming>;

impl One {
    pub(super) fn new(link: Link, address: Option<SocketAddr>) -> Self {
        let abort = link.abort();
        Self { address, way: Way::Fresh(link), abort }
    }

    pub(super) const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Sends a request, and gives its answer, of which [`One::poll_frame`] has the body.
    pub(super) async fn send(
        &mut self,
        parts: &Parts,
        body: Body,
        is_upgrade: bool,
    ) -> Result<Response<Rest>, Unanswered> {
        self.way = match std::mem::replace(&mut self.way, Way::Gone) {
            Way::Fresh(link) => Way::Hyper(Box::pin(ByHyper::new(link)).await?),
            way => way,
        };
        match &mut self.way {
            Way::Hyper(hyper) => {
                let mut request = Request::from_parts(parts.clone(), body);
                message::for_one(&mut request);
                Hints::ask_hyper(&mut request);
                let mut answer = Box::pin(hyper.send(request, is_upgrade)).await?.map(Some);
                if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                    answer.extensions_mut().insert(self.abort.clone());
                }
                Ok(answer)
            }
            _ => Err(Unanswered::from(BodyError::from("the connection is gone"))),
        }
    }

    /// The next frame of the answer's body.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        rest: &mut Rest,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match (&mut self.way, rest) {
            (Way::Hyper(hyper), Some(rest)) => hyper.poll_frame(cx, rest),
            _ => Poll::Ready(None),
        }
    }

    /// True once the answer's body was read to its end.
    pub(super) fn is_end_stream(&self, rest: &Rest) -> bool {
        rest.as_ref().is_none_or(Incoming::is_end_stream)
    }

    pub(super) fn size_hint(&self, rest: &Rest) -> SizeHint {
        rest.as_ref().map_or_else(SizeHint::default, Incoming::size_hint)
    }

    /// Whether it can take a request, as far as is known.
    pub(super) fn is_ready(&self) -> bool {
        match &self.way {
            Way::Hyper(hyper) => hyper.is_ready(),
            Way::Fresh(_) => true,
            Way::Gone => false,
        }
    }

    /// The same, after a look at whether the server has ended it.
    pub(super) fn is_still_ready(&mut self) -> bool {
        match &mut self.way {
            Way::Hyper(hyper) => hyper.is_still_ready(),
            _ => self.is_ready(),
        }
    }

    /// Waits until it can take a request; false if it never will.
    pub(super) async fn becomes_ready(&mut self) -> bool {
        match &mut self.way {
            Way::Hyper(hyper) => hyper.becomes_ready().await,
            _ => self.is_ready(),
        }
    }
}
