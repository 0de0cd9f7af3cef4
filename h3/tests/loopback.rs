//! h3's client and server on Quicket over loopback.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3::error::{Code, ConnectionError, StreamError};
use h3::quic::{self, RecvStream as _};
use http::{Request, Response};
use quicket::tokio::{Connection, Endpoint};
use quicket::{ClientConfig, ClientTls, Identity, ServerConfig, ServerTls, TransportConfig};
use quicket_h3::OpenStreams;
use quicket_testing::WakeCount;
use tokio::io::AsyncWrite as _;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Long enough for what should happen at once.
const WAIT: Duration = Duration::from_secs(30);

type Requests = SendRequest<OpenStreams, Bytes>;
type Server = h3::server::Connection<quicket_h3::Connection, Bytes>;

/// Both ends of a connection.
async fn pair() -> (Connection, Connection) {
    pair_with(TransportConfig::default()).await
}

/// Both ends of a connection with this transport.
async fn pair_with(transport: TransportConfig) -> (Connection, Connection) {
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let client = ClientTls::builder().pinned([identity.fingerprint()]).alpn(["h3"]);
    let client = ClientConfig::new(client.build().unwrap()).transport(transport.clone());
    let server = ServerTls::builder(identity).alpn(["h3"]).build().unwrap();
    let listening = Endpoint::bind("127.0.0.1:0").await.unwrap();
    let listener = listening.listen(ServerConfig::new(server).transport(transport)).unwrap();
    let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
    let connecting = endpoint.connect(listener.local_addr(), "localhost", &client);
    let (client, server) = tokio::join!(connecting, listener.accept());
    (client.unwrap(), server.unwrap())
}

/// HTTP/3 on both ends; the task is the client's driver.
async fn http() -> (Requests, JoinHandle<ConnectionError>, Server) {
    let (client, server) = pair().await;
    http_over(client, server).await
}

async fn http_over(
    client: Connection,
    server: Connection,
) -> (Requests, JoinHandle<ConnectionError>, Server) {
    let (mut driver, requests) =
        h3::client::new(quicket_h3::Connection::new(client)).await.unwrap();
    let driver = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    let server = Server::new(quicket_h3::Connection::new(server)).await.unwrap();
    (requests, driver, server)
}

fn get() -> Request<()> {
    Request::get("https://localhost/").body(()).unwrap()
}

