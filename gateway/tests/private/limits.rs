//! Limits that outlive the file that they came with, and counters.

use std::time::Duration;

use quicket::ReadError;
use quicket::tokio::{Connection, Stream};

use super::common::{Gateway, PATIENCE, directory, python, until};
use super::support::{ECHO, connection, gateway, server};

const TOP: &str = "listen = [\"127.0.0.1:0\"]\naccess_log = \"access.log\"\n";

fn reload(gateway: &Gateway, lines: &str) {
    let file = format!("[limits]\nrequests = 1000\n[[protocol]]\nalpn = [\"test\"]\n{lines}");
    gateway.reload(TOP, &file).unwrap();
}

/// A stream that has its echo; else what it was reset with.
async fn stream(connection: &Connection) -> Result<Stream, ReadError> {
    let mut stream = connection.open_bi().await.unwrap();
    stream.send().write_all(b"x").await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, stream.recv().read_some(&mut [0])).await;
    answer.expect("an answer").map(|_| stream)
}

const TOO_MANY: ReadError = ReadError::Reset(0x51_4707);

#[test]
fn connections_count_on_when_the_file_is_read_again() {
    let (_server, port) = server(ECHO);
    let lines =
        |max: usize| format!("streams = \"tcp://127.0.0.1:{port}\"\nmax_connections = {max}\n");
    let gateway = gateway(&lines(2));
    let before = connection(&gateway);
    let held = gateway.runtime.block_on(async {
        let held = [stream(&before).await.unwrap(), stream(&before).await.unwrap()];
        assert_eq!(stream(&before).await.err(), Some(TOO_MANY));
        held
    });
    reload(&gateway, &lines(2));
    let next = connection(&gateway);
    gateway.runtime.block_on(async {
        assert_eq!(stream(&next).await.err(), Some(TOO_MANY), "those from before are there still");
    });
    reload(&gateway, &lines(3));
    let next = connection(&gateway);
    gateway.runtime.block_on(async {
        let _third = stream(&next).await.unwrap();
        assert_eq!(stream(&next).await.err(), Some(TOO_MANY));
        drop(held);
        before.close(0, b"");
    });
    // The origin's ends are closed a little later.
    let freed = || gateway.runtime.block_on(stream(&next)).is_ok();
    until("room again", freed);
}

/// Answers each packet with itself.
const ECHO_UDP: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
print(s.getsockname()[1], flush=True)
while True:
    data, source = s.recvfrom(65536)
    s.sendto(data, source)
";

/// Sends until there is an answer, for datagrams may be lost; false if there is none for so long.
async fn answers(connection: &Connection, patience: Duration) -> bool {
    let asking = async {
        loop {
            connection.send_datagram(b"x").await.unwrap();
            let answer = connection.recv_datagram();
            if let Ok(answer) = tokio::time::timeout(Duration::from_millis(300), answer).await {
                return answer.is_ok();
            }
        }
    };
    tokio::time::timeout(patience, asking).await.unwrap_or(false)
}

#[test]
fn datagrams_of_a_client_are_a_connection_to_the_origin() {
    let (_server, port) = python(ECHO_UDP);
    let gateway = gateway(&format!(
        "datagrams = \"udp://127.0.0.1:{port}\"\nmax_connections = 1\nidle_timeout_ms = 2000\n"
    ));
    let (one, two) = (connection(&gateway), connection(&gateway));
    gateway.runtime.block_on(async {
        assert!(answers(&one, PATIENCE).await);
        // The first has the only socket as long as it uses it.
        let used = async {
            loop {
                assert!(answers(&one, PATIENCE).await);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            () = used => {}
            is_answered = answers(&two, Duration::from_secs(1)) => assert!(!is_answered),
        }
        one.close(0, b"");
        assert!(answers(&two, PATIENCE).await, "the socket is free");
    });
}

#[test]
fn connections_streams_and_datagrams_are_counted_by_protocol() {
    let (_server, port) = server(ECHO);
    let (_udp, udp) = python(ECHO_UDP);
    let dir = directory();
    let socket = dir.path().join("counters.sock").display().to_string();
    let file = format!(
        "[metrics]\nlisten = \"unix:{socket}\"\n[[protocol]]\nalpn = [\"test\"]\n\
         streams = \"tcp://127.0.0.1:{port}\"\ndatagrams = \"udp://127.0.0.1:{udp}\"\n"
    );
    let gateway = Gateway::start_with(dir, TOP, &file);
    let counters = || gateway.text(&["--unix-socket", &socket, "http://localhost/metrics"]);
    let count = |line: &str| {
        until(line, || counters().lines().any(|found| found == format!("quicket_gateway_{line}")));
    };
    let connection = connection(&gateway);
    gateway.runtime.block_on(async {
        let mut stream = stream(&connection).await.unwrap();
        stream.finish().unwrap();
        assert_eq!(stream.read_to_end(10).await.unwrap(), b"");
        assert!(answers(&connection, PATIENCE).await);
        // A socket has no place for it.
        connection.open_uni().await.unwrap().write_all(b"x").await.unwrap();
    });
    count("connections_open{protocol=\"test\"} 1");
    count("streams_total{protocol=\"test\"} 1");
    count("streams_failed_total{protocol=\"test\",reason=\"refused\"} 1");
    count("streams_failed_total{protocol=\"test\",reason=\"broken\"} 0");
    count("stream_bytes_total{protocol=\"test\",direction=\"received\"} 1");
    count("stream_bytes_total{protocol=\"test\",direction=\"sent\"} 1");
    assert!(!counters().contains("datagrams_total{protocol=\"test\",direction=\"sent\"} 0"));
    connection.close(0, b"");
    count("connections_open{protocol=\"test\"} 0");
    count("connections_total{protocol=\"test\"} 1");
}
