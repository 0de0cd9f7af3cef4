//! A relay between a client and servers, which remembers what the client sent first.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const ANY: &str = "127.0.0.1:0";
/// How long a thread of the relay waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Forwards until it is dropped.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
}

struct Shared {
    state: Mutex<State>,
    over: AtomicBool,
}

struct State {
    server: SocketAddr,
    client: Option<SocketAddr>,
    /// What the client sent before anything came back.
    first: Vec<Vec<u8>>,
    answered: bool,
    /// Called with that before the first answer goes to the client.
    on_answer: Option<Box<OnAnswer>>,
}

type OnAnswer = dyn FnOnce(&[Vec<u8>]) + Send;

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.set_read_timeout(Some(LOOK)).unwrap();
    socket
}

impl Relay {
    /// A relay to `server`. `on_answer` is called with what the client sent before anything came
    /// back, when the server has answered and the client does not know yet.
    pub(crate) fn to(
        server: SocketAddr,
        on_answer: impl FnOnce(&[Vec<u8>]) + Send + 'static,
    ) -> Self {
        let (front, back) = (Arc::new(socket()), Arc::new(socket()));
        let address = front.local_addr().unwrap();
        let state = State {
            server,
            client: None,
            first: Vec::new(),
            answered: false,
            on_answer: Some(Box::new(on_answer)),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), over: AtomicBool::new(false) });
        let up = (Arc::clone(&shared), Arc::clone(&front), Arc::clone(&back));
        thread::spawn(move || {
            let (shared, front, back) = up;
            shared.forward(&front, |bytes, from, state| {
                state.client = Some(from);
                if !state.answered {
                    state.first.push(bytes.to_vec());
                }
                let _ = back.send_to(bytes, state.server);
            });
        });
        let down = Arc::clone(&shared);
        thread::spawn(move || {
            down.forward(&back, |bytes, _, state| {
                state.answered = true;
                if let Some(on_answer) = state.on_answer.take() {
                    on_answer(&state.first);
                }
                if let Some(client) = state.client {
                    let _ = front.send_to(bytes, client);
                }
            });
        });
        Self { shared, address }
    }

    /// Forwards to another server from now on.
    pub(crate) fn turn_to(&self, server: SocketAddr) {
        self.shared.state.lock().unwrap().server = server;
    }

    /// What the client sent before anything came back.
    pub(crate) fn first(&self) -> Vec<Vec<u8>> {
        self.shared.state.lock().unwrap().first.clone()
    }
}

impl Shared {
    fn forward(&self, from: &UdpSocket, mut act: impl FnMut(&[u8], SocketAddr, &mut State)) {
        let mut buffer = vec![0; 65_536];
        while !self.over.load(Ordering::SeqCst) {
            if let Ok((len, source)) = from.recv_from(&mut buffer) {
                act(&buffer[..len], source, &mut self.state.lock().unwrap());
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
    }
}

/// Sends datagrams from `ports` ports that were never used before.
pub(crate) fn send_from_elsewhere(datagrams: &[Vec<u8>], to: SocketAddr, ports: usize) {
    let sockets: Vec<_> = (0..ports).map(|_| socket()).collect();
    for socket in &sockets {
        datagrams.iter().for_each(|bytes| assert!(socket.send_to(bytes, to).is_ok()));
    }
}
