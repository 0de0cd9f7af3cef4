//! Whom clients trust, and what they remember of servers.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Server, get, openssl};

#[test]
fn an_unknown_certificate_is_refused() {
    let server = Server::start();
    let outcome = get(server.dir.path(), &[&server.url("/hello.txt"), "-o", "x"]);
    outcome.assert_code(4);
    assert!(outcome.stderr.contains("--pin"), "{}", outcome.stderr);
    assert!(!server.path("x").exists());
}

/// As docs/from-tcp-to-quic.md makes them, to NAME.pem and NAME.key.
fn make(dir: &Path, name: &str, key: &[&str]) {
    let mut command = Command::new("openssl");
    command.current_dir(dir).args(["req", "-x509", "-nodes", "-days", "2", "-newkey"]).args(key);
    command.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")]);
    command.args(["-subj", "/CN=localhost", "-addext", "basicConstraints=critical,CA:FALSE"]);
    command.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    let made = command.output().expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn an_older_certificate_of_the_same_name_is_told_from_the_servers() {
    let dir = tempfile::tempdir().unwrap();
    let ec = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    for (name, key) in [("new", &ec[..]), ("old", &ec), ("other", &["rsa:2048"])] {
        make(dir.path(), name, key);
    }
    fs::create_dir(dir.path().join("root")).unwrap();
    fs::write(dir.path().join("root/a"), "a").unwrap();
    let server = Server::start_in(dir, &["--cert", "new.pem", "--key", "new.key"]);
    let url = server.url("/a");
    let fetch = |ca: &str, flags: &[&str]| {
        get(server.dir.path(), &[&["--ca", ca, &url, "-o", "-"], flags].concat())
    };
    fetch("new.pem", &[]).assert_code(0);
    for ca in ["old.pem", "other.pem"] {
        for flags in [&[][..], &["--http3-only"], &["--http2"]] {
            let outcome = fetch(ca, flags);
            outcome.assert_code(4);
            let told = &outcome.stderr;
            assert_eq!(told.matches("is not valid").count(), 1, "{told}");
            assert!(told.contains("Trust the certificate that the server has now"), "{told}");
            assert!(told.contains("--pin") && !told.contains("Context"), "{told}");
        }
    }
}

#[test]
fn another_certificate_than_the_pinned_one_is_refused() {
    let server = Server::start();
    let wrong = format!("sha256:{}", "ab".repeat(32));
    let url = server.url("/hello.txt");
    let outcome = get(server.dir.path(), &["--pin", &wrong, &url, "-o", "x"]);
    outcome.assert_code(4);
    let reason = format!("the fingerprint {}, which is not pinned", server.pin);
    assert!(outcome.stderr.contains(&reason), "{}", outcome.stderr);
    assert!(!server.path("x").exists());
    // Of several pins, one has to fit.
    get(server.dir.path(), &["--pin", &wrong, "--pin", &server.pin, &url, "-o", "x"])
        .assert_code(0);
}

#[test]
fn no_verification_has_to_be_asked_for_and_is_loud() {
    let server = Server::start();
    let url = server.url("/hello.txt");
    let outcome = get(server.dir.path(), &["--insecure-no-verify", &url, "-o", "-"]);
    assert_eq!(outcome.assert_code(0).stdout, b"hello, world\n");
    assert!(outcome.stderr.contains("WARNING"), "{}", outcome.stderr);
}

#[test]
fn a_given_certificate_is_trusted_as_ca() {
    let server = Server::start();
    let pem = fs::read_to_string(server.path(".local/share/quicket/self-signed.pem")).unwrap();
    let certificate = &pem[pem.find("-----BEGIN CERTIFICATE").unwrap()..];
    fs::write(server.path("ca.pem"), certificate).unwrap();
    let url = server.url("/hello.txt");
    get(server.dir.path(), &["--ca", "ca.pem", &url, "-o", "x"]).assert_code(0);
}

#[test]
fn the_second_process_resumes_and_sends_its_request_early() {
    let server = Server::start();
    let url = server.url("/hello.txt");
    let first = server.get(&[&url, "-o", "1", "--json"]);
    let first = &first.assert_code(0).report()["connections"][0];
    assert_eq!((&first["resumed"], &first["early_data"]), (&false.into(), &"not_offered".into()));
    let second = server.get(&[&url, "-o", "2", "--json"]);
    let second = &second.assert_code(0).report()["connections"][0];
    assert_eq!((&second["resumed"], &second["early_data"]), (&true.into(), &"accepted".into()));
    // On a busy machine the handshake can overtake a request; not ten times, though.
    for name in 3..13 {
        server.get(&[&url, "-o", &name.to_string()]).assert_code(0);
    }
    let (_, log, _dir) = server.interrupt();
    assert!(log.contains("0-RTT"), "{log}");
}

#[test]
fn tickets_survive_a_restart_of_the_server() {
    let server = Server::start();
    let (address, pin) = (server.address.clone(), server.pin.clone());
    server.get(&[&server.url("/hello.txt"), "-o", "1"]).assert_code(0);
    let (_, _, dir) = server.interrupt();
    let again = Server::start_in(dir, &["--listen", &address]);
    assert_eq!((&again.address, &again.pin), (&address, &pin));
    let second = again.get(&[&again.url("/hello.txt"), "-o", "2", "--json"]);
    let report = second.assert_code(0).report();
    assert_eq!(report["connections"][0]["resumed"], true, "{report}");
}

#[test]
fn refused_early_data_is_sent_again() {
    let server = Server::start();
    let address = server.address.clone();
    server.get(&[&server.url("/hello.txt"), "-o", "1"]).assert_code(0);
    let (_, _, dir) = server.interrupt();
    let strict = Server::start_in(dir, &["--listen", &address, "--no-0rtt"]);
    let outcome = strict.get(&[&strict.url("/hello.txt"), "-o", "2", "--json"]);
    let report = outcome.assert_code(0).report();
    assert_eq!(report["connections"][0]["early_data"], "rejected", "{report}");
    assert_eq!(fs::read(strict.path("2")).unwrap(), b"hello, world\n");
}

#[test]
fn sessions_are_neither_kept_nor_used_without_consent() {
    let server = Server::start();
    let url = server.url("/hello.txt");
    for name in ["1", "2"] {
        let outcome = server.get(&[&url, "-o", name, "--no-sessions", "--json"]);
        assert_eq!(outcome.assert_code(0).report()["connections"][0]["resumed"], false);
    }
    assert!(!server.path(".local/state/quicket").exists());
    server.get(&[&url, "-o", "3", "--sessions", "kept"]).assert_code(0);
    let held_back = server.get(&[&url, "-o", "4", "--sessions", "kept", "--no-0rtt", "--json"]);
    let connection = &held_back.assert_code(0).report()["connections"][0];
    assert_eq!(connection["early_data"], "not_offered", "{connection}");
}

#[test]
fn retry_and_unencrypted_connections_work_and_the_latter_are_loud() {
    let server = Server::start_with(&["--retry", "always", "--disable-1rtt-encryption"]);
    let url = server.url("/hello.txt");
    let outcome = server.get(&[&url, "-o", "1", "--json", "--no-0rtt"]);
    assert_eq!(outcome.assert_code(0).report()["connections"][0]["encrypted"], true);
    let plain = ["--disable-1rtt-encryption", "--no-sessions", &url, "-o", "2", "--json"];
    let outcome = server.get(&plain);
    assert_eq!(outcome.assert_code(0).report()["connections"][0]["encrypted"], false);
    assert!(outcome.stderr.contains("WARNING"), "{}", outcome.stderr);
}

#[test]
fn secrets_are_logged_only_on_request() {
    let server = Server::start();
    let url = server.url("/hello.txt");
    server.get(&[&url, "-o", "1", "--keylog", "keys"]).assert_code(0);
    let keys = fs::read_to_string(server.path("keys")).unwrap();
    assert!(keys.contains("CLIENT_TRAFFIC_SECRET_0 "), "{keys}");
}

#[test]
fn a_certificate_as_openssl_makes_it_by_default_is_trusted_if_it_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    fs::write(dir.path().join("root/hello.txt"), "hello, world\n").unwrap();
    openssl(dir.path(), "cert", "DNS:localhost,IP:127.0.0.1");
    let server = Server::start_in(dir, &["--cert", "cert.pem", "--key", "cert.key"]);
    let url = server.url("/hello.txt");
    let trusted = get(server.dir.path(), &["--ca", "cert.pem", &url, "-o", "-"]);
    assert_eq!(trusted.assert_code(0).stdout, b"hello, world\n");
    // To others it is one of an authority that shows itself.
    openssl(server.dir.path(), "other", "DNS:localhost,IP:127.0.0.1");
    let other = get(server.dir.path(), &["--ca", "other.pem", &url, "-o", "-"]);
    other.assert_code(4);
    assert!(other.stderr.contains("CA:TRUE") && other.stderr.contains("--pin"), "{}", other.stderr);
}
