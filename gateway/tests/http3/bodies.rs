//! Bodies of requests and of answers, and what requests without one are spared.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use quicket::TransportConfig;
use quicket::tokio::Connection;

use super::behind::{PATIENCE, Site, folder};
use super::client::{
    CONTROL, Outcome, ask, config, frame, frames, headers, open, outcome, request, run,
    unidirectional,
};

const EXCESSIVE_LOAD: u64 = 0x107;

/// A gateway in front of one server at this address.
fn site(origin: &TcpListener, limits: &str) -> Site {
    let rest = format!(
        "[origin.app]\nservers = [\"http://{}\"]\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n[limits]\n{limits}\n",
        origin.local_addr().unwrap()
    );
    Site::start(folder(), &rest)
}

/// Reads what comes until it ends so.
fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut read = Vec::new();
    while !read.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        read.extend(byte);
    }
    read
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A server that answers once on its first connection, and closes it when the next request comes there.
fn closes_idle_ones(listener: TcpListener) -> std::thread::JoinHandle<Vec<Vec<u8>>> {
    std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        let mut asked = vec![read_until(&mut first, b"\r\n\r\n")];
        first.write_all(OK).unwrap();
        asked.push(read_until(&mut first, b"\r\n\r\n"));
        drop(first);
        let (mut second, _) = listener.accept().unwrap();
        asked.push(read_until(&mut second, b"\r\n\r\n"));
        second.write_all(OK).unwrap();
        asked
    })
}

#[test]
fn a_request_without_a_body_goes_again_over_another_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site(&listener, "");
    let server = closes_idle_ones(listener);
    run(async {
        let (connection, _control) = open(&site).await;
        for _ in 0..2 {
            let answer = ask(&connection, &request("GET", "/", &[])).await;
            assert_eq!((answer.statuses(), answer.body()), (vec![200], b"ok".to_vec()));
        }
    });
    assert_eq!(server.join().unwrap().len(), 3);
}

#[test]
fn a_request_without_a_body_has_no_transfer_coding() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site(&listener, "");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = String::new();
        for _ in 0..3 {
            let head = read_until(&mut stream, b"\r\n\r\n");
            asked.push_str(&String::from_utf8(head).unwrap().to_lowercase());
            stream.write_all(OK).unwrap();
        }
        asked
    });
    run(async {
        let (connection, _control) = open(&site).await;
        for method in ["DELETE", "OPTIONS", "GET"] {
            let answer = ask(&connection, &request(method, "/", &[])).await;
            assert_eq!(answer.statuses(), [200]);
        }
    });
    let asked = server.join().unwrap();
    assert!(asked.contains("delete / http/1.1\r\n"), "{asked}");
    assert!(!asked.contains("transfer-encoding"), "{asked}");
}

/// A request goes on before its body comes, and empty DATA frames are no end of it.
#[test]
fn a_body_that_comes_later_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site(&listener, "");
    let (seen, head) = mpsc::channel();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_until(&mut stream, b"\r\n\r\n");
        seen.send(()).unwrap();
        let body = read_until(&mut stream, b"\r\n0\r\n\r\n");
        stream.write_all(OK).unwrap();
        body
    });
    run(async {
        let (connection, _control) = open(&site).await;
        let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
        send.write_all(&request("POST", "/", &[])).await.unwrap();
        let waiting = tokio::task::spawn_blocking(move || head.recv_timeout(PATIENCE));
        waiting.await.unwrap().expect("the origin is asked before the body comes");
        for piece in [frame(0, b""), frame(0, b"abc"), frame(0, b""), frame(0, b"def")] {
            send.write_all(&piece).await.unwrap();
        }
        send.write_all(&headers(&[("a", "b")])).await.unwrap();
        send.finish().unwrap();
        assert_eq!(outcome(&mut recv).await.statuses(), [200]);
    });
    let body = String::from_utf8(server.join().unwrap()).unwrap();
    let data: String =
        body.split("\r\n").filter(|line| line.chars().all(char::is_alphabetic)).collect();
    assert_eq!(data, "abcdef", "{body:?}");
}

