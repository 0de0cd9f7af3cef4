//! Two servers behind a load balancer that keeps no table and routes by connection ID
//! (draft-ietf-quic-load-balancers-21).

mod common;

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::{configs, exchange};
use quicket::steering::{
    Codec, ConfigId, Format, HashKey, Owner, OwnerBits, Place, RoutableConnectionIds, ServerId,
    aes_128,
};
use quicket::{Connection, Endpoint, EndpointConfig, Listener, ServerConfig};

const ANY: &str = "127.0.0.1:0";

fn codec() -> Codec {
    // Four passes of AES, and an owner behind the block.
    let format = Format::new(2, 10).unwrap().with_owner(OwnerBits::ONE_OCTET).unwrap();
    let mask = HashKey::new(*b"a secret");
    Codec::new(ConfigId::new(3).unwrap(), format, Some(aes_128(&[0x5a; 16])), mask)
}

fn place(number: u8) -> Place {
    Place {
        server_id: ServerId::new(&[0xab, number]).unwrap(),
        owner: Some(Owner { generation: number, worker: 5 }),
    }
}

fn server(number: u8, config: ServerConfig) -> Listener {
    let ids = RoutableConnectionIds::new(codec(), place(number)).unwrap();
    let endpoint = Endpoint::bind_with(ANY, EndpointConfig::default().connection_ids(ids)).unwrap();
    endpoint.listen(config).unwrap()
}

/// What the balancer saw.
#[derive(Default)]
struct Seen {
    /// Packets with short headers, each routed by its connection ID alone.
    routed: AtomicUsize,
    /// Those that no connection ID of ours led anywhere.
    unroutable: AtomicUsize,
    over: AtomicBool,
}

/// Forwards between clients and servers: by connection ID, or to `first` what has none of ours.
struct Balancer {
    public: Arc<UdpSocket>,
    servers: Vec<SocketAddr>,
    /// A socket for each client's address and server, by which answers come back.
    upstream: HashMap<(SocketAddr, usize), Arc<UdpSocket>>,
    seen: Arc<Seen>,
}

impl Balancer {
    fn run(mut self, codec: &Codec, first: usize) {
        let mut datagram = [0; 65_536];
        while !self.seen.over.load(Ordering::Relaxed) {
            let Ok((len, from)) = self.public.recv_from(&mut datagram) else { continue };
            let datagram = &datagram[..len];
            let short = datagram[0] & 0x80 == 0;
            // RFC 8999: a long header has its length at octet 5, a short one none.
            let octets = if short { &datagram[1..] } else { &datagram[6..] };
            let number = codec.place(octets).map(|place| {
                assert_eq!(Some(place.server_id), codec.server_id(octets));
                assert_eq!(place.owner, codec.owner(octets));
                usize::from(place.server_id.as_slice()[1])
            });
            if short {
                let count =
                    if number.is_some() { &self.seen.routed } else { &self.seen.unroutable };
                count.fetch_add(1, Ordering::Relaxed);
            }
            let to = self.towards(from, number.unwrap_or(first));
            let _ = to.send(datagram);
        }
    }

    fn towards(&mut self, client: SocketAddr, server: usize) -> Arc<UdpSocket> {
        let (public, seen) = (&self.public, &self.seen);
        let address = self.servers[server];
        let socket = self.upstream.entry((client, server)).or_insert_with(|| {
            let socket = Arc::new(socket());
            socket.connect(address).unwrap();
            let (back, public, seen) = (Arc::clone(&socket), Arc::clone(public), Arc::clone(seen));
            thread::spawn(move || {
                let mut datagram = [0; 65_536];
                while !seen.over.load(Ordering::Relaxed) {
                    if let Ok(len) = back.recv(&mut datagram) {
                        let _ = public.send_to(&datagram[..len], client);
                    }
                }
            });
            socket
        });
        Arc::clone(socket)
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    socket
}

#[test]
fn a_balancer_without_a_table_finds_the_server_of_a_client_that_moves() {
    let (server_config, client_config) = configs();
    let listeners = [0, 1].map(|number| server(number, server_config.clone()));
    let seen = Arc::new(Seen::default());
    let balancer = Balancer {
        public: Arc::new(socket()),
        servers: listeners.iter().map(Listener::local_addr).collect(),
        upstream: HashMap::new(),
        seen: Arc::clone(&seen),
    };
    let address = balancer.public.local_addr().unwrap();
    // First packets go to the server with number 1: all that reaches it later has found it.
    let running = thread::spawn(move || balancer.run(&codec(), 1));

    let [_, listener] = &listeners;
    let (client, server) = thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let client = Connection::connect(address, "localhost", &client_config).unwrap();
        (client, accepted.join().unwrap())
    });
    exchange(&client, &server);
    for _ in 0..3 {
        client.migrate(ANY.parse().unwrap()).unwrap();
        for _ in 0..10 {
            exchange(&client, &server);
        }
    }
    client.close(0, b"");
    server.closed();
    seen.over.store(true, Ordering::Relaxed);
    running.join().unwrap();
    assert!(seen.routed.load(Ordering::Relaxed) >= 40, "{:?}", seen.routed);
    assert_eq!(seen.unroutable.load(Ordering::Relaxed), 0);
}
