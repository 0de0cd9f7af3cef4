//! The body of a request on its way.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h3::client::RequestStream;
use h3::error::{Code, StreamError};
use http_body::Body as _;
use http_body_util::BodyExt;
use quicket_h3::SendStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::connection::Share;
use crate::{Body, BodyError};

/// How long a server may take nothing of a request's body, once it has answered.
const PATIENCE: Duration = Duration::from_secs(60);

type Sending = RequestStream<SendStream<Bytes>, Bytes>;

/// The body of a request, which is sent beside. Dropped, it is given up: the stream is reset.
pub(super) struct Upload {
    task: Option<AbortHandle>,
    failed: Option<oneshot::Receiver<BodyError>>,
}

impl Upload {
    /// Begins to send it. Where there is none, that is all.
    pub(super) async fn begin(mut sending: Sending, body: Body, share: Share) -> Self {
        if body.is_end_stream() {
            let _ = send(&mut sending, body).await;
            return Self { task: None, failed: None };
        }
        let (failing, failed) = oneshot::channel();
        let task = tokio::spawn(async move {
            let _share = share;
            if let Err(Failed::Client(error)) = send(&mut sending, body).await {
                sending.stop_stream(Code::H3_REQUEST_CANCELLED);
                let _ = failing.send(error);
            }
        });
        Self { task: Some(task.abort_handle()), failed: Some(failed) }
    }

    /// Waits until the client's part does not come to its end; for ever if it does.
    pub(super) async fn client_failed(&mut self) -> BodyError {
        poll_fn(|cx| self.poll_client_failed(cx)).await
    }

    /// Why the client's part has not come to its end, if that is so.
    pub(super) fn poll_client_failed(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        let Some(failed) = &mut self.failed else { return Poll::Pending };
        let failed = ready!(Pin::new(failed).poll(cx));
        self.failed = None;
        failed.map_or(Poll::Pending, Poll::Ready)
    }

    /// The answer is there, all of it. What is still to be sent the server may want nevertheless; where it does
    /// not, it says so (RFC 9114, Section 4.1).
    pub(super) fn release(&mut self) {
        self.task = None;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Why a body was not sent to its end.
enum Failed {
    Client(BodyError),
    /// The server wants no more of it, or is gone: its answer says which.
    Server,
}

async fn send(sending: &mut Sending, mut body: Body) -> Result<(), Failed> {
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        match frame.map_err(Failed::Client)?.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => taken(sending.send_data(data)).await?,
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    taken(sending.send_trailers(trailers)).await?;
                }
            }
        }
    }
    taken(sending.finish()).await
}

async fn taken(sending: impl Future<Output = Result<(), StreamError>>) -> Result<(), Failed> {
    match timeout(PATIENCE, pin!(sending)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Failed::Server),
    }
}
