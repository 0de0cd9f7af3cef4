//! Congestion control as the file says, of connections that come after it was read.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use super::behind::{Site, content, folder};
use super::client::{CONTROL, config, connect, request, run, unidirectional};
use quicket::EndpointConfig;
use quicket::tokio::Endpoint;
use quicket_testing::until;

const SITE: &str = "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {}\n";

#[test]
fn the_controller_is_that_of_the_name_the_network_and_the_round_trip() {
    let dir = folder();
    let metrics =
        format!("[metrics]\nlisten = \"unix:{}\"\n", dir.path().join("counters.sock").display());
    let file = |congestion: &str| format!("{SITE}{metrics}{congestion}");
    let site = Site::start(dir, &file(""));
    let counted = |controller: &str| -> u32 {
        let output = site.curl(&["--unix-socket", "counters.sock", "http://localhost/metrics"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let name = format!("congestion_control_total{{algorithm=\"{controller}\"}} ");
        let value = text.lines().find_map(|line| line.split_once(&name)?.1.parse().ok());
        value.unwrap_or(0)
    };
    let all = || -> [u32; 3] { ["NewReno", "CUBIC", "BBRv3"].map(&counted) };
    let elsewhere = "[[congestion]]\nalgorithm = \"bbr\"\nnames = [\"other.example\"]\n\
                     [[congestion]]\nalgorithm = \"bbr\"\nnetworks = [\"192.0.2.0/24\"]\n\
                     [[congestion]]\nalgorithm = \"bbr\"\nrtt_from_ms = 60000\n";
    let mut expected = [0, 0, 0];
    let mut first = None;
    for (congestion, at) in [
        ("", 1),
        ("[[congestion]]\nalgorithm = \"bbr\"\nnames = [\"localhost\"]\nalpn = [\"h3\"]\n", 2),
        ("[[congestion]]\nalgorithm = \"newreno\"\nnetworks = [\"127.0.0.0/8\"]\n", 0),
        ("[[congestion]]\nalgorithm = \"newreno\"\nrtt_below_ms = 60000\n", 0),
        (elsewhere, 1),
    ] {
        site.reload(&file(congestion));
        let connection = run(connect(&site));
        expected[at] += 1;
        until(congestion, || all() == expected);
        // What is there stays as it is.
        first.get_or_insert(connection);
    }
    let wrong = |congestion: &str| {
        let text = format!("listen = [\"127.0.0.1:0\"]\n{}", file(congestion));
        let problems = quicket_gateway::config::parse(&text, site.dir.path()).unwrap_err();
        problems.iter().map(|problem| format!("{problem}\n")).collect::<String>()
    };
    for (congestion, what) in [
        ("algorithm = \"bbr\"\ninitial_window = 101", "congestion 1.initial_window: is not within"),
        ("algorithm = \"bbr\"\ncubic_beta = 0.7", "congestion 1.cubic_beta: has no effect"),
        ("algorithm = \"cubic\"\ncubic_beta = 0.95", "congestion 1.cubic_beta: is not within"),
        ("algorithm = \"cubic\"\ncubic_beta = nan", "congestion 1.cubic_beta: is not within"),
        ("algorithm = \"vegas\"", "unknown variant `vegas`"),
        ("algorithm = \"bbr\"\nnames = [\"a b\"]", "congestion 1.names: \"a b\" is no DNS name"),
        (
            "algorithm = \"bbr\"\nalpn = [\"h2\"]",
            "congestion 1.alpn: \"h2\" is not served over QUIC",
        ),
        ("algorithm = \"bbr\"\nrtt_from_ms = 5\nrtt_below_ms = 5", "congestion 1.rtt_below_ms: "),
        (
            "algorithm = \"bbr\"\n[[congestion]]\nalgorithm = \"cubic\"",
            "congestion 2: is never taken",
        ),
    ] {
        let told = wrong(&format!("[[congestion]]\n{congestion}\n"));
        assert!(told.contains(what), "{what} is not in {told}");
    }
}

/// Carries datagrams between one client and a server, and counts what the server sends; of the client's only so many as
/// are left get through.
struct Relay {
    address: SocketAddr,
    left: Arc<AtomicI64>,
    bytes: Arc<AtomicUsize>,
}

impl Relay {
    fn start(server: SocketAddr) -> Self {
        let near = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let far = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        far.connect(server).unwrap();
        let address = near.local_addr().unwrap();
        let (left, bytes) = (Arc::new(AtomicI64::new(i64::MAX)), Arc::new(AtomicUsize::new(0)));
        let client = Arc::new(std::sync::OnceLock::new());
        let (passing, counted, known) =
            (Arc::clone(&left), Arc::clone(&bytes), Arc::clone(&client));
        let (inward, outward) = (Arc::clone(&near), Arc::clone(&far));
        std::thread::spawn(move || {
            let mut buffer = [0; 65535];
            while let Ok((len, from)) = inward.recv_from(&mut buffer) {
                let _ = known.set(from);
                if passing.fetch_sub(1, Ordering::Relaxed) > 0 {
                    let _ = outward.send(&buffer[..len]);
                }
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 65535];
            while let Ok(len) = far.recv(&mut buffer) {
                counted.fetch_add(len, Ordering::Relaxed);
                if let Some(client) = client.get() {
                    let _ = near.send_to(&buffer[..len], client);
                }
            }
        });
        Self { address, left, bytes }
    }
}

/// What the gateway sends of an answer before anything of it is acknowledged, in datagrams of 1200 bytes.
fn first_flight(site: &Site) -> usize {
    let relay = Relay::start(site.address);
    run(async {
        // Datagrams stay as small as they begin, so that there is nothing else to count.
        let mut sockets = EndpointConfig::default();
        sockets.protocol.max_udp_payload_size = 1200;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Endpoint::bind_with(any, sockets).await.unwrap();
        let config = config(site);
        let connecting = endpoint.connect(relay.address, "localhost", &config);
        let connection = connecting.await.unwrap();
        let _control = unidirectional(&connection, CONTROL).await;
        // Until all that belongs to the handshake is said and acknowledged.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let before = relay.bytes.load(Ordering::Relaxed);
        // The request is one datagram, and nothing behind it gets through.
        relay.left.store(1, Ordering::Relaxed);
        let (mut send, _recv) = connection.open_bi().await.unwrap().split();
        send.write_all(&request("GET", "/large", &[])).await.unwrap();
        send.finish().unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        (relay.bytes.load(Ordering::Relaxed) - before) / 1200
    })
}

#[test]
fn the_first_flight_is_as_large_as_the_file_says() {
    let dir = folder();
    std::fs::create_dir(dir.path().join("root")).unwrap();
    std::fs::write(dir.path().join("root/large"), content(1_000_000)).unwrap();
    let file = |parameters: &str| {
        format!(
            "[[site]]\nnames = [\"*\"]\n[[site.route]]\nfiles = \"root\"\n\
             [[congestion]]\nalgorithm = \"newreno\"\n{parameters}"
        )
    };
    let site = Site::start(dir, &file(""));
    let usual = first_flight(&site);
    site.reload(&file("initial_window = 3\n"));
    let small = first_flight(&site);
    site.reload(&file("initial_window = 90\n"));
    let large = first_flight(&site);
    // Probes are added to it, and what was acknowledged before nothing more got through.
    assert!(small >= 2 && small < usual, "{small}, {usual}, {large}");
    assert!(usual < 60 && large >= 80, "{small}, {usual}, {large}");
}
