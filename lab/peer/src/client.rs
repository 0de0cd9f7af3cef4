//! The client role.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quicket::tokio::{Connection, Endpoint};
use quicket::{
    Aead, ClientConfig, ClientTls, ConnectError, ConnectionError, EarlyData, Identity,
    TransportConfig, Version,
};
use quicket_h3::OpenStreams;
use quicket_peer_common::tasks::{self, http3};
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, ClientArguments, Event, Facts, emit};
use tokio::sync::OnceCell;

use crate::endpoint::negotiation;
use crate::over::Over;
use crate::tickets::Tickets;
use crate::{HANDSHAKE_TIMEOUT, logs};

/// How long to wait between attempts to update the keys, which need the handshake's end.
const KEY_UPDATE_RETRY: Duration = Duration::from_millis(2);
/// How many attempts there are.
const KEY_UPDATE_ATTEMPTS: u32 = 5_000;
/// Into a download, the handshake is over.
const MIGRATE_AFTER: Duration = Duration::from_millis(500);

/// How long a server may take to start that the runner starts together with the client.
const STARTING: Duration = Duration::from_secs(10);
/// When it is asked again.
const AGAIN: Duration = Duration::from_millis(100);

pub(crate) async fn run(arguments: ClientArguments) -> Result<(), Failure> {
    if arguments.unknown_version {
        negotiation::provoke(arguments.connect).await?;
        emit(&Event::Done);
        return Ok(());
    }
    let client = Client::new(config(&arguments)?, arguments).await?;
    client.work().await?;
    client.finish().await;
    Ok(())
}

fn config(arguments: &ClientArguments) -> Result<ClientConfig, Failure> {
    let mut tls = ClientTls::builder().ca_file(&arguments.ca).alpn([&arguments.alpn]);
    tls = tls.early_data(arguments.early_data);
    if arguments.chacha20 {
        tls = tls.cipher_suites(&[Aead::ChaCha20Poly1305]);
    }
    if let (Some(certificate), Some(key)) = (&arguments.cert, &arguments.key) {
        tls = tls.client_certificate(Identity::from_pem_files(certificate, key)?);
    }
    if let Some(log) = logs::key_log(logs::variable("SSLKEYLOGFILE").as_deref())? {
        tls = tls.key_log(log);
    }
    let mut transport =
        TransportConfig { handshake_timeout: HANDSHAKE_TIMEOUT, ..Default::default() };
    if arguments.early_data {
        // What is sent late is counted, padding of probes too.
        transport.mtu_discovery = None;
    }
    let acceptable: &[Version] =
        if arguments.v2 { &[Version::V2, Version::V1] } else { &[Version::V1] };
    let mut config = ClientConfig::new(tls.build()?)
        .transport(transport)
        .versions(Version::V1, acceptable.iter().copied());
    if let Some(log) = logs::qlog(logs::variable("QLOGDIR").as_deref())? {
        config = config.qlog(log);
    }
    Ok(config)
}

/// A client with its socket and what it is told.
pub(crate) struct Client {
    endpoint: Endpoint,
    config: ClientConfig,
    tickets: Arc<Tickets>,
    arguments: Arc<ClientArguments>,
}

impl Client {
    /// A client that connects with `config`, whatever `arguments` say about trust.
    pub(crate) async fn new(
        config: ClientConfig,
        arguments: ClientArguments,
    ) -> Result<Self, Failure> {
        let tickets = Arc::new(Tickets::default());
        let config = config.sessions(tickets.clone());
        let local = if arguments.connect.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let endpoint = Endpoint::bind(local.parse::<SocketAddr>()?).await?;
        Ok(Self { endpoint, config, tickets, arguments: Arc::new(arguments) })
    }

    /// Waits until all connections have ended.
    pub(crate) async fn finish(&self) {
        self.endpoint.wait_idle().await;
        emit(&Event::Done);
    }

    pub(crate) async fn work(&self) -> Result<(), Failure> {
        let arguments = &*self.arguments;
        let apart = async |number, path: &[String]| {
            if arguments.one_by_one {
                // No session is resumed.
                self.tickets.forget();
            }
            self.connect(number).await?.everything(path).await
        };
        if tasks::download_apart(arguments, apart).await? {
            return Ok(());
        }
        let mut paths = arguments.download.as_slice();
        let mut number = 1;
        if arguments.resume || arguments.early_data {
            let (first, rest) = paths.split_at_checked(1).unwrap_or((paths, &[]));
            let session = self.connect(number).await?;
            session.download(first).await?;
            self.tickets.arrival().await?;
            session.close(first.len());
            paths = rest;
            number += 1;
        }
        if arguments.early_data {
            self.early(number, paths).await
        } else {
            self.connect(number).await?.everything(paths).await
        }
    }

