//! The server role.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::hmac;
use quicket_peer_common::tasks;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, Event, Facts, ServerArguments, emit};
use quinn::crypto::rustls::HandshakeData;
use quinn::{
    AckFrequencyConfig, Connection, ConnectionError, Endpoint, EndpointConfig, Incoming,
    ServerConfig, TransportConfig,
};
use tokio::io::AsyncReadExt;

use crate::over::{Both, Over};
use crate::{VERSION, draw_ids, http3, tls};

/// Packets that may come before an acknowledgement must be sent, where the case asks for fewer.
const ACK_THRESHOLD: u32 = 10;

pub async fn run(arguments: ServerArguments) -> Result<(), Failure> {
    let endpoint = bind(&arguments)?;
    emit(&Event::Listening { address: endpoint.local_addr()? });
    let accepting = tokio::spawn(accept(endpoint.clone(), arguments));
    let mut discarded = Vec::new();
    tokio::io::stdin().read_to_end(&mut discarded).await?;
    accepting.abort();
    endpoint.close(0_u32.into(), b"the server stops");
    let _ = tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await;
    Ok(())
}

fn bind(arguments: &ServerArguments) -> Result<Endpoint, Failure> {
    let mut config = ServerConfig::with_crypto(tls::server(arguments)?);
    match arguments.preferred {
        Some(SocketAddr::V4(v4)) => _ = config.preferred_address_v4(Some(v4)),
        Some(SocketAddr::V6(v6)) => _ = config.preferred_address_v6(Some(v6)),
        None => {}
    }
    if arguments.ack_frequency {
        let mut frequency = AckFrequencyConfig::default();
        frequency.ack_eliciting_threshold(ACK_THRESHOLD.into());
        let mut transport = TransportConfig::default();
        transport.ack_frequency_config(Some(frequency));
        config.transport_config(Arc::new(transport));
    }
    let mut endpoint_config = match &arguments.reset_key {
        Some(key) => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
            EndpointConfig::new(Arc::new(key))
        }
        None => EndpointConfig::default(),
    };
    if arguments.reset_key.is_some() {
        draw_ids(&mut endpoint_config);
    }
    endpoint_config.supported_versions(vec![VERSION]);
    let socket = std::net::UdpSocket::bind(arguments.listen)?;
    let runtime = Arc::new(quinn::TokioRuntime);
    Ok(Endpoint::new(endpoint_config, Some(config), socket, runtime)?)
}

async fn accept(endpoint: Endpoint, arguments: ServerArguments) {
    let mut number = 0;
    while let Some(incoming) = endpoint.accept().await {
        if arguments.retry && !incoming.remote_address_validated() {
            if let Err(error) = incoming.retry() {
                emit(&Event::Error { message: error.to_string() });
            }
            continue;
        }
        number += 1;
        let served = Served::new(number, arguments.www.clone());
        let retried = arguments.retry;
        tokio::spawn(async move {
            if let Err(failure) = served.run(incoming, retried).await {
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
    fn new(number: u64, folder: Option<PathBuf>) -> Self {
        Self { number, folder, streams: Arc::default(), early: Arc::default() }
    }

    async fn run(self, incoming: Incoming, retried: bool) -> Result<(), Failure> {
        let mut connecting = incoming.accept()?;
        let data = connecting.handshake_data().await?;
        let alpn = data.downcast::<HandshakeData>().ok().and_then(|data| data.protocol);
        let alpn = String::from_utf8(alpn.unwrap_or_default())?;
        let Ok((connection, complete)) = connecting.into_0rtt() else {
            return Err("a server can always send before the handshake is complete".into());
        };
        let mut facts = Facts {
            version: Some(format!("{VERSION:#010x}")),
            alpn: Some(alpn.clone()),
            retry: Some(retried),
            ..Facts::default()
        };
        let told = (self.number, facts.clone());
        tokio::spawn(async move {
            complete.await;
            let (connection, facts) = told;
            emit(&Event::Connection { connection, facts });
        });
        let result = self.serve(connection, &alpn).await;
        // quinn decides about a stream when it is accepted, not when it came: `false` says nothing.
        facts.early_data = self.early.load(Ordering::Relaxed).then_some(true);
        let streams = self.streams.load(Ordering::Relaxed);
        emit(&Event::Closed { connection: self.number, streams, facts });
        result
    }

    async fn serve(&self, connection: Connection, alpn: &str) -> Result<(), Failure> {
        if alpn == ALPN_H3 {
            let requests = http3::serve(connection, self.folder.as_deref()).await?;
            self.streams.store(requests, Ordering::Relaxed);
            return Ok(());
        }
        let echoes = alpn == ALPN_ECHO;
        if echoes {
            tokio::spawn(tasks::serve_datagrams(Over(connection.clone())));
        }
        loop {
            let (send, recv) = match connection.accept_bi().await {
                Ok(stream) => stream,
                Err(ConnectionError::ApplicationClosed(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            self.early.fetch_or(recv.is_0rtt(), Ordering::Relaxed);
            self.streams.fetch_add(1, Ordering::Relaxed);
            tasks::serve(Both { send, recv }, echoes, self.folder.clone());
        }
    }
}
