//! Sessions: resumption, 0-RTT, tokens.

mod common;

use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::{configs, pair_with};
use quicket::{
    ClientConfig, Connection, EarlyData, FileSessionStore, Listener, MemorySessionStore,
    RetryPolicy, ServerConfig, SessionStore,
};

/// Answers each stream with what it holds, and says whether it was early.
fn echo(listener: &Listener) {
    while let Ok(connection) = listener.accept() {
        thread::spawn(move || {
            while let Ok(mut stream) = connection.accept_bi() {
                let early = stream.is_early_data();
                let Ok(request) = stream.read_to_end(1 << 20) else { return };
                stream.write_all(&[u8::from(early)]).unwrap();
                stream.write_all(&request).unwrap();
            }
        });
    }
}

/// An echo server for the life of the process.
fn serve(server: ServerConfig) -> std::net::SocketAddr {
    let endpoint = quicket::Endpoint::bind("127.0.0.1:0").unwrap();
    let listener = endpoint.listen_early(server).unwrap();
    let address = listener.local_addr();
    thread::spawn(move || echo(&listener));
    address
}

/// Sends a request; returns whether the server had it as early data.
fn request(connection: &Connection, data: &[u8]) -> bool {
    let mut stream = connection.open_bi().unwrap();
    stream.write_all(data).unwrap();
    stream.finish().unwrap();
    let answer = stream.read_to_end(1 << 20).unwrap();
    assert_eq!(&answer[1..], data);
    answer[0] == 1
}

/// Waits until the server's tickets and tokens are in the store, and puts them back.
fn wait_for_session(store: &dyn SessionStore, server: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let (Some(session), Some(token)) = (store.take_session(server), store.take_token(server))
        {
            store.save_session(server, &session);
            store.save_token(server, &token);
            return;
        }
        assert!(Instant::now() < deadline, "no session and token came");
        thread::sleep(Duration::from_millis(5));
    }
}

fn with_store() -> (ServerConfig, ClientConfig, Arc<MemorySessionStore>) {
    let (server, client) = configs();
    let store = Arc::new(MemorySessionStore::new());
    (server, client.sessions(store.clone()), store)
}

#[test]
fn a_second_connection_resumes_and_sends_early_data() {
    let (server, client, store) = with_store();
    let address = serve(server);
    let first = Connection::connect_early(address, "localhost", &client).unwrap();
    assert!(!request(&first, b"first"));
    assert_eq!(first.early_data(), EarlyData::None);
    assert!(!first.handshake().unwrap().resumed);
    wait_for_session(&*store, &format!("localhost:{}", address.port()));

    let second = Connection::connect_early(address, "localhost", &client).unwrap();
    assert!(request(&second, b"second"));
    second.wait_established().unwrap();
    assert_eq!(second.early_data(), EarlyData::Accepted);
    assert!(second.handshake().unwrap().resumed);
    assert!(!request(&second, b"third"));
}

#[test]
fn without_asking_for_early_data_a_session_is_resumed_all_the_same() {
    let (server, client, store) = with_store();
    let address = serve(server);
    let first = Connection::connect(address, "localhost", &client).unwrap();
    request(&first, b"first");
    wait_for_session(&*store, &format!("localhost:{}", address.port()));
    let second = Connection::connect(address, "localhost", &client).unwrap();
    assert_eq!(second.early_data(), EarlyData::None);
    assert!(second.handshake().unwrap().resumed);
    assert!(!request(&second, b"second"));
}

#[test]
fn early_data_that_the_server_refuses_is_sent_again() {
    let (server, client, store) = with_store();
    let address = serve(server.clone());
    request(&Connection::connect(address, "localhost", &client).unwrap(), b"first");
    let name = format!("localhost:{}", address.port());
    wait_for_session(&*store, &name);
    let session = store.take_session(&name).unwrap();

    // The same TLS, but the transport takes no early data.
    let address = serve(server.early_data(false));
    store.save_session(&format!("localhost:{}", address.port()), &session);
    let second = Connection::connect_early(address, "localhost", &client).unwrap();
    let large = vec![5; 100_000];
    assert!(!request(&second, &large));
    assert_eq!(second.early_data(), EarlyData::Rejected);
}

#[test]
fn sessions_in_files_serve_another_store() {
    let directory = std::env::temp_dir().join(format!("quicket-early-{}", std::process::id()));
    let (server, client) = configs();
    let address = serve(server);
    let store = Arc::new(FileSessionStore::open(&directory).unwrap());
    let first = client.clone().sessions(store.clone());
    request(&Connection::connect(address, "localhost", &first).unwrap(), b"first");
    wait_for_session(&*store, &format!("localhost:{}", address.port()));
    let again = client.sessions(Arc::new(FileSessionStore::open(&directory).unwrap()));
    let second = Connection::connect_early(address, "localhost", &again).unwrap();
    let early = request(&second, b"second");
    assert!(early, "{:?} {:?}", second.early_data(), second.handshake());
    second.close(0, b"");
    // More tickets may be on their way into it.
    let _ = std::fs::remove_dir_all(directory);
}

#[test]
fn a_garbled_session_is_no_obstacle() {
    let (server, client, store) = with_store();
    let address = serve(server);
    let name = format!("localhost:{}", address.port());
    store.save_session(&name, &[0xab; 700]);
    store.save_token(&name, &[0xcd; 90]);
    let connection = Connection::connect_early(address, "localhost", &client).unwrap();
    assert!(!request(&connection, b"anything"));
    assert!(!connection.handshake().unwrap().resumed);
}

#[test]
fn a_token_spares_the_retry() {
    let (server, client, store) = with_store();
    let address = serve(server.retry(RetryPolicy::Always));
    request(&Connection::connect(address, "localhost", &client).unwrap(), b"first");
    wait_for_session(&*store, &format!("localhost:{}", address.port()));
    // With its address validated by the token, the client's early data is read in the first
    // flight.
    let second = Connection::connect_early(address, "localhost", &client).unwrap();
    assert!(request(&second, b"second"));
}

#[test]
fn a_client_that_lets_go_early_still_delivers() {
    let (server, client, store) = with_store();
    let endpoint = quicket::Endpoint::bind("127.0.0.1:0").unwrap();
    let listener = endpoint.listen_early(server).unwrap();
    let address = listener.local_addr();
    thread::scope(|scope| {
        let first = scope.spawn(|| listener.accept().unwrap());
        let connection = Connection::connect(address, "localhost", &client).unwrap();
        let accepted = first.join().unwrap();
        wait_for_session(&*store, &format!("localhost:{}", address.port()));
        drop((connection, accepted));
        let connection = Connection::connect_early(address, "localhost", &client).unwrap();
        let mut stream = connection.open_uni().unwrap();
        stream.write_all(b"fire and forget").unwrap();
        drop((stream, connection));
        let mut stream = listener.accept().unwrap().accept_uni().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "fire and forget");
    });
}

#[test]
fn streams_of_an_ordinary_connection_are_not_early() {
    let (client, server) = pair_with(configs());
    client.open_bi().unwrap().write_all(b"x").unwrap();
    assert!(!server.accept_bi().unwrap().is_early_data());
}
