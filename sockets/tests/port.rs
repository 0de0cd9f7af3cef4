//! Endpoints whose datagrams go by ports of the switch for packets.
#![cfg(target_os = "linux")]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{Pattern, check, configs, exchange};
use quicket::{Connection, Endpoint, EndpointConfig, Listener, SwitchConfig, UdpConfig, Workers};
use quicket_packets::daemon::Daemon;
use quicket_packets::{Counters, Reason};

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// A switch for packets in this process.
struct Packets {
    path: PathBuf,
    stop: UnixStream,
    thread: JoinHandle<std::io::Result<Counters>>,
}

impl Packets {
    fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("quicket-port-{}-{number}", std::process::id());
        Self::start_at(&std::env::temp_dir().join(name))
    }

    fn start_at(path: &Path) -> Self {
        let daemon = Daemon::bind(path, false).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || daemon.run(stopped.as_fd()));
        Self { path: path.to_owned(), stop, thread }
    }

    fn end(self) -> Counters {
        drop(self.stop);
        self.thread.join().unwrap().unwrap()
    }

    /// Rings for so many octets.
    fn config(&self, buffer: usize) -> EndpointConfig {
        let udp = UdpConfig {
            port_of: Some(self.path.clone()),
            send_buffer: buffer,
            receive_buffer: buffer,
            ..UdpConfig::default()
        };
        EndpointConfig { udp, ..EndpointConfig::default() }
    }

    fn bind(&self, address: &str, buffer: usize) -> Endpoint {
        let address = SocketAddr::new(address.parse().unwrap(), 0);
        Endpoint::bind_with(address, self.config(buffer)).unwrap()
    }
}

/// Both ends of a connection between two endpoints.
fn connected(client: &Endpoint, server: &Endpoint) -> (Connection, Connection, Listener) {
    let (config, trust) = configs();
    let listener = server.listen(config).unwrap();
    let connection = client.connect(server.local_addr(), "localhost", &trust).unwrap();
    let accepted = listener.accept().unwrap();
    check(&connection, &accepted);
    (connection, accepted, listener)
}

/// Sends so much from one to the other.
fn transfer(from: &Connection, to: &Connection, len: usize) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = from.open_uni().unwrap();
            let (mut pattern, mut buffer) = (Pattern::new(7), vec![0; MIB / 8]);
            for _ in 0..len / buffer.len() {
                pattern.fill(&mut buffer);
                stream.write_all(&buffer).unwrap();
            }
            stream.finish().unwrap();
        });
        let mut stream = to.accept_uni().unwrap();
        let (mut pattern, mut total) = (Pattern::new(7), 0);
        let mut buffer = vec![0; 70_000];
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => break,
                n => {
                    assert!(pattern.matches(&buffer[..n]), "wrong octet after {total}");
                    total += n;
                }
            }
        }
        assert_eq!(total, len);
    });
}

#[test]
fn a_large_transfer_goes_by_ports_and_not_by_the_kernel() {
    for address in ["127.0.0.1", "::1"] {
        let packets = Packets::start();
        let (client, server) = (packets.bind(address, 4 * MIB), packets.bind(address, 4 * MIB));
        let (connection, accepted, _listener) = connected(&client, &server);
        transfer(&connection, &accepted, 32 * MIB);
        transfer(&accepted, &connection, 8 * MIB);
        for end in [&connection, &accepted] {
            let stats = end.stats();
            assert!(stats.path.ecn_capable, "the marks are lost on the way: {stats:?}");
        }
        for _ in 0..200 {
            exchange(&connection, &accepted);
        }
        drop((connection, accepted));
        let counters = packets.end();
        let frames = (40 * MIB / 1500) as u64;
        assert!(counters.received > frames / 2, "{counters:?}");
        let wrong = [Reason::Checksum, Reason::Length, Reason::Source, Reason::Descriptor];
        assert!(wrong.iter().all(|reason| counters.dropped(*reason) == 0), "{counters:?}");
    }
}

/// One side has rings of 64 frames: what comes to it in larger flights is lost, and what it sends waits for room.
#[test]
fn frames_that_have_no_room_are_sent_again() {
    let packets = Packets::start();
    let (client, server) = (packets.bind("127.0.0.1", 4 * MIB), packets.bind("127.0.0.1", 1));
    let (connection, accepted, _listener) = connected(&client, &server);
    let begun = Instant::now();
    while connection.stats().counters.packets_lost == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing is lost");
        transfer(&connection, &accepted, 16 * MIB);
        transfer(&accepted, &connection, 16 * MIB);
    }
    transfer(&connection, &accepted, 4 * MIB);
    drop((connection, accepted));
    let counters = packets.end();
    assert!(counters.dropped(Reason::Full) > 0, "nothing was lost: {counters:?}");
}

