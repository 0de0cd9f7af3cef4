//! TLS to the store: whom to trust, and as whom to appear.

use std::path::PathBuf;
use std::sync::Arc;

use quicket::{ClientTls, Identity};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// TLS 1.3 or 1.2 to a store, which is always verified: who could play it would have copies of early data taken.
#[derive(Clone)]
pub(crate) struct Secured(Arc<ClientConfig>);

impl Secured {
    /// Trusts the roots in `ca`, or else the system's, and shows `identity` where it is asked for.
    pub(crate) fn new(ca: Option<PathBuf>, identity: Option<Identity>) -> Result<Self, String> {
        let mut builder = ClientTls::builder().without_alpn();
        if let Some(ca) = ca {
            builder = builder.ca_file(ca);
        }
        if let Some(identity) = identity {
            builder = builder.client_certificate(identity);
        }
        let tls = builder.build().map_err(|error| error.to_string())?;
        let config = tls.over_tcp_since_1_2::<_, &str>([]).map_err(|error| error.to_string())?;
        Ok(Self(Arc::new(config)))
    }

    /// Does the handshake with the store that is called `host`.
    pub(super) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, std::io::Error> {
        let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await
    }
}
