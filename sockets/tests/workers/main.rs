//! One address served by several workers: connections live through whatever their clients do.

#[path = "../common/mod.rs"]
mod common;
mod relay;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Pattern, configs};
use quicket::steering::{
    Codec, ConfigId, Format, HashKey, Owner, OwnerBits, Place, RoutableConnectionIds, ServerId,
    aes_128,
};
use quicket::{
    ClientConfig, Connection, ConnectionError, EarlyData, Endpoint, EndpointConfig, Listener,
    MemorySessionStore, RetryPolicy, ServerConfig, SessionStore, WorkerStats, Workers,
};
use relay::{Relay, send_from_elsewhere};

const ANY: &str = "127.0.0.1:0";
const WORKERS: usize = 4;

/// Workers among which the kernel chooses by address, so that they have to hand on.
fn server(config: ServerConfig) -> Listener {
    let mut endpoint = EndpointConfig::default().workers(Workers::Count(WORKERS));
    endpoint.udp.route_by_connection_id = false;
    Endpoint::bind_with(ANY, endpoint).unwrap().listen(config).unwrap()
}

fn any() -> SocketAddr {
    ANY.parse().unwrap()
}

fn sum(stats: &[WorkerStats], of: impl Fn(&WorkerStats) -> u64) -> u64 {
    stats.iter().map(of).sum()
}

/// Sends back what comes on each stream of each connection, until `connections` have ended.
fn echo(listener: &Listener, connections: usize) {
    thread::scope(|scope| {
        for _ in 0..connections {
            let connection = listener.accept().unwrap();
            scope.spawn(move || {
                while let Ok(mut stream) = connection.accept_bi() {
                    let data = stream.read_to_end(1 << 20).unwrap();
                    stream.write_all(&data).unwrap();
                    stream.finish().unwrap();
                }
            });
        }
    });
}

/// Sends `length` bytes there and back.
fn exchange(connection: &Connection, seed: u64, length: usize) {
    let mut stream = connection.open_bi().unwrap();
    let mut data = vec![0; length];
    Pattern::new(seed).fill(&mut data);
    stream.write_all(&data).unwrap();
    stream.finish().unwrap();
    let data = stream.read_to_end(1 << 20).unwrap();
    assert_eq!(data.len(), length);
    assert!(Pattern::new(seed).matches(&data), "other data");
}

/// Has clients move again and again while they exchange data, and returns what the workers did.
fn move_clients(listener: &Listener, client: &ClientConfig) -> Vec<WorkerStats> {
    const CLIENTS: usize = 6;
    const MOVES: u64 = 8;
    let address = listener.local_addr();
    thread::scope(|scope| {
        scope.spawn(|| echo(listener, CLIENTS));
        for number in 0..CLIENTS as u64 {
            scope.spawn(move || {
                let endpoint = Endpoint::bind(ANY).unwrap();
                let connection = endpoint.connect(address, "localhost", client).unwrap();
                for turn in 0..MOVES {
                    exchange(&connection, number * MOVES + turn, 100_000);
                    endpoint.rebind(any()).unwrap();
                }
                exchange(&connection, number, 300_000);
                assert_eq!(connection.close_reason(), None);
            });
        }
    });
    let stats = listener.endpoint().worker_stats();
    assert_eq!(stats.len(), WORKERS);
    assert!(stats.iter().filter(|worker| worker.received > 0).count() > 1, "{stats:?}");
    stats
}

/// The kernel knows workers by the connection IDs that they issue, whoever runs the program: nothing
/// is left to hand on. The first packets of a client come from one address, so that those do not
/// either.
#[test]
fn the_kernel_gives_each_worker_what_is_its_own() {
    let (config, client) = configs();
    let endpoint = EndpointConfig::default().workers(Workers::Count(WORKERS));
    let listener = Endpoint::bind_with(ANY, endpoint).unwrap().listen(config).unwrap();
    let stats = move_clients(&listener, &client);
    assert_eq!(sum(&stats, |worker| worker.handed_on), 0, "{stats:?}");
    // At other addresses, too.
    let address = listener.endpoint().also_bind(any()).unwrap();
    assert_ne!(address, listener.local_addr());
    listener.endpoint().rebind(any()).unwrap();
    let stats = move_clients(&listener, &client);
    assert_eq!(sum(&stats, |worker| worker.handed_on), 0, "{stats:?}");
}

/// A client that moves has its packets handed to other workers by the kernel, and nothing is lost.
#[test]
fn clients_that_move_keep_their_connections() {
    let (config, client) = configs();
    let listener = server(config);
    let stats = move_clients(&listener, &client);
    let handed_on = sum(&stats, |worker| worker.handed_on);
    assert!(handed_on > 0, "{stats:?}");
    assert_eq!(handed_on, sum(&stats, |worker| worker.taken));
    assert_eq!(sum(&stats, |worker| worker.lost), 0);
}

