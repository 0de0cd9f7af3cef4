//! `quicket get`: what is asked of servers, and what follows from their answers.

mod common;

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Server, content, quicket};

#[test]
fn redirects_are_followed_if_that_is_wanted() {
    let server = Server::start();
    // `serve` points from a directory without its slash to the one with it.
    let outcome = server.get(&["-L", &server.url("/sub%20dir"), "-o", "-"]);
    let listing = String::from_utf8_lossy(&outcome.assert_code(0).stdout).into_owned();
    assert!(listing.contains("page.html"), "{listing}");
    let none = server.get(&["-L", "--max-redirects", "0", &server.url("/sub%20dir"), "-o", "-"]);
    none.assert_code(1);
    assert!(none.stderr.contains("--max-redirects"), "{}", none.stderr);
}

#[test]
fn heads_go_to_standard_output_and_nothing_is_written() {
    let server = Server::start();
    let outcome = server.get(&["-I", &server.url("/large")]);
    let head = String::from_utf8(outcome.assert_code(0).stdout.clone()).unwrap();
    assert!(head.starts_with("HTTP/3 200 OK\n"), "{head}");
    assert!(head.contains("\ncontent-length: 8000000\n"), "{head}");
    let etag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{head}");
    assert!(!server.path("large").exists());
    let absent = server.get(&["-I", &server.url("/absent")]);
    absent.assert_code(1);
    assert!(absent.stdout.starts_with(b"HTTP/3 404"), "{absent:?}");
}

#[test]
fn what_is_sent_and_received_is_shown() {
    let server = Server::start();
    let url = server.url("/hello.txt");
    let flags = ["-v", "-H", "X-Mine: yes", "-H", "Authorization: Basic c2VjcmV0", &url, "-o", "-"];
    let outcome = server.get(&flags);
    assert_eq!(outcome.assert_code(0).stdout, b"hello, world\n");
    for line in [
        "* connecting to 127.0.0.1:",
        "* connected: QUIC version 1, TLS 1.3, TLS_",
        "> GET /hello.txt HTTP/3",
        "> x-mine: yes",
        "> authorization: (not shown)",
        "< HTTP/3 200 OK",
        "< content-length: 13",
    ] {
        assert!(outcome.stderr.contains(line), "{line}: {}", outcome.stderr);
    }
    assert!(!outcome.stderr.contains("c2VjcmV0"), "{}", outcome.stderr);
}

#[test]
fn methods_that_the_server_does_not_know_are_sent_all_the_same() {
    let server = Server::start();
    // More than the server takes before it answers: it stops the rest.
    let long = "x".repeat(100_000);
    let refused = server.get(&["-d", &long, &server.url("/hello.txt"), "-o", "-"]);
    refused.assert_code(1);
    assert!(refused.stderr.contains("405"), "{}", refused.stderr);
    let posted = server.get(&["-v", "-d", "a=1", &server.url("/hello.txt"), "-o", "-"]);
    posted.assert_code(1);
    assert!(posted.stderr.contains("> POST /hello.txt"), "{}", posted.stderr);
    assert!(posted.stderr.contains("> content-length: 3"), "{}", posted.stderr);
    assert!(posted.stderr.contains("405"), "{}", posted.stderr);
}

#[test]
fn a_file_that_is_complete_is_not_fetched_again() {
    let server = Server::start();
    let url = server.url("/large");
    server.get(&[&url, "-o", "large"]).assert_code(0);
    let again = server.get(&[&url, "-o", "large", "-c", "--json"]);
    let file = again.assert_code(0).report()["files"][0].clone();
    assert_eq!((&file["received"], &file["kept"]), (&0.into(), &8_000_000.into()));
    let told = server.get(&[&url, "-o", "large", "-c"]);
    assert!(told.stderr.contains("complete already"), "{}", told.stderr);

    // One that is shorter, without a trace of where it comes from, is fetched anew.
    fs::write(server.path("large"), b"something else").unwrap();
    let anew = server.get(&[&url, "-o", "large", "-c", "--json"]);
    assert_eq!(anew.assert_code(0).report()["files"][0]["received"], 8_000_000);
    assert!(fs::read(server.path("large")).unwrap() == content(8_000_000));

    // And one with another hash than it must have.
    fs::write(server.path("large"), vec![0; 8_000_000]).unwrap();
    let sum = again.report()["files"][0]["sha256"].as_str().unwrap().to_owned();
    let anew = server.get(&[&url, "-o", "large", "-c", "--sha256", &sum, "--json"]);
    assert_eq!(anew.assert_code(0).report()["files"][0]["received"], 8_000_000);
}

#[test]
fn directories_are_made_only_where_one_is_named() {
    let server = Server::start();
    let url = server.url("/hello.txt");
    let failed = server.get(&[&url, "-o", "new/sub/file"]);
    failed.assert_code(6);
    assert!(failed.stderr.contains("mkdir -p"), "{}", failed.stderr);
    assert!(!server.path("new").exists());
    server.get(&[&url, "-o", "new/sub/"]).assert_code(0);
    assert_eq!(fs::read(server.path("new/sub/hello.txt")).unwrap(), b"hello, world\n");
}

