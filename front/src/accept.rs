//! Connections over TCP, until there are to be no more.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// How long to wait before the next attempt where the system has no descriptors left.
const SHORTAGE: Duration = Duration::from_millis(100);

/// Gives each connection, with its peer's address, to `take`, which must not wait, until `ending` is ready.
pub async fn accept_all(
    listener: TcpListener,
    ending: impl Future<Output = ()>,
    mut take: impl FnMut(TcpStream, SocketAddr),
) {
    let mut ending = std::pin::pin!(ending);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut ending => return,
        };
        if let Some((stream, peer)) = settle(accepted).await {
            take(stream, peer);
        }
    }
}

/// An accepted connection; after a failure that others are the reason for, the next one is awaited.
async fn settle(accepted: io::Result<(TcpStream, SocketAddr)>) -> Option<(TcpStream, SocketAddr)> {
    match accepted {
        Ok((stream, client)) => {
            let _ = stream.set_nodelay(true);
            Some((stream, client))
        }
        Err(error) => {
            log::warn!("cannot accept a connection: {error}");
            tokio::time::sleep(SHORTAGE).await;
            None
        }
    }
}