/// Waits until the workers have received and seen to so many datagrams more than `before`.
fn wait_for_datagrams(endpoint: &Endpoint, before: u64, more: usize) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let is_over = |stats: &[WorkerStats]| {
        let handed_on = sum(stats, |worker| worker.handed_on);
        sum(stats, |worker| worker.received) >= before + more as u64
            && handed_on == sum(stats, |worker| worker.taken)
    };
    while !is_over(&endpoint.worker_stats()) {
        assert!(Instant::now() < deadline, "{:?}", endpoint.worker_stats());
        thread::sleep(Duration::from_millis(1));
    }
}

/// First packets that come from other ports, as after a rebinding, find the worker that has taken
/// the client: no other begins a second connection with it.
#[test]
fn first_packets_from_another_address_find_the_worker_that_has_the_client() {
    const PORTS: usize = 8;
    let (config, client) = configs();
    let listener = server(config);
    let (address, endpoint) = (listener.local_addr(), listener.endpoint().clone());
    let relay = Relay::to(address, move |first| {
        let before = sum(&endpoint.worker_stats(), |worker| worker.received);
        send_from_elsewhere(first, address, PORTS);
        wait_for_datagrams(&endpoint, before, PORTS * first.len());
    });
    let connection = Connection::connect(relay.address, "localhost", &client).unwrap();
    let accepted = listener.accept().unwrap();
    let stats = listener.endpoint().worker_stats();
    assert_eq!(sum(&stats, |worker| worker.connections as u64), 1, "{stats:?}");
    // One in 4^8 times the kernel hands all of them to the right worker.
    assert!(sum(&stats, |worker| worker.handed_on) > 0, "{stats:?}");
    assert_eq!(sum(&stats, |worker| worker.stray), 0);
    drop((connection, accepted));
}

#[test]
fn clients_that_prove_their_address_are_served_by_whichever_worker() {
    const CLIENTS: usize = 8;
    let (config, client) = configs();
    let listener = server(config.retry(RetryPolicy::Always));
    let address = listener.local_addr();
    let connect = || Connection::connect(address, "localhost", &client).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| echo(&listener, CLIENTS));
        (0..CLIENTS as u64).for_each(|number| exchange(&connect(), number, 20_000));
    });
}

/// A client with a session that it got from a server at `address`.
fn with_session(
    client: ClientConfig,
    listener: &Listener,
    address: SocketAddr,
) -> (ClientConfig, Arc<MemorySessionStore>) {
    let store = Arc::new(MemorySessionStore::new());
    let client = client.sessions(store.clone());
    let connection = Connection::connect(address, "localhost", &client).unwrap();
    let accepted = listener.accept().unwrap();
    let (deadline, server) =
        (Instant::now() + Duration::from_secs(60), format!("localhost:{}", address.port()));
    let session = loop {
        match store.take_session(&server) {
            Some(session) => break session,
            None => assert!(Instant::now() < deadline, "no session came"),
        }
        thread::sleep(Duration::from_millis(2));
    };
    store.save_session(&server, &session);
    drop((connection, accepted));
    (client, store)
}

/// Early data that somebody sends again comes to other workers, and none of them takes it.
#[test]
fn early_data_is_taken_once_by_all_workers_together() {
    const PORTS: usize = 8;
    let (config, client) = configs();
    let endpoint = EndpointConfig::default().workers(Workers::Count(WORKERS));
    let endpoint = Endpoint::bind_with(ANY, endpoint).unwrap();
    let listener = endpoint.listen_early(config).unwrap();
    let address = listener.local_addr();
    let relay = Relay::to(address, |_| {});
    let (other, client) = (client.clone(), client);
    let (client, store) = with_session(client, &listener, relay.address);
    endpoint.wait_idle();
    // The next connection goes the same way, through a relay that has heard nothing yet.
    let early = Relay::to(address, |_| {});
    let name = |relay: &Relay| format!("localhost:{}", relay.address.port());
    let session = store.take_session(&name(&relay)).unwrap();
    store.save_session(&name(&early), &session);
    let connection = Connection::connect_early(early.address, "localhost", &client).unwrap();
    assert_eq!(connection.early_data(), EarlyData::Offered);
    let mut stream = connection.open_uni().unwrap();
    stream.write_all(b"once").unwrap();
    stream.finish().unwrap();
    let accepted = listener.accept().unwrap();
    assert_eq!(accepted.accept_uni().unwrap().read_to_end(10).unwrap(), b"once");
    assert_eq!(stream.stopped().unwrap(), None);
    assert_eq!(connection.early_data(), EarlyData::Accepted);
    connection.close(0, b"");
    drop(accepted);
    endpoint.wait_idle();

    let before = sum(&endpoint.worker_stats(), |worker| worker.received);
    let first = early.first();
    send_from_elsewhere(&first, address, PORTS);
    wait_for_datagrams(&endpoint, before, PORTS * first.len());
    let stats = endpoint.worker_stats();
    assert!(sum(&stats, |worker| worker.connections as u64) > 0, "nobody knows the ticket is used");
    // Nothing of it is handed out: the next connection is that of somebody else.
    let own = Endpoint::bind(ANY).unwrap();
    let honest = own.connect(address, "localhost", &other).unwrap();
    assert_eq!(listener.accept().unwrap().remote_addr(), own.local_addr());
    drop(honest);
    endpoint.close(0, b"");
}

