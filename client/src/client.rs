//! The client.

use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use quicket::tokio::Connection;
use quicket_h3::section;

use crate::body::Body;
use crate::http3::{Broken, Exchange, Http3, StreamError};
use crate::origin::Origin;
use crate::pool::Pool;
use crate::{Config, Error};

/// Makes requests, and connections. Clones share connections and sessions.
#[derive(Clone)]
pub struct Client {
    pool: Arc<Pool>,
}

impl Client {
    /// A client without connections. They are made when they are needed, shared by requests to the same server, and made
    /// anew when they have ended.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { pool: Arc::new(Pool::new(config)) }
    }

    /// Asks for what a URL names; waits for the header fields of the answer, whatever its status is.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn get(&self, url: &str) -> Result<Answer, Error> {
        self.send(request(Method::GET, url)?, Body::empty()).await
    }

    /// Sends a body to what a URL names.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn post(&self, url: &str, body: impl Into<Body>) -> Result<Answer, Error> {
        self.send(request(Method::POST, url)?, body.into()).await
    }

    /// Sends a request, whose URI is absolute. Requests with safe methods (RFC 9110, Section 9.2.1) and without a body are
    /// sent as 0-RTT data where a session allows it and [`Config::early_data`] does, and once more if the server wants
    /// them after the handshake (RFC 8470, Section 5.2), the connection ends before there is an answer, or takes no more
    /// requests. No other request is sent again.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn send(&self, request: Request<()>, body: Body) -> Result<Answer, Error> {
        Self::check(&request)?;
        let origin = Origin::of(request.uri())?;
        let is_safe = request.method().is_safe() && body.is_empty();
        if !is_safe {
            return self.send_once(&origin, request, body, false).await;
        }
        let early = self.send_once(&origin, request.clone(), Body::empty(), true).await;
        let again = match &early {
            Ok(answer) => answer.head().status() == StatusCode::TOO_EARLY,
            Err(Error::Exchange(StreamError::RemoteClosing) | Error::Lost(_)) => true,
            Err(Error::Connect(error)) => !matches!(error, quicket::ConnectError::Handshake(_)),
            Err(_) => false,
        };
        if !again {
            return early;
        }
        drop(early);
        self.send_once(&origin, request, Body::empty(), false).await
    }

    /// Whether a request can be sent, as far as it alone tells: its URI and its fields.
    ///
    /// # Errors
    ///
    /// [`Error::Request`] if it cannot.
    pub fn check(request: &Request<()>) -> Result<(), Error> {
        Origin::of(request.uri())?;
        request.headers().iter().try_for_each(|(name, value)| Self::check_field(name, value))
    }

    /// Whether a field can be sent: those that belong to a connection of HTTP/1.1 make a request malformed
    /// (RFC 9114, Section 4.2).
    ///
    /// # Errors
    ///
    /// [`Error::Request`] if it cannot.
    pub fn check_field(name: &HeaderName, value: &HeaderValue) -> Result<(), Error> {
        if section::is_of_a_connection(name.as_str().as_bytes(), value.as_bytes()) {
            let words = "it belongs to a connection of HTTP/1.1, and HTTP/3 has none such (RFC 9114, Section 4.2)";
            return Err(Error::Request(format!("the field {name}: {words}; leave it out")));
        }
        Ok(())
    }

    async fn send_once(
        &self,
        origin: &Origin,
        request: Request<()>,
        body: Body,
        early: bool,
    ) -> Result<Answer, Error> {
        let http3 = self.pool.http3(origin, early).await?;
        if early {
            return self.send_early(origin, http3, request).await;
        }
        // What changes something must not be sent as 0-RTT data, which can be repeated (RFC 8470, Section 4).
        let http3 = self.pool.settled(origin, http3).await?;
        self.send_by(origin, http3, request, body).await
    }

    /// Sends what may be sent twice. Where the server's address does not answer soon, it is sent to the next one, too.
    async fn send_early(
        &self,
        origin: &Origin,
        http3: Http3,
        request: Request<()>,
    ) -> Result<Answer, Error> {
        let first = self.send_by(origin, http3.clone(), request.clone(), Body::empty());
        let mut first = pin!(first);
        tokio::select! {
            answer = &mut first => return answer,
            () = self.pool.is_late(http3.connection()) => {}
        }
        let mut settling = pin!(self.pool.settled(origin, http3.clone()));
        let other = tokio::select! {
            answer = &mut first => return answer,
            other = &mut settling => other,
        };
        match other {
            Ok(other) if !other.is_same(&http3) => {
                self.send_by(origin, other, request, Body::empty()).await
            }
            // It is the first that is answered; or no other is, and the first says what becomes of it.
            _ => first.await,
        }
    }

    async fn send_by(
        &self,
        origin: &Origin,
        http3: Http3,
        request: Request<()>,
        body: Body,
    ) -> Result<Answer, Error> {
        match http3.send(request, body).await {
            Ok(exchange) => Ok(Answer { http3, exchange }),
            Err(error) => {
                let error = cause(&http3, error).await;
                let is_of_the_stream = matches!(
                    &error,
                    Error::Exchange(StreamError::RemoteTerminate { .. }) | Error::Malformed(_)
                );
                if !is_of_the_stream {
                    self.pool.forget(origin, &http3).await;
                }
                Err(error)
            }
        }
    }

    /// A connection to a server of another application protocol, to open streams on and send datagrams; the one that
    /// there is already, if it lives and is answered. Others of the server's addresses are tried beside one that is not.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn connect(&self, host: &str, port: u16, alpn: &str) -> Result<Connection, Error> {
        let (origin, protocol) = (Origin::new(host, port), alpn.as_bytes());
        let connection = self.pool.connection(&origin, protocol, false).await?;
        self.pool.settled_connection(&origin, protocol, connection).await
    }

    /// Like [`Client::connect`], but perhaps before the handshake is complete: what is written then goes as 0-RTT data,
    /// which **an attacker can repeat** (RFC 9001, Section 9.2).
    ///
    /// With a session that allows 0-RTT data it is a connection to the first of the server's addresses: what was written for
    /// one address cannot go to the next. Where that one does not answer, [`Client::connect`] finds another one.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn connect_early(
        &self,
        host: &str,
        port: u16,
        alpn: &str,
    ) -> Result<Connection, Error> {
        self.pool.connection(&Origin::new(host, port), alpn.as_bytes(), true).await
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

fn request(method: Method, url: &str) -> Result<Request<()>, Error> {
    let request = Request::builder().method(method).uri(url).body(());
    request.map_err(|error| {
        // It may have a password in it.
        let shown = if url.contains('@') { "the URL" } else { url };
        Error::Request(format!("{shown}: {error}"))
    })
}

/// Why an exchange failed: the connection knows better than the stream, if it has ended.
async fn cause(http3: &Http3, error: Broken) -> Error {
    let error = match error {
        Broken::Stream(error) => error,
        Broken::Malformed(words) => return Error::Malformed(words),
    };
    let connection = http3.connection();
    let Some(reason) = connection.close_reason() else { return Error::Exchange(error) };
    match connection.wait_established().await {
        Err(error) => Error::Connect(error),
        Ok(()) => Error::Lost(reason),
    }
}

/// An answer. It is cancelled if it is dropped before its end.
#[derive(Debug)]
pub struct Answer {
    http3: Http3,
    exchange: Exchange,
}

impl Answer {
    /// Status and header fields.
    #[must_use]
    pub const fn head(&self) -> &Response<()> {
        self.exchange.head()
    }

    /// The connection by which it comes: statistics, addresses, what the handshake settled.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        self.http3.connection()
    }

    /// The next piece of the content; none at its end.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// If the rest does not come.
    pub async fn data(&mut self) -> Result<Option<Bytes>, Error> {
        match self.exchange.data().await {
            Ok(piece) => Ok(piece),
            Err(error) => Err(cause(&self.http3, error).await),
        }
    }

    /// The fields behind the content (RFC 9114, Section 4.1), once [`Answer::data`] has told its end; none before, and none
    /// if the server has sent none.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// If they do not come.
    pub async fn trailers(&mut self) -> Result<Option<HeaderMap>, Error> {
        match self.exchange.trailers().await {
            Ok(fields) => Ok(fields),
            Err(error) => Err(cause(&self.http3, error).await),
        }
    }

    /// All of the content, at most so many bytes of it.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`] if it is longer; otherwise if it does not come.
    pub async fn bytes(mut self, most: usize) -> Result<Bytes, Error> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.data().await? {
            if piece.len() > most - all.len() {
                return Err(Error::TooLong(most));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }
}