/// RFC 9110, Section 10.1.1.
#[test]
fn a_client_that_expects_100_is_told_to_go_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site(&listener, "");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = read_until(&mut stream, b"\r\n\r\n");
        read_until(&mut stream, b"abc");
        stream.write_all(OK).unwrap();
        String::from_utf8(head).unwrap().to_lowercase()
    });
    run(async {
        let (connection, _control) = open(&site).await;
        let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
        let fields = [("expect", "100-continue"), ("content-length", "3")];
        send.write_all(&request("POST", "/", &fields)).await.unwrap();
        let mut answer = Vec::new();
        while frames(&answer).is_empty() {
            let mut buffer = [0; 1000];
            let len = recv.read_some(&mut buffer).await.unwrap();
            assert!(len > 0, "{answer:?}");
            answer.extend_from_slice(&buffer[..len]);
        }
        assert_eq!(Outcome::Answer(answer.clone()).statuses(), [100]);
        send.write_all(&frame(0, b"abc")).await.unwrap();
        send.finish().unwrap();
        let Outcome::Answer(rest) = outcome(&mut recv).await else { panic!("no answer") };
        assert_eq!(Outcome::Answer([answer, rest].concat()).statuses(), [100, 200]);
    });
    assert!(!server.join().unwrap().contains("expect"));
}

/// RFC 8297.
#[test]
fn early_hints_of_a_server_are_passed_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site(&listener, "");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_until(&mut stream, b"\r\n\r\n");
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n";
        stream.write_all(&[hints.as_bytes(), OK].concat()).unwrap();
    });
    run(async {
        let (connection, _control) = open(&site).await;
        let answer = ask(&connection, &request("GET", "/", &[])).await;
        assert_eq!((answer.statuses(), answer.body()), (vec![103, 200], b"ok".to_vec()));
    });
    server.join().unwrap();
}

/// A server whose answer is large.
fn large(listener: TcpListener, length: usize) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_until(&mut stream, b"\r\n\r\n");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(&vec![7; length]);
    })
}

/// A client with small windows, which therefore takes no more than it reads.
async fn narrow(site: &Site) -> Connection {
    let transport = TransportConfig {
        initial_stream_window: 16 << 10,
        max_stream_window: 16 << 10,
        ..TransportConfig::default()
    };
    Connection::connect(site.address, "localhost", &config(site).transport(transport))
        .await
        .unwrap()
}

#[test]
fn who_takes_nothing_of_an_answer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site(&listener, "body_timeout_ms = 1000");
    // Above what the sockets of the gateway keep for a stream.
    let server = large(listener, 16 << 20);
    run(async {
        let connection = narrow(&site).await;
        let _control = unidirectional(&connection, CONTROL).await;
        let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
        send.write_all(&request("GET", "/", &[])).await.unwrap();
        send.finish().unwrap();
        // The origin's connection is given back, though the client reads nothing yet.
        tokio::task::spawn_blocking(move || server.join()).await.unwrap().unwrap();
        assert_eq!(outcome(&mut recv).await, Outcome::Reset(EXCESSIVE_LOAD));
    });
    let records = site.records(1);
    assert_eq!(records[0]["status"], 200);
}

/// A client that takes a little all the time gets everything, however long that takes.
#[test]
fn who_takes_an_answer_slowly_gets_all_of_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site(&listener, "body_timeout_ms = 1000");
    let length = 9 << 20;
    let server = large(listener, length);
    run(async {
        let connection = narrow(&site).await;
        let _control = unidirectional(&connection, CONTROL).await;
        let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
        send.write_all(&request("GET", "/", &[])).await.unwrap();
        send.finish().unwrap();
        let (mut taken, mut buffer) = (0, vec![0; 64 << 10]);
        loop {
            let len = recv.read_some(&mut buffer).await.unwrap();
            if len == 0 {
                break;
            }
            let before = taken >> 20;
            taken += len;
            if taken >> 20 > before {
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
        }
        assert!(taken >= length, "{taken}");
    });
    server.join().unwrap();
}
