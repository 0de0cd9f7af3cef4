//! The other side is gone: nobody listens, or it was killed and came back.

mod common;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{ALPN, configs_with};
use quicket::{
    ClientConfig, ClientTls, ConnectError, Connection, ConnectionError, Endpoint, EndpointConfig,
    Fingerprint, Identity, Listener, ReadError, ServerConfig, ServerTls, TransportConfig,
};

/// Nothing but what is waited for ends a test in time.
fn patient() -> TransportConfig {
    let patience = Duration::from_secs(120);
    TransportConfig {
        handshake_timeout: patience,
        max_idle_timeout: patience,
        ..TransportConfig::default()
    }
}

fn client() -> ClientConfig {
    configs_with(patient()).1
}

/// Addresses where nobody listens.
fn closed_ports() -> Vec<SocketAddr> {
    let ask = |address: SocketAddr| UdpSocket::bind(address)?.local_addr();
    let v4 = ask((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    [v4].into_iter().chain(ask((Ipv6Addr::LOCALHOST, 0).into())).collect()
}

fn assert_refused(error: ConnectError) {
    assert!(matches!(error, ConnectError::Lost(ConnectionError::PortUnreachable)), "{error:?}");
    assert!(error.to_string().contains("connection refused"), "{error}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionRefused);
}

/// RFC 9000, Section 14.2.1
#[test]
fn a_closed_port_refuses_a_blocking_caller() {
    for address in closed_ports() {
        assert_refused(Connection::connect(address, "localhost", &client()).unwrap_err());
    }
}

#[test]
fn a_closed_port_refuses_one_of_many_on_an_endpoint_and_the_others_go_on() {
    let (server, client) = configs_with(patient());
    let listener = Listener::bind("127.0.0.1:0", server).unwrap();
    let endpoint = Endpoint::bind("127.0.0.1:0").unwrap();
    let alive = endpoint.connect(listener.local_addr(), "localhost", &client).unwrap();
    for _ in 0..10 {
        let closed = closed_ports()[0];
        assert_refused(endpoint.connect(closed, "localhost", &client).unwrap_err());
        let another = endpoint.connect(listener.local_addr(), "localhost", &client).unwrap();
        another.open_bi().unwrap();
    }
    alive.open_bi().unwrap();
}

/// What goes out by a socket that came during the attempt is heard of as well.
#[test]
fn a_port_that_closes_after_the_endpoint_has_moved_refuses_its_attempt() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let endpoint = Endpoint::bind("0.0.0.0:0").unwrap();
    let client = client();
    std::thread::scope(|scope| {
        let attempt = scope.spawn(|| endpoint.connect(address, "localhost", &client));
        let from = || silent.recv_from(&mut [0; 2000]).unwrap().1;
        let first = from();
        endpoint.rebind("0.0.0.0:0".parse().unwrap()).unwrap();
        // Probes (RFC 9002, Section 6.2.4) leave by the new socket.
        while from() == first {}
        drop(silent);
        assert_refused(attempt.join().unwrap().unwrap_err());
    });
}

#[tokio::test]
async fn a_closed_port_refuses_a_task() {
    for address in closed_ports() {
        let client = client();
        let connecting = quicket::tokio::Connection::connect(address, "localhost", &client);
        assert_refused(connecting.await.unwrap_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_ports_refuse_tasks_on_one_endpoint_again_and_again() {
    let endpoint = quicket::tokio::Endpoint::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..10 {
        let client = client();
        let closed = closed_ports()[0];
        let (one, other) = tokio::join!(
            endpoint.connect(closed, "localhost", &client),
            endpoint.connect(closed, "localhost", &client),
        );
        assert_refused(one.unwrap_err());
        assert_refused(other.unwrap_err());
    }
}

/// The server of the test below is this program again, with these variables set.
const PORT: &str = "QUICKET_TEST_PORT";
const IDENTITY: &str = "QUICKET_TEST_IDENTITY";

/// Sends for ever to whoever asks.
fn serve() {
    let file = std::env::var_os(IDENTITY).unwrap();
    let identity = Identity::from_pem_files(&file, &file).unwrap();
    let port: u16 = std::env::var(PORT).unwrap().parse().unwrap();
    let mut config = EndpointConfig::default();
    config.protocol.reset_key = [7; 32];
    let endpoint = Endpoint::bind_with((Ipv4Addr::LOCALHOST, port), config).unwrap();
    let tls = ServerTls::builder(identity).alpn(ALPN).build().unwrap();
    let listener = endpoint.listen(ServerConfig::new(tls).transport(patient())).unwrap();
    println!("listening on {}", listener.local_addr());
    while let Ok(connection) = listener.accept() {
        let Ok(mut stream) = connection.accept_bi() else { continue };
        while stream.write_all(&[0; 10_000]).is_ok() {}
    }
}

/// A server in a process of its own, and its address.
fn start(identity: &std::path::Path, port: u16) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_server_that_was_killed_and_started_again_is_noticed", "--nocapture"])
        .env(PORT, port.to_string())
        .env(IDENTITY, identity)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| Some(line.split_once("listening on ")?.1.parse().unwrap()));
    let Some(address) = address else { panic!("the server has ended: {:?}", child.wait()) };
    (child, address)
}

/// RFC 9000, Section 10.3: the server that came back answers with a stateless reset, if it is asked.
#[test]
fn a_server_that_was_killed_and_started_again_is_noticed() {
    if std::env::var_os(PORT).is_some() {
        return serve();
    }
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let pin: Fingerprint = identity.fingerprint();
    let file = std::env::temp_dir().join(format!("quicket-gone-{}.pem", std::process::id()));
    std::fs::write(&file, [identity.key_pem(), identity.chain_pem()].concat()).unwrap();
    let (mut first, address) = start(&file, 0);
    // The client never has to say that it has room, and so nothing to send.
    let transport = TransportConfig {
        initial_stream_window: 1 << 40,
        initial_receive_window: 1 << 40,
        ..patient()
    };
    let tls = ClientTls::builder().pinned([pin]).alpn(ALPN).build().unwrap();
    let client = ClientConfig::new(tls).transport(transport);
    let connection = Connection::connect(address, "localhost", &client).unwrap();
    connection.set_timeout(Some(Duration::from_secs(60)));
    let mut stream = connection.open_bi().unwrap();
    stream.write_all(b"send").unwrap();
    stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let (mut second, same) = start(&file, address.port());
    let mut buffer = vec![0; 1 << 16];
    let error = loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("the stream has no end"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    second.kill().unwrap();
    second.wait().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(same, address);
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<ReadError>());
    assert_eq!(cause, Some(&ReadError::Lost(ConnectionError::StatelessReset)), "{error}");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}
