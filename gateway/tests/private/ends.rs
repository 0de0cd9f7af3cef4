//! How streams end: whole, half, broken; and what the other side hears of it.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::process::Command;
use std::time::Duration;

use quicket::ReadError;
use quicket_testing::until;

use super::common::Gateway;
use super::support::{Client, ECHO, connection, echoes, gateway, server, server_that_tells};

const UNREACHABLE: u64 = 0x51_4701;
const RESET: u64 = 0x51_4702;
const IDLE: u64 = 0x51_4704;
const UNIDIRECTIONAL: u64 = 0x51_4705;
const NOT_SERVED: u64 = 0x51_4709;

fn to(port: u16, more: &str) -> Gateway {
    gateway(&format!("streams = \"tcp://127.0.0.1:{port}\"\n{more}"))
}

#[test]
fn large_transfers_both_ways_at_once_arrive_whole() {
    let dir = tempfile::tempdir().unwrap();
    let notes = dir.path().join("notes");
    let (_server, port) = server_that_tells(
        "
def serve(s):
    def send():
        piece = bytes(range(256)) * 256
        for _ in range(1600):
            s.sendall(piece)
        s.shutdown(socket.SHUT_WR)
    sender = threading.Thread(target=send)
    sender.start()
    h = hashlib.sha256()
    while data := s.recv(65536):
        h.update(data)
    tell(h.hexdigest())
    sender.join()
    s.close()
",
        &notes,
    );
    let gateway = to(port, "");
    let client = Client::start(&gateway, "tcp:127.0.0.1:0");
    let mut stream = client.tcp();
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let piece = vec![7; 1 << 20];
        for _ in 0..100 {
            writer.write_all(&piece).unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    let piece: Vec<u8> = (0..=255).cycle().take(1 << 16).collect();
    assert_eq!(received.len(), 1600 << 16);
    assert!(received.chunks(1 << 16).all(|chunk| chunk == piece));
    // What openssl makes of the same bytes.
    fs::write(dir.path().join("sent"), vec![7; 100 << 20]).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["dgst", "-sha256", "-r"]).arg(dir.path().join("sent"));
    let digest = String::from_utf8(openssl.output().unwrap().stdout).unwrap();
    let told = || fs::read_to_string(&notes).unwrap_or_default();
    until("the origin's digest", || told().ends_with('\n'));
    assert_eq!(told().trim(), digest.split(' ').next().unwrap());
    client.stop(&gateway);
    let record = || fs::read_to_string(gateway.path("access.log")).unwrap_or_default();
    until("the record", || record().contains("\"received\":104857600,\"sent\":104857600,"));
    assert!(record().contains("\"streams_broken\":0,"), "{}", record());
}

