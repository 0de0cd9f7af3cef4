//! The client role.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quicket::tokio::{Connection, Endpoint};
use quicket::{ClientConfig, ClientTls, EarlyData, MemorySessionStore};
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, ClientArguments, Event, Facts, emit};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::{echo, files, http3, http09};

/// Session tickets come after the handshake and nothing tells when; on loopback this is plenty.
const TICKET_WAIT: Duration = Duration::from_millis(300);
/// Requests under way at once.
const CONCURRENCY: usize = 32;

pub(crate) async fn run(arguments: ClientArguments) -> Result<(), Failure> {
    let tls = ClientTls::builder().ca_file(&arguments.ca).alpn([&arguments.alpn]);
    let tls = tls.early_data(arguments.early_data).build()?;
    let config = ClientConfig::new(tls).sessions(Arc::new(MemorySessionStore::new()));
    let local = if arguments.connect.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let endpoint = Endpoint::bind(local.parse::<SocketAddr>()?).await?;
    let client = Client { endpoint, config, arguments: Arc::new(arguments) };
    client.work().await?;
    client.endpoint.wait_idle().await;
    emit(&Event::Done);
    Ok(())
}

struct Client {
    endpoint: Endpoint,
    config: ClientConfig,
    arguments: Arc<ClientArguments>,
}

impl Client {
    async fn work(&self) -> Result<(), Failure> {
        let arguments = &*self.arguments;
        let mut paths = arguments.download.as_slice();
        let mut number = 1;
        if arguments.resume || arguments.early_data {
            let (first, rest) = paths.split_at_checked(1).unwrap_or((paths, &[]));
            let session = self.connect(number).await?;
            session.download(first).await?;
            tokio::time::sleep(TICKET_WAIT).await;
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
        let connection = self.endpoint.connect(remote, server_name, &self.config).await?;
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
    http3: OnceCell<http3::Client>,
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
        let mut rest = paths;
        if self.arguments.key_update {
            let (first, others) = paths.split_at_checked(1).unwrap_or((paths, &[]));
            self.download(first).await?;
            self.connection.update_keys()?;
            rest = others;
        }
        self.download(rest).await?;
        let mut streams = paths.len();
        if self.arguments.alpn == ALPN_ECHO {
            streams += self.echo().await?;
        }
        self.close(streams);
        Ok(())
    }

    async fn echo(&self) -> Result<usize, Failure> {
        let streams = echo::streams(&self.connection, self.arguments.streams).await?;
        let (datagrams, datagrams_lost) =
            echo::datagrams(&self.connection, self.arguments.datagrams).await?;
        let connection = self.number;
        emit(&Event::Echo { connection, streams, datagrams, datagrams_lost });
        Ok(streams as usize)
    }

    async fn download(&self, paths: &[String]) -> Result<(), Failure> {
        if paths.is_empty() {
            return Ok(());
        }
        if self.arguments.alpn == ALPN_H3 {
            return self.download_http3(paths).await;
        }
        for group in paths.chunks(CONCURRENCY) {
            let mut tasks = JoinSet::new();
            for path in group {
                let (connection, path) = (self.connection.clone(), path.clone());
                tasks.spawn(async move {
                    let content = http09::get(&connection, &path).await?;
                    Ok::<_, Failure>((path, content))
                });
            }
            while let Some(result) = tasks.join_next().await {
                let (path, content) = result??;
                files::store(self.arguments.out.as_deref(), self.number, &path, &content)?;
            }
        }
        Ok(())
    }

    async fn download_http3(&self, paths: &[String]) -> Result<(), Failure> {
        let start = || http3::Client::new(self.connection.clone());
        let client = self.http3.get_or_try_init(start).await?;
        let authority = &self.arguments.server_name;
        for path in paths {
            let content = client.get(authority, path).await?;
            files::store(self.arguments.out.as_deref(), self.number, path, &content)?;
        }
        Ok(())
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
