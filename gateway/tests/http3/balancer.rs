//! Behind a balancer that routes by connection IDs (draft-ietf-quic-load-balancers-21).

use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use quicket::tokio::Connection;
use quicket::{EndpointConfig, Workers};
use quicket_balancer::Report;
use quicket_gateway::{Bound, config};
use quicket_member::{Site as Ids, aes, verify};
use tempfile::TempDir;
use tokio::net::UdpSocket;

use super::behind::{PATIENCE, Site, folder};
use super::client::{ask, config as client, request, run};

const FIRST: &str = "config 0 server-id 4 nonce 12 key 8f95f09245765f80256934e50c66207f\n";
const SECOND: &str = "config 1 server-id 4 nonce 12 key 0c66207f8f95f09245765f80256934e5\n";
const ID: [u8; 4] = [0, 0, 0x0a, 1];

/// A folder with a file of connection IDs.
fn folder_with(ids: &str) -> TempDir {
    let dir = folder();
    fs::write(dir.path().join("ids"), ids).unwrap();
    dir
}

/// What the gateway's file says; `more` is of the table.
fn file(more: &str) -> String {
    format!(
        "[balancer]\nconnection_ids = \"ids\"\nserver_id = \"00000a01\"\n{more}\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{ status = 204 }}\n\
         [limits]\ndrain_ms = 200\n"
    )
}

/// What a balancer would see.
#[derive(Default)]
struct Seen {
    /// The connection IDs that the gateway chose, as it says them in long headers.
    said: Vec<Vec<u8>>,
    /// What begins with the connection IDs to which the client sends packets with short headers.
    used: Vec<Vec<u8>>,
    /// The longest datagram of the client.
    longest: usize,
}

impl Seen {
    fn note_client(&mut self, datagram: &[u8]) {
        self.longest = self.longest.max(datagram.len());
        if datagram[0] & 0x80 == 0 {
            self.used.push(datagram[1..].to_vec());
        }
    }
}

/// Carries the datagrams of one client, and looks at them.
async fn relay(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Seen>>) {
    let front = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let back = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    back.connect(to).await.unwrap();
    let (address, seen) = (front.local_addr().unwrap(), Arc::new(Mutex::new(Seen::default())));
    let notes = Arc::clone(&seen);
    tokio::spawn(async move {
        let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
        let mut client = None;
        loop {
            tokio::select! {
                Ok((len, from)) = front.recv_from(&mut up) => {
                    client = Some(from);
                    notes.lock().unwrap().note_client(&up[..len]);
                    let _ = back.send(&up[..len]).await;
                }
                Ok(len) = back.recv(&mut down) => {
                    // RFC 8999, Section 5.1.
                    if down[0] & 0x80 != 0 {
                        let source = 6 + usize::from(down[5]);
                        let id = &down[source + 1..][..usize::from(down[source])];
                        notes.lock().unwrap().said.push(id.to_vec());
                    }
                    let _ = front.send_to(&down[..len], client.unwrap()).await;
                }
            }
        }
    });
    (address, seen)
}

/// A connection by way of a relay, over which a request was answered.
async fn visit(site: &Site) -> (Connection, Arc<Mutex<Seen>>) {
    let (address, seen) = relay(site.address).await;
    let connection = Connection::connect(address, "localhost", &client(site)).await.unwrap();
    answers(&connection).await;
    (connection, seen)
}

async fn answers(connection: &Connection) {
    assert_eq!(ask(connection, &request("GET", "/", &[])).await.statuses(), [204]);
}

/// The numbers of the configurations in which the gateway and its client have named connections. Each must lead to
/// the gateway.
fn numbers(ids: &str, seen: &Mutex<Seen>) -> Vec<u8> {
    let reader = Ids::parse(ids).unwrap().reader(&aes).unwrap();
    let seen = seen.lock().unwrap();
    assert!(!seen.said.is_empty() && !seen.used.is_empty());
    assert!(seen.said.iter().all(|id| id.len() == reader.id_len()));
    let all = seen.said.iter().chain(&seen.used);
    let mut numbers: Vec<u8> = all
        .map(|octets| {
            let codec = reader.of(octets).expect("a configuration");
            assert_eq!(codec.server_id(octets).expect("a server ID").as_slice(), ID);
            codec.id().number()
        })
        .collect();
    numbers.dedup();
    numbers
}

