//! Connections and handshakes of a site, and of a private protocol, of all clients together.

mod behind;
mod common;

use std::net::TcpStream;
use std::process::{Command, Stdio};

use common::{Gateway, directory};
use quicket::tokio::Connection;
use quicket::{ClientConfig, ClientTls, ConnectError, ConnectionError, TransportErrorCode};
use quicket_testing::{Process, until};
use tempfile::TempDir;

/// With counters at a socket in the gateway's directory.
fn top(dir: &TempDir) -> String {
    let socket = dir.path().join("counters.sock");
    format!("listen = [\"127.0.0.1:0\"]\nmetrics.listen = \"unix:{}\"\n", socket.display())
}

/// A site with these lines for `localhost`, another one for all other names, and a private protocol.
fn file(site: &str, protocol: &str) -> String {
    format!(
        "[[site]]\nnames = [\"localhost\"]\n{site}\n[[site.route]]\nrespond = {{ status = 204 }}\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{ status = 204 }}\n\
         [[protocol]]\nalpn = [\"test\"]\nstreams = \"tcp://127.0.0.1:9\"\n{protocol}\n"
    )
}

fn start(site: &str, protocol: &str) -> Gateway {
    let dir = directory();
    let top = top(&dir);
    Gateway::start_with(dir, &top, &file(site, protocol))
}

/// Connects over QUIC.
fn connect(gateway: &Gateway, alpn: &str, name: &str) -> Result<Connection, ConnectError> {
    let tls = ClientTls::builder().ca_file(gateway.path("cert.pem")).alpn([alpn]);
    let config = ClientConfig::new(tls.build().unwrap());
    gateway.runtime.block_on(Connection::connect(gateway.addresses[0], name, &config))
}

/// Whether an attempt ended with CONNECTION_REFUSED (RFC 9000, Section 20.1).
fn is_refused(attempt: &Result<Connection, ConnectError>) -> bool {
    let Err(ConnectError::Lost(ConnectionError::PeerTransport { code, .. })) = attempt else {
        return false;
    };
    *code == TransportErrorCode::CONNECTION_REFUSED
}

/// How often something was refused for that reason.
fn refused(gateway: &Gateway, reason: &str) -> u64 {
    let counters = gateway.text(&["--unix-socket", "counters.sock", "http://localhost/metrics"]);
    let line = counters.lines().find(|line| line.contains(&format!("reason=\"{reason}\"")));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// Waits until the gateway has a connection, which its client may know before.
fn until_open(gateway: &Gateway, alpn: &str) {
    let line = format!("quicket_gateway_connections_open{{protocol=\"{alpn}\"}} 1\n");
    let counters = ["--unix-socket", "counters.sock", "http://localhost/metrics"];
    until("the gateway has it", || gateway.text(&counters).contains(&line));
}

/// A connection over TLS and TCP by OpenSSL, which says nothing.
fn openssl(gateway: &Gateway, name: &str) -> Process {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-quiet", "-alpn", "http/1.1", "-servername", name, "-connect"]);
    command.arg(gateway.addresses[0].to_string());
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Process(child.unwrap())
}

#[test]
fn connections_of_a_site_are_counted_over_quic_and_tcp_and_reloads() {
    let gateway = start("connections = 2", "");
    let first = connect(&gateway, "h3", "localhost").unwrap();
    let second = openssl(&gateway, "localhost");
    until("both", || is_refused(&connect(&gateway, "h3", "localhost")));
    assert!(!gateway.curl(&[&gateway.url("/")]).status.success(), "over TCP it is closed");
    // Others are not concerned, and it counts on when the file is read again.
    gateway.reload(&top(&gateway.dir), &file("connections = 2", "")).unwrap();
    assert!(is_refused(&connect(&gateway, "h3", "LocalHost")));
    connect(&gateway, "test", "localhost").unwrap();
    let address = format!("https://127.0.0.1:{}/", gateway.port());
    assert_eq!(gateway.status(&[&address]), 204);
    let reason = "too many connections of one site";
    assert!(refused(&gateway, reason) >= 3, "{}", refused(&gateway, reason));
    // Each place is free again when its connection ends.
    drop(second);
    until("a place", || gateway.curl(&[&gateway.url("/")]).status.success());
    first.close(0, b"");
    until("two places", || {
        let both = [connect(&gateway, "h3", "localhost"), connect(&gateway, "h3", "localhost")];
        both.iter().all(Result::is_ok)
    });
    // What says nothing takes no place.
    let _silent: Vec<_> =
        (0..5).map(|_| TcpStream::connect(gateway.addresses[0]).unwrap()).collect();
    until("a place", || gateway.curl(&[&gateway.url("/")]).status.success());
}

#[test]
fn connections_of_a_private_protocol_are_counted() {
    let gateway = start("", "connections = 1");
    let first = connect(&gateway, "test", "localhost").unwrap();
    until_open(&gateway, "test");
    assert!(is_refused(&connect(&gateway, "test", "localhost")));
    connect(&gateway, "h3", "localhost").unwrap();
    assert_eq!(refused(&gateway, "too many connections of one private protocol"), 1);
    first.close(0, b"");
    until("a place", || connect(&gateway, "test", "localhost").is_ok());
}

#[test]
fn handshakes_are_counted_in_each_second() {
    let gateway = start("handshakes_per_s = 3", "handshakes_per_s = 3");
    for alpn in ["h3", "test"] {
        let all: Vec<_> = (0..30).map(|_| connect(&gateway, alpn, "localhost")).collect();
        let refused = all.iter().filter(|attempt| is_refused(attempt)).count();
        let made = all.iter().filter(|attempt| attempt.is_ok()).count();
        assert!(made >= 3 && refused > 0 && made + refused == 30, "{alpn}: {all:?}");
    }
    until("a connection over TCP too many", || {
        let all: Vec<_> =
            (0..8).map(|_| gateway.curl(&[&gateway.url("/")]).status.success()).collect();
        all.contains(&false)
    });
    for kind in ["site", "private protocol"] {
        assert!(refused(&gateway, &format!("handshakes of one {kind} come too fast")) > 0);
    }
    until("the next second", || connect(&gateway, "h3", "localhost").is_ok());
}

/// Prints what ends a connection of aioquic, by code, or that it is there.
const AIOQUIC: &str = "
import asyncio, sys
from aioquic.asyncio import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted
class Client(QuicConnectionProtocol):
    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated): print('ended', event.error_code)
        if isinstance(event, HandshakeCompleted): print('there')
async def main():
    configuration = QuicConfiguration(is_client=True, alpn_protocols=['h3'], server_name='localhost')
    configuration.load_verify_locations(sys.argv[2])
    async with connect('127.0.0.1', int(sys.argv[1]), configuration=configuration, create_protocol=Client):
        pass
asyncio.run(main())
";

#[test]
fn a_client_that_we_did_not_write_hears_that_it_is_refused() {
    let gateway = start("connections = 1", "");
    let said = || {
        let mut command = behind::python();
        command.args(["-c", AIOQUIC, &gateway.port().to_string()]).arg(gateway.path("cert.pem"));
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
    };
    assert_eq!(said().as_deref(), Some("there"));
    let mut held = None;
    until("the place", || {
        held = connect(&gateway, "h3", "localhost").ok();
        held.is_some()
    });
    until_open(&gateway, "h3");
    // CONNECTION_REFUSED (RFC 9000, Section 20.1).
    assert_eq!(said().as_deref(), Some("ended 2"));
}
