//! Servers of one site: what clients got from one is good at another, over rotations of their secrets.

#[path = "../common/mod.rs"]
mod common;
#[path = "../workers/relay.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod relay;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::ALPN;
use quicket::{
    ClientConfig, ClientTls, Connection, ConnectionError, Decision, EarlyData, Endpoint,
    EndpointConfig, Identity, Listener, MemorySessionStore, RetryPolicy, ServerConfig, ServerTls,
    SessionStore, SiteKeys, SiteSecrets, Workers,
};
use relay::Relay;

const ANY: &str = "127.0.0.1:0";
const WORKERS: usize = 4;
const LONG: Duration = Duration::from_secs(60);

/// Secrets of a site, as they are after so many rotations.
fn secrets(rotations: u8) -> SiteSecrets {
    let mut next = 0;
    let mut random = |out: &mut [u8]| {
        next += 1;
        out.fill(next);
    };
    let mut secrets = SiteSecrets::draw(0, &mut random);
    for _ in 0..rotations {
        secrets = secrets.rotate(0, &mut random).unwrap();
    }
    // As another host gets them.
    SiteSecrets::parse(secrets.to_file().as_bytes()).unwrap()
}

/// Hosts, and clients that take them for one server.
struct Site {
    identity: Identity,
    /// Remembers nothing.
    client: ClientConfig,
}

/// A client that has been at a host once, and what it got there: nothing that comes later from elsewhere is taken for
/// that.
struct Visitor {
    client: ClientConfig,
    store: Arc<Anywhere>,
}

impl Site {
    fn new() -> Self {
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let tls = ClientTls::builder().pinned([identity.fingerprint()]).alpn(ALPN);
        let client = ClientConfig::new(tls.build().unwrap());
        Self { identity, client }
    }

    /// What a host serves, with a TLS configuration of its own.
    fn config(&self) -> ServerConfig {
        let tls = ServerTls::builder(self.identity.clone()).alpn(ALPN).early_data(true);
        ServerConfig::new(tls.build().unwrap()).early_data(true)
    }

    fn host(&self, keys: &SiteKeys, id: u8, config: ServerConfig) -> Listener {
        let endpoint = EndpointConfig::default().workers(Workers::Count(WORKERS)).site(keys, id);
        Endpoint::bind_with(ANY, endpoint).unwrap().listen_early(config).unwrap()
    }

    /// Has a client at a host, for the first time.
    fn visit(&self, listener: &Listener) -> Visitor {
        let store = Arc::new(Anywhere::default());
        let client = self.client.clone().sessions(store.clone());
        let visitor = Visitor { client, store };
        let (connection, _accepted) = visitor.connect(listener);
        assert!(!connection.handshake().unwrap().resumed);
        visitor.store.wait();
        visitor
    }
}

impl Visitor {
    fn connect(&self, listener: &Listener) -> (Connection, Connection) {
        let address = listener.local_addr();
        let connection = Connection::connect(address, "localhost", &self.client).unwrap();
        let accepted = listener.accept().unwrap();
        accepted.wait_established().unwrap();
        (connection, accepted)
    }

    /// Whether it resumes with a host.
    fn resumes(&self, listener: &Listener) -> bool {
        self.connect(listener).0.handshake().unwrap().resumed
    }
}

/// Sessions and tokens of all servers together.
#[derive(Default)]
struct Anywhere {
    sessions: Mutex<VecDeque<Vec<u8>>>,
    tokens: MemorySessionStore,
}

const ONE: &str = "one";

impl SessionStore for Anywhere {
    fn save_session(&self, _: &str, session: &[u8]) {
        self.sessions.lock().unwrap().push_front(session.to_vec());
    }

    fn take_session(&self, _: &str) -> Option<Vec<u8>> {
        self.sessions.lock().unwrap().pop_front()
    }

    fn save_token(&self, _: &str, token: &[u8]) {
        self.tokens.save_token(ONE, token);
    }

    fn take_token(&self, _: &str) -> Option<Vec<u8>> {
        self.tokens.take_token(ONE)
    }
}

