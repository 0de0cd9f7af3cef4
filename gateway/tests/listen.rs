//! Addresses that the gateway listens on.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use common::{ECHO, Gateway, directory, python};
use quicket_testing::{free_port, until};

/// `[::]` beside `0.0.0.0`, of the same port: Linux gives an address of IPv4 to one socket only, so that the
/// socket of IPv6 must not take it, too.
#[test]
fn addresses_of_both_families_share_a_port_over_udp_and_tcp() {
    let (_origin, origin) = python(ECHO);
    let file = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{origin}\"]\n[[site]]\nnames = [\"*\"]\n\
         [[site.route]]\norigin = \"app\"\n"
    );
    let (port, plain) = (free_port(), free_port());
    let top = format!(
        "listen = [\"[::]:{port}\", \"0.0.0.0:{port}\"]\n\
         redirect = [\"0.0.0.0:{plain}\", \"[::]:{plain}\"]\n"
    );
    let gateway = Gateway::start_with(directory(), &top, &file);
    for host in ["127.0.0.1", "[::1]"] {
        for version in ["--http2", "--http1.1"] {
            let url = format!("https://{host}:{port}/");
            assert_eq!(gateway.status(&[version, &url]), 200, "{version} {url}");
        }
        assert_eq!(gateway.status(&[&format!("http://{host}:{plain}/")]), 308, "{host}");
    }
}

#[test]
fn an_address_of_ipv6_alone_is_for_both_families() {
    let (_origin, origin) = python(ECHO);
    let file = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{origin}\"]\n[[site]]\nnames = [\"*\"]\n\
         [[site.route]]\norigin = \"app\"\n"
    );
    let gateway = Gateway::start_with(directory(), "listen = [\"[::]:0\"]\n", &file);
    for host in ["127.0.0.1", "[::1]"] {
        let url = format!("https://{host}:{}/", gateway.port());
        assert_eq!(gateway.status(&[&url]), 200, "{url}");
    }
}

/// The gateway stops when a client has ended its handshake and its first request is on the way: it is answered.
#[test]
fn a_request_that_comes_as_the_gateway_stops_is_answered() {
    let file = "[[site]]\nnames = [\"localhost\"]\n[[site.route]]\nrespond = { body = \"here\" }\n";
    let mut gateway = Gateway::start(directory(), file);
    let mut command = Command::new("openssl");
    command.args([
        "s_client",
        "-connect",
        &gateway.addresses[0].to_string(),
        "-servername",
        "localhost",
    ]);
    command.args(["-quiet", "-alpn", "http/1.1", "-CAfile", "cert.pem", "-verify_return_error"]);
    command.current_dir(gateway.dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = command.stderr(Stdio::piped()).spawn().unwrap();
    // What it says of the certificate: the handshake has come so far.
    let mut said = BufReader::new(client.stderr.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    let address = gateway.addresses[0];
    let stopping = std::thread::spawn(move || gateway.stop());
    until("it takes no more connections", || TcpStream::connect(address).is_err());
    let mut request = client.stdin.take().unwrap();
    request.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("here"), "{answer:?}");
    stopping.join().unwrap();
    client.wait().unwrap();
}
