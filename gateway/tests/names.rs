//! Names of origins that move, told by a name server of the test's own.

mod common;
#[path = "../src/resolve/dns_server_for_tests.rs"]
mod dns_server;

use std::time::Instant;

use common::{Gateway, PATIENCE, directory, python};
use dns_server::DnsServer;
use quicket_testing::{Process, free_port, until};

/// Answers with its address, at a port of its choice or a given one.
const SELF: &str = "
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *a): pass
    def do_GET(self):
        said = self.connection.getsockname()[0].encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(said)))
        self.end_headers()
        self.wfile.write(said)
server = http.server.ThreadingHTTPServer(('IP', PORT), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
";

/// The same port of two addresses.
fn origins() -> ([Process; 2], u16) {
    let port = free_port();
    let start = |ip: &str| python(&SELF.replace("IP", ip).replace("PORT", &port.to_string())).0;
    ([start("127.0.0.1"), start("127.0.0.2")], port)
}

fn gateway(server: &DnsServer, port: u16, more: &str) -> Gateway {
    let top = format!("listen = [\"127.0.0.1:0\"]\nresolver = [\"{}\"]\n", server.address);
    let file = format!(
        "[origin.app]\nservers = [\"http://app.example:{port}\"]\n{more}\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n"
    );
    Gateway::start_with(directory(), &top, &file)
}

/// Asks until the answer is this one; how often it was another of these.
fn until_answer(gateway: &Gateway, wanted: &str, others: &[&str]) -> usize {
    let begun = Instant::now();
    let mut count = 0;
    loop {
        let said = gateway.text(&[&gateway.url("/")]);
        if said == wanted {
            return count;
        }
        assert!(others.contains(&said.as_str()), "{said:?}");
        assert!(begun.elapsed() < PATIENCE, "it is {said:?} still");
        count += 1;
    }
}

#[test]
fn requests_follow_a_name_that_moves() {
    let server = DnsServer::start();
    let (_origins, port) = origins();
    server.say("app.example", 1, &["127.0.0.1"]);
    let gateway = gateway(&server, port, "");
    assert_eq!(gateway.text(&[&gateway.url("/")]), "127.0.0.1");
    // No reload, and idle connections to where it was are there still.
    server.say("app.example", 1, &["127.0.0.2"]);
    until_answer(&gateway, "127.0.0.2", &["127.0.0.1"]);
    // Of several addresses, one where nobody is costs no request.
    server.say("app.example", 1, &["127.0.0.3", "127.0.0.1"]);
    until_answer(&gateway, "127.0.0.1", &["127.0.0.2"]);
    for _ in 0..20 {
        assert_eq!(gateway.text(&[&gateway.url("/")]), "127.0.0.1");
    }
}

#[test]
fn a_name_server_that_vanishes_breaks_no_request() {
    let server = DnsServer::start();
    let (origins, port) = origins();
    server.say("app.example", 1, &["127.0.0.1"]);
    let gateway = gateway(&server, port, "connect_timeout_ms = 3000\n");
    assert_eq!(gateway.text(&[&gateway.url("/")]), "127.0.0.1");
    let at = server.address;
    drop(server);
    let begun = Instant::now();
    while begun.elapsed().as_secs() < 5 {
        // Each over a connection of its own, which needs an address.
        assert_eq!(gateway.text(&["-H", "Connection: close", &gateway.url("/")]), "127.0.0.1");
    }
    let server = DnsServer::at(at);
    server.say("app.example", 1, &["127.0.0.2"]);
    until_answer(&gateway, "127.0.0.2", &["127.0.0.1"]);
    drop(origins);
}

/// Sends back what comes.
const ECHO: &str = "
import socket, threading
def serve(s):
    while data := s.recv(65536): s.sendall(data)
listener = socket.create_server(('127.0.0.2', 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
";

#[test]
fn streams_of_private_protocols_follow_names_too() {
    let server = DnsServer::start();
    let (_echo, port) = python(ECHO);
    server.say("app.example", 1, &["127.0.0.1"]);
    let top = format!("listen = [\"127.0.0.1:0\"]\nresolver = [\"{}\"]\n", server.address);
    let file = format!("[[protocol]]\nalpn = [\"test\"]\nstreams = \"tcp://app.example:{port}\"\n");
    let gateway = Gateway::start_with(directory(), &top, &file);
    let roots = quicket::Roots::PemFile(gateway.path("cert.pem"));
    let tls = quicket::ClientTls::builder().roots(roots).alpn(["test"]).build().unwrap();
    let config = quicket::ClientConfig::new(tls);
    let connecting =
        quicket::tokio::Connection::connect(gateway.addresses[0], "localhost", &config);
    let connection = gateway.runtime.block_on(connecting).unwrap();
    let answers = || {
        gateway.runtime.block_on(async {
            let mut stream = connection.open_bi().await.unwrap();
            stream.send().write_all(b"x").await.unwrap();
            tokio::time::timeout(PATIENCE, stream.recv().read_some(&mut [0])).await.unwrap().is_ok()
        })
    };
    assert!(!answers(), "nobody listens there");
    server.say("app.example", 1, &["127.0.0.2"]);
    until("the other address", answers);
}

#[test]
fn a_name_that_nobody_knows_is_told() {
    let server = DnsServer::start();
    let gateway = gateway(&server, 9, "");
    assert_eq!(gateway.status(&[&gateway.url("/")]), 502);
    let (_origins, port) = origins();
    drop(gateway);
    server.say("app.example", 60, &["127.0.0.1"]);
    let gateway = self::gateway(&server, port, "");
    assert_eq!(gateway.text(&[&gateway.url("/")]), "127.0.0.1");
}
