//! TLS to servers: whom to trust, and as whom to appear.
//!
//! A server is always verified: an origin that anybody on the way could play would get the cookies and
//! passwords of all clients.

use std::path::PathBuf;
use std::sync::Arc;

use quicket::{ClientTls, Fingerprint, Identity};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::ServerName;

use super::quic::Quic;

/// Sessions that are kept to be resumed, of all servers of an origin.
const MAX_SESSIONS: usize = 256;

/// What a file says of TLS to the servers of an origin.
#[derive(Debug, Default)]
pub struct TlsRules {
    /// The roots; the system's if there is none.
    pub ca: Option<PathBuf>,
    /// The name in the server's certificate, where it is not the host's.
    pub server_name: Option<String>,
    /// The gateway's own certificate, for servers that ask for one.
    pub identity: Option<Identity>,
}

/// What it comes down to.
pub(crate) struct Tls {
    /// For HTTP/2 and HTTP/1.1, as the server has it.
    pub(super) any: Arc<ClientConfig>,
    /// For HTTP/1.1 alone.
    pub(super) only_one: Arc<ClientConfig>,
    /// For HTTP/3.
    pub(super) quic: Arc<Quic>,
    server_name: Option<ServerName<'static>>,
    sameness: Sameness,
}

/// Equal where a connection of one is as good as one of the other.
#[derive(Debug, PartialEq, Eq)]
struct Sameness {
    roots: Option<Vec<u8>>,
    server_name: Option<String>,
    identity: Option<Fingerprint>,
}

impl Tls {
    /// Reads what the rules name.
    pub(crate) fn new(rules: TlsRules) -> Result<Self, String> {
        let server_name = rules.server_name.as_deref().map(name).transpose()?;
        let mut builder = ClientTls::builder().alpn(["h3"]);
        let mut roots = None;
        if let Some(path) = &rules.ca {
            let read = std::fs::read(path);
            roots = Some(read.map_err(|error| format!("cannot read {}: {error}", path.display()))?);
            builder = builder.ca_file(path);
        }
        let identity = rules.identity.as_ref().map(Identity::fingerprint);
        if let Some(identity) = rules.identity {
            builder = builder.client_certificate(identity);
        }
        let tls = builder.build().map_err(|error| error.to_string())?;
        let offering = |alpn: &[&str]| {
            let config = tls.over_tcp_since_1_2(alpn.iter().copied());
            let mut config = config.map_err(|error| error.to_string())?;
            config.resumption = Resumption::in_memory_sessions(MAX_SESSIONS);
            Ok::<_, String>(Arc::new(config))
        };
        let (any, only_one) = (offering(&["h2", "http/1.1"])?, offering(&["http/1.1"])?);
        let sameness = Sameness { roots, server_name: rules.server_name, identity };
        let quic = Arc::new(Quic::new(tls));
        Ok(Self { any, only_one, quic, server_name, sameness })
    }

    /// Whom a server at `host` has to be.
    pub(super) fn server_name(&self, host: &str) -> Result<ServerName<'static>, String> {
        self.server_name.clone().map_or_else(|| name(host), Ok)
    }

    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.sameness == other.sameness
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sameness.server_name.fmt(f)
    }
}

fn name(text: &str) -> Result<ServerName<'static>, String> {
    let name = ServerName::try_from(text.to_owned());
    name.map_err(|_| format!("{text:?} is neither a DNS name nor an address"))
}
