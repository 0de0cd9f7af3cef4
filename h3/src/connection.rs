//! Connections and what opens streams on them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming};

use quicket::OpenError;
use quicket::tokio::{self, Acceptor, Stream};

use crate::acceptance::Waiting;
use crate::frames::{RequestFrames, Sender};
use crate::sections::Sections;
use crate::seldom::Seldom;
use crate::unidirectional::Unidirectional;
use crate::{Acceptance, BidiStream, CriticalStream, RecvStream, Requests, Transfer, error};

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
    acceptor: Acceptor,
    /// The streams that are not requests.
    seldom: Seldom,
    requests: Requests,
    guard: Option<Guard>,
    /// What is kept of sections, if anything is.
    sections: Option<Arc<Sections>>,
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
            acceptor: connection.acceptor(),
            opener: OpenStreams::new(connection, None),
            seldom: Seldom::new(),
            requests: Requests::default(),
            guard: None,
            sections: None,
        }
    }

    /// Takes a connection of a client that may be hostile: what it sends is checked before h3 sees it. Field
    /// sections are refused above `max_section` bytes, as they are encoded; give h3 the same limit for what
    /// they are when decoded.
    pub fn server(connection: tokio::Connection, max_section: usize) -> Self {
        let mut this = Self::new(connection);
        let unidirectional = Unidirectional::of(Sender::Client, this.acceptance());
        this.guard = Some(Guard { max_section, unidirectional });
        this
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

    /// Requests may [ask for WebSocket](crate::ask_for_websocket). None may ask for WebTransport then: to h3 it is the same.
    #[must_use]
    pub fn with_websocket(mut self) -> Self {
        self.opener.may_ask = true;
        self
    }

    /// Keeps what h3 makes of sections, and uses it again for requests and answers that are alike, in about 20 KiB at most. Fields,
    /// secret ones among them, are in memory for as long as the connection then.
    ///
    /// For a [`Connection::server`] whose limit is that of h3's builder, too (`max_field_section_size`). Its requests must be
    /// read by [`resolve`](crate::resolve): others read something else.
    #[must_use]
    pub fn with_kept_sections(mut self) -> Self {
        let client = self.acceptance();
        let sections = |guard: &Guard| Arc::new(Sections::new(guard.max_section, client));
        self.sections = self.guard.as_ref().map(sections);
        self
    }

    /// Tells which requests the server takes; h3 does not.
    pub fn acceptance(&self) -> Acceptance {
        self.opener.acceptance.clone()
    }

    /// Tells of the peer's requests what h3 does not.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }
}

/// The next stream that is h3's to read. Those that are not are looked after.
fn poll_unidirectional(
    acceptor: &mut Acceptor,
    guard: Option<&mut Guard>,
    connection: &tokio::Connection,
    cx: &mut Context<'_>,
) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
    let Some(Guard { unidirectional, .. }) = guard else {
        return acceptor.poll_uni(cx).map_ok(RecvStream::new).map_err(error::accept);
    };
    while let Poll::Ready(accepted) = acceptor.poll_uni(cx) {
        unidirectional.insert(accepted.map_err(error::accept)?);
    }
    unidirectional.poll(cx, connection)
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.opener.connection.fmt(f)
    }
}

impl<B: Buf> quic::Connection<B> for Connection {
    type RecvStream = Box<RecvStream>;
    type OpenStreams = OpenStreams;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::RecvStream, ConnectionErrorIncoming>> {
        let (acceptor, guard) = (&mut self.acceptor, self.guard.as_mut());
        let connection = &self.opener.connection;
        let polled =
            self.seldom.poll(cx, |cx| poll_unidirectional(acceptor, guard, connection, cx));
        polled.map_ok(Box::new)
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        let stream = ready!(self.acceptor.poll_bi(cx)).map_err(error::accept)?;
        let transfer = Transfer::new(stream.is_early_data(), self.sections.clone());
        let stream = BidiStream::accepted(stream, &self.requests, Arc::clone(&transfer));
        Poll::Ready(Ok(match &self.guard {
            Some(guard) => {
                let frames = RequestFrames::new(guard.max_section).known_to(transfer);
                stream.guarded(frames)
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
    type SendStream = CriticalStream<B>;

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
    /// Requests may ask for WebSocket.
    may_ask: bool,
}

impl OpenStreams {
    fn new(connection: tokio::Connection, max_section: Option<usize>) -> Self {
        let (opening_bi, opening_uni, waiting) = (None, None, None);
        let (acceptance, may_ask) = (Acceptance::default(), false);
        Self { connection, opening_bi, opening_uni, max_section, acceptance, waiting, may_ask }
    }
}

impl Clone for OpenStreams {
    fn clone(&self) -> Self {
        let (acceptance, may_ask) = (self.acceptance.clone(), self.may_ask);
        Self { acceptance, may_ask, ..Self::new(self.connection.clone(), self.max_section) }
    }
}

impl fmt::Debug for OpenStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(f)
    }
}

impl<B: Buf> quic::OpenStreams<B> for OpenStreams {
    type BidiStream = BidiStream<B>;
    type SendStream = CriticalStream<B>;

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
        let begun = |stream| {
            let opened = BidiStream::opened(stream);
            let opened = opened.asking(self.may_ask);
            match self.max_section {
                Some(max_section) => {
                    let frames = RequestFrames::of_response(max_section);
                    opened.guarded(frames)
                }
                None => opened,
            }
        };
        opened.map_ok(begun).map_err(error::open)
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
        opened.map_ok(CriticalStream::new).map_err(error::open)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(code.value(), reason);
    }
}
