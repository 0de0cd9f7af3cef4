//! How connections over TCP are protected.

use std::sync::Arc;

use quicket::{ConfigError, ServerTls};
use tokio::net::TcpStream;
use tokio_rustls::rustls;
use tokio_rustls::server::TlsStream;

use crate::BodyError;
use crate::signed::Beginning;

/// TLS with the certificates of connections over QUIC, also those that are exchanged later. Clones share them.
#[derive(Clone, Debug)]
pub struct Tls {
    tls: ServerTls,
    base: Arc<rustls::ServerConfig>,
}

impl Tls {
    /// With the certificates of those over QUIC.
    ///
    /// # Errors
    ///
    /// If rustls does not take them.
    pub fn new(tls: &ServerTls) -> Result<Self, ConfigError> {
        let base = Arc::new(tls.over_tcp(["h2", "http/1.1"])?);
        Ok(Self { tls: tls.clone(), base })
    }

    /// The rest of a handshake that has begun. The certificates are those that count now: others may have come while the
    /// ClientHello was awaited.
    ///
    /// # Errors
    ///
    /// If there is no such certificate, the client does not take what it is offered, or it goes away.
    pub async fn finish(&self, begun: Beginning) -> Result<TlsStream<TcpStream>, BodyError> {
        // What its client is asked for is the connection's own.
        let config = self.tls.for_connection(&self.base)?;
        Ok(begun.finish(config).await?)
    }

    /// A whole handshake.
    ///
    /// # Errors
    ///
    /// As [`Tls::finish`].
    pub async fn accept(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, BodyError> {
        let begun = Beginning::read(stream).await?;
        self.finish(begun).await
    }
}

/// The protocol that a client has chosen, by its name in ALPN (RFC 7301): `h2`, or else `http/1.1`.
#[must_use]
pub fn protocol(stream: &TlsStream<TcpStream>) -> &'static str {
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => "h2",
        _ => "http/1.1",
    }
}
