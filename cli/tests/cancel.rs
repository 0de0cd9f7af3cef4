//! `quicket serve` and clients that cancel what they asked for.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::Server;
use quicket::tokio::Connection;
use quicket::{ClientConfig, ClientTls, Fingerprint};
use tokio::time::timeout;

/// RFC 9114, Section 8.1.
const REQUEST_CANCELLED: u64 = 0x10c;

/// A HEADERS frame that asks for `path` (RFC 9114, Section 7.2.2), from the static table of QPACK
/// (RFC 9204, Appendix A).
fn headers(path: &str) -> Vec<u8> {
    let mut section = vec![0, 0, 0xd1, 0xd7, 0x51, path.len() as u8];
    section.extend_from_slice(path.as_bytes());
    section.extend_from_slice(&[0x50, 9]);
    section.extend_from_slice(b"localhost");
    [&[1, section.len() as u8], &section[..]].concat()
}

#[tokio::test]
async fn a_thousand_cancelled_requests_leave_room_for_another() {
    let server = Server::start_with(&["--quiet"]);
    let pin: Fingerprint = server.pin.parse().unwrap();
    let tls = ClientTls::builder().pinned([pin]).alpn(["h3"]).build().unwrap();
    let address: SocketAddr = server.address.parse().unwrap();
    let config = ClientConfig::new(tls);
    let connection = Connection::connect(address, "localhost", &config).await.unwrap();
    let mut control = connection.open_uni().await.unwrap();
    control.write_all(&[0, 4, 0]).await.unwrap();
    let request = headers("/large");
    // A request that finds no room waits for it for ever.
    let all = async {
        for round in 0..1000 {
            let mut stream = connection.open_bi().await.unwrap();
            // Before the headers are whole, with them, and during the body.
            let sent = if round % 3 == 0 { &request[..round % request.len()] } else { &request };
            stream.send().write_all(sent).await.unwrap();
            if round % 3 == 2 {
                stream.recv().read_some(&mut [0; 5000]).await.unwrap();
            }
            let _ = stream.recv().stop(REQUEST_CANCELLED);
            let _ = stream.send().reset(REQUEST_CANCELLED);
        }
        // And one that is answered before it is cancelled.
        for path in ["/hello.txt", "/empty"] {
            let mut stream = connection.open_bi().await.unwrap();
            stream.send().write_all(&headers(path)).await.unwrap();
            assert!(!stream.read_to_end(10_000).await.unwrap().is_empty());
            let _ = stream.send().reset(REQUEST_CANCELLED);
        }
    };
    timeout(Duration::from_secs(60), all).await.expect("no room for another request");
}
