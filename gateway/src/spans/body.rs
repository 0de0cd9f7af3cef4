//! The end of an origin's answer, which is that of its span.

use std::task::Poll;

use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use quicket_front::{Polled, Watch, Watched};

use super::span::Call;
use crate::Body;
use crate::origin::Unanswered;

/// Notes what became of asking an origin: which server was asked last, and how many. The span ends with the answer's
/// body, if there is one to come.
pub(crate) fn answered(
    call: Option<Call>,
    answer: Result<Response<Body>, Unanswered>,
    server: Option<&str>,
    attempts: usize,
) -> Result<Response<Body>, Unanswered> {
    let Some(mut call) = call else { return answer };
    call.asked(server, attempts);
    let answer = answer.inspect_err(|error| {
        let (kind, what) = match error {
            Unanswered::NoServer => ("no_server", "the origin has no server"),
            Unanswered::Connection { .. } => ("connection", "the origin cannot be reached"),
            Unanswered::Broken { .. } => ("broken", "the origin gave no right answer"),
            Unanswered::Incapable { .. } => ("incapable", "the origin cannot do what is asked for"),
            Unanswered::Full { .. } => ("full", "the origin has no room for more of this"),
            Unanswered::Busy { .. } => ("busy", "the origin takes no more requests at the moment"),
            Unanswered::Lack { what, .. } => ("lack", *what),
            Unanswered::TimedOut { .. } => ("timeout", "the origin takes too long"),
            Unanswered::Client(_) => ("request", "the request did not end"),
            Unanswered::Malformed(_) => ("request", "the request breaks the rules of HTTP/2"),
        };
        call.span.fail(kind, what);
        call.span.end();
    })?;
    call.answered(answer.status().as_u16(), answer.version());
    // What follows an upgrade is no answer.
    let is_over =
        answer.body().is_end_stream() || answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_over {
        call.span.end();
        return Ok(answer);
    }
    Ok(answer.map(|body| Watched::new(body, Followed(call)).boxed_unsync()))
}

/// The end of a body, or its drop before, is that of a span.
struct Followed(Call);

impl Watch for Followed {
    fn on_frame(&mut self, polled: &Polled, is_end: bool) {
        match polled {
            Poll::Ready(Some(Err(_))) => {
                self.0.span.fail("broken", "the answer broke off");
                self.0.span.end();
            }
            Poll::Ready(None) => self.0.span.end(),
            // Some look no further than this.
            Poll::Ready(Some(Ok(_))) if is_end => self.0.span.end(),
            _ => {}
        }
    }
}
