//! The first of a body, as far as it has come.

use std::future::poll_fn;
use std::task::{Context, Poll};

/// What a body gives next, without waiting for more. Most have no content, which over HTTP/3 shows only at the end of
/// the stream.
pub(crate) async fn look<T>(
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<Option<T>>,
) -> Option<T> {
    poll_fn(|cx| match poll(cx) {
        Poll::Ready(first) => Poll::Ready(first),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
