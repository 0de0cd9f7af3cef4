//! Streams of a client as TCP and Unix connections to the origin.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;

use quicket::tokio::Stream;
use tokio::sync::Semaphore;

use super::serve::Client;
use super::{Place, proxy_header};
use crate::carry::{self, Ends, Meter, Rules, Socket, Source, code};
use crate::quota::Taken;

/// Carries each stream that the client opens until `stops` is ready, and then those that are open.
pub(super) async fn carry(
    client: &Arc<Client>,
    place: Option<&Place>,
    stops: impl Future<Output = ()>,
) {
    let max = client.protocol.max_streams;
    let room = Arc::new(Semaphore::new(max));
    let accept = async {
        loop {
            // Those that come when there are too many wait where they are, which bounds what they hold.
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            // Who waits for the connection's end hears of it.
            let Ok(stream) = client.connection.accept_bi().await else { return pending().await };
            client.tally.streams.add(1);
            let (client, place) = (Arc::clone(client), place.cloned());
            tokio::spawn(async move {
                stream_to(&client, place, stream).await;
                drop(permit);
            });
        }
    };
    tokio::select! {
        () = accept => {}
        () = stops => {}
    }
    // All permits are back when all streams have ended.
    let _ = room.acquire_many(u32::try_from(max).unwrap_or(u32::MAX)).await;
    delivered(client).await;
}

/// Waits until the client has acknowledged all data and the ends of streams, or is gone: the last of it would be cut off.
async fn delivered(client: &Client) {
    /// How often to look.
    const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
    let connection = &client.connection;
    while connection.close_reason().is_none() && !connection.is_delivered() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Refuses unidirectional streams: a socket has both directions.
pub(super) async fn refuse(client: &Client) -> Infallible {
    loop {
        let Ok(mut stream) = client.connection.accept_uni().await else { pending().await };
        client.tally.refused.add(1);
        Source::stop(&mut stream, code::UNIDIRECTIONAL);
    }
}

async fn stream_to(client: &Client, place: Option<Place>, stream: Stream) {
    let mut near = Ends::of_stream(stream);
    let code = match connect(client, place).await {
        Ok((socket, header)) => {
            let meter = Meter::new();
            let mut far = socket.ends(client.protocol.piece);
            let rules = Rules { idle: client.protocol.idle, coupled: true };
            // A full buffer of a new socket is no case: where writing does not end, the client does.
            let begun = {
                let mut begun = pin!(carry::begin_with(&mut far.writer, &header));
                tokio::select! {
                    begun = &mut begun => begun,
                    () = meter.idle(rules.idle) => false,
                }
            };
            match begun {
                true => {
                    if carry::carry(&mut near, &mut far, rules, (&meter, &client.pace()))
                        .await
                        .is_err()
                    {
                        client.tally.broken.add(1);
                    }
                    return client.tally.carried(&meter, true);
                }
                false => code::RESET,
            }
        }
        Err(code) => code,
    };
    client.tally.unreachable.add(1);
    near.give_up(code);
}

/// A connection to the origin, and what goes before all else.
async fn connect(client: &Client, place: Option<Place>) -> Result<(Link, Vec<u8>), u64> {
    let Client { connection, protocol, .. } = client;
    let counted = client.counted()?;
    // Only datagrams go on.
    let place = place.ok_or(code::NOT_SERVED)?;
    let room = protocol.room.take_place().map_err(|_| code::TOO_MANY)?;
    let socket = place.connect(protocol.connect).await.map_err(|error| {
        log::debug!("{}: {place}: {error}", connection.remote_addr());
        code::UNREACHABLE
    })?;
    let header = match protocol.proxy_protocol {
        true => {
            let (name, local) = (client.name.as_deref(), connection.local_addr());
            let certificate = client.certificate.as_deref();
            proxy_header::header(
                connection.remote_addr(),
                local,
                Some(&client.alpn),
                name,
                certificate,
            )
            .map_err(|_| code::UNREACHABLE)?
        }
        false => Vec::new(),
    };
    Ok((Link { socket, _room: room, _counted: counted }, header))
}

/// A connection that counts as one for as long as it is there.
struct Link {
    socket: Socket,
    _room: Option<Taken>,
    _counted: Option<crate::clients::Held>,
}

impl std::ops::Deref for Link {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.socket
    }
}