#[test]
fn an_origin_that_resets_is_no_end() {
    let (_server, port) = server(
        "
def serve(s):
    s.sendall(b'a part')
    s.recv(1)
    rst(s)
",
    );
    let gateway = to(port, "");
    let connection = connection(&gateway);
    gateway.runtime.block_on(async {
        let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
        send.write_all(b"x").await.unwrap();
        let mut part = [0; 100];
        let error = loop {
            match recv.read_some(&mut part).await {
                Ok(len) => assert!(len > 0, "an end instead of a reset"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, ReadError::Reset(RESET));
        assert_eq!(send.stopped().await, Ok(Some(RESET)));
    });
    // The same through the client's half: its TCP client gets a reset.
    let client = Client::start(&gateway, "tcp:127.0.0.1:0");
    let mut stream = client.tcp();
    stream.write_all(b"x").unwrap();
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    until("its words", || client.has_said("the origin has reset the connection"));
}

#[test]
fn what_the_client_resets_is_reset_at_the_origin() {
    let dir = tempfile::tempdir().unwrap();
    let notes = dir.path().join("notes");
    let (_server, port) = server_that_tells(
        "
def serve(s):
    try:
        while data := s.recv(100): tell(data)
        tell('end')
    except ConnectionResetError:
        tell('reset')
",
        &notes,
    );
    let gateway = to(port, "");
    let told = || fs::read_to_string(&notes).unwrap_or_default();
    let connection = connection(&gateway);
    gateway.runtime.block_on(async {
        let stream = connection.open_bi().await.unwrap();
        let (mut send, mut recv) = stream.split();
        send.write_all(b"a part").await.unwrap();
        until("the part", || told() == "b'a part'\n");
        send.reset(77).unwrap();
        assert_eq!(recv.read_some(&mut [0; 10]).await, Err(ReadError::Reset(77)));
    });
    until("the reset", || told() == "b'a part'\nreset\n");
    // The same through the client's half, of a TCP client that resets.
    let client = Client::start(&gateway, "tcp:127.0.0.1:0");
    let mut stream = client.tcp();
    stream.write_all(b"another").unwrap();
    until("the other part", || told().ends_with("b'another'\n"));
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    until("the other reset", || told().ends_with("b'another'\nreset\n"));
}

#[test]
fn an_origin_that_is_killed_breaks_streams_and_a_new_one_serves_the_next() {
    let (origin, port) = server(ECHO);
    let gateway = to(port, "");
    let client = Client::start(&gateway, "tcp:127.0.0.1:0");
    let mut stream = client.tcp();
    assert!(echoes(&mut stream, b"hello"));
    drop(origin);
    // The process is gone: its kernel ends the connection, and refuses others.
    let mut rest = Vec::new();
    let _ = stream.write_all(b"anybody?").and_then(|()| stream.read_to_end(&mut rest).map(|_| ()));
    assert_eq!(rest, b"");
    let mut refused = client.tcp();
    let error = refused.read_to_end(&mut Vec::new()).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    until("its words", || client.has_said("the gateway cannot reach the origin"));
}

#[test]
fn an_origin_out_of_reach_has_a_code_of_its_own() {
    let gateway = to(quicket_testing::free_port(), "");
    let connection = connection(&gateway);
    gateway.runtime.block_on(async {
        let stream = connection.open_bi().await.unwrap();
        let (mut send, mut recv) = stream.split();
        send.write_all(b"x").await.unwrap();
        assert_eq!(recv.read_some(&mut [0; 10]).await, Err(ReadError::Reset(UNREACHABLE)));
        assert_eq!(send.stopped().await, Ok(Some(UNREACHABLE)));
        let mut uni = connection.open_uni().await.unwrap();
        uni.write_all(b"x").await.unwrap();
        assert_eq!(uni.stopped().await, Ok(Some(UNIDIRECTIONAL)));
    });
}

#[test]
fn servers_may_speak_first() {
    let (_server, port) =
        server("def serve(s):\n    s.sendall(b'220 ready')\n    s.recv(1)\n    s.close()");
    let gateway = to(port, "");
    let client = Client::start(&gateway, "tcp:127.0.0.1:0");
    let mut greeting = [0; 9];
    client.tcp().read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 ready");
}

#[test]
fn who_is_silent_for_too_long_is_reset() {
    let (_server, port) = server(ECHO);
    let gateway = to(port, "idle_timeout_ms = 300\n");
    let connection = connection(&gateway);
    gateway.runtime.block_on(async {
        let mut stream = connection.open_bi().await.unwrap();
        stream.send().write_all(b"x").await.unwrap();
        let mut byte = [0];
        assert_eq!(stream.recv().read_some(&mut byte).await, Ok(1));
        assert_eq!(stream.recv().read_some(&mut byte).await, Err(ReadError::Reset(IDLE)));
    });
}

#[test]
fn a_client_that_stops_closes_the_origins_connection() {
    let dir = tempfile::tempdir().unwrap();
    let notes = dir.path().join("notes");
    let (_server, port) = server_that_tells(
        "
def serve(s):
    try:
        while True: s.sendall(b'x' * 10000)
    except ConnectionError as error:
        tell(type(error).__name__)
",
        &notes,
    );
    let gateway = to(port, "");
    let connection = connection(&gateway);
    gateway.runtime.block_on(async {
        let stream = connection.open_bi().await.unwrap();
        let (mut send, mut recv) = stream.split();
        send.write_all(b"x").await.unwrap();
        recv.read_some(&mut [0; 10]).await.unwrap();
        recv.stop(5).unwrap();
        send.finish().unwrap();
    });
    let told = || fs::read_to_string(&notes).unwrap_or_default();
    // Which of both depends on whether the end of the other direction was there before.
    let errors = ["ConnectionResetError\n", "BrokenPipeError\n"];
    until("an error at the origin", || errors.contains(&told().as_str()));
}

#[test]
fn a_client_that_never_reads_holds_back_the_origin_and_nobody_else() {
    let (_server, port) = server(
        "
def serve(s):
    if s.recv(4) == b'echo':
        s.sendall(b'echo')
        return
    total = 0
    s.settimeout(1)
    try:
        while True:
            total += s.send(b'x' * 65536)
    except TimeoutError:
        pass
    s.settimeout(None)
    s.sendall(b'!' + str(total).encode() + b'!')
    s.close()
",
    );
    let gateway = to(port, "");
    let client = Client::start(&gateway, "tcp:127.0.0.1:0");
    let mut stuck = client.tcp();
    stuck.write_all(b"fill").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    for _ in 0..10 {
        assert!(echoes(&mut client.tcp(), b"echo"), "others go on");
    }
    let mut all = Vec::new();
    stuck.read_to_end(&mut all).unwrap();
    let text = String::from_utf8(all.split_off(all.iter().position(|&b| b == b'!').unwrap()));
    let total: usize = text.unwrap().trim_matches('!').parse().unwrap();
    // What the systems' sockets hold is some megabytes; the rest is the gateway's and the client's.
    assert!((100_000..60_000_000).contains(&total), "{total}");
    assert_eq!(all.len(), total, "and none of it is lost");
}

#[test]
fn names_lead_to_their_origins() {
    let (_one, one) = server("def serve(s):\n    s.sendall(b'one')\n    s.close()");
    let gateway = gateway(&format!(
        "names = [\"localhost\"]\nstreams = \"tcp://127.0.0.1:{one}\"\n\
         [[protocol]]\nalpn = [\"other\"]\nnames = [\"a.example\"]\nstreams = \"tcp://127.0.0.1:{one}\"\n"
    ));
    let connection = connection(&gateway);
    gateway.runtime.block_on(async {
        let mut stream = connection.open_bi().await.unwrap();
        stream.finish().unwrap();
        assert_eq!(stream.read_to_end(10).await.unwrap(), b"one");
        let config = super::support::config(&gateway, "other");
        let other = quicket::tokio::Connection::connect(gateway.addresses[0], "localhost", &config);
        let ended = other.await.unwrap().closed().await;
        let quicket::ConnectionError::PeerApplication { code, .. } = ended else {
            panic!("{ended}");
        };
        assert_eq!(code, NOT_SERVED);
        let config = super::support::config(&gateway, "h3");
        let http = quicket::tokio::Connection::connect(gateway.addresses[0], "localhost", &config);
        assert!(http.await.is_err(), "there is no site");
    });
}

#[test]
fn the_client_connects_again_when_the_gateway_comes_back() {
    let (_server, port) = server(ECHO);
    let mut gateway = to(port, "");
    let at = gateway.addresses[0];
    let client = Client::start(&gateway, "tcp:127.0.0.1:0");
    assert!(echoes(&mut client.tcp(), b"before"));
    gateway.stop();
    until("the end", || client.has_said("the gateway stops; trying again"));
    let file = fs::read_to_string(gateway.path("site.toml")).unwrap();
    let file = file.replace("127.0.0.1:0", &at.to_string());
    // The address is free once the last of the old one's tasks has ended.
    until("another gateway there", || {
        let snapshot = quicket_gateway::config::parse(&file, gateway.dir.path()).unwrap();
        let sockets = quicket::EndpointConfig::default();
        match gateway.runtime.block_on(quicket_gateway::Bound::bind(snapshot, sockets)) {
            Ok(again) => {
                gateway.runtime.spawn(again.run(std::future::pending()));
                true
            }
            Err(_) => false,
        }
    });
    assert!(echoes(&mut client.tcp(), b"after"), "local connections wait for the next one");
}