#[test]
fn a_download_goes_no_faster_than_is_allowed() {
    let server = Server::start();
    let begun = Instant::now();
    server.get(&["--limit-rate", "4M", &server.url("/large"), "-o", "large"]).assert_code(0);
    // 8 MB at 4 MB/s. However slow the machine is: it does not take less.
    assert!(begun.elapsed() >= Duration::from_millis(1900), "{:?}", begun.elapsed());
    assert!(fs::read(server.path("large")).unwrap() == content(8_000_000));
}

#[test]
fn there_is_an_end_to_what_takes_too_long() {
    let server = Server::start();
    let flags = ["--limit-rate", "100k", "--max-time", "0.5", &server.url("/large"), "-o", "large"];
    let outcome = server.get(&flags);
    outcome.assert_code(3);
    assert!(outcome.stderr.contains("--max-time"), "{}", outcome.stderr);
    assert!(!server.path("large").exists());
}

#[test]
fn addresses_are_of_the_wanted_kind() {
    let server = Server::start();
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    let url = format!("https://127.0.0.1:{port}/hello.txt");
    server.get(&["-4", &url, "-o", "-"]).assert_code(0);
    let outcome = server.get(&["-6", &url, "-o", "-"]);
    outcome.assert_code(3);
    assert!(outcome.stderr.contains("no IPv6 address"), "{}", outcome.stderr);
}

#[test]
fn a_lost_server_that_comes_back_is_gone_on_with() {
    let server = Server::start();
    let address = server.address.clone();
    let url = server.url("/large");
    let mut get = quicket(server.dir.path());
    get.args(["get", "--pin", &server.pin, "--retry", "20", "--limit-rate", "2M", "-o", "large"]);
    get.args(["--json", "--idle-timeout", "2", &url]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = get.spawn().unwrap();
    // Some of it is there.
    let part = server.path("large.part");
    while part.metadata().map_or(0, |part| part.len()) < 500_000 {
        assert!(client.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(10));
    }
    let dir = server.kill();
    let server = Server::start_in(dir, &["--listen", &address]);
    let mut report = String::new();
    client.stdout.as_mut().unwrap().read_to_string(&mut report).unwrap();
    let mut log = String::new();
    client.stderr.as_mut().unwrap().read_to_string(&mut log).unwrap();
    assert!(client.wait().unwrap().success(), "{log}");
    assert!(log.contains("trying again in"), "{log}");
    assert!(fs::read(server.path("large")).unwrap() == content(8_000_000));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let file = &report["files"][0];
    assert_eq!(file["status"], 206, "{file}");
    assert!(file["kept"].as_u64().unwrap() >= 500_000, "{file}");
}

#[test]
fn what_the_file_system_refuses_is_told_with_what_to_do() {
    let server = Server::start();
    let url = server.url("/hello.txt");
    fs::create_dir_all(server.path("there/hello.txt")).unwrap();
    for (output, words) in
        [("/dev/full", "make room"), ("there", "remove the directory"), ("/proc/file", "right?")]
    {
        let outcome = server.get(&[&url, "-o", output]);
        outcome.assert_code(6);
        assert!(outcome.stderr.contains(words), "{output}: {}", outcome.stderr);
    }
    for (dir, words) in [("absent", "is the name right?"), ("root/hello.txt", "name a directory")] {
        let served = quicket(server.dir.path()).args(["serve", dir]).output().unwrap();
        let said = String::from_utf8_lossy(&served.stderr).into_owned();
        assert_eq!(served.status.code(), Some(6), "{said}");
        assert!(said.contains(words), "{dir}: {said}");
    }
}

#[test]
fn several_workers_serve_one_address() {
    let server = Server::start_with(&["--workers", "3"]);
    for _ in 0..6 {
        let outcome = server.get(&[&server.url("/hello.txt"), "-o", "-"]);
        assert_eq!(outcome.assert_code(0).stdout, b"hello, world\n");
    }
    let dir = server.dir.path().to_path_buf();
    for wrong in ["0", "257", "many"] {
        let output = quicket(&dir).args(["serve", ".", "--workers", wrong]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains("1 to 256"), "{text}");
    }
}

/// RFC 9114, Section 4.2: servers would reset the stream, and say no more than that.
#[test]
fn fields_of_a_connection_are_refused_before_anything_is_sent() {
    let mut server = Server::start_with(&["--no-tcp"]);
    let url = server.url("/hello.txt");
    for (field, word) in [
        ("Connection: close", "connection belongs to a connection of HTTP/1.1"),
        ("Keep-Alive: timeout=5", "keep-alive"),
        ("Proxy-Connection: close", "proxy-connection"),
        ("Transfer-Encoding: chunked", "transfer-encoding"),
        ("Upgrade: websocket", "upgrade"),
        ("TE: gzip", "te can say nothing but 'trailers'"),
        ("Host: other.example", "host follows from the request"),
    ] {
        let outcome = server.get(&["-H", field, &url, "-o", "-"]);
        outcome.assert_code(2);
        assert!(outcome.stderr.contains(word), "{field}: {}", outcome.stderr);
    }
    let outcome = server.get(&["-H", "TE: trailers", &url, "-o", "-"]);
    assert_eq!(outcome.assert_code(0).stdout, b"hello, world\n");
    // It is the first connection of all.
    assert_eq!(server.event("closed")["requests"], 1);
}
