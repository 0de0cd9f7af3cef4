//! `quicket serve` and clients that cancel what they asked for, or take none of it.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::Server;
use quicket::tokio::{Connection, Stream};
use quicket::{ClientConfig, ClientTls, Fingerprint, TransportConfig};
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

/// A client that grants each stream `window` bytes, in place of a browser.
async fn connect(server: &Server, window: u64) -> Connection {
    let pin: Fingerprint = server.pin.parse().unwrap();
    let tls = ClientTls::builder().pinned([pin]).alpn(["h3"]).build().unwrap();
    let address: SocketAddr = server.address.parse().unwrap();
    let transport = TransportConfig {
        initial_stream_window: window,
        max_stream_window: window,
        ..TransportConfig::default()
    };
    let config = ClientConfig::new(tls).transport(transport);
    let connection = Connection::connect(address, "localhost", &config).await.unwrap();
    let mut control = connection.open_uni().await.unwrap();
    control.write_all(&[0, 4, 0]).await.unwrap();
    // Ending it would be an error (RFC 9114, Section 6.2.1).
    std::mem::forget(control);
    connection
}

/// Asks for `count` large files; what they come on.
async fn ask_for_many(connection: &Connection, count: usize) -> Vec<Stream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = connection.open_bi().await.unwrap();
        stream.send().write_all(&headers("/large")).await.unwrap();
        stream.finish().unwrap();
        streams.push(stream);
    }
    streams
}

/// What a server has of the machine's memory, in MiB.
#[cfg(target_os = "linux")]
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kib >> 10
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_that_takes_nothing_of_a_hundred_files_costs_a_server_little() {
    let server = Server::start_with(&["--quiet"]);
    let before = resident(&server);
    let connection = connect(&server, 1).await;
    let _streams = ask_for_many(&connection, 100).await;
    // The send buffer is full. Answers that have not begun by then wait for those that have.
    let filled = async {
        while resident(&server) < before + 10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), filled).await.expect("nothing is read of the files");
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        // The send buffer of 16 MiB, 2 MiB of large pieces, a small piece per file, and the rest.
        let grown = resident(&server).saturating_sub(before);
        assert!(grown < 40, "{grown} MiB more than the {before} MiB at first");
    }
}

/// Without that, glibc keeps what lies below something that is in use.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[tokio::test]
async fn memory_is_given_back_when_a_load_is_over() {
    let server = Server::start_with(&["--quiet"]);
    let before = resident(&server);
    let mut greedy = Vec::new();
    for _ in 0..16 {
        let connection = connect(&server, 1).await;
        let streams = ask_for_many(&connection, 100).await;
        greedy.push((connection, streams));
    }
    let waited = async |what: &str, is_so: &dyn Fn(u64) -> bool| {
        let wait = async {
            while !is_so(resident(&server)) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let in_time = timeout(Duration::from_secs(60), wait).await;
        in_time.unwrap_or_else(|_| panic!("{what}: {} MiB, {before} at first", resident(&server)));
    };
    waited("no load", &|now| now > before + 200).await;
    // Connections that stay.
    let modest = connect(&server, 10_000).await;
    for (connection, streams) in greedy {
        drop(streams);
        connection.close(0x100, b"");
    }
    waited("memory stays", &|now| now <= before + 48).await;
    drop(modest);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn requests_wait_for_descriptors_and_the_log_says_so() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};

    let server = Server::start_with(&["--quiet"]);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count();
    let all = open() as u64 + 6;
    let limit = Rlimit { current: Some(all), maximum: Some(all) };
    let pid = Pid::from_raw(server.id() as i32);
    prlimit(pid, Resource::Nofile, limit).unwrap();
    let greedy = connect(&server, 1).await;
    let streams = ask_for_many(&greedy, 30).await;
    let filled = async {
        while (open() as u64) + 1 < all {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), filled).await.expect("there are enough descriptors");
    let polite = connect(&server, 10_000).await;
    let mut stream = polite.open_bi().await.unwrap();
    stream.send().write_all(&headers("/hello.txt")).await.unwrap();
    stream.finish().unwrap();
    drop(streams);
    greedy.close(0x100, b"");
    let answer = timeout(Duration::from_secs(20), stream.read_to_end(10_000)).await;
    let answer = answer.expect("no answer").unwrap();
    // Behind the file there may be frames of reserved types (RFC 9114, Section 7.2.8).
    let whole = answer.windows(13).any(|bytes| bytes == b"hello, world\n");
    assert!(whole, "{}", answer.escape_ascii());
    let (_, log, _) = server.interrupt();
    assert!(log.contains("no descriptors for files"), "{log}");
    assert!(log.matches("no descriptors").count() < 5, "{log}");
}

#[tokio::test]
async fn a_thousand_cancelled_requests_leave_room_for_another() {
    let server = Server::start_with(&["--quiet"]);
    let connection = connect(&server, 10_000).await;
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
