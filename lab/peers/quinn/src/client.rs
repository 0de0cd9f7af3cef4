//! The client role.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, ClientArguments, Event, Facts, emit};
use quinn::crypto::rustls::HandshakeData;
use quinn::{
    ClientConfig, Connecting, Connection, Endpoint, EndpointConfig, TransportConfig,
    ZeroRttAccepted,
};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::tls::Witness;
use quicket_peer_common::files;

use crate::{VERSION, echo, http3, http09, tls};

/// Session tickets come after the handshake and nothing tells when; on loopback this is plenty.
const TICKET_WAIT: Duration = Duration::from_millis(300);
/// Requests under way at once.
const CONCURRENCY: usize = 100;
/// The round trip that early data counts on, about that of the link.
const EARLY_RTT: Duration = Duration::from_millis(30);
/// Into a download, the handshake is over.
const MIGRATE_AFTER: Duration = Duration::from_millis(500);
const KEY_UPDATE_AFTER: Duration = Duration::from_millis(500);

pub async fn run(arguments: ClientArguments) -> Result<(), Failure> {
    let (crypto, witness) = tls::client(&arguments)?;
    let mut endpoint_config = EndpointConfig::default();
    endpoint_config.supported_versions(vec![VERSION]);
    let local = if arguments.connect.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(local)?;
    let endpoint = Endpoint::new(endpoint_config, None, socket, Arc::new(quinn::TokioRuntime))?;
    let mut config = ClientConfig::new(crypto);
    config.version(VERSION);
    if arguments.early_data {
        // What is sent late is counted, padding of probes too.
        let mut transport = TransportConfig::default();
        transport.mtu_discovery_config(None);
        // What is sent early is paced by it.
        transport.initial_rtt(EARLY_RTT);
        config.transport_config(Arc::new(transport));
    }

    let arguments = Arc::new(arguments);
    let client = Client { endpoint, config, arguments, witness };
    client.work().await?;
    client.endpoint.wait_idle().await;
    emit(&Event::Done);
    Ok(())
}

struct Client {
    endpoint: Endpoint,
    config: ClientConfig,
    arguments: Arc<ClientArguments>,
    witness: Arc<Witness>,
}

impl Client {
    async fn work(&self) -> Result<(), Failure> {
        let arguments = &*self.arguments;
        if arguments.one_by_one {
            for (number, path) in (1..).zip(&arguments.download) {
                let session = self.connect(number).await?;
                session.everything(std::slice::from_ref(path)).await?;
            }
            return Ok(());
        }
        if arguments.parallel {
            return self.parallel().await;
        }
        let mut paths = arguments.download.as_slice();
        let mut number = 1;
        if arguments.resume || arguments.early_data {
            let (first, rest) = paths.split_at_checked(1).unwrap_or((paths, &[]));
            let session = self.connect(number).await?;
            session.download(first).await?;
            tokio::time::sleep(TICKET_WAIT).await;
            session.close(first.len()).await;
            paths = rest;
            number += 1;
        }
        let (session, accepted) = if arguments.early_data {
            let (session, accepted) = self.connect_early(number)?;
            (session, Some(accepted))
        } else {
            (self.connect(number).await?, None)
        };
        if let Some(accepted) = accepted {
            self.early(session, accepted, paths).await
        } else if let Some(address) = arguments.migrate {
            tokio::try_join!(session.everything(paths), self.migrate(address)).map(|_| ())
        } else {
            session.everything(paths).await
        }
    }

    /// Moves to another local address in the middle of a download.
    async fn migrate(&self, address: IpAddr) -> Result<(), Failure> {
        tokio::time::sleep(MIGRATE_AFTER).await;
        Ok(self.endpoint.rebind(UdpSocket::bind((address, 0))?)?)
    }

    /// Downloads each file over a connection of its own, all at once.
    async fn parallel(&self) -> Result<(), Failure> {
        let attempts = (1..).zip(&self.arguments.download).map(async |(number, path)| {
            let session = self.connect(number).await?;
            session.everything(std::slice::from_ref(path)).await
        });
        futures_util::future::try_join_all(attempts).await?;
        Ok(())
    }

