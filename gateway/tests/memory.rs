//! What an idle connection of HTTP/3 costs a gateway, in bytes of the heap.
//!
//! The client is a process of its own, so that all that is counted here is the gateway's.

mod common;

use std::io::{BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Gateway, directory};
use quicket::tokio::Endpoint;
use quicket::{ClientConfig, ClientTls, TransportConfig};
use quicket_testing::allocator::{Counting, bytes_in_use, settled};

/// The most that an idle connection may take. A quarter KiB of it is the timer that ends it, and what is counted for that.
const LIMIT: i64 = 15 * 1024 + 512;
/// Connections that warm up what is allocated once.
const FIRST: usize = 64;
/// Connections that are counted: tables that double do so once meanwhile.
const COUNTED: usize = 64;
/// Tells the process that plays the client where the gateway is.
const GATEWAY: &str = "QUICKET_TEST_MEMORY_GATEWAY";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How soon a connection is to be idle: before the gateway ends it for that, after 30 s.
const SOON: Duration = Duration::from_secs(15);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The client's process. It ends when its input does.
struct Client {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(gateway: &Gateway) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--nocapture", "-q"]).env(GATEWAY, gateway.addresses[0].to_string());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, input, output }
    }

    /// Makes some connections, each of which has had an answer.
    fn connect(&mut self, count: usize) {
        self.input.as_ref().unwrap().write_all(&vec![b'+'; count]).unwrap();
        let answers = self.output.by_ref().bytes().map(Result::unwrap).filter(|&byte| byte == b'+');
        assert_eq!(answers.take(count).count(), count);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

/// Makes a connection for every byte of the input, asks once, and holds it to the end.
fn play_client(gateway: &str) {
    let address: std::net::SocketAddr = gateway.parse().unwrap();
    let tls = ClientTls::builder().dangerous_no_verification().alpn(["h3"]).build().unwrap();
    let transport =
        TransportConfig { max_idle_timeout: 10 * PATIENCE, ..TransportConfig::default() };
    let config = ClientConfig::new(tls).transport(transport);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let endpoint = runtime.block_on(Endpoint::bind("127.0.0.1:0")).unwrap();
    let mut connections = Vec::new();
    for _ in std::io::stdin().lock().bytes() {
        connections.push(runtime.block_on(async {
            let connection = endpoint.connect(address, "localhost", &config).await.unwrap();
            let transport = quicket_h3::Connection::new(connection);
            let (mut session, mut requests) = h3::client::new(transport).await.unwrap();
            tokio::spawn(async move { session.wait_idle().await });
            let request = http::Request::get("https://localhost/").body(()).unwrap();
            let mut stream = requests.send_request(request).await.unwrap();
            stream.finish().await.unwrap();
            assert_eq!(stream.recv_response().await.unwrap().status(), 204);
            requests
        }));
        print!("+");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn an_idle_connection_of_http3_takes_few_kilobytes() {
    if let Ok(gateway) = std::env::var(GATEWAY) {
        return play_client(&gateway);
    }
    let top = "listen = [\"127.0.0.1:0\"]\n";
    let file = "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = { status = 204 }\n";
    let gateway = Gateway::start_with(directory(), top, file);
    let mut client = Client::start(&gateway);
    client.connect(FIRST);
    let before = settled();
    client.connect(COUNTED);
    let each = || (bytes_in_use() - before) / COUNTED as i64;
    // On a busy machine timers are late.
    let start = Instant::now();
    while each() > LIMIT && start.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((1..=LIMIT).contains(&each()), "{} bytes per idle connection", each());
}
