//! An address that programs share where every datagram is forwarded: its socket is lent to who has the most to read, and
//! all others go on, also when that program is replaced, or hands on to another worker.
#![cfg(target_os = "linux")]

#[path = "common/switch.rs"]
mod switch;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quicket::{
    ClientConfig, ClientTls, Endpoint, EndpointConfig, Identity, ServerConfig, ServerTls,
    SwitchConfig, Workers,
};
use tokio::io::AsyncWriteExt;

use switch::Switch;

/// How long anything may take on a machine that is busy.
const LONG: Duration = Duration::from_secs(60);
/// What a client sends, over and over.
const BLOCK: usize = 1 << 20;

impl Switch {
    fn lends(&self) {
        let begun = Instant::now();
        loop {
            let address = self.address();
            if address["loan"]["to"].is_object() {
                return;
            }
            assert!(begun.elapsed() < LONG, "it is not lent: {address}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn endpoint(&self, alpn: &str, workers: usize) -> EndpointConfig {
        let switch = SwitchConfig::new(alpn).named(&self.name).started_by(None).replace(true);
        EndpointConfig::default().switch(switch).workers(Workers::Count(workers))
    }

    /// A program that says how much has come on each stream, and what it is called.
    fn program(
        &self,
        called: &'static str,
        alpn: &str,
        at: SocketAddr,
        workers: usize,
    ) -> Endpoint {
        let endpoint = Endpoint::bind_with(at, self.endpoint(alpn, workers)).unwrap();
        let listener = endpoint.listen(server(alpn)).unwrap();
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    while let Ok(mut stream) = connection.accept_bi() {
                        let mut block = vec![0; BLOCK];
                        let mut count = 0;
                        while let Ok(len @ 1..) = stream.read(&mut block) {
                            assert!(block[..len].iter().all(|octet| *octet == b'x'));
                            count += len;
                        }
                        let _ = write!(stream, "{called} {count}");
                        let _ = stream.finish();
                    }
                });
            }
        });
        endpoint
    }
}

fn server(alpn: &str) -> ServerConfig {
    let identity = Identity::self_signed(["localhost"]).unwrap();
    ServerConfig::new(ServerTls::builder(identity).alpn([alpn]).build().unwrap())
}

fn client(alpn: &str) -> ClientConfig {
    ClientConfig::new(
        ClientTls::builder().dangerous_no_verification().alpn([alpn]).build().unwrap(),
    )
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A client that sends on one stream until it is told to stop.
struct Upload {
    stops: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: JoinHandle<(u64, String)>,
}

impl Upload {
    fn to(address: SocketAddr, alpn: &'static str) -> Self {
        let (stops, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (told, count) = (Arc::clone(&stops), Arc::clone(&sent));
        let thread = thread::spawn(move || {
            let endpoint = Endpoint::bind(any()).unwrap();
            let connection = endpoint.connect(address, "localhost", &client(alpn)).unwrap();
            let mut stream = connection.open_bi().unwrap();
            let block = vec![b'x'; BLOCK];
            while !told.load(Ordering::SeqCst) {
                stream.write_all(&block).unwrap();
                count.fetch_add(BLOCK as u64, Ordering::SeqCst);
            }
            stream.finish().unwrap();
            let answer = stream.read_to_end(100).unwrap();
            (count.load(Ordering::SeqCst), String::from_utf8(answer).unwrap())
        });
        Self { stops, sent, thread }
    }

    /// Waits until so much more was sent.
    fn goes_on(&self, blocks: u64) {
        let (before, begun) = (self.sent.load(Ordering::SeqCst), Instant::now());
        while self.sent.load(Ordering::SeqCst) < before + blocks * BLOCK as u64 {
            assert!(begun.elapsed() < LONG && !self.thread.is_finished(), "it does not go on");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// All has come, to the program that is called so.
    fn comes_to(self, called: &str) {
        self.stops.store(true, Ordering::SeqCst);
        let (sent, answer) = self.thread.join().unwrap();
        assert_eq!(answer, format!("{called} {sent}"));
    }
}

/// A client that asks and has an answer.
fn ask(address: SocketAddr, alpn: &str) -> String {
    let endpoint = Endpoint::bind(any()).unwrap();
    let connection = endpoint.connect(address, "localhost", &client(alpn)).unwrap();
    let mut stream = connection.open_bi().unwrap();
    stream.write_all(b"xx").unwrap();
    stream.finish().unwrap();
    String::from_utf8(stream.read_to_end(100).unwrap()).unwrap()
}

/// Two programs, of which one gets a transfer; then its next generation, and the next switch.
fn others_go_on(workers: usize) {
    let switch = Switch::forwarding();
    let bulk = switch.program("bulk", "bulk", any(), workers);
    let address = bulk.local_addr();
    let _chat = switch.program("chat", "chat", address, 1);
    let upload = Upload::to(address, "bulk");
    switch.lends();
    for _ in 0..10 {
        assert_eq!(ask(address, "chat"), "chat 2");
        assert_eq!(ask(address, "bulk"), "bulk 2");
    }
    upload.goes_on(4);
    // A client of the other one that is there for longer.
    let other = Endpoint::bind(any()).unwrap();
    let there = other.connect(address, "localhost", &client("chat")).unwrap();
    let _next = switch.program("next", "bulk", address, workers);
    switch.lends();
    assert_eq!((ask(address, "bulk"), ask(address, "chat")), ("next 2".into(), "chat 2".into()));
    upload.goes_on(4);
    let switch = switch.next();
    upload.goes_on(4);
    switch.lends();
    for _ in 0..5 {
        assert_eq!(ask(address, "chat"), "chat 2");
        assert_eq!(ask(address, "bulk"), "next 2");
    }
    let mut stream = there.open_bi().unwrap();
    stream.write_all(b"xxx").unwrap();
    stream.finish().unwrap();
    assert_eq!(stream.read_to_end(100).unwrap(), b"chat 3");
    upload.goes_on(4);
    upload.comes_to("bulk");
    let said = switch.address();
    assert!(said["datagrams"]["handed_back"].as_u64().unwrap() > 0, "{said}");
}

#[test]
fn others_go_on_while_one_program_reads_the_socket() {
    others_go_on(1);
}

#[test]
fn workers_hand_on_what_one_of_them_reads() {
    others_go_on(3);
}

/// A program whose runtime waits for the socket.
#[test]
fn a_task_reads_the_socket_as_well() {
    let switch = Switch::forwarding();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let config = switch.endpoint("bulk", 1);
    thread::spawn(move || {
        runtime.block_on(async {
            let endpoint = quicket::tokio::Endpoint::bind_with(any(), config).await.unwrap();
            let listener = endpoint.listen(server("bulk")).unwrap();
            tell.send(endpoint.local_addr()).unwrap();
            while let Ok(connection) = listener.accept().await {
                tokio::spawn(async move {
                    while let Ok(mut stream) = connection.accept_bi().await {
                        let came = stream.read_to_end(usize::MAX).await.unwrap();
                        let answer = format!("task {}", came.len());
                        stream.write_all(answer.as_bytes()).await.unwrap();
                        stream.finish().unwrap();
                    }
                });
            }
        });
    });
    let address = told.recv().unwrap();
    let _chat = switch.program("chat", "chat", address, 1);
    let upload = Upload::to(address, "bulk");
    switch.lends();
    for _ in 0..5 {
        assert_eq!(
            (ask(address, "chat"), ask(address, "bulk")),
            ("chat 2".into(), "task 2".into())
        );
    }
    upload.goes_on(8);
    upload.comes_to("task");
}
