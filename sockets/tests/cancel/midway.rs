//! Futures that are dropped at each of the places where they wait: a peer takes its turn between any two polls.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use quicket::TransportConfig;
use quicket::tokio::{Connection, Endpoint, Listener, RecvStream, SendStream};
use quicket_testing::free_port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::{JoinSet, LocalSet, yield_now};

use crate::common::{configs, configs_with};

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// No test hangs.
pub(crate) async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, test).await.expect("it comes to an end")
}

#[derive(Default)]
pub(crate) struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl Woken {
    pub(crate) async fn wait(&self) {
        self.0.notified().await;
    }
}

/// Polls a future at most so many times, and drops it. Before each time but the first the peer has a turn, which gets
/// what the future wakes. Returns what the future was ready with; nobody keeps its waker.
pub(crate) async fn poll_times<T>(
    future: impl Future<Output = T>,
    polls: usize,
    turn: impl AsyncFnMut(&Woken),
) -> Option<T> {
    let (ready, woken) = poll_and_drop(future, polls, turn).await;
    let_go(&woken).await;
    ready
}

/// Nobody keeps its waker; whoever is about to wake it lets go of it then.
async fn let_go(woken: &Arc<Woken>) {
    while Arc::strong_count(woken) > 1 {
        yield_now().await;
    }
}

/// Like [`poll_times`], for futures whose waker may be kept by what they borrow.
async fn poll_and_drop<T>(
    future: impl Future<Output = T>,
    polls: usize,
    mut turn: impl AsyncFnMut(&Woken),
) -> (Option<T>, Arc<Woken>) {
    let woken = Arc::new(Woken::default());
    let mut ready = None;
    {
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        for poll in 0..polls {
            if poll > 0 {
                turn(&woken).await;
            }
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                ready = Some(value);
                break;
            }
        }
    }
    (ready, woken)
}

/// A client and a server with their endpoints.
struct Pair {
    endpoints: [Endpoint; 2],
    client: Connection,
    server: Connection,
}

impl Pair {
    async fn with(transport: TransportConfig) -> Self {
        let (server, client) = configs_with(transport);
        let listener = Listener::bind("127.0.0.1:0", server).await.unwrap();
        let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr();
        let (connected, accepted) =
            tokio::join!(endpoint.connect(address, "localhost", &client), listener.accept());
        let endpoints = [endpoint, listener.endpoint().clone()];
        Self { endpoints, client: connected.unwrap(), server: accepted.unwrap() }
    }

    /// A stream from the server, which has sent this.
    async fn stream(&self, begins: &[u8]) -> (SendStream, RecvStream) {
        let mut send = self.server.open_uni().await.unwrap();
        send.write_all(begins).await.unwrap();
        (send, self.client.accept_uni().await.unwrap())
    }

    /// All that was held for the connection is given back.
    async fn end(self) {
        let Self { endpoints, client, server } = self;
        client.close(0, b"");
        drop((client, server));
        for endpoint in &endpoints {
            endpoint.wait_idle().await;
            assert_eq!(endpoint.memory_held(), 0);
            assert_eq!(endpoint.worker_stats()[0].connections, 0);
        }
    }
}

/// One stream at a time: one that is not retired leaves no room for the next.
fn one_stream() -> TransportConfig {
    TransportConfig { max_streams_uni: 1, ..TransportConfig::default() }
}

const PIECES: usize = 5;
const PIECE: usize = 10;

fn piece(number: usize) -> [u8; PIECE] {
    [number as u8; PIECE]
}

/// Reads a stream by `read`, dropped at each place: what that has read is lost, as its documentation says, and not a
/// byte else.
async fn read_midway(read: impl AsyncFn(&mut RecvStream) -> Vec<u8>) {
    let pair = Pair::with(one_stream()).await;
    let whole: Vec<u8> = (0..PIECES).flat_map(piece).collect();
    let mut polls = 0;
    loop {
        let (mut send, mut recv) = pair.stream(&piece(0)).await;
        let mut written = 1;
        let mut finished = false;
        let mut turn = async |send: &mut SendStream| {
            if written < PIECES {
                send.write_all(&piece(written)).await.unwrap();
                written += 1;
            } else if !finished {
                send.finish().unwrap();
                finished = true;
            }
        };
        let polled = poll_and_drop(read(&mut recv), polls, async |woken| {
            turn(&mut send).await;
            woken.wait().await;
        });
        let (ready, woken) = polled.await;
        if let Some(read) = ready {
            assert_eq!(read, whole);
            break;
        }
        for _ in 0..=PIECES {
            turn(&mut send).await;
        }
        let rest = recv.read_to_end(1000).await.unwrap();
        let lost = whole.len() - rest.len();
        assert_eq!(rest, whole[lost..], "after {polls} polls");
        assert!(lost <= polls * PIECE && (lost > 0) == (polls > 0), "{lost} after {polls} polls");
        drop((send, recv));
        let_go(&woken).await;
        polls += 1;
    }
    assert!(polls > PIECES, "{polls}: it was to wait for each piece");
    pair.end().await;
}

