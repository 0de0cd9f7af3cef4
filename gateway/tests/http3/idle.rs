//! Connections on which nothing is asked end, whatever else their clients say.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use quicket::tokio::Connection;
use quicket::{ClientConfig, TransportConfig};

use super::behind::{Site, folder, python};
use super::client::{CONTROL, ask, closed, config, request, run, unidirectional};
use super::stop::goaway;

const NO_ERROR: u64 = 0x100;
const IDLE: Duration = Duration::from_millis(1000);
/// How long a client may take nothing.
const PATIENCE: Duration = Duration::from_millis(2000);
/// The length of a body that comes at once.
const WHOLE: usize = 3000;

/// A gateway that answers `/ok` itself, and has `/slow` answered in chunks over twice the time that is idle, and `/whole`
/// at once.
fn site() -> Site {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let rest = format!(
        "[origin.app]\nservers = [\"http://{}\"]\n[[site]]\nnames = [\"*\"]\n\
         [[site.route]]\npath = \"/slow\"\norigin = \"app\"\n\
         [[site.route]]\npath = \"/whole\"\norigin = \"app\"\n\
         [[site.route]]\npath = \"/ok\"\nrespond = {{ status = 204 }}\n\
         [limits]\nidle_timeout_ms = {}\nbody_timeout_ms = {}\n",
        listener.local_addr().unwrap(),
        IDLE.as_millis(),
        PATIENCE.as_millis()
    );
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || -> std::io::Result<()> {
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    let mut octet = [0];
                    stream.read_exact(&mut octet)?;
                    asked.extend(octet);
                }
                if asked.starts_with(b"GET /whole") {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {WHOLE}\r\n\r\n");
                    return stream.write_all(&[head.as_bytes(), &[b'a'; WHOLE]].concat());
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                for _ in 0..4 {
                    std::thread::sleep(IDLE / 2);
                    stream.write_all(b"1\r\na\r\n")?;
                }
                stream.write_all(b"0\r\n\r\n")
            });
        }
    });
    Site::start(folder(), &rest)
}

/// RFC 9113, Section 6.8: it hears of the end before.
#[test]
fn a_client_of_http2_that_only_answers_ping_is_told_to_go() {
    let site = site();
    for (path, answer) in [("/ok", "204 0"), ("/slow", "200 4")] {
        let mut command = python();
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/h2_idle.py"));
        command
            .arg(site.address.port().to_string())
            .arg(site.path("cert.pem"))
            .args([path, "65535"]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        // One that says that there will be an end, and one that says which request was the last (Section 6.8).
        let rest = said.trim().strip_prefix(&format!("{answer} 2 0 True ")).unwrap_or_else(|| {
            panic!("{path}: {said} {}", String::from_utf8_lossy(&output.stderr))
        });
        let took = Duration::from_millis(rest.parse().unwrap());
        assert!(took >= IDLE - Duration::from_millis(50) && took < IDLE * 8, "{path}: {took:?}");
    }
}

/// The HTTP library has all of the answer, and no request is under way: what the client takes has no end of its own.
#[test]
fn a_client_of_http2_with_a_window_of_a_byte_is_left_in_the_end() {
    let site = site();
    let mut command = python();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/h2_idle.py"));
    command.arg(site.address.port().to_string()).arg(site.path("cert.pem")).args(["/whole", "1"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let rest = said.trim().strip_prefix("200 1 ").unwrap_or_else(|| {
        panic!("{said} {}", String::from_utf8_lossy(&output.stderr));
    });
    let took: u64 = rest.rsplit(' ').next().unwrap().parse().unwrap();
    let took = Duration::from_millis(took);
    assert!(took >= PATIENCE && took < PATIENCE * 6, "{said}");
}

/// As above: it says that it is there, and gives no credit for the answer.
#[test]
fn a_client_of_http3_that_takes_nothing_of_its_answer_is_left_in_the_end() {
    let site = site();
    let transport = TransportConfig {
        keep_alive: Duration::from_millis(100),
        initial_stream_window: 1024,
        max_stream_window: 1024,
        ..TransportConfig::default()
    };
    let config: ClientConfig = config(&site).transport(transport);
    run(async {
        let connection = Connection::connect(site.address, "localhost", &config).await.unwrap();
        let _control = unidirectional(&connection, CONTROL).await;
        let (mut send, _unread) = connection.open_bi().await.unwrap().split();
        send.write_all(&request("GET", "/whole", &[])).await.unwrap();
        send.finish().unwrap();
        let begun = Instant::now();
        assert_eq!(goaway(&connection).await, 4);
        assert_eq!(closed(&connection).await, NO_ERROR);
        let took = begun.elapsed();
        let least = IDLE + PATIENCE - Duration::from_millis(100);
        assert!(took >= least && took < IDLE + PATIENCE * 3, "{took:?}");
    });
}

/// RFC 9114, Section 5.1.
#[test]
fn a_client_of_http3_that_only_keeps_its_connection_alive_is_told_to_go() {
    let site = site();
    let transport =
        TransportConfig { keep_alive: Duration::from_millis(100), ..TransportConfig::default() };
    let config: ClientConfig = config(&site).transport(transport);
    run(async {
        for path in ["/ok", "/slow"] {
            let connection = Connection::connect(site.address, "localhost", &config).await.unwrap();
            let _control = unidirectional(&connection, CONTROL).await;
            let answer = ask(&connection, &request("GET", path, &[])).await;
            assert!([200, 204].contains(&answer.statuses()[0]), "{path}: {answer:?}");
            let begun = Instant::now();
            // Section 5.2: the first request that is not answered.
            assert_eq!(goaway(&connection).await, 4, "{path}");
            assert_eq!(closed(&connection).await, NO_ERROR);
            let took = begun.elapsed();
            let least = IDLE - Duration::from_millis(50);
            assert!(took >= least && took < IDLE * 8, "{path}: {took:?}");
        }
    });
}
