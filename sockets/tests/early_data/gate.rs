//! A path on which the server's packets wait for the test.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// How long a thread of the path waits for packets until it ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// Passes packets on between clients and a server. While it is shut, the server's packets wait, so
/// that no handshake completes.
pub(crate) struct Gate {
    address: SocketAddr,
    door: Arc<Door>,
}

#[derive(Default)]
struct Door {
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// An open one before `server`.
    pub(crate) fn before(server: SocketAddr) -> Self {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        front.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = front.local_addr().unwrap();
        let door = Arc::new(Door::default());
        let returning = Arc::clone(&door);
        thread::spawn(move || pass_on(&front, server, &returning));
        Self { address, door }
    }

    /// Where clients find the server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name of the server in a session store.
    pub(crate) fn name(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    pub(crate) fn shut(&self) {
        *self.door.shut.lock().unwrap() = true;
    }

    pub(crate) fn open(&self) {
        *self.door.shut.lock().unwrap() = false;
        self.door.opened.notify_all();
    }
}

/// Hands packets of clients to `server`, each client's from a port of its own.
fn pass_on(front: &Arc<UdpSocket>, server: SocketAddr, door: &Arc<Door>) {
    let mut ways = HashMap::new();
    let mut packet = vec![0; 65_536];
    while let Ok((len, client)) = front.recv_from(&mut packet) {
        let back = ways.entry(client).or_insert_with(|| {
            let back = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
            back.connect(server).unwrap();
            back.set_read_timeout(Some(PATIENCE)).unwrap();
            let (front, door, way) = (Arc::clone(front), Arc::clone(door), Arc::clone(&back));
            thread::spawn(move || pass_back(&way, &front, client, &door));
            back
        });
        // Nobody may be there any more.
        let _ = back.send(&packet[..len]);
    }
}

fn pass_back(back: &UdpSocket, front: &UdpSocket, client: SocketAddr, door: &Door) {
    let mut packet = vec![0; 65_536];
    while let Ok(len) = back.recv(&mut packet) {
        drop(door.opened.wait_while(door.shut.lock().unwrap(), |shut| *shut).unwrap());
        let _ = front.send_to(&packet[..len], client);
    }
}
