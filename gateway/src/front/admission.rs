//! Who may connect over QUIC.

use std::future::Future;
use std::sync::Arc;

use quicket::tokio::Connection;
use quicket::{Attempt, Decision, Hello};

use super::service::Service;
use super::{Shared, http3, unencrypted};
use crate::clients::{Exceeded, Held};
use crate::protocol;
use crate::quota::Taken;
use crate::snapshot::Snapshot;

/// True if handshakes of each address are counted.
pub(crate) fn counts_handshakes(snapshot: &Snapshot) -> bool {
    snapshot.limits.client.handshakes_per_second.is_some()
}

/// Decides about attempts to connect over QUIC.
pub(crate) fn admission(
    shared: &Arc<Shared>,
) -> impl Fn(&Attempt) -> Decision + Send + Sync + 'static {
    let shared = Arc::clone(shared);
    move |attempt| {
        let allowed = shared.current().0.limits.client;
        match shared.clients.handshake(attempt.remote.ip(), &allowed, attempt.validated) {
            Ok(()) => Decision::Accept,
            // The address may be made up, to have its owner refused.
            Err(_) if !attempt.validated => Decision::Retry,
            Err(exceeded) => {
                shared.metrics.refused(exceeded.reason);
                Decision::Refuse
            }
        }
    }
}

/// Decides about clients over QUIC by the service that they ask for.
pub(crate) fn admission_by_service(
    shared: &Arc<Shared>,
) -> impl Fn(&Hello<'_>) -> bool + Send + Sync + 'static {
    let shared = Arc::clone(shared);
    move |hello| {
        let snapshot = shared.current().0;
        let service = Service::asked(&snapshot, hello);
        let taken = service.map_or(Ok(()), |service| service.greet());
        taken.inspect_err(|exceeded| shared.metrics.refused(exceeded.reason)).is_ok()
    }
}

/// Holds a connection over QUIC if its client may have one more, and speaks what it has asked for.
#[expect(
    clippy::manual_async_fn,
    reason = "as of `http3::serve`: there are as many of these as connections"
)]
pub(crate) fn hold(connection: Connection, shared: Arc<Shared>) -> impl Future<Output = ()> + Send {
    async move {
        let Ok(_counted) = admit(&connection, &shared) else { return };
        match is_http(&connection) {
            true => http3::serve(connection, shared).await,
            // In a box: the others, which are many, would have room for it.
            false => Box::pin(protocol::serve(connection, shared)).await,
        }
    }
}

/// Counts a connection, if its client and its service may have one more, and turns it away otherwise.
fn admit(
    connection: &Connection,
    shared: &Arc<Shared>,
) -> Result<(Option<Held>, Option<Taken>), Exceeded> {
    let allowed = shared.current().0.limits.client;
    let address = connection.remote_addr().ip();
    // Early data comes before the client has answered.
    let is_proven = connection.handshake().is_some();
    let counted = shared.clients.connect(address, &allowed, is_proven);
    let counted = counted.and_then(|held| Ok((held, served(connection, shared)?)));
    let control = |connection: &Connection, shared: &Shared| {
        shared.current().0.congestion.apply(connection, &shared.metrics);
        unencrypted::note(connection, &shared.metrics);
    };
    if is_proven {
        control(connection, shared);
    } else if counted.is_ok() {
        let (connection, shared) = (connection.clone(), Arc::clone(shared));
        tokio::spawn(async move {
            if connection.wait_established().await.is_ok() {
                shared.clients.prove(address);
                control(&connection, &shared);
            }
        });
    }
    counted.inspect_err(|exceeded| {
        shared.metrics.refused(exceeded.reason);
        turn_away(connection, exceeded.reason);
    })
}

/// Counts a connection for its service.
fn served(connection: &Connection, shared: &Shared) -> Result<Option<Taken>, Exceeded> {
    let snapshot = shared.current().0;
    let (name, alpn) = (connection.server_name(), connection.alpn().unwrap_or_default());
    let service = Service::of(&snapshot, name.as_deref(), &alpn);
    service.map_or(Ok(None), |service| service.connect())
}

/// Closes a connection that is one too many.
pub(crate) fn turn_away(connection: &Connection, reason: &str) {
    let code = match is_http(connection) {
        true => h3::error::Code::H3_EXCESSIVE_LOAD.value(),
        false => protocol::TOO_MANY,
    };
    connection.close(code, reason.as_bytes());
}

fn is_http(connection: &Connection) -> bool {
    connection.alpn().as_deref() == Some(b"h3")
}