impl Anywhere {
    /// Waits until there are sessions and a token.
    fn wait(&self) {
        let deadline = Instant::now() + LONG;
        loop {
            let token = self.tokens.take_token(ONE);
            // A server gives two.
            let has_session = self.sessions.lock().unwrap().len() > 1;
            if let Some(token) = &token {
                self.tokens.save_token(ONE, token);
            }
            if has_session && token.is_some() {
                return;
            }
            assert!(Instant::now() < deadline, "no sessions and token came");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn sessions(&self) -> VecDeque<Vec<u8>> {
        self.sessions.lock().unwrap().clone()
    }
}

/// Sends back what comes on each stream.
fn echo(connection: &Connection) {
    while let Ok(mut stream) = connection.accept_bi() {
        let Ok(data) = stream.read_to_end(1 << 20) else { return };
        let _ = stream.write_all(&data).and_then(|()| stream.finish().map_err(Into::into));
    }
}

fn exchange(connection: &Connection) {
    let mut stream = connection.open_bi().unwrap();
    stream.write_all(&[7; 20_000]).unwrap();
    stream.finish().unwrap();
    assert_eq!(stream.read_to_end(1 << 20).unwrap().len(), 20_000);
}

/// RFC 8446, Section 2.2; RFC 9000, Section 8.1.3.
#[test]
fn a_client_resumes_with_another_host_and_has_proved_its_address_there() {
    let site = Site::new();
    let one = site.host(&SiteKeys::new(&secrets(3), "shop"), 1, site.config());
    let proved = Arc::new(AtomicBool::new(false));
    let note = Arc::clone(&proved);
    let config = site.config().retry(RetryPolicy::Never).admission(move |attempt| {
        note.store(attempt.validated, Ordering::SeqCst);
        Decision::Accept
    });
    // It has rotated already, as hosts do one after the other.
    let other = site.host(&SiteKeys::new(&secrets(4), "shop"), 2, config);
    // The first token that it sees may be one that it saw before it was started again, for all it knows.
    assert!(site.visit(&one).resumes(&other));
    assert!(site.visit(&one).resumes(&other));
    assert!(proved.load(Ordering::SeqCst), "by the other host's token");
    // And the other way round: what is made with the next secret is taken.
    assert!(site.visit(&other).resumes(&one));
    // Another program of the site has other tickets, and a stranger other secrets.
    let program = site.host(&SiteKeys::new(&secrets(3), "mail"), 1, site.config());
    assert!(!site.visit(&one).resumes(&program));
    let stranger = SiteSecrets::draw(0, &mut |out| out.fill(0xee));
    let stranger = site.host(&SiteKeys::new(&stranger, "shop"), 1, site.config());
    assert!(!site.visit(&one).resumes(&stranger));
}

/// RFC 9000, Section 10.3: the connection was another host's, which is gone.
#[test]
fn clients_believe_another_host_that_their_connection_is_lost() {
    let site = Site::new();
    let one = site.host(&SiteKeys::new(&secrets(1), "shop"), 1, site.config());
    for (rotations, believed) in [(1, true), (2, true), (0, true), (3, false)] {
        let keys = SiteKeys::new(&secrets(rotations), "shop");
        let other = site.host(&keys, 2, site.config());
        let relay = Relay::to(one.local_addr(), |_| {});
        let connection = Connection::connect(relay.address, "localhost", &site.client).unwrap();
        let accepted = one.accept().unwrap();
        connection.open_uni().unwrap().write_all(b"hello").unwrap();
        accepted.accept_uni().unwrap().read_exact(&mut [0; 5]).unwrap();
        relay.turn_to(other.local_addr());
        // Where an acknowledgment was still under way, it has heard by now.
        let _ = connection.open_uni().map(|mut stream| stream.write_all(b"lost"));
        let received = || {
            let stats = other.endpoint().worker_stats();
            stats.iter().map(|worker| worker.received).sum::<u64>()
        };
        let deadline = Instant::now() + LONG;
        while connection.close_reason().is_none() && (believed || received() < 20) {
            assert!(Instant::now() < deadline, "it has heard nothing after {rotations} rotations");
            connection.ping();
            thread::sleep(Duration::from_millis(2));
        }
        let reason = believed.then_some(ConnectionError::StatelessReset);
        assert_eq!(connection.close_reason(), reason, "{rotations} rotations");
    }
}

/// More rotations than there are configurations of connection IDs, under connections with traffic whose
/// clients move. The kernel goes on to know whose a datagram is.
#[test]
fn connections_live_through_any_number_of_rotations() {
    const CLIENTS: usize = 6;
    const ROTATIONS: u8 = 9;
    let site = Site::new();
    let keys = SiteKeys::new(&secrets(0), "shop");
    let listener = site.host(&keys, 0xa5, site.config());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let endpoint = Endpoint::bind(ANY).unwrap();
            let address = listener.local_addr();
            let connection = endpoint.connect(address, "localhost", &site.client).unwrap();
            let accepted = listener.accept().unwrap();
            thread::spawn(move || echo(&accepted));
            (endpoint, connection)
        })
        .collect();
    for rotations in 1..=ROTATIONS {
        keys.replace(&secrets(rotations));
        assert_eq!(listener.endpoint().site_secret(), Some(1 + u32::from(rotations)));
        for (endpoint, connection) in &clients {
            exchange(connection);
            endpoint.rebind(ANY.parse().unwrap()).unwrap();
            exchange(connection);
        }
    }
    for (_, connection) in &clients {
        exchange(connection);
        assert_eq!(connection.close_reason(), None);
    }
    let stats = listener.endpoint().worker_stats();
    let handed_on: u64 = stats.iter().map(|worker| worker.handed_on).sum();
    assert_eq!(handed_on, 0, "{stats:?}");
}

