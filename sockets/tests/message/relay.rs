//! A path that keeps some packets from a client and a server.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the relay looks whether it should do something else.
const TICK: Duration = Duration::from_millis(5);

/// Passes datagrams on between one client and a server.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    switches: Arc<Switches>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Switches {
    /// What is shorter does not reach the server.
    least_to_server: AtomicUsize,
    /// What goes to the client waits.
    holds_to_client: AtomicBool,
    client: Mutex<Option<SocketAddr>>,
    over: AtomicBool,
}

impl Relay {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let [front, back] = [(); 2].map(|()| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(TICK)).unwrap();
            Arc::new(socket)
        });
        back.connect(server).unwrap();
        let address = front.local_addr().unwrap();
        let switches = Arc::new(Switches::default());
        let forth = {
            let (front, back, switches) = (front.clone(), back.clone(), switches.clone());
            std::thread::spawn(move || switches.pass_to_server(&front, &back))
        };
        let and_back = {
            let switches = switches.clone();
            std::thread::spawn(move || switches.pass_to_client(&front, &back))
        };
        Self { address, switches, threads: vec![forth, and_back] }
    }

    /// Drops what is shorter on its way to the server.
    pub(crate) fn drop_below(&self, least: usize) {
        self.switches.least_to_server.store(least, Ordering::SeqCst);
    }

    /// Keeps what goes to the client, until it does no more.
    pub(crate) fn hold_to_client(&self, hold: bool) {
        self.switches.holds_to_client.store(hold, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.switches.over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

impl Switches {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn pass_to_server(&self, front: &UdpSocket, back: &UdpSocket) {
        let mut buffer = [0; 65_536];
        while !self.is_over() {
            let Ok((len, client)) = front.recv_from(&mut buffer) else { continue };
            *self.client.lock().unwrap() = Some(client);
            if len >= self.least_to_server.load(Ordering::SeqCst) {
                // Nobody may be there any more.
                let _ = back.send(&buffer[..len]);
            }
        }
    }

    fn pass_to_client(&self, front: &UdpSocket, back: &UdpSocket) {
        let mut buffer = [0; 65_536];
        let mut held = Vec::new();
        while !self.is_over() {
            if let Ok(len) = back.recv(&mut buffer) {
                held.push(buffer[..len].to_vec());
            }
            if !self.holds_to_client.load(Ordering::SeqCst) {
                let client = *self.client.lock().unwrap();
                for datagram in held.drain(..) {
                    let _ = front.send_to(&datagram, client.unwrap());
                }
            }
        }
    }
}
