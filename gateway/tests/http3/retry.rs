//! Above so many unfinished handshakes, clients prove their address before anything is kept for them (Retry: RFC 9000,
//! Section 8.1.2).

use std::net::UdpSocket;
use std::path::Path;

use quicket::tokio::Connection;
use quicket::{ClientConfig, ClientTls, KeyExchange};

use super::behind::{PATIENCE, Site, folder, python};
use super::client::run;

/// The only datagram of a client's first flight. Nobody answers the client.
async fn first_flight() -> Vec<u8> {
    let nobody = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    // With a larger key there would be two.
    let tls = ClientTls::builder().dangerous_no_verification().alpn(["h3"]);
    let config = ClientConfig::new(tls.key_exchange(&[KeyExchange::X25519]).build().unwrap());
    let mut buffer = vec![0; 2048];
    tokio::select! {
        made = Connection::connect(address, "localhost", &config) => panic!("{made:?}"),
        came = nobody.recv_from(&mut buffer) => buffer.truncate(came.unwrap().0),
    }
    buffer
}

/// Begins a handshake that never ends. True if it is answered by Retry (RFC 9000, Section 17.2.5).
fn is_asked_again(site: &Site, first: &[u8]) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(first, site.address).unwrap();
    let mut answer = [0; 2048];
    assert!(socket.recv_from(&mut answer).unwrap().0 > 5);
    assert_eq!(answer[1..5], [0, 0, 0, 1]);
    answer[0] & 0xf0 == 0xf0
}

fn retries(site: &Site) -> u64 {
    let text = site.curl(&["--unix-socket", "metrics.sock", "http://localhost/metrics"]).stdout;
    let text = String::from_utf8(text).unwrap();
    let start = "quicket_gateway_quic_retries_total ";
    let value = text.lines().find_map(|line| line.strip_prefix(start));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// A client of others.
fn get(site: &Site) -> String {
    let mut command = python();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http3_get.py"));
    command.arg(site.address.port().to_string()).arg(site.path("cert.pem"));
    let output = command.args(["localhost", "localhost"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn above_so_many_handshakes_clients_prove_their_address_and_are_counted() {
    let dir = folder();
    let file = format!(
        "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{ body = \"hello\" }}\n\
         [limits]\nhandshakes_without_retry = 2\n[metrics]\nlisten = \"unix:{}\"\n",
        dir.path().join("metrics.sock").display()
    );
    let site = Site::start(dir, &file);
    assert_eq!((get(&site).as_str(), retries(&site)), ("200\nhello", 0));
    let flights = run(async {
        let mut flights = Vec::new();
        for _ in 0..6 {
            flights.push(first_flight().await);
        }
        flights
    });
    let asked: Vec<bool> = flights.iter().map(|first| is_asked_again(&site, first)).collect();
    assert_eq!(asked, [false, false, false, true, true, true]);
    assert_eq!(retries(&site), 3);
    // Who does is served.
    assert_eq!((get(&site).as_str(), retries(&site)), ("200\nhello", 4));
}

#[test]
fn a_file_may_have_each_client_prove_it() {
    let dir = folder();
    let file = format!(
        "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{ body = \"hello\" }}\n\
         [limits]\nhandshakes_without_retry = 0\n[metrics]\nlisten = \"unix:{}\"\n",
        dir.path().join("metrics.sock").display()
    );
    let site = Site::start(dir, &file);
    for expected in 1..3 {
        assert_eq!((get(&site).as_str(), retries(&site)), ("200\nhello", expected));
    }
}
