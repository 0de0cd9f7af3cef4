//! The async API end to end.

mod common;

use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use common::configs;
use quicket::tokio::{Connection, Endpoint, Listener};
#[cfg(target_os = "linux")]
use quicket::{EndpointConfig, SwitchConfig};
#[cfg(target_os = "linux")]
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn echo(listener: Listener) -> String {
    let connection = listener.accept().await.unwrap();
    let mut stream = connection.accept_bi().await.unwrap();
    let request = stream.read_to_end(1000).await.unwrap();
    stream.write_all(&request).await.unwrap();
    stream.finish().unwrap();
    connection.closed().await.to_string()
}

async fn a_request_is_answered() {
    let (server, client) = configs();
    let listener = Listener::bind("127.0.0.1:0", server).await.unwrap();
    let address = listener.local_addr();
    let server = tokio::spawn(echo(listener));
    let connection = Connection::connect(address, "localhost", &client).await.unwrap();
    let mut stream = connection.open_bi().await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "hello");
    connection.close(7, b"done");
    assert_eq!(server.await.unwrap(), "closed by the peer's application with code 0x7: done");
}

#[tokio::test]
async fn a_request_is_answered_on_one_thread() {
    a_request_is_answered().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_answered_on_several_threads() {
    a_request_is_answered().await;
}

#[tokio::test]
async fn a_closed_listener_wakes_who_waits() {
    let (server, _) = common::configs();
    let listener =
        std::sync::Arc::new(Listener::bind("127.0.0.1:0", server.clone()).await.unwrap());
    let waiting = listener.clone();
    let waiting = tokio::spawn(async move { waiting.accept().await.map(drop) });
    tokio::task::yield_now().await;
    listener.close();
    assert_eq!(waiting.await.unwrap().unwrap_err(), quicket::AcceptError::EndpointClosed);
    assert!(listener.endpoint().listen(server).is_ok());
}

/// A waker that says how many of its clones there are.
fn counted() -> (Arc<Counted>, Waker) {
    let counted = Arc::new(Counted);
    (Arc::clone(&counted), Waker::from(counted))
}

struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

/// Peers decide how many streams there are in which nothing happens any more.
#[tokio::test]
async fn streams_that_are_dropped_or_stopped_leave_nobody_waiting() {
    let (server, client) = configs();
    let listener = Listener::bind("127.0.0.1:0", server).await.unwrap();
    let address = listener.local_addr();
    let (connection, accepted) =
        tokio::join!(Connection::connect(address, "localhost", &client), listener.accept());
    let (connection, _accepted) = (connection.unwrap(), accepted.unwrap());
    let (count, waker) = counted();
    let mut context = Context::from_waker(&waker);
    let known = Arc::strong_count(&count);
    for stopped in [false, true] {
        let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
        while send.poll_write_some(&mut context, &[0; 1 << 16]).is_ready() {}
        assert!(send.poll_stopped(&mut context).is_pending());
        assert!(recv.poll_read_some(&mut context, &mut [0]).is_pending());
        assert_eq!(Arc::strong_count(&count), known + 3);
        if stopped {
            recv.stop(0).unwrap();
            // There may be room to write meanwhile.
            assert!(Arc::strong_count(&count) <= known + 2);
        }
        drop((send, recv));
        assert_eq!(Arc::strong_count(&count), known, "stopped: {stopped}");
    }
}

/// The switch takes the connection, and says nothing until the runtime's only thread ends it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_switch_is_not_waited_for_on_a_thread_of_the_runtime() {
    let path = std::env::temp_dir().join(format!("quicket-silent-switch-{}", std::process::id()));
    let silent = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    silent.bind(&SockAddr::unix(&path).unwrap()).unwrap();
    silent.listen(8).unwrap();
    let switch = SwitchConfig::new("app").named(path.to_str().unwrap()).started_by(None);
    let config = EndpointConfig::default().switch(switch);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let end = async {
        drop(silent);
        std::fs::remove_file(&path).unwrap();
    };
    let (made, ()) = tokio::join!(Endpoint::from_socket(socket, config), end);
    let error = made.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotConnected, "{error}");
}

/// Each worker has a task; connections of all come out of one queue and live on while clients move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_workers_serve_one_address() {
    const CLIENTS: usize = 8;
    let (server, client) = configs();
    let mut config = quicket::EndpointConfig::default().workers(quicket::Workers::Count(4));
    // So that they have to hand on.
    config.udp.route_by_connection_id = false;
    let endpoint = Endpoint::bind_with("127.0.0.1:0", config).await.unwrap();
    let listener = endpoint.listen(server).unwrap();
    let address = endpoint.local_addr();
    let server = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let connection = listener.accept().await.unwrap();
            connections.spawn(async move {
                while let Ok(mut stream) = connection.accept_bi().await {
                    let request = stream.read_to_end(100_000).await.unwrap();
                    stream.write_all(&request).await.unwrap();
                    stream.finish().unwrap();
                }
            });
        }
        while connections.join_next().await.is_some() {}
    });
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let client = client.clone();
        clients.spawn(async move {
            let own = Endpoint::bind("127.0.0.1:0").await.unwrap();
            let connection = own.connect(address, "localhost", &client).await.unwrap();
            for _ in 0..4 {
                let mut stream = connection.open_bi().await.unwrap();
                stream.write_all(&[7; 50_000]).await.unwrap();
                stream.shutdown().await.unwrap();
                assert_eq!(stream.read_to_end(100_000).await.unwrap(), [7; 50_000]);
                own.rebind("127.0.0.1:0".parse().unwrap()).unwrap();
            }
            connection.close(0, b"");
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    server.await.unwrap();
    endpoint.wait_idle().await;
    let stats = endpoint.worker_stats();
    assert!(stats.iter().any(|worker| worker.handed_on > 0), "{stats:?}");
    assert!(stats.iter().all(|worker| worker.connections == 0 && worker.lost == 0), "{stats:?}");
}
