//! Datagrams of a client (RFC 9221) as those of UDP: one socket for each client, so that the origin sees one
//! source for each.

use std::convert::Infallible;
use std::future::pending;
use std::io;

use quicket::DatagramError;
use tokio::net::UdpSocket;

use super::serve::Client;
use super::{Authority, origin};
use crate::carry::Meter;

/// Carries datagrams for as long as there are any; the socket is closed while there are none.
pub(super) async fn carry(client: &Client, to: Option<&Authority>) -> Infallible {
    loop {
        // Who waits for the connection's end hears of it.
        let Ok(first) = client.connection.recv_datagram().await else { pending().await };
        let Some(to) = to else {
            client.tally.datagrams_dropped.add(1);
            continue;
        };
        // Counts for as long as there is a socket.
        let Ok(_room) = client.protocol.room.take_place() else {
            client.tally.datagrams_dropped.add(1);
            continue;
        };
        match origin::connected_udp(to, client.protocol.connect).await {
            Ok(socket) => flow(client, &socket, &first).await,
            Err(error) => {
                log::debug!("{}: udp://{to}: {error}", client.connection.remote_addr());
                client.tally.datagrams_dropped.add(1);
            }
        }
    }
}

/// Carries datagrams both ways until none has come for long enough, or the connection has ended.
async fn flow(client: &Client, socket: &UdpSocket, first: &[u8]) {
    let (meter, pace) = (Meter::new(), client.pace());
    to_origin(client, socket, first, &meter);
    // What comes while others are paid for and finds no room is lost, as on a slow network.
    let out = async {
        pace.went(first.len(), &meter).await;
        while let Ok(datagram) = client.connection.recv_datagram().await {
            to_origin(client, socket, &datagram, &meter);
            pace.went(datagram.len(), &meter).await;
        }
    };
    let home = async {
        loop {
            if socket.readable().await.is_err() {
                return;
            }
            let Some(bytes) = to_client(client, socket, &meter) else { return };
            pace.came(bytes, &meter).await;
            // The origin may be faster than anybody else gets a turn.
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = out => {}
        () = home => {}
        () = meter.idle(client.protocol.idle) => {}
    }
}

/// What cannot be sent at once is lost, as on any network.
fn to_origin(client: &Client, socket: &UdpSocket, datagram: &[u8], meter: &Meter) {
    let tally = &client.tally;
    meter.went(datagram.len());
    match socket.try_send(datagram) {
        Ok(_) => tally.datagrams_received.add(1),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
            tally.datagrams_too_large.add(1);
        }
        // Among them: ICMP has said that nobody is there, of an earlier one.
        Err(_) => tally.datagrams_dropped.add(1),
    }
}

/// Passes on what has come; how many bytes, or nothing once the connection has ended.
fn to_client(client: &Client, socket: &UdpSocket, meter: &Meter) -> Option<usize> {
    /// How many are read before others get a turn.
    const BATCH: usize = 64;
    let (connection, tally) = (&client.connection, &client.tally);
    let max = connection.max_datagram_size().unwrap_or(0);
    // One byte more shows that a datagram is larger.
    let mut buffer = vec![0; max.saturating_add(1)];
    let mut bytes = 0;
    for _ in 0..BATCH {
        let len = match socket.try_recv(&mut buffer) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // ICMP has said that nobody is there: the origin may come back.
            Err(_) => continue,
        };
        meter.came(len);
        bytes += len;
        let Some(datagram) = buffer.get(..len).filter(|_| len <= max) else {
            tally.datagrams_too_large.add(1);
            continue;
        };
        match connection.send_latest_datagram(datagram) {
            Ok(()) => tally.datagrams_sent.add(1),
            Err(DatagramError::TooLarge { .. }) => tally.datagrams_too_large.add(1),
            Err(DatagramError::Lost(_)) => return None,
            Err(_) => tally.datagrams_dropped.add(1),
        }
    }
    Some(bytes)
}