/// Another generation has the keys of the first but not its connections: whichever worker hears from
/// a client says so.
#[test]
fn clients_hear_from_any_worker_that_their_connection_is_lost() {
    let (config, client) = configs();
    let format = Format::new(2, 10).unwrap().with_owner(OwnerBits::ONE_OCTET).unwrap();
    let mask = HashKey::new(*b"a secret");
    let codec = Codec::new(ConfigId::new(3).unwrap(), format, Some(aes_128(&[0x5a; 16])), mask);
    let owner = Some(Owner { generation: 2, worker: 0 });
    let place = Place { server_id: ServerId::new(&[1, 2]).unwrap(), owner };
    let start = || {
        let ids = RoutableConnectionIds::new(codec.clone(), place).unwrap();
        let mut endpoint = EndpointConfig::default().connection_ids(ids);
        endpoint.protocol.reset_key = [7; 32];
        let endpoint = endpoint.workers(Workers::Count(WORKERS));
        Endpoint::bind_with(ANY, endpoint).unwrap().listen(config.clone()).unwrap()
    };
    let (old, new) = (start(), start());
    for _ in 0..6 {
        let relay = Relay::to(old.local_addr(), |_| {});
        let connection = Connection::connect(relay.address, "localhost", &client).unwrap();
        let accepted = old.accept().unwrap();
        connection.open_uni().unwrap().write_all(b"hello").unwrap();
        accepted.accept_uni().unwrap().read_exact(&mut [0; 5]).unwrap();
        relay.turn_to(new.local_addr());
        // Where an acknowledgment was still under way, it has heard by now.
        let _ = connection.open_uni().map(|mut stream| stream.write_all(b"lost"));
        let deadline = Instant::now() + Duration::from_secs(30);
        while connection.close_reason().is_none() {
            assert!(Instant::now() < deadline, "it has heard nothing");
            connection.ping();
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(connection.close_reason(), Some(ConnectionError::StatelessReset));
    }
}

/// What one greedy client has written is held by one worker, and counts for all.
#[test]
fn the_budget_of_memory_is_that_of_all_workers() {
    let (config, client) = configs();
    let listener = server(config);
    let connect = || {
        let connection = Connection::connect(listener.local_addr(), "localhost", &client).unwrap();
        (connection, listener.accept().unwrap())
    };
    let pairs: Vec<_> = (0..8).map(|_| connect()).collect();
    for (connection, _) in &pairs {
        connection.open_uni().unwrap().write_all(&[1; 10_000]).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while listener.endpoint().memory_held() < 8 * 10_000 {
        assert!(Instant::now() < deadline, "{} bytes", listener.endpoint().memory_held());
        thread::sleep(Duration::from_millis(2));
    }
}

/// Connections of several workers come out of one queue, to whoever asks.
#[test]
fn several_threads_accept_the_connections_of_all_workers() {
    const CLIENTS: usize = 24;
    let (config, client) = configs();
    let listener = server(config);
    let address = listener.local_addr();
    let accepted = AtomicUsize::new(0);
    let connections = thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut own = Vec::new();
                    while let Ok(connection) = listener.accept() {
                        own.push(connection);
                        if accepted.fetch_add(1, Ordering::SeqCst) + 1 == CLIENTS {
                            listener.close();
                        }
                    }
                    own
                })
            })
            .collect();
        let connect = || Connection::connect(address, "localhost", &client).unwrap();
        let clients: Vec<_> = (0..CLIENTS).map(|_| connect()).collect();
        let servers: Vec<_> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        (clients, servers)
    });
    assert_eq!(connections.1.len(), CLIENTS);
    let stats = listener.endpoint().worker_stats();
    assert_eq!(sum(&stats, |worker| worker.connections as u64), CLIENTS as u64);
    // One in 4^23 times all of them come to one worker.
    assert!(stats.iter().filter(|worker| worker.connections > 0).count() > 1, "{stats:?}");
    drop(connections);
    listener.endpoint().wait_idle();
    let stats = listener.endpoint().worker_stats();
    assert!(stats.iter().all(|worker| worker.connections == 0), "{stats:?}");
}

