//! `quicket serve` and the HTTP/3 of niquests (urllib3-future and qh3), as a program of its users has it.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Server, content, openssl};
use quicket_lab::peers::Workshop;
use serde_json::Value;

/// A certificate in leaf.pem by an authority in ca.pem: qh3 takes no other.
fn issue(dir: &Path) {
    openssl(dir, "ca", "DNS:authority");
    let mut command = Command::new("openssl");
    command.current_dir(dir).args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
    command.args(["-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", "leaf.key", "-out", "leaf.pem"]);
    command.args(["-subj", "/CN=leaf", "-addext", "basicConstraints=critical,CA:FALSE"]);
    let made = command.args(["-addext", "subjectAltName=DNS:localhost"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A file, a large one piece by piece, and fifty at once: by streams of a connection, and by connections of threads.
#[test]
fn niquests_fetches_files_one_by_one_and_at_once() {
    const LARGE: usize = 30_000_000;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("hello.txt"), "hello, world\n").unwrap();
    fs::write(root.join("large"), content(LARGE)).unwrap();
    for number in 0..50 {
        fs::write(root.join(format!("file{number}")), content(1000 * number)).unwrap();
    }
    issue(dir.path());
    let server = Server::start_in(dir, &["--cert", "leaf.pem", "--key", "leaf.key"]);
    let python = Workshop::new().unwrap().prepare_niquests().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/fetch.py");
    let port = server.address.rsplit_once(':').unwrap().1;
    let mut command = Command::new(python.executable);
    command.args(["-B", script, port]).args([server.path("ca.pem"), server.path("root")]);
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["versions"], serde_json::json!([30]), "HTTP/3 alone: {report}");
    assert_eq!((&report["answers"], &report["large"]), (&102.into(), &LARGE.into()), "{report}");
}
