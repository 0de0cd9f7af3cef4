//! Connections and what opens streams on them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming};

use quicket::tokio::{self, Stream};
use quicket::{AcceptError, OpenError};

use crate::acceptance::Waiting;
use crate::frames::{RequestFrames, Sender};
use crate::unidirectional::Unidirectional;
use crate::{Acceptance, BidiStream, RecvStream, Requests, SendStream, error};

/// A future under way, to be polled again. `Sync`, so that values that hold one can be shared.
type Pending<T> = Pin<Box<dyn Future<Output = T> + Send + Sync>>;

/// Polls the future in `slot`, which `start` makes if there is none.
fn poll_in<T>(
    slot: &mut Option<Pending<T>>,
    cx: &mut Context<'_>,
    start: impl FnOnce() -> Pending<T>,
) -> Poll<T> {
    let answer = ready!(slot.get_or_insert_with(start).as_mut().poll(cx));
    *slot = None;
    Poll::Ready(answer)
}

/// A QUIC connection for h3.
pub struct Connection {
    opener: OpenStreams,
    accepting_bi: Option<Pending<Result<Stream, AcceptError>>>,
    accepting_uni: Option<Pending<Result<tokio::RecvStream, AcceptError>>>,
    requests: Requests,
    guard: Option<Guard>,
}

/// What a peer is checked by.
struct Guard {
    max_section: usize,
    unidirectional: Unidirectional,
}

impl Connection {
    /// Takes a connection that h3 may use for itself.
    pub fn new(connection: tokio::Connection) -> Self {
        Self {
            opener: OpenStreams::new(connection, None),
            accepting_bi: None,
            accepting_uni: None,
            requests: Requests::default(),
            guard: None,
        }
    }

    /// Takes a connection of a client that may be hostile: what it sends is checked before h3 sees it. Field
    /// sections are refused above `max_section` bytes, as they are encoded; give h3 the same limit for what
    /// they are when decoded.
    pub fn server(connection: tokio::Connection, max_section: usize) -> Self {
        let unidirectional = Unidirectional::of(Sender::Client, Acceptance::default());
        let guard = Guard { max_section, unidirectional };
        Self { guard: Some(guard), ..Self::new(connection) }
    }

    /// Takes a connection to a server that may be hostile: what it sends is checked before h3 sees it. Field
    /// sections are refused above `max_section` bytes, as they are encoded; give h3 the same limit for what
    /// they are when decoded.
    pub fn client(connection: tokio::Connection, max_section: usize) -> Self {
        let opener = OpenStreams::new(connection.clone(), Some(max_section));
        let acceptance = opener.acceptance.clone();
        let unidirectional = Unidirectional::of(Sender::Server, acceptance);
        let guard = Guard { max_section, unidirectional };
        Self { opener, guard: Some(guard), ..Self::new(connection) }
    }

    /// Tells which requests the server takes; h3 does not.
    pub fn acceptance(&self) -> Acceptance {
        self.opener.acceptance.clone()
    }

    /// Tells of the peer's requests what h3 does not.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    fn poll_accept_uni(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<tokio::RecvStream, ConnectionErrorIncoming>> {
        let connection = &self.opener.connection;
        let accepted = poll_in(&mut self.accepting_uni, cx, || {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_uni().await })
        });
        accepted.map_err(error::accept)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.opener.connection.fmt(f)
    }
}

impl<B: Buf> quic::Connection<B> for Connection {
    type RecvStream = RecvStream;
    type OpenStreams = OpenStreams;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::RecvStream, ConnectionErrorIncoming>> {
        let Some(Guard { .. }) = self.guard else {
            return self.poll_accept_uni(cx).map_ok(RecvStream::new);
        };
        while let Poll::Ready(accepted) = self.poll_accept_uni(cx) {
            let accepted = accepted?;
            if let Some(guard) = &mut self.guard {
                guard.unidirectional.insert(accepted);
            }
        }
        match &mut self.guard {
            Some(guard) => guard.unidirectional.poll(cx, &self.opener.connection),
            None => Poll::Pending,
        }
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        let connection = &self.opener.connection;
        let accepted = poll_in(&mut self.accepting_bi, cx, || {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_bi().await })
        });
        let stream = ready!(accepted).map_err(error::accept)?;
        let stream = BidiStream::accepted(stream, &self.requests);
        Poll::Ready(Ok(match &self.guard {
            Some(guard) => {
                stream.guarded(connection.clone(), RequestFrames::new(guard.max_section))
            }
            None => stream,
        }))
    }

    fn opener(&self) -> Self::OpenStreams {
        self.opener.clone()
    }
}

impl<B: Buf> quic::OpenStreams<B> for Connection {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, StreamErrorIncoming>> {
        self.opener.poll_open_bidi(cx)
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        self.opener.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        quic::OpenStreams::<B>::close(&mut self.opener, code, reason);
    }
}

/// Opens streams on a connection.
pub struct OpenStreams {
    connection: tokio::Connection,
    opening_bi: Option<Pending<Result<Stream, OpenError>>>,
    opening_uni: Option<Pending<Result<tokio::SendStream, OpenError>>>,
    /// How long field sections of answers may be, where answers are checked.
    max_section: Option<usize>,
    acceptance: Acceptance,
    /// A stream is waited for.
    waiting: Option<Waiting>,
}

impl OpenStreams {
    fn new(connection: tokio::Connection, max_section: Option<usize>) -> Self {
        let (opening_bi, opening_uni, waiting) = (None, None, None);
        let acceptance = Acceptance::default();
        Self { connection, opening_bi, opening_uni, max_section, acceptance, waiting }
    }
}

impl Clone for OpenStreams {
    fn clone(&self) -> Self {
        let acceptance = self.acceptance.clone();
        Self { acceptance, ..Self::new(self.connection.clone(), self.max_section) }
    }
}

impl fmt::Debug for OpenStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(f)
    }
}

impl<B: Buf> quic::OpenStreams<B> for OpenStreams {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, StreamErrorIncoming>> {
        let connection = &self.connection;
        let opened = poll_in(&mut self.opening_bi, cx, || {
            let connection = connection.clone();
            Box::pin(async move { connection.open_bi().await })
        });
        if opened.is_pending() {
            self.waiting.get_or_insert_with(|| self.acceptance.wait());
            return Poll::Pending;
        }
        self.waiting = None;
        let guarded = |stream| match self.max_section {
            Some(max_section) => {
                let frames = RequestFrames::of_response(max_section);
                BidiStream::opened(stream).guarded(self.connection.clone(), frames)
            }
            None => BidiStream::opened(stream),
        };
        opened.map_ok(guarded).map_err(error::open)
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        let connection = &self.connection;
        let opened = poll_in(&mut self.opening_uni, cx, || {
            let connection = connection.clone();
            Box::pin(async move { connection.open_uni().await })
        });
        opened.map_ok(SendStream::critical).map_err(error::open)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(code.value(), reason);
    }
}