#[test]
fn connection_ids_lead_to_the_gateway_and_rotate_under_live_connections() {
    let site = Site::start(folder_with(FIRST), &file(""));
    let rotated = format!("{FIRST}{SECOND}issue 1\n");
    run(async {
        let (before, seen) = visit(&site).await;
        assert_eq!(numbers(FIRST, &seen), [0]);
        fs::write(site.path("ids"), &rotated).unwrap();
        site.reload(&file(""));
        let (_after, new) = visit(&site).await;
        assert_eq!(numbers(&rotated, &new), [1]);
        answers(&before).await;
        assert_eq!(numbers(&rotated, &seen)[0], 0);
    });
}

#[test]
fn what_a_reload_cannot_take_is_refused_by_its_field_and_all_stays() {
    let site = Site::start(folder_with(FIRST), &file(""));
    let refused = |rest: &str, what: &str| {
        let told = site.try_reload(rest).unwrap_err();
        assert!(told.contains(what), "{what:?} is not in {told:?}");
    };
    refused(&file("").replace("0a01", "0a02"), "balancer.server_id");
    refused(&file("max_udp_payload = 1400"), "balancer.max_udp_payload");
    refused(file("").split_once("\n\n").unwrap().1, "[balancer] is there now, or no longer");
    let longer = SECOND.replace("nonce 12", "nonce 13");
    fs::write(site.path("ids"), longer).unwrap();
    refused(&file(""), "balancer.connection_ids: connection IDs would have 18 octets");
    run(async {
        let (_connection, seen) = visit(&site).await;
        assert_eq!(numbers(FIRST, &seen), [0]);
    });
}

#[test]
fn connection_ids_need_room_for_all_workers() {
    let dir = folder_with(FIRST);
    let bind = |rest: &str| {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\n[[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n{rest}"
        );
        let snapshot = config::parse(&text, dir.path()).unwrap();
        let sockets = EndpointConfig::default().workers(Workers::Count(2));
        run(async { Bound::bind(snapshot, sockets).await.map(drop) })
    };
    let told = bind(&file("")).unwrap_err().to_string();
    assert!(told.starts_with("balancer.connection_ids: with 2 workers"), "{told}");
    let room = FIRST.replace('\n', " owner 1 mask 0011223344556677\n");
    fs::write(dir.path().join("ids"), room).unwrap();
    bind(&file("")).unwrap();
}

#[test]
fn clients_send_no_more_at_once_than_the_file_says() {
    let longest = |more: &str, enough: usize| {
        let site = Site::start(folder_with(FIRST), &file(more));
        run(async {
            let (connection, seen) = visit(&site).await;
            let longest = || seen.lock().unwrap().longest;
            // Longer datagrams are tried beside requests (RFC 8899).
            for _ in 0..500 {
                if longest() > enough {
                    break;
                }
                answers(&connection).await;
            }
            longest()
        })
    };
    assert!(longest("", 1300) > 1300, "it is the table that says so");
    assert!(longest("max_udp_payload = 1300", 1300) <= 1300);
}

#[test]
fn balancers_hear_that_the_gateway_is_there_and_that_it_stops() {
    let key = [0x5a; 32];
    let ids = format!("{FIRST}report-key {}\n", "5a".repeat(32));
    run(async {
        let balancer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = balancer.local_addr().unwrap();
        let mut site =
            Site::start(folder_with(&ids), &file(&format!("report_to = [\"{address}\"]")));
        let next = async || {
            let mut buffer = [0; 200];
            let received = tokio::time::timeout(PATIENCE, balancer.recv(&mut buffer));
            let len = received.await.expect("a report").unwrap();
            Report::decode(&buffer[..len], |body, tag| verify(&key, body, tag)).unwrap()
        };
        let first = next().await;
        assert_eq!((first.id.as_slice(), first.draining), (&ID[..], false));
        // It stops at once, as nothing is under way: it is said even so.
        tokio::task::spawn_blocking(move || site.stop()).await.unwrap();
        while !next().await.draining {}
    });
}
