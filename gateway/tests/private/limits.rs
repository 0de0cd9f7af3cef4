//! Limits that outlive the file that they came with, and counters.

use std::time::Duration;

use quicket::ReadError;
use quicket::tokio::{Connection, Stream};
use quicket_testing::until;

use super::common::{Gateway, PATIENCE, directory, python};
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

/// Bytes in a second.
const RATE: usize = 500_000;

fn limited(lines: &str) -> Gateway {
    let limits =
        format!("[limits]\nclient_bytes_per_s = {RATE}\n[[protocol]]\nalpn = [\"test\"]\n");
    Gateway::start_with(directory(), TOP, &format!("{limits}{lines}"))
}

/// Sends this much on a stream, and takes the echo; how long it takes.
async fn echoed(connection: &Connection, length: usize) -> Duration {
    let begun = std::time::Instant::now();
    let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
    let sending = async {
        send.write_all(&vec![7; length]).await.unwrap();
        send.finish().unwrap();
    };
    let taking = async {
        let (mut taken, mut buffer) = (0, vec![0; 64 << 10]);
        while let len @ 1.. = recv.read_some(&mut buffer).await.unwrap() {
            taken += len;
        }
        taken
    };
    let ((), taken) = tokio::join!(sending, taking);
    assert_eq!(taken, length);
    begun.elapsed()
}

#[test]
fn streams_of_all_clients_flow_as_fast_as_the_protocol_says() {
    let (_server, port) = server(ECHO);
    let gateway = Gateway::start_with(
        directory(),
        TOP,
        &format!(
            "[[protocol]]\nalpn = [\"test\"]\nstreams = \"tcp://127.0.0.1:{port}\"\nbytes_per_s = {RATE}\n"
        ),
    );
    let (one, two) = (connection(&gateway), connection(&gateway));
    gateway.runtime.block_on(async {
        let both = tokio::join!(echoed(&one, RATE), echoed(&two, RATE));
        // A quarter of a second's worth comes at once, and a last piece waits for nothing.
        let took = both.0.max(both.1);
        assert!(took >= Duration::from_millis(1_300), "{took:?}");
    });
}

#[test]
fn streams_flow_as_fast_as_the_file_says() {
    let (_server, port) = server(ECHO);
    let gateway = limited(&format!(
        "streams = \"tcp://127.0.0.1:{port}\"\nidle_timeout_ms = 900\nbuffer_bytes = 65536\n"
    ));
    let connection = connection(&gateway);
    gateway.runtime.block_on(async {
        // A quarter of a second's worth comes at once, and nobody waits behind the last piece.
        let took = echoed(&connection, 1_000_000).await;
        assert!(took >= Duration::from_millis(1300), "{took:?}");
        assert!(took < PATIENCE, "{took:?}");
        // Streams at once share what their client may have.
        let both = [connection.clone(), connection.clone()]
            .map(|connection| tokio::spawn(async move { echoed(&connection, 500_000).await }));
        let begun = std::time::Instant::now();
        for one in both {
            one.await.unwrap();
        }
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(1300), "both: {took:?}");
    });
}

#[test]
fn datagrams_that_are_too_many_are_lost() {
    let (_server, port) = python(ECHO_UDP);
    let gateway = limited(&format!("datagrams = \"udp://127.0.0.1:{port}\"\n"));
    let connection = connection(&gateway);
    gateway.runtime.block_on(async {
        assert!(answers(&connection, PATIENCE).await);
        // Twice as fast as it may be, for two seconds.
        let begun = tokio::time::Instant::now();
        let sending = async {
            for at in 0..2000_u32 {
                let due = begun + Duration::from_millis(1).saturating_mul(at);
                tokio::time::sleep_until(due).await;
                connection.send_datagram(&[7; 1000]).await.unwrap();
            }
        };
        let mut got = 0;
        let taking = async {
            let until = begun + Duration::from_millis(2500);
            while let Ok(Ok(datagram)) =
                tokio::time::timeout_at(until, connection.recv_datagram()).await
            {
                got += datagram.len();
            }
        };
        tokio::join!(sending, taking);
        let most = RATE * 5 / 2 + RATE / 4 + (100 << 10);
        assert!(got > RATE / 2 && got <= most, "{got} bytes, and {most} at most");
    });
}
