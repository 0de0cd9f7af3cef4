//! The server role.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quicket::tokio::{Connection, Endpoint, Listener};
use quicket::{
    AcceptError, ClientAuth, EndpointConfig, Identity, RetryPolicy, Roots, ServerConfig, ServerTls,
    TransportConfig, Version, Workers,
};
use quicket_peer_common::tasks::{self, http3};
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, Event, Facts, ServerArguments, emit};
use tokio::io::AsyncReadExt;

use crate::over::{Both, Over};
use crate::{HANDSHAKE_TIMEOUT, logs};

pub(crate) async fn run(arguments: ServerArguments) -> Result<(), Failure> {
    // Clients of others meet an address with two workers, as servers have.
    let mut endpoint_config = EndpointConfig::default().workers(Workers::Count(2));
    endpoint_config.protocol.versions =
        if arguments.v2 { vec![Version::V1, Version::V2] } else { vec![Version::V1] };
    if let Some(key) = &arguments.reset_key {
        endpoint_config.protocol.reset_key = reset_key(key);
    }
    let endpoint = Endpoint::bind_with(arguments.listen, endpoint_config).await?;
    let config = config(&arguments)?;
    let site = Site { folder: arguments.www, retries: arguments.retry };
    let input_ends = async {
        let mut discarded = Vec::new();
        tokio::io::stdin().read_to_end(&mut discarded).await.map(|_| ())
    };
    serve(&endpoint, config, site, input_ends).await
}

/// What connections are to find.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) folder: Option<PathBuf>,
    /// Clients are sent Retry packets.
    pub(crate) retries: bool,
}

/// Serves until `end`.
pub(crate) async fn serve(
    endpoint: &Endpoint,
    config: ServerConfig,
    site: Site,
    end: impl Future<Output = std::io::Result<()>>,
) -> Result<(), Failure> {
    let listener = endpoint.listen_early(config)?;
    emit(&Event::Listening { address: endpoint.local_addr() });
    let accepting = tokio::spawn(accept(listener, site));
    end.await?;
    accepting.abort();
    endpoint.close(0, b"the server stops");
    Ok(())
}

fn config(arguments: &ServerArguments) -> Result<ServerConfig, Failure> {
    let identity = Identity::from_pem_files(&arguments.cert, &arguments.key)?;
    let mut tls = ServerTls::builder(identity).alpn(&arguments.alpn).early_data(true);
    if let Some(authority) = &arguments.client_ca {
        tls = tls.client_auth(ClientAuth::Required(Roots::PemFile(authority.clone())));
    }
    if let Some(log) = logs::key_log(logs::variable("SSLKEYLOGFILE").as_deref())? {
        tls = tls.key_log(log);
    }
    let retry = if arguments.retry { RetryPolicy::Always } else { RetryPolicy::Never };
    let transport = TransportConfig {
        handshake_timeout: HANDSHAKE_TIMEOUT,
        ack_frequency: arguments.ack_frequency,
        ..Default::default()
    };
    let mut config = ServerConfig::new(tls.build()?).transport(transport).retry(retry);
    if arguments.v2 {
        config.protocol_mut().preferred_version = Some(Version::V2);
    }
    if let Some(address) = arguments.preferred {
        config = config.preferred_address(address);
    }
    if let Some(log) = logs::qlog(logs::variable("QLOGDIR").as_deref())? {
        config = config.qlog(log);
    }
    Ok(config)
}

/// A key that is the same in every process that is told the same text.
fn reset_key(text: &str) -> [u8; 32] {
    let mut key = [0; 32];
    key.iter_mut().zip(text.bytes().cycle()).for_each(|(byte, given)| *byte = given);
    key
}

async fn accept(listener: Listener, site: Site) {
    let mut number = 0;
    loop {
        let connection = match listener.accept().await {
            Ok(connection) => connection,
            Err(error) => {
                emit(&Event::Error { message: error.to_string() });
                return;
            }
        };
        number += 1;
        let folder = site.folder.clone();
        let served = Served { number, folder, streams: Arc::default(), early: Arc::default() };
        let retried = site.retries;
        tokio::spawn(async move {
            if let Err(failure) = served.run(connection, retried).await {
                emit(&Event::Error { message: format!("connection {number}: {failure}") });
            }
        });
    }
}

/// One connection as seen by the server.
#[derive(Clone)]
struct Served {
    number: u64,
    folder: Option<PathBuf>,
    streams: Arc<AtomicU64>,
    early: Arc<AtomicBool>,
}

impl Served {
    async fn run(self, connection: Connection, retried: bool) -> Result<(), Failure> {
        let alpn = alpn(&connection).await?;
        let told = (self.number, retried, connection.clone());
        tokio::spawn(async move {
            let (number, retried, connection) = told;
            if connection.wait_established().await.is_ok() {
                emit(&Event::Connection { connection: number, facts: facts(&connection, retried) });
            }
        });
        let result = self.serve(connection.clone(), &alpn).await;
        let mut facts = facts(&connection, retried);
        facts.key_updates = Some(connection.stats().counters.key_updates);
        if alpn != ALPN_H3 {
            facts.early_data = Some(self.early.load(Ordering::Relaxed));
        }
        let streams = self.streams.load(Ordering::Relaxed);
        emit(&Event::Closed { connection: self.number, streams, facts });
        result
    }

    async fn serve(&self, connection: Connection, alpn: &str) -> Result<(), Failure> {
        if alpn == ALPN_H3 {
            let session = quicket_h3::Connection::new(connection);
            let requests = http3::serve(session, self.folder.as_deref()).await?;
            self.streams.store(requests, Ordering::Relaxed);
            return Ok(());
        }
        let echoes = alpn == ALPN_ECHO;
        if echoes {
            tokio::spawn(tasks::serve_datagrams(Over(connection.clone())));
        }
        loop {
            let stream = match connection.accept_bi().await {
                Ok(stream) => stream,
                Err(AcceptError::Lost(quicket::ConnectionError::PeerApplication { .. })) => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            };
            self.early.fetch_or(stream.is_early_data(), Ordering::Relaxed);
            self.streams.fetch_add(1, Ordering::Relaxed);
            tasks::serve(Both(stream), echoes, self.folder.clone());
        }
    }
}

/// The application protocol, which early data needs before the handshake is complete.
async fn alpn(connection: &Connection) -> Result<String, Failure> {
    if let Some(alpn) = connection.alpn() {
        return Ok(String::from_utf8(alpn)?);
    }
    connection.wait_established().await?;
    let alpn = connection.alpn().ok_or("no application protocol was negotiated")?;
    Ok(String::from_utf8(alpn)?)
}

fn facts(connection: &Connection, retried: bool) -> Facts {
    let handshake = connection.handshake();
    Facts {
        version: handshake.as_ref().map(|known| format!("{:#010x}", known.version.0)),
        alpn: handshake.as_ref().map(|known| String::from_utf8_lossy(&known.alpn).into_owned()),
        resumed: handshake.as_ref().map(|known| known.resumed),
        retry: Some(retried),
        ..Facts::default()
    }
}
