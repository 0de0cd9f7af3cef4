//! The client role.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quicket_peer_common::{files, tasks};
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, ClientArguments, Event, Facts, emit};
use quinn::crypto::rustls::HandshakeData;
use quinn::{
    ClientConfig, Connecting, Connection, Endpoint, EndpointConfig, TransportConfig,
    ZeroRttAccepted,
};
use tokio::sync::OnceCell;

use crate::over::Over;
use crate::tls::Witness;
use crate::{VERSION, http3, tls};

/// Session tickets come after the handshake and nothing tells when; on loopback this is plenty.
const TICKET_WAIT: Duration = Duration::from_millis(300);
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
        let apart =
            async |number, path: &[String]| self.connect(number).await?.everything(path).await;
        if tasks::download_apart(arguments, apart).await? {
            return Ok(());
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
            tasks::echo(&Over(self.connection.clone()), self.number, &self.arguments).await?;
            streams += self.arguments.streams as usize;
        }
        self.close(streams).await;
        Ok(())
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
        let start = || http3::connect(self.connection.clone());
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
