//! Bodies that somebody hears of.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::BodyError;

/// What a body gives when it is asked for a frame.
pub type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// Who hears of a body.
pub trait Watch {
    /// It was asked for a frame; `is_end` if it is known that no other follows.
    fn on_frame(&mut self, polled: &Polled, is_end: bool);

    /// It is dropped; `is_end` if it is known that it had come to its end.
    fn on_drop(&mut self, is_end: bool) {
        let _ = is_end;
    }
}

/// A body that somebody hears of, and that is otherwise as it was.
#[derive(Debug)]
pub struct Watched<B: http_body::Body, W: Watch> {
    body: B,
    watch: W,
}

impl<B: http_body::Body, W: Watch> Watched<B, W> {
    /// One of which `watch` hears.
    pub const fn new(body: B, watch: W) -> Self {
        Self { body, watch }
    }
}

impl<B, W> http_body::Body for Watched<B, W>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
    W: Watch + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let Self { body, watch } = &mut *self;
        let polled = Pin::new(&mut *body).poll_frame(cx);
        watch.on_frame(&polled, body.is_end_stream());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: http_body::Body, W: Watch> Drop for Watched<B, W> {
    fn drop(&mut self) {
        self.watch.on_drop(self.body.is_end_stream());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http_body::Body as _;
    use http_body_util::{BodyExt, Full};

    use super::*;

    struct Heard(Arc<Mutex<Vec<(bool, bool)>>>);

    impl Watch for Heard {
        fn on_frame(&mut self, polled: &Polled, is_end: bool) {
            self.0.lock().unwrap().push((matches!(polled, Poll::Ready(Some(Ok(_)))), is_end));
        }

        fn on_drop(&mut self, is_end: bool) {
            self.0.lock().unwrap().push((false, is_end));
        }
    }

    #[tokio::test]
    async fn frames_and_the_end_are_heard_of() {
        let heard = Arc::default();
        let whole = || Full::new(Bytes::from_static(b"whole")).map_err(BodyError::from);
        let body = Watched::new(whole(), Heard(Arc::clone(&heard)));
        assert_eq!(body.size_hint().exact(), Some(5));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "whole");
        assert_eq!(*heard.lock().unwrap(), [(true, true), (false, true), (false, true)]);
        heard.lock().unwrap().clear();
        drop(Watched::new(whole(), Heard(Arc::clone(&heard))));
        assert_eq!(*heard.lock().unwrap(), [(false, false)]);
    }
}
