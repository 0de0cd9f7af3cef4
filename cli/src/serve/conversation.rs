//! One connection from its first stream to its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quicket::tokio::{Connection, Stream};
use quicket_files::Body;
use quicket_front::{Counted, UnderWay};
use quicket_h3::h3::error::Code;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::log::Record;
use super::stall::stalled;
use super::{Client, Site, http3, http09};
use crate::args::Protocol;

/// How often to look whether everything was delivered before the connection is closed.
const LOOK: Duration = Duration::from_millis(20);

/// How long a client may take for a request's header section, during which its connection is not idle; over TCP, for the
/// handshake as well.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Why there are no new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draining {
    /// There are.
    No,
    /// The next generation has them. Those that are here may go on for a while.
    Superseded,
    /// The server stops.
    Stopping,
}

/// Talks to a client until the connection ends or, once `draining` says so or nothing was asked for long, until the
/// requests under way are answered. Clients of HTTP/0.9 cannot be told that there should be no more of them,
/// and go on where the server does not stop.
pub(super) async fn hold(
    connection: Connection,
    site: Arc<Site>,
    draining: watch::Receiver<Draining>,
) {
    site.events.connected(&connection);
    let client = Arc::new(Client {
        remote: connection.remote_addr(),
        site: Arc::clone(&site),
        requests: AtomicU64::new(0),
        room: site.room.of_connection(),
    });
    tokio::select! {
        () = answer_all(&connection, &client, draining) => {}
        () = stalled(&connection) => {
            log::debug!("{}: the client took nothing for too long", client.remote);
            connection.close(Code::H3_EXCESSIVE_LOAD.value(), b"nothing was taken for too long");
        }
    }
    // Without effect where it is closed already.
    connection.close(Code::H3_NO_ERROR.value(), b"");
    connection.closed().await;
    site.events.closed(&connection, client.requests.load(Ordering::Relaxed));
}

/// Answers what the client asks, in the protocol that was settled.
async fn answer_all(
    connection: &Connection,
    client: &Arc<Client>,
    draining: watch::Receiver<Draining>,
) {
    if connection.alpn().as_deref() == Some(Protocol::HqInterop.alpn().as_bytes()) {
        hold_http09(connection, client, draining).await;
    } else {
        let max_section = http3::MAX_HEADERS as usize;
        let transport = quicket_h3::Connection::server(connection.clone(), max_section);
        let requests = transport.requests();
        let transfer_of: http3::TransferOf = Arc::new(move |id| requests.transfer(id));
        let delivered = delivered(connection.clone());
        let ended = http3::serve(transport, Arc::clone(client), transfer_of, draining, delivered);
        if let Err(error) = ended.await
            && !error.is_h3_no_error()
        {
            log::debug!("{}: {error}", client.remote);
        }
    }
}

/// Waits until the client has acknowledged all data and the ends of streams, or is gone.
async fn delivered(connection: Connection) {
    while connection.close_reason().is_none() && !connection.is_delivered() {
        tokio::time::sleep(LOOK).await;
    }
}

async fn hold_http09(
    connection: &Connection,
    client: &Arc<Client>,
    mut draining: watch::Receiver<Draining>,
) {
    let (mut requests, under_way) = (JoinSet::new(), UnderWay::default());
    let mut unasked = Box::pin(under_way.idle(client.site.unasked));
    loop {
        tokio::select! {
            stream = connection.accept_bi() => match stream {
                Ok(stream) => {
                    requests.spawn(exchange(stream, Arc::clone(client), under_way.count()));
                }
                Err(_) => break,
            },
            Some(_) = requests.join_next() => {}
            _ = draining.wait_for(|draining| *draining == Draining::Stopping) => break,
            () = &mut unasked => break,
        }
    }
    while requests.join_next().await.is_some() {}
    delivered(connection.clone()).await;
}

/// Finds a file, once there is a descriptor for it.
async fn find(site: &Site, target: &str) -> io::Result<Option<Body>> {
    site.descriptors.wait_for(|| http09::find(&site.tree, target)).await
}

/// One request of HTTP/0.9 and its answer.
async fn exchange(stream: Stream, client: Arc<Client>, _counted: Counted) {
    let begun = Instant::now();
    let early = stream.is_early_data();
    let (mut send, mut recv) = stream.split();
    client.requests.fetch_add(1, Ordering::Relaxed);
    let target = match timeout(PATIENCE, http09::request(&mut recv)).await {
        Ok(Ok(target)) => target,
        Ok(Err(error)) => return log::debug!("{}: no request: {error}", client.remote),
        Err(_) => {
            // Where the stream has ended in the meantime, neither has an effect.
            let _ = (send.reset(http09::REFUSED), recv.stop(http09::REFUSED));
            return log::debug!("{}: a request took too long", client.remote);
        }
    };
    let mut sent = 0;
    let outcome = match &target {
        None => Err("not a request".to_owned()),
        Some(target) => match find(&client.site, target).await {
            Ok(Some(body)) => http09::send(body, &mut send, &client.room, &mut sent)
                .await
                .map_err(|error| error.to_string()),
            Ok(None) => Err("there is no such file".to_owned()),
            Err(error) => Err(error.to_string()),
        },
    };
    // Where the stream has ended in the meantime, neither has an effect.
    let _ = match &outcome {
        Ok(()) => send.finish(),
        Err(_) => send.reset(http09::REFUSED),
    };
    let took = begun.elapsed();
    if outcome.is_ok() {
        http09::read_rest(&mut recv).await;
    }
    let _ = recv.stop(http09::REFUSED);
    if client.site.access_log {
        let record = Record {
            remote: client.remote,
            protocol: Protocol::HqInterop.alpn(),
            method: "GET",
            target: target.as_deref().unwrap_or_default(),
            status: None,
            sent,
            took,
            early,
            error: outcome.err(),
        };
        record.print();
    }
}
