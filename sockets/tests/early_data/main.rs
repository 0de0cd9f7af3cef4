//! Sessions: resumption, 0-RTT, tokens.

#[path = "../common/mod.rs"]
mod common;
mod gate;
mod register;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{configs, pair_with};
use gate::Gate;
use quicket::{
    ClientConfig, Connection, ConnectionError, Decision, EarlyData, FileSessionStore, Listener,
    MemorySessionStore, RetryPolicy, ServerConfig, SessionStore, Stream,
};

fn listen(server: ServerConfig) -> (Listener, Gate) {
    let endpoint = quicket::Endpoint::bind("127.0.0.1:0").unwrap();
    let listener = endpoint.listen_early(server).unwrap();
    let gate = Gate::before(listener.local_addr());
    (listener, gate)
}

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
fn serve(server: ServerConfig) -> Gate {
    let (listener, gate) = listen(server);
    thread::spawn(move || echo(&listener));
    gate
}

fn ask(connection: &Connection, data: &[u8]) -> Stream {
    let mut stream = connection.open_bi().unwrap();
    stream.write_all(data).unwrap();
    stream.finish().unwrap();
    stream
}

/// Reads the answer; returns whether the server had the request as early data.
fn answer(mut stream: Stream, data: &[u8]) -> bool {
    let answer = stream.read_to_end(1 << 20).unwrap();
    assert_eq!(&answer[1..], data);
    answer[0] == 1
}

fn request(connection: &Connection, data: &[u8]) -> bool {
    answer(ask(connection, data), data)
}

/// Connects with a session of before and sends `data` before the server can answer.
fn connect_and_ask(gate: &Gate, client: &ClientConfig, data: &[u8]) -> (Connection, Stream) {
    gate.shut();
    let connection = Connection::connect_early(gate.address(), "localhost", client).unwrap();
    assert_eq!(connection.early_data(), EarlyData::Offered);
    let stream = ask(&connection, data);
    assert_eq!(connection.early_data(), EarlyData::Offered);
    (connection, stream)
}

