//! Handshakes over TCP. Those whose signature is made elsewhere a thread has that may wait, and no worker.
//!
//! As over QUIC, TLS gets the ClientHello where the connection is, and once more on a thread if that turns out to need a
//! signature (`quicket_handshake::elsewhere`). Nothing has been sent by then.

use std::io;
use std::sync::Arc;

use quicket_handshake::elsewhere::{Needed, RemoteKey, attempt, offers_session, on_thread};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::{Accepted, AcceptedAlert, Acceptor, ServerConnection};
use tokio_rustls::rustls::{self, HandshakeKind, ServerConfig};
use tokio_rustls::server::TlsStream;

/// What TLS takes at once, in bytes.
const PIECE: usize = 4096;
/// Alert: fatal, internal_error (RFC 8446, Section 6). The client reads it in place of a ServerHello.
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// A connection that begins.
pub struct Beginning {
    stream: TcpStream,
    /// All that has come: a ClientHello, and what was right behind it.
    bytes: Vec<u8>,
    accepted: Accepted,
}

/// Why TLS does not go on, and what it says of it.
type Failed = (rustls::Error, Option<AcceptedAlert>);

fn tls_error(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Beginning {
    /// Reads the ClientHello.
    ///
    /// # Errors
    ///
    /// If what comes is none, which the client is told by an alert, or it goes away.
    pub async fn read(mut stream: TcpStream) -> io::Result<Self> {
        let (mut bytes, mut acceptor) = (Vec::new(), Acceptor::default());
        loop {
            let begun = bytes.len();
            bytes.resize(begun + PIECE, 0);
            let len = stream.read(&mut bytes[begun..]).await?;
            bytes.truncate(begun + len);
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            feed(&bytes[begun..], |piece| acceptor.read_tls(piece))?;
            match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => return Ok(Self { stream, bytes, accepted }),
                Err((error, alert)) => return Err(refuse(&mut stream, error, Some(alert)).await),
            }
        }
    }

    /// What the client says of itself.
    #[must_use]
    pub fn client_hello(&self) -> rustls::server::ClientHello<'_> {
        self.accepted.client_hello()
    }

    /// The rest of the handshake. Where a private key is elsewhere, a thread of that waits for the signature.
    ///
    /// # Errors
    ///
    /// If client and server do not agree, there is no signature, or the client goes away.
    pub async fn finish(self, config: Arc<ServerConfig>) -> io::Result<TlsStream<TcpStream>> {
        let Self { mut stream, bytes, accepted } = self;
        let (begun, Needed { chosen, ended }) =
            attempt(offers_session(&bytes), || connection(accepted, Arc::clone(&config)));
        let begun = match chosen.as_ref().filter(|_| ended) {
            None => begun,
            Some(key) => {
                drop(begun);
                let config = Arc::clone(&config);
                match elsewhere(key, move || connection(again(&bytes)?, config)).await {
                    Ok(begun) => begun,
                    Err(why) => return Err(no_signature(&mut stream, why).await),
                }
            }
        };
        let mut tls = match begun {
            Ok(tls) => tls,
            Err((error, alert)) => return Err(refuse(&mut stream, error, alert).await),
        };
        if let Some(key) = chosen
            && tls.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest)
        {
            tls = second(&mut stream, tls, &key).await?;
        }
        TlsAcceptor::from(config).accept_with(stream, |fresh| *fresh = tls).await
    }
}

/// Has TLS take bytes, all of them.
fn feed(
    mut bytes: &[u8],
    mut read: impl FnMut(&mut dyn io::Read) -> io::Result<usize>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        read(&mut bytes)?;
    }
    Ok(())
}

/// The same ClientHello once more.
fn again(bytes: &[u8]) -> Result<Accepted, Failed> {
    let mut acceptor = Acceptor::default();
    feed(bytes, |piece| acceptor.read_tls(piece))
        .map_err(|error| (rustls::Error::General(error.to_string()), None))?;
    match acceptor.accept() {
        Ok(Some(accepted)) => Ok(accepted),
        Ok(None) => Err((rustls::Error::General("no ClientHello".to_owned()), None)),
        Err((error, alert)) => Err((error, Some(alert))),
    }
}

fn connection(accepted: Accepted, config: Arc<ServerConfig>) -> Result<ServerConnection, Failed> {
    accepted.into_connection(config).map_err(|(error, alert)| (error, Some(alert)))
}

/// Has a thread of the key make a call of TLS.
async fn elsewhere<T: Send + 'static>(
    key: &Arc<dyn RemoteKey>,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (done, result) = oneshot::channel();
    key.run(Box::new(move || {
        // The client may have gone meanwhile.
        let _ = done.send(on_thread(call));
    }))?;
    result.await.map_err(|_| "nobody had the time to wait for it".to_owned())
}

/// Tells the client by an alert that TLS does not go on.
async fn refuse(
    stream: &mut TcpStream,
    error: rustls::Error,
    alert: Option<AcceptedAlert>,
) -> io::Error {
    if let rustls::Error::General(_) = error {
        return no_signature_of(stream, error).await;
    }
    let mut bytes = Vec::new();
    if let Some(mut alert) = alert {
        // Memory takes all.
        let _ = alert.write_all(&mut bytes);
    }
    // Whether the client hears of that is its business.
    let _ = stream.write_all(&bytes).await;
    tls_error(error)
}

async fn no_signature(stream: &mut TcpStream, why: String) -> io::Error {
    no_signature_of(stream, rustls::Error::General(format!("no signature: {why}"))).await
}

/// What TLS has written so far is a ServerHello that nothing follows: the client hears of the end instead.
async fn no_signature_of(stream: &mut TcpStream, error: rustls::Error) -> io::Error {
    let _ = stream.write_all(&INTERNAL_ERROR).await;
    tls_error(error)
}

/// Goes on after a HelloRetryRequest (RFC 8446, Section 4.1.4): the answer to the second ClientHello needs a signature,
/// or does without it, if a session is resumed.
async fn second(
    stream: &mut TcpStream,
    mut tls: ServerConnection,
    key: &Arc<dyn RemoteKey>,
) -> io::Result<ServerConnection> {
    loop {
        let mut out = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut out)?;
        }
        stream.write_all(&out).await?;
        let mut piece = vec![0; PIECE];
        let len = stream.read(&mut piece).await?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        feed(&piece[..len], |piece| tls.read_tls(piece))?;
        let read = elsewhere(key, move || {
            let read = tls.process_new_packets().map(|_| ());
            (tls, read)
        });
        let (back, read) = match read.await {
            Ok(read) => read,
            Err(why) => return Err(no_signature(stream, why).await),
        };
        tls = back;
        if let Err(error) = read {
            if let rustls::Error::General(_) = error {
                return Err(no_signature_of(stream, error).await);
            }
            let mut alert = Vec::new();
            while tls.wants_write() {
                tls.write_tls(&mut alert)?;
            }
            let _ = stream.write_all(&alert).await;
            return Err(tls_error(error));
        }
        // The answer is there; before it, a message was not whole.
        if tls.wants_write() {
            return Ok(tls);
        }
    }
}
