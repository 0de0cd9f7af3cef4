//! Connections over TCP, until the gateway stops.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Shared, introduction};
use crate::BodyError;
use crate::clients::Exceeded;

/// Holds each connection, with its client's address, in a task of its own.
pub(crate) async fn accept_all<F>(
    listener: TcpListener,
    shared: Arc<Shared>,
    hold: impl Fn(TcpStream, SocketAddr) -> F + Clone + Send + 'static,
) where
    F: Future<Output = Result<(), BodyError>> + Send + 'static,
{
    let mut ending = shared.ending.clone();
    let ending = async move { ending.accepts_no_more().await };
    let take = move |stream, peer| {
        // Whoever comes when there are too many is turned away at once, not kept waiting.
        let Ok(permit) = Arc::clone(&shared.room).try_acquire_owned() else {
            return shared.metrics.refused("too many connections");
        };
        let (shared, hold) = (Arc::clone(&shared), hold.clone());
        tokio::spawn(async move {
            if let Err(error) = admit(stream, peer, &shared, hold).await {
                log::debug!("{peer}: {error}");
            }
            drop(permit);
        });
    };
    quicket_front::accept_all(listener, ending, take).await;
}

/// Holds a connection if its client may have one more.
async fn admit<F>(
    mut stream: TcpStream,
    peer: SocketAddr,
    shared: &Arc<Shared>,
    hold: impl Fn(TcpStream, SocketAddr) -> F,
) -> Result<(), BodyError>
where
    F: Future<Output = Result<(), BodyError>>,
{
    let snapshot = shared.current().0;
    let limits = &snapshot.limits;
    let client = match introduction::is_expected(&snapshot.proxy_protocol, peer.ip()) {
        true => introduced(&mut stream, limits.header_timeout).await.inspect_err(|_| {
            shared.metrics.refused("no header of PROXY protocol v2");
        })?,
        false => None,
    };
    let client = client.unwrap_or(peer);
    let refused = |exceeded: Exceeded| {
        shared.metrics.refused(exceeded.reason);
        BodyError::from(exceeded.reason)
    };
    shared.clients.handshake(client.ip(), &limits.client, true).map_err(refused)?;
    let _counted = shared.clients.connect(client.ip(), &limits.client, true).map_err(refused)?;
    drop(snapshot);
    hold(stream, client).await
}

/// Who the balancer says the client is.
async fn introduced(
    stream: &mut TcpStream,
    patience: Duration,
) -> Result<Option<SocketAddr>, BodyError> {
    Ok(timeout(patience, introduction::read(stream)).await??)
}