    /// Sends the first requests at once; the engine repeats them if the server refuses early
    /// data.
    async fn early(&self, number: u64, paths: &[String]) -> Result<(), Failure> {
        let Arguments { remote, server_name } = self.server();
        let connection = self.endpoint.connect_early(remote, server_name, &self.config)?;
        let mut session = Session::new(connection, number, self.arguments.clone());
        session.download(paths).await?;
        session.connection.wait_established().await?;
        session.report();
        session.close(paths.len());
        Ok(())
    }

    async fn connect(&self, number: u64) -> Result<Session, Failure> {
        let Arguments { remote, server_name } = self.server();
        let begun = Instant::now();
        let connection = loop {
            match self.endpoint.connect(remote, server_name, &self.config).await {
                Err(ConnectError::Lost(ConnectionError::PortUnreachable))
                    if begun.elapsed() < STARTING =>
                {
                    tokio::time::sleep(AGAIN).await;
                }
                connected => break connected?,
            }
        };
        let mut session = Session::new(connection, number, self.arguments.clone());
        session.report();
        Ok(session)
    }

    fn server(&self) -> Arguments<'_> {
        Arguments { remote: self.arguments.connect, server_name: &self.arguments.server_name }
    }
}

/// Whom to connect to.
struct Arguments<'a> {
    remote: SocketAddr,
    server_name: &'a str,
}

/// One connection as seen by the client.
struct Session {
    connection: Connection,
    number: u64,
    arguments: Arc<ClientArguments>,
    facts: Facts,
    http3: OnceCell<http3::Client<OpenStreams>>,
}

impl Session {
    fn new(connection: Connection, number: u64, arguments: Arc<ClientArguments>) -> Self {
        let (facts, http3) = (Facts::default(), OnceCell::new());
        Self { connection, number, arguments, facts, http3 }
    }

    /// Reports the complete handshake.
    fn report(&mut self) {
        let handshake = self.connection.handshake();
        self.facts = Facts {
            version: handshake.as_ref().map(|known| format!("{:#010x}", known.version.0)),
            alpn: handshake.as_ref().map(|known| String::from_utf8_lossy(&known.alpn).into_owned()),
            resumed: handshake.as_ref().map(|known| known.resumed),
            early_data: Some(self.connection.early_data() == EarlyData::Accepted),
            ..Facts::default()
        };
        emit(&Event::Connection { connection: self.number, facts: self.facts.clone() });
    }

    /// All that the command line asks of the last connection.
    async fn everything(self, paths: &[String]) -> Result<(), Failure> {
        if self.arguments.key_update {
            for path in paths.chunks(1) {
                let (done, updated) = tokio::join!(self.download(path), self.update_keys());
                done.and(updated)?;
            }
        } else if let Some(address) = self.arguments.migrate {
            tokio::try_join!(self.download(paths), self.migrate(address))?;
        } else {
            self.download(paths).await?;
        }
        let mut streams = paths.len();
        if self.arguments.alpn == ALPN_ECHO {
            tasks::echo(&Over(self.connection.clone()), self.number, &self.arguments).await?;
            streams += self.arguments.streams as usize;
        }
        self.close(streams);
        Ok(())
    }

    /// Updates the keys as soon as that is possible.
    async fn update_keys(&self) -> Result<(), Failure> {
        for _ in 0..KEY_UPDATE_ATTEMPTS {
            if self.connection.update_keys().is_ok() {
                return Ok(());
            }
            tokio::time::sleep(KEY_UPDATE_RETRY).await;
        }
        Ok(self.connection.update_keys()?)
    }

    /// Moves to another local address in the middle of a download.
    async fn migrate(&self, address: IpAddr) -> Result<(), Failure> {
        tokio::time::sleep(MIGRATE_AFTER).await;
        Ok(self.connection.migrate((address, 0).into())?)
    }

    async fn download(&self, paths: &[String]) -> Result<(), Failure> {
        if paths.is_empty() {
            return Ok(());
        }
        if self.arguments.alpn == ALPN_H3 {
            return self.download_http3(paths).await;
        }
        let connection = Over(self.connection.clone());
        let get = |path: &str| tasks::get(&connection, path);
        tasks::download(&self.arguments, self.number, paths, get).await
    }

    async fn download_http3(&self, paths: &[String]) -> Result<(), Failure> {
        let start = || http3::Client::new(quicket_h3::Connection::new(self.connection.clone()));
        let client = self.http3.get_or_try_init(start).await?;
        let get = |path: &str| client.get(&self.arguments.server_name, path);
        tasks::download(&self.arguments, self.number, paths, get).await
    }

    fn close(mut self, streams: usize) {
        self.facts.key_updates = Some(self.connection.stats().counters.key_updates);
        // H3_NO_ERROR (RFC 9114, Section 8.1); the other protocols define no codes.
        let code = if self.arguments.alpn == ALPN_H3 { 0x100 } else { 0 };
        self.connection.close(code, b"done");
        let (connection, facts) = (self.number, self.facts);
        emit(&Event::Closed { connection, streams: streams as u64, facts });
    }
}
