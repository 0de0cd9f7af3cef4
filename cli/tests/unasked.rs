//! `quicket serve` ends connections on which nothing is asked, whatever else their clients say: by aioquic.

mod common;

use std::fs;
use std::process::Command;

use common::{Server, openssl};
use quicket_lab::peers::{Implementation, Workshop};
use serde_json::{Value, json};

/// What a client of a server with `--unasked 2` tells, that asks once and then says only that it is there.
fn told(begun: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("hello.txt"), "hello, world\n").unwrap();
    openssl(dir.path(), "cert", "DNS:localhost");
    let flags = ["--cert", "cert.pem", "--key", "cert.key", "--no-tcp", "--unasked", "2"];
    let server = Server::start_in(dir, &flags);
    let python = Workshop::new().unwrap().prepare(Implementation::Aioquic).unwrap();
    let mut command = Command::new(python.executable);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/unasked.py");
    let port = server.address.rsplit_once(':').unwrap().1;
    command.args(["-B", script, port]).arg(server.path("cert.pem")).arg("/hello.txt").args(begun);
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    let told: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(told["status"], 200, "{told}");
    assert_eq!(told["code"], json!(0x100), "H3_NO_ERROR: {told}");
    told
}

/// RFC 9114, Sections 5.1 and 5.2.
#[test]
fn a_client_of_http3_that_only_says_that_it_is_there_is_told_to_go() {
    let told = told(&[]);
    assert_eq!(told["goaway"], 4, "the first request that is not answered: {told}");
    assert!((1900..10_000).contains(&told["ms"].as_u64().unwrap()), "{told}");
}

/// A request has ten seconds to come, during which the connection is not idle.
#[test]
fn a_client_of_http3_that_begins_a_request_and_no_more_is_told_to_go() {
    let told = told(&["begun"]);
    assert_eq!(told["goaway"], 8, "{told}");
    assert!((11_900..30_000).contains(&told["ms"].as_u64().unwrap()), "{told}");
}