/// The answers come to the worker that has the connection, or, where the kernel chooses by address, to
/// any, and find it all the same.
#[test]
fn connections_to_servers_are_spread_over_workers() {
    spread_connections_to_servers(true);
    spread_connections_to_servers(false);
}

fn spread_connections_to_servers(by_connection_id: bool) {
    const CONNECTIONS: usize = 8;
    let (config, client) = configs();
    let listener = Listener::bind(ANY, config).unwrap();
    let mut endpoint = EndpointConfig::default().workers(Workers::Count(WORKERS));
    endpoint.udp.route_by_connection_id = by_connection_id;
    let endpoint = Endpoint::bind_with(ANY, endpoint).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| echo(&listener, CONNECTIONS));
        let connect = |_| endpoint.connect(listener.local_addr(), "localhost", &client).unwrap();
        let connections: Vec<_> = (0..CONNECTIONS).map(connect).collect();
        let spread = endpoint.worker_stats();
        assert!(spread.iter().all(|worker| worker.connections == CONNECTIONS / WORKERS));
        for turn in 0..2 {
            connections.iter().for_each(|connection| exchange(connection, turn, 50_000));
            endpoint.rebind(any()).unwrap();
        }
        let handed_on = sum(&endpoint.worker_stats(), |worker| worker.handed_on);
        assert_eq!(handed_on == 0, by_connection_id, "{handed_on}");
        endpoint.close(0, b"");
    });
}

/// The endpoint lives as long as a connection of any worker, and its address is free afterwards.
#[test]
fn whatever_is_dropped_first_the_workers_end_together() {
    let (config, client) = configs();
    for order in 0..3 {
        let listener = server(config.clone());
        let address = listener.local_addr();
        let clients: Vec<_> = (0..6)
            .map(|_| {
                let connection = Connection::connect(address, "localhost", &client).unwrap();
                (connection, listener.accept().unwrap())
            })
            .collect();
        let (clients, servers): (Vec<_>, Vec<_>) = clients.into_iter().unzip();
        let endpoint = listener.endpoint().clone();
        match order {
            0 => drop((listener, endpoint)),
            1 => {
                endpoint.close(7, b"");
                drop((listener, endpoint));
            }
            _ => {
                servers.iter().for_each(|server| server.close(7, b""));
                endpoint.wait_idle();
                drop((endpoint, listener));
            }
        }
        if order == 0 {
            for (client, server) in clients.iter().zip(&servers) {
                let mut stream = client.open_uni().unwrap();
                stream.write_all(b"still").unwrap();
                server.accept_uni().unwrap().read_exact(&mut [0; 5]).unwrap();
            }
        }
        drop(servers);
        drop(clients);
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::net::UdpSocket::bind(address).is_err() {
            assert!(Instant::now() < deadline, "{address} is still taken in order {order}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn what_cannot_be_divided_says_what_to_do() {
    let bind = |config: EndpointConfig| {
        Endpoint::bind_with(ANY, config.workers(Workers::Count(2))).unwrap_err().to_string()
    };
    let codec = |format: Format| {
        Codec::new(ConfigId::new(0).unwrap(), format, Some(aes_128(&[1; 16])), HashKey::new([2; 8]))
    };
    let server_id = ServerId::new(&[7]).unwrap();
    let format = Format::new(1, 9).unwrap();
    let ids = RoutableConnectionIds::new(codec(format), Place { server_id, owner: None }).unwrap();
    let text = bind(EndpointConfig::default().connection_ids(ids));
    assert!(text.contains("with_owner"), "{text}");
    let format = format.with_owner(OwnerBits::new(8, 0).unwrap()).unwrap();
    let owner = Some(Owner { generation: 3, worker: 0 });
    let ids = RoutableConnectionIds::new(codec(format), Place { server_id, owner }).unwrap();
    let text = bind(EndpointConfig::default().connection_ids(ids));
    assert!(text.contains("with_owner"), "{text}");
    let many = EndpointConfig::default().workers(Workers::Count(257));
    let text = Endpoint::bind_with(ANY, many).unwrap_err().to_string();
    assert!(text.contains("1 to 256"), "{text}");
    let alone = std::net::UdpSocket::bind(ANY).unwrap();
    let config = EndpointConfig::default().workers(Workers::Count(2));
    let text = Endpoint::from_socket(alone, config).unwrap_err().to_string();
    assert!(text.contains("SO_REUSEPORT"), "{text}");
}