#[tokio::test]
async fn a_large_body_goes_there_and_back() {
    let (mut requests, _driver, mut server) = http().await;
    tokio::spawn(async move {
        while let Ok(Some(resolver)) = server.accept().await {
            let (_, mut stream) = resolver.resolve_request().await.unwrap();
            stream.send_response(Response::new(())).await.unwrap();
            while let Some(mut piece) = stream.recv_data().await.unwrap() {
                stream.send_data(piece.copy_to_bytes(piece.remaining())).await.unwrap();
            }
            stream.finish().await.unwrap();
        }
    });
    let body: Vec<u8> = (0..5_000_000_u32).map(|at| (at * 13) as u8).collect();
    let (mut send, mut recv) = requests.send_request(get()).await.unwrap().split();
    let sent = Bytes::from(body.clone());
    let sender = tokio::spawn(async move {
        send.send_data(sent).await.unwrap();
        send.finish().await.unwrap();
    });
    assert_eq!(recv.recv_response().await.unwrap().status(), 200);
    let mut back = Vec::new();
    while let Some(mut piece) = recv.recv_data().await.unwrap() {
        back.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    assert!(back == body);
    sender.await.unwrap();
}

/// It would go out as h3 has it: as what asks for WebTransport.
#[tokio::test]
async fn a_connection_that_was_not_made_for_websocket_does_not_ask_for_it() {
    let (mut requests, driver, mut server) = http().await;
    let accepting = tokio::spawn(async move { server.accept().await.map(|asked| asked.is_some()) });
    let mut request = get();
    quicket_h3::ask_for_websocket(&mut request);
    let error = requests.send_request(request).await.err().unwrap();
    assert!(error.to_string().contains("with_websocket"), "{error}");
    // h3 ends the connection, and nothing of the request has come.
    let ended = driver.await.unwrap();
    assert!(!ended.is_h3_no_error(), "{ended}");
    assert!(!matches!(accepting.await.unwrap(), Ok(true)));
}

/// Writes until there is no room.
async fn fill(stream: &mut quicket::tokio::SendStream) {
    poll_fn(|cx| {
        while let Poll::Ready(written) = Pin::new(&mut *stream).poll_write(cx, &[0; 1024]) {
            written.unwrap();
        }
        Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_not_waited_for_to_take_goaway() {
    let (client, server) = pair().await;
    let mut serving = Server::new(quicket_h3::Connection::new(server)).await.unwrap();
    let drained = quicket_h3::drain(&mut serving, WAIT, std::future::ready(()));
    assert!(timeout(WAIT, drained).await.unwrap().unwrap());
    drop(client);

    let small = TransportConfig {
        send_buffer: 64 << 10,
        initial_stream_window: 0,
        max_stream_window: 0,
        ..TransportConfig::default()
    };
    let (_client, server) = pair_with(small).await;
    let mut serving = Server::new(quicket_h3::Connection::new(server.clone())).await.unwrap();
    // The second takes what is kept for streams that hold little.
    let mut streams = [server.open_uni().await.unwrap(), server.open_uni().await.unwrap()];
    for stream in &mut streams {
        fill(stream).await;
    }
    let patience = Duration::from_millis(50);
    let drained = quicket_h3::drain(&mut serving, patience, std::future::pending());
    assert!(!timeout(WAIT, drained).await.unwrap().unwrap());
}

#[tokio::test]
async fn the_code_of_a_reset_arrives() {
    let (mut requests, _driver, mut server) = http().await;
    tokio::spawn(async move {
        let resolver = server.accept().await.unwrap().unwrap();
        let (_, mut stream) = resolver.resolve_request().await.unwrap();
        stream.stop_stream(Code::H3_REQUEST_REJECTED);
        let _ = server.accept().await;
    });
    let mut stream = requests.send_request(get()).await.unwrap();
    stream.finish().await.unwrap();
    let error = stream.recv_response().await.unwrap_err();
    assert!(
        matches!(error, StreamError::RemoteTerminate { code, .. } if code == Code::H3_REQUEST_REJECTED),
        "{error:?}"
    );
}

/// A body, and a share by which others know that it is kept.
struct Kept {
    body: Bytes,
    _share: Arc<()>,
}

impl Buf for Kept {
    fn remaining(&self) -> usize {
        self.body.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.body.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.body.advance(count);
    }
}

#[tokio::test]
async fn what_can_be_sent_no_more_is_not_kept() {
    let (client, server) = pair().await;
    let mut builder = h3::client::builder();
    let (mut driver, mut requests) =
        builder.build::<_, _, Kept>(quicket_h3::Connection::new(client)).await.unwrap();
    let _driver = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    let mut server = Server::new(quicket_h3::Connection::new(server)).await.unwrap();
    tokio::spawn(async move {
        let resolver = server.accept().await.unwrap().unwrap();
        let (_, mut stream) = resolver.resolve_request().await.unwrap();
        stream.stop_sending(Code::H3_REQUEST_REJECTED);
        let _ = server.accept().await;
    });
    let mut stream = requests.send_request(get()).await.unwrap();
    let (body, kept) = (Bytes::from(vec![7; 64 << 20]), Arc::new(()));
    let body = Kept { body, _share: Arc::clone(&kept) };
    let error = stream.send_data(body).await.unwrap_err();
    assert!(matches!(error, StreamError::RemoteTerminate { .. }), "{error:?}");
    assert_eq!(Arc::strong_count(&kept), 1, "the body is still there");
}

#[tokio::test]
async fn a_response_that_is_dropped_is_not_taken_for_a_whole_one() {
    let (mut requests, _driver, mut server) = http().await;
    tokio::spawn(async move {
        let resolver = server.accept().await.unwrap().unwrap();
        let (_, mut stream) = resolver.resolve_request().await.unwrap();
        stream.send_response(Response::new(())).await.unwrap();
        stream.send_data(Bytes::from_static(b"a part")).await.unwrap();
        drop(stream);
        let _ = server.accept().await;
    });
    let mut stream = requests.send_request(get()).await.unwrap();
    stream.finish().await.unwrap();
    let error = async {
        stream.recv_response().await?;
        while stream.recv_data().await?.is_some() {}
        Ok(())
    };
    let error: StreamError = error.await.unwrap_err();
    assert!(
        matches!(error, StreamError::RemoteTerminate { code, .. } if code == Code::H3_REQUEST_CANCELLED),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_code_of_a_closed_connection_arrives() {
    let (client, server) = pair().await;
    let (mut driver, _requests) =
        h3::client::new(quicket_h3::Connection::new(client)).await.unwrap();
    server.close(Code::H3_EXCESSIVE_LOAD.value(), b"enough");
    let closed = poll_fn(|cx| driver.poll_close(cx));
    let error = timeout(Duration::from_secs(5), closed).await.unwrap();
    assert!(format!("{error:?}").contains("H3_EXCESSIVE_LOAD"), "{error:?}");
}

#[tokio::test]
async fn a_thousand_cancelled_requests_leave_room_for_another() {
    let (client, server) = pair().await;
    let (mut requests, _driver, mut server) = http_over(client.clone(), server).await;
    tokio::spawn(async move {
        while let Ok(Some(resolver)) = server.accept().await {
            tokio::spawn(async move {
                let (_, mut stream) = resolver.resolve_request().await.ok()?;
                stream.send_response(Response::new(())).await.ok()?;
                stream.send_data(Bytes::from_static(&[7; 100_000])).await.ok()?;
                stream.finish().await.ok()?;
                // Until its end, or its reset.
                while stream.recv_data().await.ok()?.is_some() {}
                Some(())
            });
        }
    });
    // A request that nobody is told of any more waits for its turn for ever.
    let all = async {
        for round in 0..1000 {
            if round % 4 == 0 {
                // Before the headers are whole: the frame says that 100 bytes follow.
                let mut stream = client.open_bi().await.unwrap();
                stream.send().write_all(&[1, 0x40, 100, 0, 0]).await.unwrap();
                let _ = stream.recv().stop(Code::H3_REQUEST_CANCELLED.value());
                let _ = stream.send().reset(Code::H3_REQUEST_CANCELLED.value());
                continue;
            }
            let mut stream = requests.send_request(get()).await.unwrap();
            if round % 4 > 1 {
                stream.recv_response().await.unwrap();
            }
            if round % 4 > 2 {
                while stream.recv_data().await.unwrap().is_some() {}
            }
            stream.stop_sending(Code::H3_REQUEST_CANCELLED);
            stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        }
        let mut stream = requests.send_request(get()).await.unwrap();
        stream.finish().await.unwrap();
        assert_eq!(stream.recv_response().await.unwrap().status(), 200);
    };
    timeout(Duration::from_secs(60), all).await.expect("no room for another request");
}

/// h3 asks for a piece with each frame, whether it holds one or not.
#[tokio::test]
async fn after_a_large_piece_what_is_held_comes_first_and_then_the_next() {
    let (client, server) = pair().await;
    let mut sending = server.open_uni().await.unwrap();
    sending.write_all(&[7; 100_000]).await.unwrap();
    sending.finish().unwrap();
    // All of it has arrived.
    assert_eq!(sending.stopped().await.unwrap(), None);
    let mut connection = quicket_h3::Connection::new(client);
    let accepted = poll_fn(|cx| quic::Connection::<Bytes>::poll_accept_recv(&mut connection, cx));
    let mut recv = accepted.await.unwrap();
    let (mut large, mut total) = (0, 0);
    while let Some(piece) = poll_fn(|cx| recv.poll_data(cx)).await.unwrap() {
        total += piece.len();
        if piece.len() >= 16 << 10 {
            large += 1;
            let woken = Arc::new(WakeCount::default());
            let waker = Waker::from(Arc::clone(&woken));
            assert!(recv.poll_data(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(woken.get(), 1, "whoever holds nothing asks again");
        }
    }
    assert!(large > 0);
    assert_eq!(total, 100_000);
}

/// A piece of a body, whose end shows.
struct Owned(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn an_offered_body_is_sent_from_where_it_is_and_another_is_copied() {
    const LEN: usize = 100_000;
    let (client, server) = pair().await;
    let (mut driver, mut requests) =
        h3::client::new(quicket_h3::Connection::new(client)).await.unwrap();
    tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    let transport = quicket_h3::Connection::new(server);
    let transfers = transport.requests();
    let mut server = Server::new(transport).await.unwrap();
    let gone = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&gone);
    let serving = tokio::spawn(async move {
        let resolver = server.accept().await.unwrap().unwrap();
        let (_, mut stream) = resolver.resolve_request().await.unwrap();
        let transfer = transfers.transfer(stream.id()).unwrap();
        stream.send_response(Response::new(())).await.unwrap();
        let piece = || Bytes::from_owner(Owned(vec![7; LEN], Arc::clone(&seen)));
        // Nothing that comes from the client is seen in between, for nothing waits.
        let offered = piece();
        transfer.offer(&offered);
        stream.send_data(offered).await.unwrap();
        let after_offer = seen.load(Ordering::SeqCst);
        stream.send_data(piece()).await.unwrap();
        let after_copy = seen.load(Ordering::SeqCst);
        // One that is offered and not sent is nobody's.
        transfer.offer(&piece());
        stream.send_data(Bytes::from(vec![7; LEN])).await.unwrap();
        stream.finish().await.unwrap();
        (after_offer, after_copy, server)
    });
    let mut stream = requests.send_request(get()).await.unwrap();
    assert_eq!(stream.recv_response().await.unwrap().status(), 200);
    let mut total = 0;
    while let Some(mut piece) = stream.recv_data().await.unwrap() {
        let bytes = piece.copy_to_bytes(piece.remaining());
        assert!(bytes.iter().all(|&byte| byte == 7));
        total += bytes.len();
    }
    assert_eq!(total, 3 * LEN);
    let (after_offer, after_copy, _server) = serving.await.unwrap();
    assert_eq!((after_offer, after_copy), (0, 1));
    let all = async {
        while gone.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), all).await.expect("all owners are dropped");
}
