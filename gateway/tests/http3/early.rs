//! Requests that come as 0-RTT data (RFC 8470).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use quicket::tokio::Connection;
use quicket::{ClientConfig, ClientTls, EarlyData, MemorySessionStore};

use super::behind::{Site, folder};
use super::client::{CONTROL, Outcome, ask, frame, request, run, unidirectional};

/// Answers with the lines of the request's head that matter here, and with 425 (Too Early) to what is said to be
/// early below `/strict`.
fn origin(listener: TcpListener) {
    let answer = |stream: std::net::TcpStream| -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                let line = line.trim().to_lowercase();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
                head.push_str(&line);
                head.push('\n');
            }
            reader.read_exact(&mut vec![0; length])?;
            let is_early = head.contains("early-data: 1");
            let status =
                if is_early && head.contains(" /strict") { "425 Too Early" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{head}", head.len());
            reader.get_mut().write_all(head.as_bytes())?;
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
}

fn site() -> Site {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = folder();
    let rest = format!(
        "[origin.app]\nservers = [\"http://{}\"]\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n\
         [[site.route]]\npath = \"/never\"\norigin = \"app\"\nearly_data = \"wait\"\n\
         [metrics]\nlisten = \"unix:{}\"\n",
        listener.local_addr().unwrap(),
        dir.path().join("counters.sock").display()
    );
    origin(listener);
    Site::start(dir, &rest)
}

fn client(site: &Site) -> ClientConfig {
    let tls = ClientTls::builder().ca_file(site.path("cert.pem")).alpn(["h3"]).early_data(true);
    ClientConfig::new(tls.build().unwrap()).sessions(Arc::new(MemorySessionStore::new()))
}

/// Sends a request as 0-RTT data, after an earlier connection that left a session: its answer comes behind it.
async fn early(site: &Site, config: &ClientConfig, bytes: &[u8]) -> Outcome {
    let known = Connection::connect(site.address, "localhost", config).await.unwrap();
    let _control = unidirectional(&known, CONTROL).await;
    assert_eq!(ask(&known, &request("GET", "/", &[])).await.statuses(), [200]);
    let connection = Connection::connect_early(site.address, "localhost", config).await.unwrap();
    let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
    send.write_all(bytes).await.unwrap();
    send.finish().unwrap();
    let _control = unidirectional(&connection, CONTROL).await;
    let answer = super::client::outcome(&mut recv).await;
    assert_eq!(connection.early_data(), EarlyData::Accepted);
    answer
}

fn count(site: &Site, outcome: &str) -> u64 {
    let url = "http://localhost/metrics.json";
    let text = site.curl(&["--unix-socket", "counters.sock", url]).stdout;
    let counters: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let all = counters["quicket_gateway_early_requests_total"].as_array().unwrap();
    let found = all
        .iter()
        .find(|entry| entry["outcome"] == outcome || entry["labels"]["outcome"] == outcome);
    found.map_or(0, |entry| entry["value"].as_u64().unwrap())
}

#[test]
fn safe_requests_go_on_marked_and_others_wait_for_the_handshake() {
    let site = site();
    run(async {
        let config = client(&site);
        let get = early(&site, &config, &request("GET", "/", &[])).await;
        assert_eq!(get.statuses(), [200]);
        assert!(String::from_utf8(get.body()).unwrap().contains("early-data: 1\n"));
        let post = [request("POST", "/", &[("content-length", "3")]), frame(0, b"abc")].concat();
        for held in [post, request("DELETE", "/", &[]), request("GET", "/never", &[])] {
            let answer = early(&site, &config, &held).await;
            let said = String::from_utf8(answer.body()).unwrap();
            assert_eq!(answer.statuses(), [200], "{said}");
            assert!(!said.contains("early-data"), "{said}");
        }
    });
    assert_eq!((count(&site, "passed_on"), count(&site, "waited")), (1, 3));
}

/// RFC 8470, Section 5.2: who passed it on as early, and knows when the handshake is complete, may ask again.
#[test]
fn a_server_that_finds_it_too_early_is_asked_again_after_the_handshake() {
    let site = site();
    run(async {
        let config = client(&site);
        let answer = early(&site, &config, &request("GET", "/strict", &[])).await;
        let said = String::from_utf8(answer.body()).unwrap();
        assert_eq!(answer.statuses(), [200], "{said}");
        assert!(said.contains("get /strict") && !said.contains("early-data"), "{said}");
        // The same section: a client that says so itself has passed on somebody's request, and is told.
        let marked = request("GET", "/strict", &[("early-data", "1")]);
        assert_eq!(early(&site, &config, &marked).await.statuses(), [425]);
    });
}
