//! The client's half in this process, and small servers in Python.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quicket::tokio::Connection;
use quicket::{ClientConfig, ClientTls, TransportConfig};
use quicket_gateway::connect::{self, Event, Local, Server};
use quicket_testing::{Process, until};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::common::{Gateway, PATIENCE, directory, python};

/// A gateway that carries one protocol, `test`, as these lines say.
pub(crate) fn gateway(lines: &str) -> Gateway {
    Gateway::start_with(
        directory(),
        "listen = [\"127.0.0.1:0\"]\naccess_log = \"access.log\"\n",
        &format!("[limits]\nrequests = 1000\n[[protocol]]\nalpn = [\"test\"]\n{lines}"),
    )
}

/// How clients of a gateway connect.
pub(crate) fn config(gateway: &Gateway, alpn: &str) -> ClientConfig {
    let tls = ClientTls::builder().ca_file(gateway.path("cert.pem")).alpn([alpn]).build();
    let transport =
        TransportConfig { keep_alive: Duration::from_secs(5), ..TransportConfig::default() };
    ClientConfig::new(tls.unwrap()).transport(transport)
}

/// A connection to the gateway without anything between.
pub(crate) fn connection(gateway: &Gateway) -> Connection {
    let config = config(gateway, "test");
    let connecting = Connection::connect(gateway.addresses[0], "localhost", &config);
    gateway.runtime.block_on(connecting).unwrap()
}

/// The client's half.
pub(crate) struct Client {
    pub(crate) local: Local,
    said: Arc<Mutex<Vec<String>>>,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<JoinHandle<Result<(), connect::Error>>>,
}

impl Client {
    pub(crate) fn start(gateway: &Gateway, local: &str) -> Self {
        Self::start_with(gateway, local, config(gateway, "test"))
    }

    pub(crate) fn start_with(gateway: &Gateway, local: &str, config: ClientConfig) -> Self {
        let server = Server {
            host: "127.0.0.1".to_owned(),
            port: gateway.port(),
            name: "localhost".to_owned(),
            config,
            early_data: false,
        };
        let said = Arc::new(Mutex::new(Vec::new()));
        let listening = Arc::new(Mutex::new(None));
        let (heard, where_to) = (Arc::clone(&said), Arc::clone(&listening));
        let say: connect::Say = Arc::new(move |event: &Event| {
            if let Event::Listening(local) = event {
                *where_to.lock().unwrap() = Some(local.clone());
            }
            heard.lock().unwrap().push(event.to_string());
        });
        let (stop, stopped) = oneshot::channel();
        let wanted: Local = local.parse().unwrap();
        let ended = gateway.runtime.spawn(async move {
            let stop = async {
                let _ = stopped.await;
            };
            connect::run(server, wanted, say, stop).await
        });
        until("a local socket", || listening.lock().unwrap().is_some() || ended.is_finished());
        let local = listening.lock().unwrap().clone();
        let local = local.unwrap_or_else(|| panic!("it has ended: {:?}", said.lock().unwrap()));
        Self { local, said, stop: Some(stop), ended: Some(ended) }
    }

    /// The local address.
    pub(crate) fn at(&self) -> SocketAddr {
        match self.local {
            Local::Tcp(at) | Local::Udp(at) => at,
            _ => panic!("{:?} has no address", self.local),
        }
    }

    /// A local connection.
    pub(crate) fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn has_said(&self, what: &str) -> bool {
        self.said.lock().unwrap().iter().any(|said| said.contains(what))
    }

    pub(crate) fn stop(mut self, gateway: &Gateway) {
        drop(self.stop.take());
        gateway.runtime.block_on(self.ended.take().unwrap()).unwrap().unwrap();
    }
}

/// A TCP server in Python: `serve(s)` has each connection, on a thread of its own.
pub(crate) fn server(serve: &str) -> (Process, u16) {
    server_that_tells(serve, "/dev/null")
}

/// The same; what it tells with `tell` goes to a file.
pub(crate) fn server_that_tells(serve: &str, file: impl AsRef<Path>) -> (Process, u16) {
    let file = file.as_ref().display();
    python(&format!(
        "
import hashlib, os, socket, struct, threading
def rst(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    s.close()
def tell(what):
    with open('{file}', 'a') as file: print(what, file=file)
{serve}
listener = socket.create_server(('127.0.0.1', 0), backlog=1024)
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
"
    ))
}

/// Sends back what comes.
pub(crate) const ECHO: &str = "
def serve(s):
    try:
        while data := s.recv(65536):
            s.sendall(data)
    except ConnectionError:
        pass
    s.close()
";

/// Asks an echo server for an echo.
pub(crate) fn echoes(stream: &mut TcpStream, word: &[u8]) -> bool {
    let mut answer = vec![0; word.len()];
    stream.write_all(word).and_then(|()| stream.read_exact(&mut answer)).is_ok() && answer == word
}
