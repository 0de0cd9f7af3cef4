//! A plain spreader of UDP: each client's packets go to one gateway, by its address.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How long a thread waits for packets until it ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where new clients go.
enum To {
    Gateway(SocketAddr),
    /// One after the other.
    Each(Vec<SocketAddr>, usize),
    /// Nowhere: what they send is kept.
    Record(Arc<Mutex<Vec<Vec<u8>>>>),
    /// To a gateway, and what they send is kept.
    Tap(SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>),
}

/// One address before several gateways.
pub(crate) struct Spreader {
    address: SocketAddr,
    to: Arc<Mutex<To>>,
}

impl Spreader {
    pub(crate) fn start(first: SocketAddr) -> Self {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        front.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = front.local_addr().unwrap();
        let to = Arc::new(Mutex::new(To::Gateway(first)));
        let chosen = Arc::clone(&to);
        thread::spawn(move || spread(&front, &chosen));
        Self { address, to }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name of the site in a session store.
    pub(crate) fn name(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// New clients go to this gateway.
    pub(crate) fn lead_to(&self, gateway: SocketAddr) {
        *self.to.lock().unwrap() = To::Gateway(gateway);
    }

    /// New clients go to these in turn.
    pub(crate) fn lead_to_all(&self, gateways: Vec<SocketAddr>) {
        *self.to.lock().unwrap() = To::Each(gateways, 0);
    }

    /// What new clients send is kept, and goes nowhere.
    pub(crate) fn record(&self) -> Arc<Mutex<Vec<Vec<u8>>>> {
        let kept = Arc::default();
        *self.to.lock().unwrap() = To::Record(Arc::clone(&kept));
        kept
    }

    /// New clients go to this gateway, and what they send is kept.
    pub(crate) fn tap(&self, gateway: SocketAddr) -> Arc<Mutex<Vec<Vec<u8>>>> {
        let kept = Arc::default();
        *self.to.lock().unwrap() = To::Tap(gateway, Arc::clone(&kept));
        kept
    }
}

/// What is kept of a client, and where it goes.
type Choice = (Option<Arc<Mutex<Vec<Vec<u8>>>>>, Option<SocketAddr>);

fn choose(to: &mut To) -> Choice {
    match to {
        To::Record(kept) => (Some(Arc::clone(kept)), None),
        To::Tap(gateway, kept) => (Some(Arc::clone(kept)), Some(*gateway)),
        To::Gateway(gateway) => (None, Some(*gateway)),
        To::Each(gateways, next) => {
            *next += 1;
            (None, Some(gateways[*next % gateways.len()]))
        }
    }
}

fn spread(front: &Arc<UdpSocket>, chosen: &Mutex<To>) {
    let mut ways = HashMap::new();
    let mut packet = vec![0; 65_536];
    while let Ok((len, client)) = front.recv_from(&mut packet) {
        let way = ways.entry(client).or_insert_with(|| {
            let (kept, gateway) = choose(&mut chosen.lock().unwrap());
            let out = gateway.map(|gateway| {
                let out = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
                out.connect(gateway).unwrap();
                out.set_read_timeout(Some(PATIENCE)).unwrap();
                let (front, back) = (Arc::clone(front), Arc::clone(&out));
                thread::spawn(move || {
                    let mut packet = vec![0; 65_536];
                    while let Ok(len) = back.recv(&mut packet) {
                        let _ = front.send_to(&packet[..len], client);
                    }
                });
                out
            });
            (kept, out)
        });
        if let Some(kept) = &way.0 {
            kept.lock().unwrap().push(packet[..len].to_vec());
        }
        if let Some(out) = &way.1 {
            let _ = out.send(&packet[..len]);
        }
    }
}
