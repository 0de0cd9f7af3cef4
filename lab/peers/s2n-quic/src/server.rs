//! The server role.

use std::path::PathBuf;

use quicket_peer_common::tasks;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, Event, ServerArguments, emit};
use s2n_quic::provider::endpoint_limits::{ConnectionAttempt, Limiter, Outcome};
use s2n_quic::{Connection, Server};
use tokio::io::AsyncReadExt;

use crate::over::{Both, Over};
use crate::{provider, tls};

pub async fn run(arguments: ServerArguments) -> Result<(), Failure> {
    let server = Server::builder()
        .with_tls(tls::server(&arguments)?)?
        .with_io(arguments.listen)?
        .with_limits(provider::limits()?)?
        .with_datagram(provider::datagrams()?)?
        .with_stateless_reset_token(provider::ResetTokens::new(arguments.reset_key.as_deref())?)?
        .with_endpoint_limits(Attempts { retry: arguments.retry })?
        .start()?;
    emit(&Event::Listening { address: server.local_addr()? });
    let accepting = tokio::spawn(accept(server, arguments.www));
    let mut discarded = Vec::new();
    tokio::io::stdin().read_to_end(&mut discarded).await?;
    accepting.abort();
    Ok(())
}

/// Which attempts to connect are answered with a Retry.
struct Attempts {
    retry: bool,
}

impl Limiter for Attempts {
    /// Asked for attempts without a token only.
    fn on_connection_attempt(&mut self, _: &ConnectionAttempt<'_>) -> Outcome {
        if self.retry { Outcome::retry() } else { Outcome::allow() }
    }
}

async fn accept(mut server: Server, folder: Option<PathBuf>) {
    while let Some(connection) = server.accept().await {
        let folder = folder.clone();
        tokio::spawn(async move {
            let number = connection.id();
            if let Err(failure) = serve(connection, folder).await {
                emit(&Event::Error { message: format!("connection {number}: {failure}") });
            }
        });
    }
}

async fn serve(mut connection: Connection, folder: Option<PathBuf>) -> Result<(), Failure> {
    let echoes = connection.application_protocol()? == ALPN_ECHO.as_bytes();
    if echoes {
        tokio::spawn(tasks::serve_datagrams(Over(connection.handle())));
    }
    while let Some(stream) = connection.accept_bidirectional_stream().await? {
        tasks::serve(Both(stream), echoes, folder.clone());
    }
    Ok(())
}
