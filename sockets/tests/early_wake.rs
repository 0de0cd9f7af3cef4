//! Early data (0-RTT) over loopback, through a proxy that keeps the handshake from completing.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use quicket::tokio::{Endpoint, Listener};
use quicket::{EarlyData, MemorySessionStore};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

/// How late the server's packets are.
const LATE: Duration = Duration::from_millis(300);

/// Passes a client's packets on to `server` at once and those of the server back late, in order.
/// Its threads end when nothing comes any more.
fn proxy(server: SocketAddr) -> SocketAddr {
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = front.local_addr().unwrap();
    back.connect(server).unwrap();
    for socket in [&front, &back] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    let (front, back) = (Arc::new(front), Arc::new(back));
    thread::spawn(move || {
        let mut packet = vec![0; 65_536];
        let mut returning = false;
        while let Ok((len, client)) = front.recv_from(&mut packet) {
            back.send(&packet[..len]).unwrap();
            if !std::mem::replace(&mut returning, true) {
                let (front, back) = (Arc::clone(&front), Arc::clone(&back));
                thread::spawn(move || return_late(&front, &back, client));
            }
        }
    });
    address
}

fn return_late(front: &Arc<UdpSocket>, back: &UdpSocket, client: SocketAddr) {
    let mut packet = vec![0; 65_536];
    while let Ok(len) = back.recv(&mut packet) {
        let (front, packet) = (Arc::clone(front), packet[..len].to_vec());
        thread::spawn(move || {
            thread::sleep(LATE);
            front.send_to(&packet, client)
        });
    }
}

#[tokio::test]
async fn who_waits_for_a_stream_is_woken_before_the_handshake_is_complete() {
    let (server, client) = common::configs();
    let client = client.sessions(Arc::new(MemorySessionStore::new()));
    let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
    let listening = Endpoint::bind("127.0.0.1:0").await.unwrap();
    let listener: Listener = listening.listen_early(server).unwrap();
    let address = proxy(listener.local_addr());

    let first = endpoint.connect(address, "localhost", &client);
    let (first, accepted) = tokio::join!(first, listener.accept());
    // The ticket is as late as everything else.
    sleep(2 * LATE).await;
    drop((first.unwrap(), accepted.unwrap()));

    let connection = endpoint.connect_early(address, "localhost", &client).unwrap();
    assert_eq!(connection.early_data(), EarlyData::Offered);
    let mut early = connection.open_uni().await.unwrap();
    early.write_all(b"first").await.unwrap();
    let accepted = listener.accept().await.unwrap();
    assert!(accepted.handshake().is_none());
    let waiting = tokio::spawn(async move { accepted.accept_bi().await.map(|it| (it, accepted)) });
    sleep(LATE / 10).await;
    let mut later = connection.open_bi().await.unwrap();
    later.write_all(b"second").await.unwrap();
    let woken = timeout(Duration::from_secs(5), waiting).await.expect("the waiter is woken");
    let (stream, _accepted) = woken.unwrap().unwrap();
    assert!(stream.is_early_data());
}
