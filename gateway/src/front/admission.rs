//! Who may connect over QUIC.

use std::sync::Arc;

use quicket::tokio::Connection;
use quicket::{Attempt, Decision};

use super::{Shared, http3, unencrypted};
use crate::protocol;
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

/// Holds a connection over QUIC if its client may have one more, and speaks what it has asked for.
pub(crate) async fn hold(connection: Connection, shared: Arc<Shared>) {
    let allowed = shared.current().0.limits.client;
    let address = connection.remote_addr().ip();
    // Early data comes before the client has answered.
    let is_proven = connection.handshake().is_some();
    let counted = shared.clients.connect(address, &allowed, is_proven);
    let control = |connection: &Connection, shared: &Shared| {
        shared.current().0.congestion.apply(connection, &shared.metrics);
        unencrypted::note(connection, &shared.metrics);
    };
    if is_proven {
        control(&connection, &shared);
    } else if counted.is_ok() {
        let (connection, shared) = (connection.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            if connection.wait_established().await.is_ok() {
                shared.clients.prove(address);
                control(&connection, &shared);
            }
        });
    }
    match counted {
        Ok(_counted) if is_http(&connection) => http3::serve(connection, shared).await,
        Ok(_counted) => protocol::serve(connection, shared).await,
        Err(exceeded) => {
            shared.metrics.refused(exceeded.reason);
            turn_away(&connection, exceeded.reason);
        }
    }
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