/// Without the kernel's help, workers find each other by connection IDs of all secrets in use.
#[test]
fn workers_hand_on_what_connection_ids_of_rotated_secrets_say() {
    let site = Site::new();
    let keys = SiteKeys::new(&secrets(0), "shop");
    let mut endpoint = EndpointConfig::default().workers(Workers::Count(WORKERS)).site(&keys, 1);
    endpoint.udp.route_by_connection_id = false;
    let listener = Endpoint::bind_with(ANY, endpoint).unwrap().listen(site.config()).unwrap();
    let client = Endpoint::bind(ANY).unwrap();
    let connection = client.connect(listener.local_addr(), "localhost", &site.client).unwrap();
    let accepted = listener.accept().unwrap();
    thread::spawn(move || echo(&accepted));
    for rotations in 1..=9 {
        keys.replace(&secrets(rotations));
        for _ in 0..4 {
            exchange(&connection);
            client.rebind(ANY.parse().unwrap()).unwrap();
        }
        exchange(&connection);
    }
    let stats = listener.endpoint().worker_stats();
    assert!(stats.iter().any(|worker| worker.taken > 0), "{stats:?}");
    assert!(stats.iter().all(|worker| worker.stray == 0), "{stats:?}");
}

/// RFC 9000, Section 8.1.2: the client answers a Retry of the secret before.
#[test]
fn a_retry_is_good_over_a_rotation() {
    let site = Site::new();
    let keys = SiteKeys::new(&secrets(0), "shop");
    let listener = site.host(&keys, 1, site.config().retry(RetryPolicy::Always));
    let rotated = keys.clone();
    let relay = Relay::to(listener.local_addr(), move |_| rotated.replace(&secrets(1)));
    let connection = Connection::connect(relay.address, "localhost", &site.client).unwrap();
    assert_eq!(listener.endpoint().site_secret(), Some(2), "before the client has heard anything");
    assert_eq!(connection.close_reason(), None);
}

/// RFC 8446, Section 4.2.10: the server is the same, and so early data is accepted, too.
#[test]
fn tickets_are_good_over_one_rotation_and_not_over_two() {
    let site = Site::new();
    let keys = SiteKeys::new(&secrets(0), "shop");
    let listener = site.host(&keys, 1, site.config());
    let kept = site.visit(&listener).store.sessions();
    let come_back = |session: &[u8]| {
        let store = Arc::new(Anywhere::default());
        store.save_session("", session);
        let client = site.client.clone().sessions(store);
        let address = listener.local_addr();
        let connection = Connection::connect_early(address, "localhost", &client).unwrap();
        let mut stream = connection.open_bi().unwrap();
        stream.write_all(b"early").unwrap();
        stream.finish().unwrap();
        let accepted = listener.accept().unwrap();
        connection.wait_established().unwrap();
        accepted.wait_established().unwrap();
        (connection.handshake().unwrap().resumed, connection.early_data())
    };
    keys.replace(&secrets(1));
    assert_eq!(come_back(&kept[0]), (true, EarlyData::Accepted));
    keys.replace(&secrets(2));
    assert_eq!(come_back(&kept[1]), (false, EarlyData::Rejected));
}

/// Their own keys stay those of a configuration that has some.
#[test]
fn a_configuration_with_ticket_keys_of_its_own_keeps_them() {
    let site = Site::new();
    let own = || {
        let key = quicket::TicketKey::new(&[9; 32]).unwrap();
        let tls = ServerTls::builder(site.identity.clone()).alpn(ALPN).ticket_keys([key]);
        ServerConfig::new(tls.build().unwrap())
    };
    let one = site.host(&SiteKeys::new(&secrets(0), "shop"), 1, own());
    let alone = Endpoint::bind(ANY).unwrap().listen(own()).unwrap();
    assert!(site.visit(&alone).resumes(&one));
    // A server elsewhere may have the site's ticket keys alone.
    let keys = SiteKeys::new(&secrets(0), "shop");
    let tls = ServerTls::builder(site.identity.clone()).alpn(ALPN);
    let tls = tls.common_ticket_keys(&keys.ticket_keys()).build().unwrap();
    let elsewhere = Endpoint::bind(ANY).unwrap().listen(ServerConfig::new(tls)).unwrap();
    let other = site.host(&keys, 2, site.config());
    assert!(site.visit(&other).resumes(&elsewhere));
}

#[test]
fn keys_of_a_site_are_not_printed() {
    let keys = SiteKeys::new(&secrets(1), "shop");
    let config = EndpointConfig::default().site(&keys, 1);
    let printed = format!(
        "{keys:?} {:?} {:?} {:?} {:?}",
        keys.ticket_keys(),
        config,
        config.protocol.site_keys,
        config.protocol.cid_generator
    );
    assert!(printed.contains("number: 2"), "{printed}");
    for octet in 1..=3_u8 {
        assert!(!printed.contains(&format!("{octet}, {octet}, {octet}")), "{printed}");
    }
    assert!(printed.len() < 2000, "{printed}");
}
