//! The client against a server of HTTP/3, and of a protocol of its own.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use h3::error::{Code, StreamError};
use http::{Request, Response, StatusCode};
use quicket::tokio::{Connection, Endpoint};
use quicket::{
    ClientConfig, ClientTls, EarlyData, FileSessionStore, Fingerprint, Identity, ServerConfig,
    ServerTls, SessionStore,
};
use quicket_client::http3::Http3;
use quicket_client::{Body, Client, Config, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Stream = h3::server::RequestStream<quicket_h3::BidiStream<Bytes>, Bytes>;

/// How long something may take that happens at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server has seen.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    /// Methods and paths, in the order in which they came.
    requests: Mutex<Vec<String>>,
    /// With what clients have cancelled requests, or answers.
    cancelled: Mutex<Vec<Code>>,
}

/// A server that gives back what it gets, in HTTP/3 and in `echo`.
struct Server {
    port: u16,
    pin: Fingerprint,
    seen: Arc<Seen>,
}

impl Server {
    async fn start() -> Self {
        Self::start_as(&Identity::self_signed(["localhost"]).unwrap(), "127.0.0.1:0", true).await
    }

    async fn start_as(identity: &Identity, address: &str, early_data: bool) -> Self {
        let pin = identity.fingerprint();
        let tls = ServerTls::builder(identity.clone()).alpn(["h3", "echo"]).early_data(true);
        let tls = tls.build().unwrap();
        let endpoint = Endpoint::bind(address).await.unwrap();
        let port = endpoint.local_addr().port();
        let config = ServerConfig::new(tls).early_data(early_data);
        let listener = endpoint.listen_early(config).unwrap();
        let seen = Arc::new(Seen::default());
        let sees = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok(connection) = listener.accept().await {
                sees.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(connection, Arc::clone(&sees)));
            }
        });
        Self { port, pin, seen }
    }

    fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    /// By a name: sessions are kept by it, whatever the address is.
    fn named(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    fn config(&self) -> Config {
        let pin = self.pin;
        Config::new()
            .tls(move |protocol| ClientTls::builder().pinned([pin]).alpn([protocol]).build())
    }

    /// The same, for whom its name has these addresses, and who keeps sessions.
    fn config_at(&self, addresses: &[&str], sessions: &Path) -> Config {
        let addresses = addresses.iter().map(|address| address.parse().unwrap());
        self.config().host("localhost", addresses).sessions_in(sessions).unwrap()
    }

    fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Waits until clients have cancelled so often, and says with what.
    async fn cancelled(&self, times: usize) -> Vec<Code> {
        let is_so = || self.seen.cancelled.lock().unwrap().len() >= times;
        tokio::time::timeout(PATIENCE, async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("the server has heard of it");
        self.seen.cancelled.lock().unwrap().clone()
    }
}

async fn serve(connection: Connection, seen: Arc<Seen>) {
    let _ = connection.wait_established().await;
    if connection.handshake().is_some_and(|handshake| handshake.alpn == b"echo") {
        while let Ok(mut stream) = connection.accept_bi().await {
            let all = stream.read_to_end(1 << 20).await.unwrap();
            stream.write_all(&all).await.unwrap();
            stream.shutdown().await.unwrap();
        }
        return;
    }
    let mut server =
        h3::server::Connection::new(quicket_h3::Connection::new(connection)).await.unwrap();
    while let Ok(Some(resolver)) = server.accept().await {
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            if let Ok((request, stream)) = resolver.resolve_request().await
                && let Err(error) = answer(request, stream, &seen).await
            {
                let StreamError::RemoteTerminate { code, .. } = error else { return };
                seen.cancelled.lock().unwrap().push(code);
            }
        });
    }
}

