//! The first of a body: whether there is one at all.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header;
use http::request::Parts;
use http::{Method, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use super::empty;
use crate::{Body, BodyError};

/// A request's body once it is known whether there is one, where that matters: GET and HEAD hardly ever have one,
/// and in HTTP/3 it shows only at the end of the stream, which may come after the header section. Announced
/// in vain (chunked), it is what many servers refuse.
pub(super) async fn known(parts: &Parts, mut body: Body) -> Result<Body, BodyError> {
    let is_told = parts.headers.contains_key(header::CONTENT_LENGTH)
        || parts.version <= Version::HTTP_11
        || body.is_end_stream();
    if is_told || !matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(body);
    }
    Ok(match body.frame().await.transpose()? {
        None => empty(),
        Some(first) => Begun { first: Some(first), rest: body }.boxed_unsync(),
    })
}

/// A body of which the first frame was read.
struct Begun {
    first: Option<Frame<Bytes>>,
    rest: Body,
}

impl http_body::Body for Begun {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(first));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(first)) {
            hint.set_upper(upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    /// A body of which nobody knows when it ends, as those of HTTP/3 are.
    struct Open(UnboundedReceiver<&'static [u8]>);

    impl http_body::Body for Open {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            let polled = self.0.poll_recv(cx);
            polled.map(|data| data.map(|data| Ok(Frame::data(Bytes::from_static(data)))))
        }
    }

    fn asked(method: Method) -> (Parts, UnboundedSender<&'static [u8]>, Body) {
        let (sender, receiver) = unbounded_channel();
        let request = Request::builder().method(method).version(Version::HTTP_3).body(()).unwrap();
        (request.into_parts().0, sender, Open(receiver).boxed_unsync())
    }

    #[tokio::test(start_paused = true)]
    async fn a_get_without_a_body_has_none_and_with_one_keeps_it_whole() {
        let (parts, sender, body) = asked(Method::GET);
        drop(sender);
        assert!(known(&parts, body).await.unwrap().is_end_stream());

        let (parts, sender, body) = asked(Method::GET);
        sender.send(b"first ").unwrap();
        let body = known(&parts, body).await.unwrap();
        assert!(!body.is_end_stream());
        sender.send(b"second").unwrap();
        drop(sender);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "first second");
    }

    #[tokio::test(start_paused = true)]
    async fn other_methods_wait_for_nothing() {
        let (parts, _sender, body) = asked(Method::POST);
        assert!(!known(&parts, body).await.unwrap().is_end_stream());
    }
}
