//! A server that was killed and started again.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::Server;
use quicket::tokio::Connection;
use quicket::{ClientConfig, ClientTls, ConnectionError, Fingerprint};
use tokio::time::timeout;

/// RFC 9000, Section 10.3.2: the key of stateless resets is kept.
#[tokio::test]
async fn a_client_that_waits_for_an_answer_hears_that_its_connection_is_lost() {
    let server = Server::start_with(&["--quiet"]);
    let pin: Fingerprint = server.pin.parse().unwrap();
    let tls = ClientTls::builder().pinned([pin]).alpn(["hq-interop"]).build().unwrap();
    let address: SocketAddr = server.address.parse().unwrap();
    let config = ClientConfig::new(tls);
    let connection = Connection::connect(address, "localhost", &config).await.unwrap();
    let mut stream = connection.open_bi().await.unwrap();
    stream.send().write_all(b"GET /hello.txt\r\n").await.unwrap();
    stream.finish().unwrap();
    stream.read_to_end(100).await.unwrap();
    // The server waits for the rest of the request, and the client for the answer.
    let mut stream = connection.open_bi().await.unwrap();
    stream.send().write_all(b"GET /hel").await.unwrap();
    let listen = server.address.clone();
    let _again = Server::start_in(server.kill(), &["--quiet", "--listen", &listen]);
    // Sooner than the idle timeout.
    let ended = timeout(Duration::from_secs(25), connection.closed()).await;
    assert_eq!(ended.expect("nobody says so"), ConnectionError::StatelessReset);
}
