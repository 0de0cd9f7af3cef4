//! Connections of HTTP/2 to servers: many requests share one (RFC 9113).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use tokio::sync::watch;
use tokio::time::Instant;

use super::MAX_ANSWER_HEADERS;
use super::connect::Link;
use super::line::Line;
use crate::{Body, BodyError};

/// What a server may send ahead on one request, in bytes.
const STREAM_WINDOW: u32 = 256 << 10;
/// ... and on all requests of a connection.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Requests at a time before the server has told how many it takes (RFC 9113, Section 5.1.2): none, which no
/// server that takes any can be mistaken for ...
const UNTOLD: usize = 0;
/// ... which it does first of all, but may take so long for.
const MAX_TELLING: Duration = Duration::from_secs(1);
/// How soon to look for that, and each time after twice as long: hyper tells only who asks.
const LOOK: Duration = Duration::from_millis(1);
/// What of a request's body waits to be sent, in bytes.
const SEND_BUFFER: usize = 256 << 10;
/// A server that is silent so long while requests wait is asked whether it is there ...
const PING_AFTER: Duration = Duration::from_secs(10);
/// ... and has so long to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a body has broken off. PROTOCOL_ERROR is not handed on as such: to a client it would say that its request is malformed
/// (RFC 9113, Section 8.1.1).
pub(super) fn of_body(error: hyper::Error) -> BodyError {
    let source = std::error::Error::source(&error).and_then(|it| it.downcast_ref::<h2::Error>());
    match source {
        Some(reset) if reset.reason() == Some(h2::Reason::PROTOCOL_ERROR) => {
            reset.to_string().into()
        }
        _ => error.into(),
    }
}

/// A connection of HTTP/2.
pub(super) struct Two {
    sender: http2::SendRequest<Body>,
    /// Requests under way.
    active: AtomicUsize,
    /// How many the server takes at a time.
    limit: watch::Receiver<usize>,
    /// The server takes requests of extended CONNECT (RFC 8441).
    extended: Arc<AtomicBool>,
    /// It turned a request away.
    is_spent: AtomicBool,
    /// Requests that wait for the end of another one.
    line: Arc<Line>,
}

impl Two {
    pub(super) async fn new(link: Link, line: Arc<Line>) -> io::Result<Self> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .initial_max_send_streams(UNTOLD)
            .max_header_list_size(MAX_ANSWER_HEADERS as u32)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIMEOUT);
        let handshake = builder.handshake(TokioIo::new(link)).await;
        let (sender, mut connection) = handshake.map_err(io::Error::other)?;
        // A server that is none of HTTP/2, or ends here, is found out by the first request.
        let (begun, mut look) = (Instant::now(), LOOK);
        while connection.current_max_send_streams() == UNTOLD && begun.elapsed() < MAX_TELLING {
            tokio::time::sleep(look).await;
            look *= 2;
        }
        let (told, limit) = watch::channel(connection.current_max_send_streams());
        let can_extend = connection.is_extended_connect_protocol_enabled();
        let extended = Arc::new(AtomicBool::new(can_extend));
        let can_extend = Arc::clone(&extended);
        let driving = std::future::poll_fn(move |cx| {
            let polled = Pin::new(&mut connection).poll(cx);
            if polled.is_pending() {
                let can = connection.is_extended_connect_protocol_enabled();
                can_extend.store(can, Ordering::Relaxed);
                let now = connection.current_max_send_streams();
                told.send_if_modified(|limit| std::mem::replace(limit, now) != now);
            }
            polled
        });
        // It ends when all senders and requests are gone, or the server is.
        tokio::spawn(async move {
            if let Err(error) = driving.await {
                log::debug!("a connection of HTTP/2 to an origin has ended: {error}");
            }
        });
        let (active, is_spent) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Self { sender, active, limit, extended, is_spent, line })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.is_spent.load(Ordering::Relaxed) && !self.sender.is_closed()
    }

    pub(super) fn has_room(&self) -> bool {
        self.active() < *self.limit.borrow()
    }

    /// True if the server takes no request at all.
    pub(super) fn is_shut(&self) -> bool {
        *self.limit.borrow() == 0
    }

    /// Whether extended CONNECT may be used, as the server has told.
    pub(super) fn can_extend(&self) -> bool {
        self.extended.load(Ordering::Relaxed)
    }

    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Takes no more requests.
    pub(super) fn spend(&self) {
        self.is_spent.store(true, Ordering::Relaxed);
    }

    pub(super) fn sender(&self) -> http2::SendRequest<Body> {
        self.sender.clone()
    }
}

/// A request on a connection, as long as it is under way.
pub(super) struct Share(Arc<Two>);

impl Share {
    pub(super) fn new(two: &Arc<Two>) -> Self {
        two.active.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(two))
    }

    pub(super) fn connection(&self) -> &Two {
        &self.0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
        self.0.line.free();
    }
}

/// True if the server has said that it did nothing with the request (RFC 9113, Section 8.7): it was refused,
/// or came after the last one of a connection that ends.
pub(super) fn is_unprocessed(error: &hyper::Error) -> bool {
    let refused = |error: &h2::Error| error.reason() == Some(h2::Reason::REFUSED_STREAM);
    is_leaving(error) || remote(error).is_some_and(refused)
}

/// True if the server takes no more requests on the connection, this one included.
pub(super) fn is_leaving(error: &hyper::Error) -> bool {
    let is_last = |error: &h2::Error| error.reason() == Some(h2::Reason::NO_ERROR);
    remote(error).is_some_and(|error| error.is_go_away() && is_last(error))
}

fn remote(error: &hyper::Error) -> Option<&h2::Error> {
    let source = std::error::Error::source(error)?.downcast_ref::<h2::Error>();
    source.filter(|error| error.is_remote())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    /// How long a connection takes to a server that sends these SETTINGS, and how many requests it has room for.
    async fn told(settings: Option<&[u8]>) -> (Duration, usize) {
        let (near, mut far) = duplex(1 << 16);
        let settings = settings.map(|settings| {
            let length = (settings.len() as u32).to_be_bytes();
            [&length[1..], &[4, 0, 0, 0, 0, 0], settings].concat()
        });
        tokio::spawn(async move {
            if let Some(settings) = settings {
                far.write_all(&settings).await.unwrap();
            }
            let _ = far.read_to_end(&mut Vec::new()).await;
        });
        let begun = Instant::now();
        let two = Two::new(Link::of(near), Line::new(1)).await.unwrap();
        (begun.elapsed(), *two.limit.borrow())
    }

    /// RFC 9113, Section 6.5.2.
    #[tokio::test(start_paused = true)]
    async fn a_limit_of_one_request_is_known_as_soon_as_it_is_told() {
        let one = [0, 3, 0, 0, 0, 1];
        for (settings, limit) in [(&one[..], 1), (&[0, 3, 0, 0, 0, 100], 100), (&[], usize::MAX)] {
            let (took, told) = told(Some(settings)).await;
            assert_eq!(told, limit);
            assert!(took < Duration::from_millis(100), "{took:?} for a limit of {limit}");
        }
        let (took, told) = told(None).await;
        assert!(took < MAX_TELLING * 2 && told == UNTOLD, "{took:?}, {told}");
    }
}
