//! Futures of the tokio API that are dropped where they wait: nothing is lost by it.

#[path = "../common/mod.rs"]
mod common;
mod midway;
#[cfg(target_os = "linux")]
#[path = "../common/switch.rs"]
mod switch;
#[cfg(target_os = "linux")]
mod switched;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use common::{configs, configs_with};
use quicket::tokio::{Connection, Endpoint, Listener};
use quicket::{TransportConfig, WriteError};
use tokio::io::AsyncWriteExt;

/// Polls a future that has to wait, and drops it.
fn drop_waiting<T>(future: impl Future<Output = T>) {
    let polled = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "it does not wait");
}

async fn pair_with(transport: TransportConfig) -> (Connection, Connection) {
    let (server, client) = configs_with(transport);
    let listener = Listener::bind("127.0.0.1:0", server).await.unwrap();
    let address = listener.local_addr();
    let accepted = tokio::spawn(async move { listener.accept().await.unwrap() });
    let connected = Connection::connect(address, "localhost", &client).await.unwrap();
    (connected, accepted.await.unwrap())
}

async fn pair() -> (Connection, Connection) {
    pair_with(TransportConfig::default()).await
}

#[tokio::test]
async fn accepting_and_connecting() {
    let (server, client) = configs();
    let listener = Listener::bind("127.0.0.1:0", server).await.unwrap();
    let address = listener.local_addr();
    let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
    drop_waiting(listener.accept());
    drop_waiting(endpoint.connect(address, "localhost", &client));
    let connect = tokio::spawn({
        let endpoint = endpoint.clone();
        async move { endpoint.connect(address, "localhost", &client).await.unwrap() }
    });
    // The handshake of the one that was given up comes to nothing, which no listener hears of.
    let accepted = listener.accept().await.unwrap();
    let connected = connect.await.unwrap();
    let mut stream = connected.open_uni().await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    stream.finish().unwrap();
    let mut received = accepted.accept_uni().await.unwrap();
    assert_eq!(received.read_to_end(100).await.unwrap(), b"hello");
    drop_waiting(endpoint.wait_idle());
    connected.close(0, b"");
    endpoint.wait_idle().await;
}

#[tokio::test]
async fn what_waits_for_the_handshake() {
    let (server, client) = configs();
    let listener = Listener::bind("127.0.0.1:0", server).await.unwrap();
    let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr();
    let connection = endpoint.connect_early(address, "localhost", &client).unwrap();
    drop_waiting(connection.wait_established());
    drop_waiting(connection.open_bi());
    drop_waiting(connection.open_uni());
    drop_waiting(connection.send_datagram(b"given up"));
    connection.wait_established().await.unwrap();
    let accepted = listener.accept().await.unwrap();
    // A stream that nobody has would be number 0.
    assert_eq!(connection.open_bi().await.unwrap().id().index(), 0);
    assert_eq!(connection.open_uni().await.unwrap().id().index(), 0);
    connection.send_datagram(b"sent").await.unwrap();
    assert_eq!(accepted.recv_datagram().await.unwrap(), b"sent");
}

#[tokio::test]
async fn opening_at_the_limit_and_accepting() {
    let transport = TransportConfig { max_streams_bidi: 1, ..TransportConfig::default() };
    let (client, server) = pair_with(transport).await;
    drop_waiting(server.accept_bi());
    drop_waiting(server.accept_uni());
    drop_waiting(server.recv_datagram());
    drop_waiting(server.closed());
    let mut first = client.open_bi().await.unwrap();
    drop_waiting(client.open_bi());
    first.write_all(b"first").await.unwrap();
    first.finish().unwrap();
    let mut accepted = server.accept_bi().await.unwrap();
    assert_eq!(accepted.read_to_end(100).await.unwrap(), b"first");
    accepted.finish().unwrap();
    assert_eq!(first.read_to_end(100).await.unwrap(), b"");
    drop((first, accepted));
    assert_eq!(client.open_bi().await.unwrap().id().index(), 1, "none was lost");
    client.close(0, b"");
    server.closed().await;
}

#[tokio::test]
async fn reading() {
    let (client, server) = pair().await;
    let mut ours = client.open_bi().await.unwrap();
    ours.write_all(b"open").await.unwrap();
    let mut theirs = server.accept_bi().await.unwrap();
    let mut buffer = [0; 100];
    for piece in [&b"one"[..], b"two", b"three"] {
        drop_waiting(ours.recv().read_some(&mut buffer));
        drop_waiting(ours.recv().read_chunk(|bytes, _| bytes.len()));
        drop_waiting(ours.recv().take_chunk());
        drop_waiting(ours.read_to_end(100));
        theirs.write_all(piece).await.unwrap();
        let read = ours.recv().read_some(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..read], piece);
    }
    theirs.finish().unwrap();
    assert_eq!(ours.read_to_end(100).await.unwrap(), b"");
}

#[tokio::test]
async fn writing() {
    let (client, server) = pair().await;
    let mut ours = client.open_uni().await.unwrap();
    let mut written = 0;
    loop {
        match ours.try_write(&[7; 10_000]) {
            Ok(count) => written += count,
            Err(WriteError::WouldBlock) => break,
            Err(error) => panic!("{error}"),
        }
    }
    drop_waiting(ours.write_some(&[8; 10]));
    drop_waiting(ours.write_all(&[8; 10]));
    let mut theirs = server.accept_uni().await.unwrap();
    let read = tokio::spawn(async move { theirs.read_to_end(1 << 30).await.unwrap() });
    ours.write_all(&[9; 10]).await.unwrap();
    ours.finish().unwrap();
    drop_waiting(ours.stopped());
    assert_eq!(ours.stopped().await.unwrap(), None);
    let read = read.await.unwrap();
    assert_eq!(read.len(), written + 10);
    assert!(read.iter().all(|&byte| byte != 8), "nothing of what was given up");
}