    /// Sends the first requests at once, and again if the server refuses early data.
    async fn early(
        &self,
        mut session: Session,
        accepted: ZeroRttAccepted,
        paths: &[String],
    ) -> Result<(), Failure> {
        let attempt = session.download(paths);
        let (result, accepted) = tokio::join!(attempt, accepted);
        session.report(&self.witness, Some(accepted));
        if accepted {
            result?;
        } else {
            session.download(paths).await?;
        }
        session.close(paths.len()).await;
        Ok(())
    }

    fn begin(&self) -> Result<Connecting, Failure> {
        let ClientArguments { connect, server_name, .. } = &*self.arguments;
        Ok(self.endpoint.connect_with(self.config.clone(), *connect, server_name)?)
    }

    async fn connect(&self, number: u64) -> Result<Session, Failure> {
        let verified = self.witness.verified();
        let arguments = &self.arguments;
        let connecting = self.begin()?;
        let mut session = Session::new(connecting.await?, number, arguments.clone(), verified);
        session.report(&self.witness, Some(false));
        Ok(session)
    }

    fn connect_early(&self, number: u64) -> Result<(Session, ZeroRttAccepted), Failure> {
        let verified = self.witness.verified();
        let arguments = &self.arguments;
        let connecting = self.begin()?;
        let Ok((connection, accepted)) = connecting.into_0rtt() else {
            return Err("there is no session ticket that permits early data".into());
        };
        Ok((Session::new(connection, number, arguments.clone(), verified), accepted))
    }
}

/// One connection as seen by the client.
struct Session {
    connection: Connection,
    number: u64,
    arguments: Arc<ClientArguments>,
    verified_before: u64,
    facts: Facts,
    http3: OnceCell<http3::Client>,
}

impl Session {
    fn new(
        connection: Connection,
        number: u64,
        arguments: Arc<ClientArguments>,
        verified_before: u64,
    ) -> Self {
        let facts = Facts::default();
        let http3 = OnceCell::new();
        Self { connection, number, arguments, verified_before, facts, http3 }
    }

    /// Reports the complete handshake.
    fn report(&mut self, witness: &Witness, early_data: Option<bool>) {
        let data = self.connection.handshake_data();
        let alpn = data.and_then(|data| data.downcast::<HandshakeData>().ok()?.protocol);
        self.facts = Facts {
            version: Some(format!("{VERSION:#010x}")),
            alpn: alpn.map(|alpn| String::from_utf8_lossy(&alpn).into_owned()),
            resumed: Some(witness.verified() == self.verified_before),
            early_data,
            ..Facts::default()
        };
        emit(&Event::Connection { connection: self.number, facts: self.facts.clone() });
    }

    /// All that the command line asks of the last connection.
    async fn everything(self, paths: &[String]) -> Result<(), Failure> {
        if self.arguments.key_update {
            for path in paths.chunks(1) {
                let update = async {
                    tokio::time::sleep(KEY_UPDATE_AFTER).await;
                    self.connection.force_key_update();
                };
                let (downloaded, ()) = tokio::join!(self.download(path), update);
                downloaded?;
            }
        } else {
            self.download(paths).await?;
        }
        let mut streams = paths.len();
        if self.arguments.alpn == ALPN_ECHO {
            streams += self.echo().await?;
        }
        self.close(streams).await;
        Ok(())
    }

    async fn echo(&self) -> Result<usize, Failure> {
        echo::resets(&self.connection, self.arguments.resets).await?;
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

    async fn close(self, streams: usize) {
        // H3_NO_ERROR (RFC 9114, Section 8.1); the other protocols define no codes.
        let code: u32 = if self.arguments.alpn == ALPN_H3 { 0x100 } else { 0 };
        self.connection.close(code.into(), b"done");
        let (connection, facts) = (self.number, self.facts);
        emit(&Event::Closed { connection, streams: streams as u64, facts });
    }
}
