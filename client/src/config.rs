//! How a client connects.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quicket::{
    ClientConfig, ClientTls, ConfigError, EndpointConfig, FileSessionStore, MemorySessionStore,
    Qlog, TransportConfig,
};

use crate::Error;

type Tls = dyn Fn(&[u8]) -> Result<ClientTls, ConfigError> + Send + Sync;

/// How a client connects.
#[derive(Clone)]
pub struct Config {
    tls: Arc<Tls>,
    transport: TransportConfig,
    sessions: Sessions,
    early_data: bool,
    follow_network: bool,
    qlog: Option<Qlog>,
    /// Addresses of hosts, by their names in lower case, which nobody else is asked for.
    pub(crate) hosts: Arc<HashMap<String, Vec<IpAddr>>>,
    pub(crate) endpoint: EndpointConfig,
}

/// Where sessions are kept.
#[derive(Clone)]
enum Sessions {
    None,
    Memory,
    /// A folder for each protocol.
    Files(PathBuf),
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl Config {
    /// Trusts the system's roots, keeps sessions in memory, sends safe requests as 0-RTT data where a session allows it,
    /// and has connections follow the network.
    #[must_use]
    pub fn new() -> Self {
        Self {
            tls: Arc::new(|protocol| ClientTls::builder().alpn([protocol]).build()),
            transport: TransportConfig::default(),
            sessions: Sessions::Memory,
            early_data: true,
            follow_network: true,
            qlog: None,
            hosts: Arc::default(),
            endpoint: EndpointConfig::default(),
        }
    }

    /// Whom to trust, and as whom to appear, for each application protocol: `tls` gets its name and has to ask for it
    /// ([`ClientTls::builder`], `alpn`).
    #[must_use]
    pub fn tls(
        mut self,
        tls: impl Fn(&[u8]) -> Result<ClientTls, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        self.tls = Arc::new(tls);
        self
    }

    /// Limits and behaviour of the connections.
    #[must_use]
    pub fn transport(mut self, transport: TransportConfig) -> Self {
        self.transport = transport;
        self
    }

    /// The UDP sockets, and how much memory connections may take.
    #[must_use]
    pub fn endpoint(mut self, endpoint: EndpointConfig) -> Self {
        self.endpoint = endpoint;
        self
    }

    /// The addresses of a host, in the order in which they are tried: the system is not asked for them. With none, there
    /// is no such host.
    #[must_use]
    pub fn host(mut self, name: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let hosts = Arc::make_mut(&mut self.hosts);
        hosts.insert(name.to_ascii_lowercase(), addresses.into_iter().collect());
        self
    }

    /// Keeps sessions in files of this folder, so that they outlive the process. Who can read it can impersonate the
    /// client's sessions: it is made for its owner only.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if the folder cannot be made or used.
    pub fn sessions_in(mut self, folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = folder.as_ref();
        FileSessionStore::open(folder).map_err(Error::Store)?;
        self.sessions = Sessions::Files(folder.to_owned());
        Ok(self)
    }

    /// Neither keeps nor uses sessions: each connection begins with a whole handshake.
    #[must_use]
    pub fn no_sessions(mut self) -> Self {
        self.sessions = Sessions::None;
        self
    }

    /// Whether requests whose methods are safe (RFC 9110, Section 9.2.1) are sent before the handshake is complete. An
    /// attacker can repeat them (RFC 8470). On by default.
    #[must_use]
    pub const fn early_data(mut self, allowed: bool) -> Self {
        self.early_data = allowed;
        self
    }

    /// Whether connections follow this host from network to network: [`ClientConfig::follow_network`]. On by default.
    #[must_use]
    pub const fn follow_network(mut self, follow: bool) -> Self {
        self.follow_network = follow;
        self
    }

    /// Logs the connections in the qlog format.
    #[must_use]
    pub fn qlog(mut self, log: Qlog) -> Self {
        self.qlog = Some(log);
        self
    }

    pub(crate) const fn allows_early_data(&self) -> bool {
        self.early_data && !matches!(self.sessions, Sessions::None)
    }

    /// For the connections of one protocol. A session is good for one protocol only.
    pub(crate) fn client(&self, protocol: &[u8]) -> Result<ClientConfig, Error> {
        let tls = (self.tls)(protocol).map_err(Error::Config)?;
        let mut config = ClientConfig::new(tls)
            .transport(self.transport.clone())
            .follow_network(self.follow_network);
        if let Some(qlog) = &self.qlog {
            config = config.qlog(qlog.clone());
        }
        Ok(match &self.sessions {
            Sessions::None => config,
            Sessions::Memory => config.sessions(Arc::new(MemorySessionStore::default())),
            Sessions::Files(folder) => {
                let store = FileSessionStore::open(folder.join(file_name(protocol)));
                config.sessions(Arc::new(store.map_err(Error::Store)?))
            }
        })
    }
}

/// A protocol's name as that of a folder.
fn file_name(protocol: &[u8]) -> String {
    use std::fmt::Write;
    protocol.iter().fold(String::new(), |mut name, &byte| {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            name.push(byte.into());
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
        name
    })
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("early_data", &self.early_data)
            .field("follow_network", &self.follow_network)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_have_folders_of_their_own() {
        assert_eq!(file_name(b"h3"), "h3");
        assert_eq!(file_name(b"../a b"), "%2E%2E%2Fa%20b");
        assert_eq!(file_name(&[0xff]), "%FF");
    }
}