/// Waits until the server's tickets and tokens are in the store, and puts them back.
fn wait_for_session(store: &dyn SessionStore, server: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut found = (None, None);
    loop {
        found.0 = found.0.or_else(|| store.take_session(server));
        found.1 = found.1.or_else(|| store.take_token(server));
        if let (Some(session), Some(token)) = &found {
            store.save_session(server, session);
            store.save_token(server, token);
            return;
        }
        assert!(Instant::now() < deadline, "no session and token came");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a thread waits for the system, by its folder in /proc.
fn wait_for_sleep(thread: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let stat = Path::new("/proc").join(thread).join("stat");
    // The state stands behind the name, which is in parentheses.
    while !fs::read_to_string(&stat).unwrap().rsplit(')').next().unwrap().starts_with(" S") {
        assert!(Instant::now() < deadline, "it does not wait");
        thread::sleep(Duration::from_millis(1));
    }
}

fn with_store() -> (ServerConfig, ClientConfig, Arc<MemorySessionStore>) {
    let (server, client) = configs();
    let store = Arc::new(MemorySessionStore::new());
    (server, client.sessions(store.clone()), store)
}

/// Has a first connection, after which `store` knows the server.
fn get_to_know(gate: &Gate, client: &ClientConfig, store: &dyn SessionStore) {
    let first = Connection::connect(gate.address(), "localhost", client).unwrap();
    assert!(!request(&first, b"first"));
    assert_eq!(first.early_data(), EarlyData::None);
    assert!(!first.handshake().unwrap().resumed);
    wait_for_session(store, &gate.name());
}

#[test]
fn a_second_connection_resumes_and_sends_early_data() {
    let (server, client, store) = with_store();
    let gate = serve(server);
    get_to_know(&gate, &client, &*store);
    let (second, stream) = connect_and_ask(&gate, &client, b"second");
    gate.open();
    assert!(answer(stream, b"second"));
    second.wait_established().unwrap();
    assert_eq!(second.early_data(), EarlyData::Accepted);
    assert!(second.handshake().unwrap().resumed);
    assert!(!request(&second, b"third"));
}

#[test]
fn early_data_waits_while_the_application_makes_up_its_mind() {
    let (server, client, store) = with_store();
    // It has come long before.
    let slow = server.admission(|_| {
        thread::sleep(Duration::from_millis(100));
        Decision::Accept
    });
    let gate = serve(slow);
    get_to_know(&gate, &client, &*store);
    let (second, stream) = connect_and_ask(&gate, &client, b"second");
    gate.open();
    assert!(answer(stream, b"second"));
    assert_eq!(second.early_data(), EarlyData::Accepted);
    assert_eq!(second.stats().counters.packets_lost, 0);
}

#[test]
fn without_a_session_nothing_is_early() {
    let (server, client, _) = with_store();
    let gate = serve(server);
    let connection = Connection::connect_early(gate.address(), "localhost", &client).unwrap();
    assert!(!request(&connection, b"first"));
    assert_eq!(connection.early_data(), EarlyData::None);
}

#[test]
fn without_asking_for_early_data_a_session_is_resumed_all_the_same() {
    let (server, client, store) = with_store();
    let gate = serve(server);
    get_to_know(&gate, &client, &*store);
    let second = Connection::connect(gate.address(), "localhost", &client).unwrap();
    assert_eq!(second.early_data(), EarlyData::None);
    assert!(second.handshake().unwrap().resumed);
    assert!(!request(&second, b"second"));
}

#[test]
fn early_data_that_the_server_refuses_is_sent_again() {
    let (server, client, store) = with_store();
    let gate = serve(server.clone());
    get_to_know(&gate, &client, &*store);
    let session = store.take_session(&gate.name()).unwrap();

    // The same TLS, but the transport takes no early data.
    let gate = serve(server.early_data(false));
    store.save_session(&gate.name(), &session);
    let data = [5; 10_000];
    let (second, stream) = connect_and_ask(&gate, &client, &data);
    gate.open();
    assert!(!answer(stream, &data));
    assert_eq!(second.early_data(), EarlyData::Rejected);
}

#[test]
fn sessions_in_files_serve_another_store() {
    let directory = std::env::temp_dir().join(format!("quicket-early-{}", std::process::id()));
    let (server, client) = configs();
    let gate = serve(server);
    let store = Arc::new(FileSessionStore::open(&directory).unwrap());
    get_to_know(&gate, &client.clone().sessions(store.clone()), &*store);
    let again = client.sessions(Arc::new(FileSessionStore::open(&directory).unwrap()));
    let (_second, stream) = connect_and_ask(&gate, &again, b"second");
    gate.open();
    assert!(answer(stream, b"second"));
    // More tickets may be on their way into it.
    let _ = std::fs::remove_dir_all(directory);
}

/// As a program does that makes one request and ends.
#[test]
fn what_the_server_gave_is_in_its_file_when_the_connection_is_dropped() {
    let name = format!("quicket-once-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let (server, client) = configs();
    let gate = serve(server);
    let client = client.sessions(Arc::new(FileSessionStore::open(&directory).unwrap()));
    let connection = Connection::connect(gate.address(), "localhost", &client).unwrap();
    // The tickets come before the second answer.
    assert!(!request(&connection, b"first"));
    assert!(!request(&connection, b"second"));
    drop(connection);
    let again = FileSessionStore::open(&directory).unwrap();
    assert!(again.take_session(&gate.name()).is_some());
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_garbled_session_is_no_obstacle() {
    let (server, client, store) = with_store();
    let gate = serve(server);
    store.save_session(&gate.name(), &[0xab; 700]);
    store.save_token(&gate.name(), &[0xcd; 90]);
    let connection = Connection::connect_early(gate.address(), "localhost", &client).unwrap();
    assert!(!request(&connection, b"anything"));
    assert!(!connection.handshake().unwrap().resumed);
}

#[test]
fn a_token_spares_the_retry() {
    let (server, client, store) = with_store();
    let (listener, gate) = listen(server.retry(RetryPolicy::Always));
    let first = Connection::connect(gate.address(), "localhost", &client).unwrap();
    let _accepted = listener.accept().unwrap();
    wait_for_session(&*store, &gate.name());
    // With its address validated by the token, the client's early data is read in the first
    // flight, before the client has heard anything.
    let (_second, _stream) = connect_and_ask(&gate, &client, b"second");
    let accepted = listener.accept().unwrap();
    assert!(accepted.handshake().is_none());
    assert!(accepted.accept_bi().unwrap().is_early_data());
    gate.open();
    drop(first);
}

#[test]
fn a_client_that_lets_go_early_still_delivers() {
    let (server, client, store) = with_store();
    let (listener, gate) = listen(server);
    let first = Connection::connect(gate.address(), "localhost", &client).unwrap();
    let accepted = listener.accept().unwrap();
    wait_for_session(&*store, &gate.name());
    drop((first, accepted));
    gate.shut();
    let connection = Connection::connect_early(gate.address(), "localhost", &client).unwrap();
    let mut stream = connection.open_uni().unwrap();
    stream.write_all(b"fire and forget").unwrap();
    drop((stream, connection));
    let mut stream = listener.accept().unwrap().accept_uni().unwrap();
    assert!(stream.is_early_data());
    gate.open();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "fire and forget");
}

#[test]
fn who_waits_for_a_stream_is_woken_before_the_handshake_is_complete() {
    let (server, client, store) = with_store();
    let (listener, gate) = listen(server);
    let first = Connection::connect(gate.address(), "localhost", &client).unwrap();
    drop(listener.accept().unwrap());
    wait_for_session(&*store, &gate.name());
    drop(first);
    let (connection, _first) = connect_and_ask(&gate, &client, b"first");
    let accepted = listener.accept().unwrap();
    assert!(accepted.accept_bi().unwrap().is_early_data());
    thread::scope(|scope| {
        let (name, waiter) = mpsc::channel();
        let accepted = &accepted;
        let waiting = scope.spawn(move || {
            name.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
            accepted.accept_bi().unwrap().is_early_data()
        });
        wait_for_sleep(&waiter.recv().unwrap());
        let _second = ask(&connection, b"second");
        assert!(waiting.join().unwrap());
        assert!(accepted.handshake().is_none());
    });
    gate.open();
}

#[test]
fn a_server_that_closes_before_the_handshake_is_complete_tells_its_code() {
    let (server, client, store) = with_store();
    let (listener, gate) = listen(server);
    let first = Connection::connect(gate.address(), "localhost", &client).unwrap();
    drop(listener.accept().unwrap());
    wait_for_session(&*store, &gate.name());
    drop(first);
    let (connection, mut stream) = connect_and_ask(&gate, &client, b"question");
    let accepted = listener.accept().unwrap();
    assert!(accepted.handshake().is_none());
    accepted.close(77, b"no");
    gate.open();
    let error = stream.read_to_end(100).unwrap_err();
    let expected = ConnectionError::PeerApplication { code: 77, reason: b"no".to_vec() };
    assert_eq!(connection.close_reason(), Some(expected), "{error}");
}

#[test]
fn streams_of_an_ordinary_connection_are_not_early() {
    let (client, server) = pair_with(configs());
    client.open_bi().unwrap().write_all(b"x").unwrap();
    assert!(!server.accept_bi().unwrap().is_early_data());
}

mod with_tokio {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use quicket::tokio::Endpoint;
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn who_waits_for_a_stream_is_woken_before_the_handshake_is_complete() {
        let (server, client, store) = with_store();
        let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
        let listening = Endpoint::bind("127.0.0.1:0").await.unwrap();
        let listener = listening.listen_early(server).unwrap();
        let gate = Gate::before(listener.local_addr());
        let first = endpoint.connect(gate.address(), "localhost", &client);
        let (first, accepted) = tokio::join!(first, listener.accept());
        let (first, accepted) = (first.unwrap(), accepted.unwrap());
        let name = gate.name();
        tokio::task::spawn_blocking(move || wait_for_session(&*store, &name)).await.unwrap();
        drop((first, accepted));

        gate.shut();
        let connection = endpoint.connect_early(gate.address(), "localhost", &client).unwrap();
        assert_eq!(connection.early_data(), EarlyData::Offered);
        let mut early = connection.open_uni().await.unwrap();
        early.write_all(b"first").await.unwrap();
        let accepted = listener.accept().await.unwrap();
        assert!(accepted.accept_uni().await.unwrap().is_early_data());
        let mut waiting = pin!(accepted.accept_bi());
        let polled = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context))).await;
        assert!(polled.is_pending());
        let mut later = connection.open_bi().await.unwrap();
        later.write_all(b"second").await.unwrap();
        assert!(waiting.await.unwrap().is_early_data());
        assert!(accepted.handshake().is_none());
        gate.open();
    }
}
