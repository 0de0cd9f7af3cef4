//! Limits of bandwidth: for a site, and for a client's address.

mod behind;
mod common;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{ECHO, Gateway, directory};

const TOP: &str = "listen = [\"127.0.0.1:0\"]\n";
/// Bytes in a second.
const RATE: usize = 500_000;
/// Longer than what may come at once, by far.
const LENGTH: usize = 1_500_000;

fn site(more: &str) -> String {
    format!("[[site]]\nnames = [\"*\"]\n{more}[[site.route]]\nfiles = \"root\"\n")
}

fn gateway(file: &str) -> Gateway {
    let dir = directory();
    fs::create_dir(dir.path().join("root")).unwrap();
    fs::write(dir.path().join("root/index.html"), "x".repeat(LENGTH)).unwrap();
    fs::write(dir.path().join("root/half"), "x".repeat(LENGTH / 2)).unwrap();
    fs::write(dir.path().join("root/small"), "x".repeat(LENGTH / 30)).unwrap();
    Gateway::start_with(dir, TOP, file)
}

/// What so many bytes take at least: there is a burst at the beginning, and nobody waits behind the last piece.
fn at_least(length: usize) -> Duration {
    let (burst, piece) = (RATE / 4, 256 << 10);
    Duration::from_secs_f64((length - burst - piece) as f64 / RATE as f64)
}

fn timed(what: impl FnOnce() -> usize) -> (usize, Duration) {
    let begun = Instant::now();
    (what(), begun.elapsed())
}

#[test]
fn a_site_sends_no_faster_than_its_file_says() {
    let gateway = gateway(&site(&format!("bytes_per_s = {RATE}\n")));
    for version in ["--http1.1", "--http2"] {
        let (got, took) = timed(|| gateway.text(&[version, &gateway.url("/")]).len());
        assert_eq!(got, LENGTH);
        assert!(took >= at_least(LENGTH), "{version}: {took:?}");
    }
    let (got, took) = timed(|| {
        let mut command = behind::python();
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http3_get.py"));
        let port = gateway.port().to_string();
        let command = command.args([&port, "cert.pem", "localhost", "localhost"]);
        let output = command.current_dir(gateway.dir.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.strip_prefix("200\n").unwrap_or_else(|| panic!("{text:.100}")).trim().len()
    });
    assert_eq!(got, LENGTH);
    assert!(took >= at_least(LENGTH), "over HTTP/3: {took:?}");
    // Short bodies are as one long.
    let urls: Vec<String> = (0..30).map(|_| gateway.url("/small")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let (got, took) = timed(|| gateway.text(&urls).len());
    assert_eq!(got, LENGTH);
    assert!(took >= at_least(LENGTH), "thirty: {took:?}");
}

#[test]
fn what_a_site_has_sent_is_not_forgotten_by_reloads() {
    let file = site(&format!("bytes_per_s = {RATE}\n"));
    let gateway = gateway(&file);
    let (got, took) = timed(|| {
        let small = || {
            gateway.reload(TOP, &file).unwrap();
            gateway.text(&[&gateway.url("/small")]).len()
        };
        (0..30).map(|_| small()).sum()
    });
    assert_eq!(got, LENGTH);
    assert!(took >= at_least(LENGTH), "{took:?}");
}

#[test]
fn a_rate_that_a_reload_changes_counts_for_what_flows_already() {
    let gateway = gateway(&site("bytes_per_s = 100000\n"));
    let (got, took) = timed(|| {
        std::thread::scope(|scope| {
            let download = scope.spawn(|| gateway.text(&[&gateway.url("/")]).len());
            std::thread::sleep(Duration::from_millis(500));
            assert!(!download.is_finished());
            gateway.reload(TOP, &site("bytes_per_s = 5000000\n")).unwrap();
            download.join().unwrap()
        })
    });
    assert_eq!(got, LENGTH);
    // The piece that was under way is paid for as before: 2.6 s of 15.
    assert!(took < Duration::from_secs(9), "{took:?}");
}

#[test]
fn what_one_address_gets_is_shared_by_its_connections() {
    let gateway = gateway(&format!("[limits]\nclient_bytes_per_s = {RATE}\n{}", site("")));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| gateway.text(&[&gateway.url("/half")]).len()));
        for one in both {
            assert_eq!(one.join().unwrap(), LENGTH / 2);
        }
    });
    let took = begun.elapsed();
    // Each has a last piece that nobody waits behind.
    assert!(took >= at_least(LENGTH - (256 << 10)), "{took:?}");
}

#[test]
fn what_clients_send_is_slowed_down_too() {
    let (_origin, port) = common::python(ECHO);
    let file = format!(
        "[limits]\nclient_bytes_per_s = {RATE}\n[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n"
    );
    let gateway = gateway(&file);
    for version in ["--http1.1", "--http2"] {
        let (got, took) = timed(|| {
            let url = gateway.url("/");
            let asked = gateway.asked(&[version, "--data-binary", "@root/index.html", &url]);
            asked["body"].as_u64().unwrap() as usize
        });
        assert_eq!(got, LENGTH);
        assert!(took >= at_least(LENGTH), "{version}: {took:?}");
    }
}

#[test]
fn rates_and_memory_are_within_bounds() {
    let gateway = gateway(&site(""));
    for (file, what) in [
        (site("bytes_per_s = 1\n"), "site 1.bytes_per_s"),
        (format!("[limits]\nclient_bytes_per_s = 0\n{}", site("")), "limits.client_bytes_per_s"),
        (format!("[limits]\nmemory_mib = 1\n{}", site("")), "limits.memory_mib"),
        (
            format!("[limits]\nmemory_mib = 64\n{}", site("")),
            "memory_mib or handshakes_without_retry have changed",
        ),
    ] {
        let told = gateway.reload(TOP, &file).unwrap_err();
        assert!(told.contains(what), "{what} is not in {told}");
    }
    assert_eq!(gateway.reload(TOP, &site("bytes_per_s = 16384\n")), Ok(()));
}
