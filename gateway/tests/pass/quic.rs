//! Over QUIC.

use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use quicket::KeyExchange::{X25519, X25519MlKem768};
use quicket::tokio::{Connection, Endpoint};

use super::behind::{PATIENCE, Site, content, folder, python};
use super::client;
use super::origin::{IDS, Origin, ask, get, trusts};

/// The gateway's own site.
const OWN: &str = "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = { status = 204 }\n";

/// The table by which a site's counters can be read.
fn metrics(dir: &Path) -> String {
    format!("[metrics]\nlisten = \"unix:{}\"\n", dir.join("metrics.sock").display())
}

/// The value of a counter, if it is there.
fn counter(site: &Site, name: &str) -> Option<u64> {
    let output = site.curl(&["--unix-socket", "metrics.sock", "http://any/metrics"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line =
        text.lines().find_map(|line| line.split_once(' ').filter(|(it, _)| it.ends_with(name)));
    line.map(|(_, value)| value.parse().unwrap())
}

/// A table for an origin.
fn pass(name: &str, origin: &Origin, more: &str) -> String {
    format!("[[pass]]\nnames = [\"{name}\"]\nquic = \"udp://{}\"\n{more}\n", origin.address)
}

#[test]
fn a_client_of_one_socket_has_two_origins_and_the_gateway_at_once() {
    (1..=3).for_each(several_origins);
}

fn several_origins(workers: usize) {
    client::run(async {
        let dir = folder();
        let one = Origin::start(dir.path(), "one.example", None).await;
        let two = Origin::start(dir.path(), "two.example", None).await;
        let tables = pass("one.example", &one, "") + &pass("*.example", &two, "") + OWN;
        let site = Site::start_workers(dir, &tables, workers);
        let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
        let mut connections = Vec::new();
        for (name, exchange) in [
            ("one.example", X25519),
            ("two.example", X25519MlKem768),
            ("one.example", X25519MlKem768),
            ("two.example", X25519),
        ] {
            let config = trusts(site.dir.path(), name, exchange);
            let connection = endpoint.connect(site.address, name, &config).await.unwrap();
            connections.push(connection);
        }
        let own =
            endpoint.connect(site.address, "localhost", &client::config(&site)).await.unwrap();
        for _ in 0..3 {
            let all = connections.iter().map(|connection| get(connection, 300_000));
            futures(all).await;
            let answer = client::ask(&own, &client::request("GET", "/", &[])).await;
            assert_eq!(answer.statuses(), [204]);
        }
        for origin in [&one, &two] {
            assert_eq!(origin.clients().len(), 2);
            assert!(!origin.clients().contains(&endpoint.local_addr()), "it comes by the gateway");
        }
    });
}

/// Runs all of them at the same time.
async fn futures(all: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        all.retain_mut(|one| one.as_mut().poll(context).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[test]
fn a_client_that_moves_keeps_its_download() {
    (1..=3).for_each(moves);
}

fn moves(workers: usize) {
    const SIZE: usize = 6_000_000;
    client::run(async {
        let dir = folder();
        std::fs::write(dir.path().join("ids"), IDS).unwrap();
        let origin = Origin::start(dir.path(), "one.example", Some("00000a01")).await;
        let other = Origin::start(dir.path(), "two.example", Some("00000a02")).await;
        let ids = |id: &str| format!("connection_ids = \"ids\"\nserver_id = \"{id}\"");
        let tables = pass("one.example", &origin, &ids("00000a01"))
            + &pass("two.example", &other, &ids("00000a02"))
            + OWN;
        let site = Site::start_workers(dir, &tables, workers);
        let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
        let config = trusts(site.dir.path(), "one.example", X25519);
        let connection = endpoint.connect(site.address, "one.example", &config).await.unwrap();
        let (_send, mut stream) = ask(&connection, SIZE).await.split();
        let (mut got, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        let mut places = Vec::new();
        let mut moves = [SIZE / 4, SIZE / 2, SIZE / 4 * 3].into_iter().peekable();
        loop {
            let len = stream.read_some(&mut buffer).await.unwrap();
            if len == 0 {
                break;
            }
            got.extend_from_slice(&buffer[..len]);
            if moves.next_if(|at| got.len() >= *at).is_some() {
                let before = origin.clients();
                endpoint.rebind("127.0.0.1:0".parse().unwrap()).unwrap();
                let begun = std::time::Instant::now();
                while origin.clients() == before {
                    assert!(begun.elapsed() < PATIENCE, "the origin has not seen the move");
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                places.extend(before);
            }
        }
        assert!(got == content(SIZE), "{} of {SIZE}", got.len());
        get(&connection, 1000).await;
        places.extend(origin.clients());
        places.dedup();
        assert_eq!(places.len(), 4, "the origin has seen each move: {places:?}");
        assert!(other.clients().is_empty());
    });
}

#[test]
fn a_reload_passes_names_on_and_takes_them_back() {
    client::run(async {
        let dir = folder();
        let origin = Origin::start(dir.path(), "one.example", None).await;
        let site = Site::start(dir, OWN);
        let config = trusts(site.dir.path(), "one.example", X25519);
        let connect = || Connection::connect(site.address, "one.example", &config);
        connect().await.expect_err("the gateway has another certificate, and no such protocol");
        let limits = "[limits]\nclient_connections = 1\n";
        site.reload(&(pass("one.example", &origin, "idle_timeout_ms = 400") + OWN + limits));
        let connection = connect().await.unwrap();
        get(&connection, 10_000).await;
        site.reload(OWN);
        connect().await.expect_err("it is the gateway's again");
        // What is under way goes on.
        get(&connection, 10_000).await;
        connection.close(0, b"");
        let record = site.records(1).into_iter().find(|line| line["passed_to"].is_string());
        let record = record.expect("a line for it");
        assert_eq!(record["passed_to"], format!("udp://{}", origin.address), "{record}");
        assert_eq!(record["host"], "one.example", "{record}");
        assert!(record["sent"].as_u64().unwrap() > 20_000, "{record}");
        assert!(record["received"].as_u64().unwrap() > 2400, "{record}");
    });
}

#[test]
fn what_is_passed_on_is_counted_by_its_table() {
    client::run(async {
        let dir = folder();
        let one = Origin::start(dir.path(), "one.example", None).await;
        let two = Origin::start(dir.path(), "two.example", None).await;
        let idle = "idle_timeout_ms = 400";
        let tables = pass("one.example", &one, idle) + &pass("two.example", &two, idle);
        let slow = "[limits]\nclient_bytes_per_s = 100000\n";
        let metrics = metrics(dir.path());
        let site = Site::start(dir, &(tables.clone() + OWN + &metrics));
        let of = |name: &str, rest: &str, table: &str| {
            counter(&site, &format!("passed_{name}{{pass=\"{table}\",over=\"quic\"{rest}}}"))
        };
        let connect = async |name: &str| {
            let config = trusts(site.dir.path(), name, X25519);
            Connection::connect(site.address, name, &config).await.unwrap()
        };
        let connections = [connect("one.example").await, connect("one.example").await];
        for connection in &connections {
            get(connection, 100_000).await;
        }
        let other = connect("two.example").await;
        let counts = |table| (of("total", "", table), of("open", "", table));
        assert_eq!(counts("one.example"), (Some(2), Some(2)));
        assert_eq!(counts("two.example"), (Some(1), Some(1)));
        let bytes = |direction: &str, table| {
            of("bytes_total", &format!(",direction=\"{direction}\""), table).unwrap()
        };
        let sent = bytes("sent", "one.example");
        // What is lost on the way to a client is sent again.
        assert!(sent > 200_000, "{sent}");
        let received = bytes("received", "one.example");
        assert!((2 * 1200..sent).contains(&received), "{received}");
        assert!(bytes("sent", "two.example") < 50_000, "it has others' bytes");
        // What was counted is what the log says.
        connections.iter().chain([&other]).for_each(|connection| connection.close(0, b""));
        let record = |host: &'static str| {
            let lines = site.records(3).into_iter().filter(move |line| line["host"] == host);
            lines.map(|line| line["sent"].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(record("one.example"), bytes("sent", "one.example"));
        assert_eq!(record("two.example"), bytes("sent", "two.example"));
        assert_eq!(counts("one.example"), (Some(2), Some(0)));
        assert_eq!(counts("two.example"), (Some(1), Some(0)));

        // An address that may send so much and no more.
        site.reload(&(tables + OWN + &metrics + slow));
        let connection = connect("one.example").await;
        let lost = "passed_datagrams_lost_total{pass=\"one.example\",reason=\"too_fast\"}";
        // Its handshake may have been too fast already.
        let before = counter(&site, lost).unwrap();
        let stream = connection.open_bi().await.unwrap();
        let (mut send, _recv) = stream.split();
        let begun = std::time::Instant::now();
        let sending = async {
            while tokio::io::AsyncWriteExt::write_all(&mut send, &[0; 10_000]).await.is_ok() {}
        };
        let counted = async {
            while counter(&site, lost) == Some(before) {
                assert!(begun.elapsed() < PATIENCE, "nothing is lost");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = sending => panic!("the connection has ended"),
            () = counted => {}
        }
    });
}

#[test]
fn an_address_has_as_many_as_it_may_have() {
    client::run(async {
        let dir = folder();
        let origin = Origin::start(dir.path(), "one.example", None).await;
        let tables = pass("one.example", &origin, "") + OWN;
        let site = Site::start(dir, &(tables + "[limits]\nclient_connections = 1\n"));
        let config = trusts(site.dir.path(), "one.example", X25519);
        let connect = || Connection::connect(site.address, "one.example", &config);
        let first = connect().await.unwrap();
        let second = tokio::time::timeout(Duration::from_millis(700), connect()).await;
        assert!(!matches!(second, Ok(Ok(_))), "one was allowed");
        get(&first, 1000).await;
    });
}

/// Its address may be made up: it takes nothing of what an address may have, and is sent little.
#[test]
fn who_has_not_shown_that_it_is_there_harms_nobody() {
    client::run(async {
        let dir = folder();
        let origin = Origin::start(dir.path(), "one.example", None).await;
        std::fs::copy(dir.path().join("one.example.pem"), dir.path().join("two.example.pem"))
            .unwrap();
        let other = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let two = format!(
            "[[pass]]\nnames = [\"two.example\"]\nquic = \"udp://{}\"\nidle_timeout_ms = 400\n",
            other.local_addr().unwrap()
        );
        let tables = pass("one.example", &origin, "") + &two + OWN + &metrics(dir.path());
        let site = Site::start(dir, &(tables + "[limits]\nclient_connections = 1\n"));
        let config = trusts(site.dir.path(), "two.example", X25519);
        let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
        let answer = async {
            let mut first = [0; 2000];
            let (_, from) = other.recv_from(&mut first).await.unwrap();
            for _ in 0..20 {
                other.send_to(&[0x40; 1200], from).await.unwrap();
            }
        };
        tokio::select! {
            _ = endpoint.connect(site.address, "two.example", &config) => panic!("it has no server"),
            () = answer => {}
        }
        let config = trusts(site.dir.path(), "one.example", X25519);
        let connection = Connection::connect(site.address, "one.example", &config).await.unwrap();
        get(&connection, 100_000).await;
        let record = site.records(1).into_iter().find(|line| line["host"] == "two.example");
        let record = record.expect("a line for it");
        let number = |what: &str| record[what].as_u64().unwrap();
        assert!(number("received") >= 1200 && number("sent") >= 1200, "{record}");
        assert!(number("sent") <= 3 * number("received"), "{record}");
        assert!(number("datagrams_lost") > 0, "{record}");
        let lost = "passed_datagrams_lost_total{pass=\"two.example\",reason=\"unvalidated\"}";
        assert_eq!(counter(&site, lost), Some(number("datagrams_lost")), "{record}");
    });
}

/// What belongs to nobody gets from the gateway what it gets without any `[[pass]]`.
#[test]
fn strangers_are_answered_by_the_gateway() {
    client::run(async {
        let dir = folder();
        let origin = Origin::start(dir.path(), "one.example", None).await;
        let site = Site::start(dir, &(pass("*.example", &origin, "") + OWN));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = [0; 2000];
        // RFC 8999, Section 6: the versions that it has.
        let mut unknown = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        unknown.resize(1200, 0);
        socket.send_to(&unknown, site.address).unwrap();
        let len = socket.recv(&mut answer).unwrap();
        assert_eq!(answer[..5], [answer[0], 0, 0, 0, 0], "Version Negotiation");
        assert!(answer[0] & 0x80 != 0 && len > 14);
        // RFC 9000, Section 10.3: nobody knows this connection.
        let mut lost = vec![0x40];
        lost.resize(100, 7);
        socket.send_to(&lost, site.address).unwrap();
        let len = socket.recv(&mut answer).unwrap();
        assert!(answer[0] & 0x80 == 0 && (21..100).contains(&len), "a stateless reset");
        // Packets that are none.
        let mut initial = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x9e];
        initial.resize(1200, 9);
        for datagram in [&initial[..], &[0x80], &[0xc0, 0, 0, 0, 1, 200], &[0x40], &[0xff; 1200]] {
            socket.send_to(datagram, site.address).unwrap();
        }
        let config = trusts(site.dir.path(), "one.example", X25519);
        // The name that the certificate has is one of those that are passed on.
        let connection = Connection::connect(site.address, "one.example", &config).await.unwrap();
        get(&connection, 1000).await;
        assert!(origin.clients().len() == 1);
    });
}

#[test]
fn a_client_of_others_is_passed_on() {
    client::run(async {
        let dir = folder();
        let origin = Origin::start(dir.path(), "one.example", None).await;
        let site = Site::start(dir, &(pass("one.example", &origin, "") + OWN));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pass/client.py");
        let (port, certificate) = (site.address.port().to_string(), site.path("one.example.pem"));
        let output = tokio::task::spawn_blocking(move || {
            python().arg(script).arg(port).arg(certificate).output().unwrap()
        });
        let output = output.await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "200000", "{output:?}");
        assert!(output.status.success());
    });
}