#[tokio::test]
async fn reading_to_the_end_loses_what_it_has_read_and_nothing_else() {
    in_time(read_midway(async |recv| recv.read_to_end(1000).await.unwrap())).await;
}

#[tokio::test]
async fn reading_to_the_end_by_the_trait_loses_what_it_has_read_and_nothing_else() {
    let read = async |recv: &mut RecvStream| {
        let mut all = Vec::new();
        AsyncReadExt::read_to_end(recv, &mut all).await.unwrap();
        all
    };
    in_time(read_midway(read)).await;
}

/// Writes by `write`, dropped at each place: some of the data is written, and what is written next follows it.
async fn write_midway(write: impl AsyncFn(&mut SendStream, &[u8])) {
    const ROOM: usize = 16 << 10;
    let transport = TransportConfig {
        stream_send_buffer: ROOM,
        initial_stream_window: ROOM as u64,
        max_stream_window: ROOM as u64,
        ..one_stream()
    };
    let pair = Pair::with(transport).await;
    let data: Vec<u8> = (0..6 * ROOM).map(|at| (at * 7 + at / 251) as u8).collect();
    let mut polls = 0;
    loop {
        let (mut send, mut recv) = pair.stream(b"!").await;
        let mut received = Vec::new();
        let mut buffer = vec![0; ROOM];
        let polled = poll_and_drop(write(&mut send, &data), polls, async |woken| {
            // The room comes with what is read, or acknowledged.
            tokio::select! {
                biased;
                () = woken.wait() => {}
                read = recv.read_some(&mut buffer) => {
                    received.extend_from_slice(&buffer[..read.unwrap()]);
                }
            }
        });
        let (ready, woken) = polled.await;
        let finish = async {
            send.write_all(b"after").await.unwrap();
            send.finish().unwrap();
        };
        let (rest, ()) = tokio::join!(recv.read_to_end(1 << 20), finish);
        received.extend(rest.unwrap());
        let received = received.strip_prefix(b"!").unwrap();
        let written = received.strip_suffix(b"after").expect("what came next");
        assert_eq!(written, &data[..written.len()], "after {polls} polls");
        assert_eq!(written.is_empty(), polls == 0);
        drop((send, recv));
        let_go(&woken).await;
        if ready.is_some() {
            assert_eq!(written.len(), data.len());
            break;
        }
        polls += 1;
    }
    assert!(polls > 3, "{polls}: it was to wait for room");
    pair.end().await;
}

#[tokio::test]
async fn writing_all_leaves_a_beginning_of_it_and_the_stream_goes_on() {
    in_time(write_midway(async |send, data| send.write_all(data).await.unwrap())).await;
}

#[tokio::test]
async fn writing_all_by_the_trait_leaves_a_beginning_of_it_and_the_stream_goes_on() {
    let write = async |send: &mut SendStream, data: &[u8]| {
        AsyncWriteExt::write_all(send, data).await.unwrap();
    };
    in_time(write_midway(write)).await;
}

#[tokio::test]
async fn shutting_a_stream_down_never_waits_and_does_nothing_unless_polled() {
    in_time(async {
        let pair = Pair::with(one_stream()).await;
        let (mut send, mut recv) = pair.stream(b"a").await;
        let nobody = async |_: &Woken| panic!("it waits");
        assert!(poll_times(send.shutdown(), 0, nobody).await.is_none());
        send.write_all(b"b").await.unwrap();
        assert!(matches!(poll_times(send.flush(), 1, nobody).await, Some(Ok(()))));
        for _ in 0..2 {
            assert!(matches!(poll_times(send.shutdown(), 1, nobody).await, Some(Ok(()))));
        }
        assert!(send.write_all(b"c").await.is_err());
        assert_eq!(recv.read_to_end(10).await.unwrap(), b"ab");
        drop((send, recv));
        pair.end().await;
    })
    .await;
}

/// Passes datagrams between a client and a server, one when asked.
struct Relay {
    front: UdpSocket,
    back: UdpSocket,
    client: Option<SocketAddr>,
}