#[test]
fn an_endpoint_moves_from_one_port_to_another() {
    let packets = Packets::start();
    let (client, server) = (packets.bind("127.0.0.1", MIB), packets.bind("127.0.0.1", MIB));
    let (connection, accepted, _listener) = connected(&client, &server);
    exchange(&connection, &accepted);
    let before = client.local_addr();
    client.rebind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_ne!(client.local_addr(), before);
    let begun = Instant::now();
    while accepted.remote_addr() != client.local_addr() {
        assert!(begun.elapsed() < PATIENCE, "it is still at {}", accepted.remote_addr());
        exchange(&connection, &accepted);
    }
    transfer(&accepted, &connection, MIB);
}

#[test]
fn connections_outlive_the_switch() {
    let packets = Packets::start();
    let path = packets.path.clone();
    let (client, server) = (packets.bind("127.0.0.1", MIB), packets.bind("127.0.0.1", MIB));
    let (connection, accepted, _listener) = connected(&client, &server);
    exchange(&connection, &accepted);
    packets.end();
    let packets = Packets::start_at(&path);
    for _ in 0..3 {
        exchange(&connection, &accepted);
    }
    transfer(&connection, &accepted, MIB);
    drop((connection, accepted));
    assert!(packets.end().received > 0);
}

async fn by_tokio(packets: &Packets) {
    use quicket::tokio::Endpoint;
    use tokio::io::AsyncWriteExt;

    let (config, trust) = configs();
    let bind = || Endpoint::bind_with("127.0.0.1:0", packets.config(MIB));
    let (client, server) = (bind().await.unwrap(), bind().await.unwrap());
    let listener = server.listen(config).unwrap();
    let address = listener.local_addr();
    let serving = tokio::spawn(async move {
        let connection = listener.accept().await.unwrap();
        let mut stream = connection.accept_bi().await.unwrap();
        let request = stream.read_to_end(8 * MIB).await.unwrap();
        stream.write_all(&request).await.unwrap();
        stream.finish().unwrap();
        connection.closed().await;
    });
    let connection = client.connect(address, "localhost", &trust).await.unwrap();
    let mut data = vec![0; 4 * MIB];
    Pattern::new(3).fill(&mut data);
    let mut stream = connection.open_bi().await.unwrap();
    stream.write_all(&data).await.unwrap();
    stream.shutdown().await.unwrap();
    let back = stream.read_to_end(8 * MIB).await.unwrap();
    assert!(back == data, "{} octets came back", back.len());
    connection.close(0, b"");
    serving.await.unwrap();
}

#[tokio::test]
async fn tasks_on_one_thread_exchange_data_by_ports() {
    by_tokio(&Packets::start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_on_several_threads_exchange_data_by_ports() {
    let packets = Packets::start();
    by_tokio(&packets).await;
    assert!(packets.end().received > 1000);
}

#[test]
fn what_a_port_cannot_be_is_refused_with_a_reason() {
    let packets = Packets::start();
    let refused = |address: &str, config: EndpointConfig, why: &str| {
        let error = Endpoint::bind_with(address, config).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused("0.0.0.0:0", packets.config(1), "one address of this host");
    refused("127.0.0.1:0", packets.config(1).workers(Workers::Count(2)), "one worker");
    let shared = packets.config(1).switch(SwitchConfig::new("test"));
    refused("127.0.0.1:0", shared, "shares no address");
    let mut shared = packets.config(1);
    shared.udp.reuse_port = true;
    refused("127.0.0.1:0", shared, "nobody else has its address");
    let mut options = packets.config(1);
    options.udp.options = vec![quicket::UdpOption::Ttl(3)];
    refused("127.0.0.1:0", options, "those of the kernel's sockets");
    let path = packets.path.clone();
    packets.end();
    let udp = UdpConfig { port_of: Some(path), ..UdpConfig::default() };
    let gone = EndpointConfig { udp, ..EndpointConfig::default() };
    refused("127.0.0.1:0", gone, "quicket switch packets starts one");
}
