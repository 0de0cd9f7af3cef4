//! HTTP to the receiver: one request on each connection, with a bound for time and size.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use prometheus_client::metrics::counter::Counter;
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Receiver;
use super::sink::BATCH;
use crate::BodyError;
use crate::origin::dial;

/// How long a request and its answer may take, with the connection.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// How long the connection may take of that.
const CONNECT: Duration = Duration::from_secs(5);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 64 << 10;
/// OTLP, "OTLP/HTTP Response".
const PROTOBUF: &str = "application/x-protobuf";

/// The most of a receiver's words that is told, in characters.
const SHOWN: usize = 160;

/// OTLP, `ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, Message)]
struct Taken {
    #[prost(message, optional, tag = "1")]
    partial: Option<Partial>,
}

/// OTLP, `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, Message)]
struct Partial {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// The way to the receiver.
pub(super) struct Client {
    receiver: watch::Receiver<Receiver>,
    /// Where requests run: the thread that sends spans has no runtime of its own.
    runtime: Handle,
    /// What was told last.
    is_well: AtomicBool,
    /// Spans that were not taken.
    lost: Counter,
}

impl Client {
    pub(super) fn new(receiver: watch::Receiver<Receiver>, runtime: Handle, lost: Counter) -> Self {
        Self { receiver, runtime, is_well: AtomicBool::new(true), lost }
    }

    /// Says what has changed, once.
    fn tell(&self, url: &Uri, fault: Option<&str>) {
        match (self.is_well.swap(fault.is_none(), Ordering::Relaxed), fault) {
            (true, Some(fault)) => {
                log::warn!("{url}: {fault}; spans are lost until it takes them again");
            }
            (false, None) => log::warn!("{url} takes spans again"),
            _ => {}
        }
    }
}

/// Asks the receiver, wherever it is now.
async fn exchange(
    receiver: Receiver,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, BodyError> {
    let Receiver { url, place, tls, .. } = receiver;
    let (mut parts, body) = request.into_parts();
    let stream = dial(&place, tls.as_ref(), CONNECT).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender, and the answer.
    tokio::spawn(connection);
    let authority = url.authority().map_or("", |authority| authority.as_str());
    parts.headers.insert(HOST, HeaderValue::from_str(authority)?);
    parts.uri = url.path_and_query().map_or("/", |path| path.as_str()).parse()?;
    let answer = sender.send_request(Request::from_parts(parts, Full::new(body))).await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}

/// What is wrong with an answer.
fn fault(answer: &Response<Bytes>) -> Option<String> {
    let status = answer.status();
    if !status.is_success() {
        return Some(format!("the answer is {status}"));
    }
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    // A page of another server would look like success. Some receivers answer with nothing at all.
    let is_right = answer.body().is_empty() || kind.is_some_and(|kind| kind.starts_with(PROTOBUF));
    let kind = kind.unwrap_or("of no type");
    (!is_right).then(|| format!("the answer is {kind:?}, and not {PROTOBUF}"))
}

/// How many spans of a request a receiver has not taken that has taken others (OTLP, "Partial Success"), and what it says.
fn rejected(answer: &Response<Bytes>) -> Option<(u64, String)> {
    // What is nothing of this kind rejects nothing.
    let partial = Taken::decode(answer.body().as_ref()).ok()?.partial?;
    // No receiver makes more of them lost than it was sent.
    let count = u64::try_from(partial.rejected_spans).unwrap_or(0).min(BATCH as u64);
    let shown = partial.error_message.chars().take(SHOWN);
    let shown: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
    (count > 0).then(|| (count, format!("{count} spans of a request are rejected: {shown:?}")))
}

impl HttpClient for Client {
    // The trait is made by `async_trait`: this is what it stands for.
    fn send_bytes<'client, 'future>(
        &'client self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'future>>
    where
        'client: 'future,
        Self: 'future,
    {
        Box::pin(async move {
            let receiver = self.receiver.borrow().clone();
            let url = receiver.url.clone();
            // Timers are the runtime's, too: this one is made there.
            let asking = async move { timeout(LIMIT, exchange(receiver, request)).await };
            let answer: Result<_, BodyError> = match self.runtime.spawn(asking).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(format!("no answer within {} s", LIMIT.as_secs()).into()),
                // The runtime has ended: nobody is told.
                Err(error) => return Err(error.into()),
            };
            let fault = match &answer {
                Ok(answer) => fault(answer),
                Err(error) => Some(error.to_string()),
            };
            let rejected = match (&answer, &fault) {
                (Ok(answer), None) => rejected(answer),
                _ => None,
            };
            let (count, said) = rejected.unzip();
            self.lost.inc_by(count.unwrap_or(0));
            self.tell(&url, fault.as_deref().or(said.as_deref()));
            match fault {
                // The exporter knows what to do with a status.
                Some(fault) if answer.as_ref().is_ok_and(|answer| answer.status().is_success()) => {
                    Err(fault.into())
                }
                _ => answer,
            }
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.receiver.borrow().url.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rejected_of_a_request_is_told() {
        let judge = |rejected_spans, error_message: &str| {
            let error_message = error_message.to_owned();
            let taken = Taken { partial: Some(Partial { rejected_spans, error_message }) };
            rejected(&Response::new(taken.encode_to_vec().into()))
        };
        let (count, said) = judge(3, "too\nold").unwrap();
        assert_eq!((count, said.contains("\"too old\"")), (3, true), "{said}");
        assert_eq!(judge(i64::MAX, "").unwrap().0, BATCH as u64);
        assert!(judge(3, &"x".repeat(1000)).unwrap().1.len() < 2 * SHOWN);
        // A warning alone, and what makes no sense.
        assert_eq!(judge(0, "slow down"), None);
        assert_eq!(judge(-1, ""), None);
        assert_eq!(rejected(&Response::new(Bytes::new())), None);
        assert_eq!(rejected(&Response::new(Bytes::from_static(b"anything"))), None);
    }

    #[test]
    fn only_what_speaks_otlp_has_taken_spans() {
        let judge = |status: u16, kind: Option<&'static str>, body: &'static str| {
            let mut answer = Response::builder().status(status);
            if let Some(kind) = kind {
                answer = answer.header(CONTENT_TYPE, kind);
            }
            fault(&answer.body(Bytes::from_static(body.as_bytes())).unwrap())
        };
        assert_eq!(judge(200, Some(PROTOBUF), ""), None);
        assert_eq!(judge(200, Some(PROTOBUF), "anything"), None);
        assert_eq!(judge(200, None, ""), None);
        assert!(judge(200, Some("text/html"), "<p>").unwrap().contains("text/html"));
        assert!(judge(200, None, "?").is_some());
        assert_eq!(judge(404, None, "").unwrap(), "the answer is 404 Not Found");
        assert!(judge(302, Some(PROTOBUF), "").is_some());
    }
}