impl Relay {
    async fn to(server: SocketAddr) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let back = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        back.connect(server).await.unwrap();
        Self { front, back, client: None }
    }

    async fn pass(&mut self) {
        let (mut there, mut back) = (vec![0; 65_536], vec![0; 65_536]);
        tokio::select! {
            read = self.front.recv_from(&mut there) => {
                let (len, client) = read.unwrap();
                self.client = Some(client);
                self.back.send(&there[..len]).await.unwrap();
            }
            read = self.back.recv(&mut back) => {
                let client = self.client.expect("the server answers");
                self.front.send_to(&back[..read.unwrap()], client).await.unwrap();
            }
        }
    }
}

/// Serves until `done`; then all connections have ended, those too of clients that gave up.
async fn serve_until(listener: Listener, done: impl Future<Output = ()>) {
    let endpoint = listener.endpoint().clone();
    let serve = async {
        loop {
            let connection = listener.accept().await.unwrap();
            tokio::spawn(async move { connection.closed().await });
        }
    };
    tokio::select! {
        () = serve => {}
        () = done => {}
    }
    drop(listener);
    endpoint.wait_idle().await;
    assert_eq!(endpoint.worker_stats()[0].connections, 0);
}

/// True if the handshake was complete after so many polls, with a datagram between any two of them.
async fn connect_midway(polls: usize) -> bool {
    let (server, client) = configs();
    let listener = Listener::bind("127.0.0.1:0", server).await.unwrap();
    let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr();
    let mut relay = Relay::to(server).await;
    let mut is_ready = false;
    let address = relay.front.local_addr().unwrap();
    let client_side = async {
        let connecting = endpoint.connect(address, "localhost", &client);
        let ready = poll_times(connecting, polls, async |woken| {
            tokio::select! {
                () = woken.wait() => {}
                () = relay.pass() => {}
            }
        });
        let ready = ready.await;
        is_ready = ready.is_some();
        drop(ready.map(|connected| connected.unwrap()));
        // What is on its way arrives, also that the attempt was given up.
        tokio::select! {
            () = async { loop { relay.pass().await } } => {}
            () = endpoint.wait_idle() => {}
        }
        assert_eq!(endpoint.worker_stats()[0].connections, 0);
        // The endpoint is as good as new.
        let connection = endpoint.connect(server, "localhost", &client).await.unwrap();
        connection.close(0, b"");
        endpoint.wait_idle().await;
    };
    serve_until(listener, client_side).await;
    is_ready
}

/// The attempts are made at once: each takes the time of its closing.
#[tokio::test]
async fn an_attempt_to_connect_is_given_up_at_each_step_of_the_handshake() {
    in_time(LocalSet::new().run_until(async {
        let mut attempts = JoinSet::new();
        for polls in 0..16 {
            attempts.spawn_local(async move { (polls, connect_midway(polls).await) });
        }
        let (mut steps, mut complete) = (0, 0);
        for (polls, is_complete) in attempts.join_all().await {
            assert!(polls > 1 || !is_complete);
            *if is_complete { &mut complete } else { &mut steps } += 1;
        }
        assert!(steps > 3 && complete > 0, "{steps} given up, {complete} complete");
    }))
    .await;
}

/// With a name that is looked up, and a socket of its own.
#[tokio::test]
async fn connecting_by_name_is_given_up_at_each_place() {
    in_time(async {
        let (server, client) = configs();
        let listener = Listener::bind("127.0.0.1:0", server).await.unwrap();
        let port = listener.local_addr().port();
        let client_side = async {
            let mut polls = 0;
            loop {
                let connecting = Connection::connect(("localhost", port), "localhost", &client);
                let ready = poll_times(connecting, polls, async |woken| woken.wait().await).await;
                if let Some(connected) = ready {
                    connected.unwrap().close(0, b"");
                    break;
                }
                polls += 1;
            }
            assert!(polls > 2, "{polls}: for the name, and for the server");
        };
        serve_until(listener, client_side).await;
    })
    .await;
}

#[tokio::test]
async fn binding_leaves_no_socket_behind() {
    in_time(async {
        let (server, _) = configs();
        let port = free_port();
        for binds_listener in [false, true] {
            let mut polls = 0;
            loop {
                let bind = async {
                    match binds_listener {
                        true => drop(Listener::bind(("127.0.0.1", port), server.clone()).await),
                        false => drop(Endpoint::bind(format!("localhost:{port}")).await),
                    }
                };
                let ready = poll_times(bind, polls, async |woken| woken.wait().await).await;
                // The task that drives an endpoint lets go of it in a turn of its own.
                while std::net::UdpSocket::bind(("127.0.0.1", port)).is_err() {
                    yield_now().await;
                }
                if ready.is_some() {
                    break;
                }
                polls += 1;
            }
        }
    })
    .await;
}