/// `/missing` is missing, `/later` is too early when it is asked for first, `/large/N` has N bytes.
async fn answer(request: Request<()>, mut stream: Stream, seen: &Seen) -> Result<(), StreamError> {
    let path = request.uri().path().to_owned();
    let line = format!("{} {path}", request.method());
    let is_first = {
        let mut requests = seen.requests.lock().unwrap();
        let is_first = !requests.contains(&line);
        requests.push(line);
        is_first
    };
    let status = match &*path {
        "/missing" => StatusCode::NOT_FOUND,
        "/later" if is_first => StatusCode::TOO_EARLY,
        _ => StatusCode::OK,
    };
    let response = Response::builder().status(status).header("method", request.method().as_str());
    stream.send_response(response.body(()).unwrap()).await?;
    if let Some(len) = path.strip_prefix("/large/") {
        let piece = Bytes::from(vec![7; 1 << 16]);
        for _ in 0..len.parse::<usize>().unwrap() >> 16 {
            stream.send_data(piece.clone()).await?;
        }
    }
    // What comes is given back while it comes.
    while let Some(mut piece) = stream.recv_data().await? {
        stream.send_data(piece.copy_to_bytes(piece.remaining())).await?;
    }
    stream.finish().await
}

/// Sends words in `echo`, and waits until they are there again.
async fn comes_back(connection: &Connection, words: &str) {
    let mut stream = connection.open_bi().await.unwrap();
    stream.write_all(words.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = String::new();
    stream.read_to_string(&mut back).await.unwrap();
    assert_eq!(back, words);
}

/// Has a session of the server's kept in a folder.
async fn keep_session(server: &Server, config: Config, folder: &Path) {
    let answer = Client::new(config).get(&server.named("/")).await.unwrap();
    keep_session_of(server, "h3", folder).await;
    drop(answer);
}

/// The same for a protocol with which a client has connected.
async fn keep_session_of(server: &Server, protocol: &str, folder: &Path) {
    let store = FileSessionStore::open(folder.join(protocol)).unwrap();
    let name = format!("localhost:{}", server.port);
    let deadline = Instant::now() + PATIENCE;
    let session = loop {
        if let Some(session) = store.take_session(&name) {
            break session;
        }
        assert!(Instant::now() < deadline, "no session has come");
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    store.save_session(&name, &session);
}

#[tokio::test]
async fn requests_share_a_connection_and_answers_come_in_pieces() {
    let server = Server::start().await;
    let client = Client::new(server.config());
    let size = 4 << 20;
    let mut answer = client.get(&server.url(&format!("/large/{size}"))).await.unwrap();
    assert_eq!(answer.head().status(), StatusCode::OK);
    let mut received = 0;
    while let Some(piece) = answer.data().await.unwrap() {
        assert!(piece.iter().all(|byte| *byte == 7));
        received += piece.len();
    }
    assert_eq!(received, size);
    let answer = client.get(&server.url("/missing")).await.unwrap();
    assert_eq!(answer.head().status(), StatusCode::NOT_FOUND);
    let answer = client.post(&server.url("/"), "some words").await.unwrap();
    assert_eq!(answer.head().headers()["method"], "POST");
    assert_eq!(answer.bytes(100).await.unwrap(), "some words");
    let answer = client.get(&server.url("/large/65536")).await.unwrap();
    assert!(matches!(answer.bytes(65_535).await, Err(Error::TooLong(65_535))));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_body_is_written_while_the_answer_is_read() {
    let server = Server::start().await;
    let client = Client::new(server.config());
    let (mut writer, body) = Body::channel();
    let mut answer = client.post(&server.url("/"), body).await.unwrap();
    for word in ["one", "two", "three"] {
        assert!(writer.write(word.into()).await);
        // It comes back before the next is written.
        let mut back = BytesMut::new();
        while back.len() < word.len() {
            back.extend_from_slice(&answer.data().await.unwrap().unwrap());
        }
        assert_eq!(back, word);
    }
    assert!(writer.finish().await);
    assert_eq!(answer.data().await.unwrap(), None);
    // What breaks off is cancelled: the server does not take it for the whole.
    let (mut writer, body) = Body::channel();
    let mut answer = client.post(&server.url("/"), body).await.unwrap();
    assert!(writer.write("a part".into()).await);
    assert_eq!(answer.data().await.unwrap().unwrap(), "a part");
    drop(writer);
    assert_eq!(server.cancelled(1).await, [Code::H3_REQUEST_CANCELLED]);
    assert!(answer.data().await.is_err(), "it is not whole");
    // The connection goes on.
    assert!(client.get(&server.url("/")).await.is_ok());
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_answer_that_nobody_takes_is_cancelled() {
    let server = Server::start().await;
    let client = Client::new(server.config());
    // More than the windows of the stream and the connection.
    let mut answer = client.get(&server.url("/large/1073741824")).await.unwrap();
    assert!(answer.data().await.unwrap().is_some());
    drop(answer);
    assert_eq!(server.cancelled(1).await, [Code::H3_REQUEST_CANCELLED]);
    assert!(client.get(&server.url("/")).await.is_ok());
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_exchange_goes_on_without_what_began_it() {
    let server = Server::start().await;
    let pin = server.pin;
    let tls = ClientTls::builder().pinned([pin]).alpn(["h3"]).build().unwrap();
    let remote = ("127.0.0.1", server.port);
    let connection = Connection::connect(remote, "localhost", &ClientConfig::new(tls)).await;
    let http3 = Http3::open(connection.unwrap()).await.unwrap();
    let size = 4 << 20;
    let request = Request::get(server.url(&format!("/large/{size}"))).body(()).unwrap();
    let mut exchange = http3.send(request, Body::empty()).await.unwrap();
    drop(http3);
    let mut received = 0;
    while let Some(piece) = exchange.data().await.unwrap() {
        received += piece.len();
    }
    assert_eq!(received, size);
}

#[tokio::test]
async fn a_session_in_a_file_lets_the_next_client_send_at_once() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let config = || server.config().host("localhost", [Ipv4Addr::LOCALHOST.into()]);
    keep_session(&server, config().sessions_in(folder.path()).unwrap(), folder.path()).await;
    for (config, is_resumed, early_data) in [
        (config().sessions_in(folder.path()).unwrap(), true, EarlyData::Accepted),
        (config(), false, EarlyData::None),
    ] {
        let answer = Client::new(config).get(&server.named("/large/65536")).await.unwrap();
        let connection = answer.connection().clone();
        assert_eq!(answer.bytes(1 << 20).await.unwrap().len(), 65_536);
        connection.wait_established().await.unwrap();
        assert_eq!(connection.handshake().unwrap().resumed, is_resumed);
        assert_eq!(connection.early_data(), early_data);
    }
    assert_eq!(server.connections(), 3);
}

/// RFC 8470, Section 5.2.
#[tokio::test]
async fn what_came_too_early_for_the_server_is_sent_once_more() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let config = server
        .config()
        .host("LocalHost", ["127.0.0.1".parse().unwrap()])
        .sessions_in(folder.path())
        .unwrap();
    keep_session(&server, config.clone(), folder.path()).await;
    let client = Client::new(config);
    let answer = client.get(&server.named("/later")).await.unwrap();
    assert_eq!(answer.head().status(), StatusCode::OK);
    assert_eq!(answer.connection().early_data(), EarlyData::Accepted);
    assert_eq!(server.requests()[1..], ["GET /later", "GET /later"]);
    // What changes something is not: the program decides.
    let answer = client.post(&server.named("/later"), "words").await.unwrap();
    assert_eq!(answer.head().status(), StatusCode::TOO_EARLY);
    assert_eq!(server.requests()[3..], ["POST /later"]);
    assert_eq!(server.connections(), 2);
}

/// RFC 9001, Section 4.6.2: what was sent early is sent again after the handshake.
#[tokio::test]
async fn where_early_data_is_refused_the_answer_comes_nevertheless() {
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let first = Server::start_as(&identity, "127.0.0.1:0", true).await;
    // The same for clients, with other keys.
    let address = format!("127.0.0.2:{}", first.port);
    let second = Server::start_as(&identity, &address, false).await;
    let folder = tempfile::tempdir().unwrap();
    let config = |address: &str| {
        let config = first.config().host("localhost", [address.parse().unwrap()]);
        config.sessions_in(folder.path()).unwrap()
    };
    keep_session(&first, config("127.0.0.1"), folder.path()).await;
    let client = Client::new(config("127.0.0.2"));
    let answer = client.get(&first.named("/large/65536")).await.unwrap();
    assert_eq!(answer.connection().early_data(), EarlyData::Rejected);
    assert_eq!(answer.bytes(1 << 20).await.unwrap().len(), 65_536);
    assert_eq!(second.requests(), ["GET /large/65536"]);
    assert_eq!((first.connections(), second.connections()), (1, 1));
}

/// RFC 8305, Section 5: also where a session would let the client send to the first at once.
#[tokio::test]
async fn the_next_address_is_asked_where_the_first_does_not_answer() {
    let server = Server::start().await;
    let hole = std::net::UdpSocket::bind(("127.0.0.2", server.port)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = |addresses: &[&str]| server.config_at(addresses, folder.path());
    keep_session(&server, config(&["127.0.0.1"]), folder.path()).await;
    let client = Client::new(config(&["127.0.0.2", "127.0.0.1"]));
    let begun = Instant::now();
    for path in ["/large/65536", "/missing"] {
        let answer = client.get(&server.named(path)).await.unwrap();
        assert_eq!(answer.connection().remote_addr().ip(), Ipv4Addr::LOCALHOST);
    }
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    // The first had what could be sent at once.
    hole.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(hole.recv(&mut [0; 2048]).unwrap() >= 1200);
    assert_eq!(server.connections(), 2);
    let nowhere = Client::new(server.config().host("localhost", []));
    let error = nowhere.get(&server.named("/")).await.unwrap_err();
    assert!(matches!(error, Error::Resolve { .. }), "{error}");
}

/// The same for a protocol of one's own, also for who comes after a connection that was begun early and is not answered.
#[tokio::test]
async fn the_next_address_is_tried_for_a_protocol_of_ones_own_too() {
    let server = Server::start().await;
    let hole = std::net::UdpSocket::bind(("127.0.0.2", server.port)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = |addresses: &[&str]| server.config_at(addresses, folder.path());
    let first = Client::new(config(&["127.0.0.1"]));
    let connection = first.connect("localhost", server.port, "echo").await.unwrap();
    keep_session_of(&server, "echo", folder.path()).await;
    drop(connection);
    let client = Client::new(config(&["127.0.0.2", "127.0.0.1"]));
    let early = client.connect_early("localhost", server.port, "echo").await.unwrap();
    assert_eq!(early.early_data(), EarlyData::Offered);
    assert_eq!(early.remote_addr(), hole.local_addr().unwrap());
    let begun = Instant::now();
    for _ in 0..2 {
        let connection = client.connect("localhost", server.port, "echo").await.unwrap();
        assert_eq!(connection.remote_addr().ip(), Ipv4Addr::LOCALHOST);
        comes_back(&connection, "hello").await;
    }
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    // Both shared one, which is there for who comes next, too.
    let next = client.connect_early("localhost", server.port, "echo").await.unwrap();
    assert_eq!(next.remote_addr().ip(), Ipv4Addr::LOCALHOST);
    assert_eq!(server.connections(), 2);
    hole.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(hole.recv(&mut [0; 2048]).unwrap() >= 1200);
}

#[tokio::test]
async fn a_connection_that_has_ended_is_made_anew() {
    let server = Server::start().await;
    let client = Client::new(server.config());
    for _ in 0..2 {
        let answer = client.get(&server.url("/")).await.unwrap();
        answer.connection().close(0x100, b"");
        answer.connection().closed().await;
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_protocol_of_ones_own_has_connections_that_are_shared_too() {
    let server = Server::start().await;
    let client = Client::new(server.config());
    for words in ["hello", "again"] {
        let connection = client.connect("127.0.0.1", server.port, "echo").await.unwrap();
        comes_back(&connection, words).await;
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn what_cannot_be_asked_for_is_said() {
    let server = Server::start().await;
    let client = Client::new(Config::new().tls(|protocol| {
        let pin = Identity::self_signed(["localhost"]).unwrap().fingerprint();
        ClientTls::builder().pinned([pin]).alpn([protocol]).build()
    }));
    for wrong in ["http://localhost/", "/path", "https://", "no url"] {
        let error = client.get(wrong).await.unwrap_err();
        assert!(matches!(error, Error::Request(_)), "{wrong}: {error}");
    }
    let error = client.get(&server.url("/")).await.unwrap_err();
    assert!(matches!(error, Error::Connect(quicket::ConnectError::Handshake(_))), "{error}");
    assert_eq!(server.connections(), 0);
}
