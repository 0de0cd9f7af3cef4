//! Datagrams of strangers and of a connection, changed on the way, into a server's and a
//! client's endpoint.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use quicket_engine::time::{Duration, Time};
use quicket_engine::{EcnCodepoint, EndpointConfig, RetryPolicy, Side};

use super::input::Input;
use crate::attack::{DuelOptions, Party, Sent};

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 50_000);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);
/// Steps of one run, so that no input takes long.
const MAX_STEPS: usize = 300;
/// Rounds at one instant.
const MAX_ROUNDS: usize = 10_000;

struct Net {
    now: Time,
    client: Party,
    server: Party,
    up: Vec<Sent>,
    down: Vec<Sent>,
}

pub(super) fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let options = input.byte();
    let mut net = Net::new(options);
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        net.step(&mut input);
    }
    // Whatever happened, silence ends all connections.
    (net.up, net.down) = (Vec::new(), Vec::new());
    net.pass(Duration::from_secs(3_600));
    net.client.bury();
    net.server.bury();
    assert!(net.client.connections.is_empty(), "the client's connection has not ended");
    assert!(net.server.connections.is_empty(), "a connection of the server has not ended");
    assert_eq!((net.client.endpoint.connections(), net.server.endpoint.connections()), (0, 0));
}

impl Net {
    fn new(options: u8) -> Self {
        let DuelOptions { endpoint, client, mut server, crypto, .. } =
            DuelOptions::new(Side::Client);
        server.retry = match options % 3 {
            0 => RetryPolicy::Never,
            1 => RetryPolicy::Always,
            _ => RetryPolicy::AboveHandshakes(1),
        };
        let server = Party::new(SERVER, endpoint, Some(server), crypto.clone(), 1);
        let config = EndpointConfig::new([8; 32], [9; 32]);
        let mut party = Party::new(CLIENT, config, None, crypto, 2);
        let now = Time::from_nanos(1_000_000_000);
        if options & 128 == 0 {
            let local = Some(CLIENT);
            let started = party.endpoint.connect(now, client, SERVER, local, "sim.example");
            let (handle, connection) = started.expect("the client starts");
            party.connections.insert(handle, connection);
            party.settle(handle);
        }
        Self { now, client: party, server, up: Vec::new(), down: Vec::new() }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        self.up.append(&mut self.client.transmit(self.now));
        self.down.append(&mut self.server.transmit(self.now));
        let what = input.byte();
        let to_server = what & 16 == 0;
        match what % 8 {
            0 | 1 => {
                let mut data = input.chunk().to_vec();
                self.deliver(to_server, self.source(to_server, what), &mut data);
            }
            2..=4 => {
                let queue = if to_server { &mut self.up } else { &mut self.down };
                if !queue.is_empty() {
                    let mut sent = queue.remove(0);
                    self.deliver(to_server, self.source(to_server, 0), &mut sent.data);
                }
            }
            5 => {
                let queue = if to_server { &mut self.up } else { &mut self.down };
                let index = usize::from(input.byte());
                if let Some(sent) = queue.get(index % queue.len().max(1)) {
                    let mut data = sent.data.clone();
                    change(&mut data, input);
                    self.deliver(to_server, self.source(to_server, what), &mut data);
                }
            }
            6 => self.pass(Duration::from_millis(u64::from(input.short()))),
            _ => {
                let queue = if to_server { &mut self.up } else { &mut self.down };
                if !queue.is_empty() {
                    queue.remove(0);
                }
            }
        }
        self.client.bury();
        self.server.bury();
    }

    fn source(&self, to_server: bool, what: u8) -> SocketAddr {
        let mut from = if to_server { CLIENT } else { SERVER };
        if what & 32 != 0 {
            from.set_port(1_024 + u16::from(what));
        }
        from
    }

    fn deliver(&mut self, to_server: bool, from: SocketAddr, data: &mut [u8]) {
        let party = if to_server { &mut self.server } else { &mut self.client };
        party.receive(self.now, from, EcnCodepoint::NotEct, data);
    }

    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut rounds = 0;
        loop {
            self.up.append(&mut self.client.transmit(self.now));
            self.down.append(&mut self.server.transmit(self.now));
            let next = self.client.next_timeout().into_iter().chain(self.server.next_timeout());
            let Some(at) = next.min().filter(|at| *at <= end) else { break };
            rounds = if at > self.now { 0 } else { rounds + 1 };
            assert!(rounds < MAX_ROUNDS, "a timer is due again and again");
            self.now = self.now.max(at);
            self.client.handle_timeouts(self.now);
            self.server.handle_timeouts(self.now);
        }
        self.now = end;
    }
}

/// Cuts, extends, overwrites.
fn change(data: &mut Vec<u8>, input: &mut Input<'_>) {
    let (how, at) = (input.byte(), usize::from(input.short()));
    match how % 4 {
        0 => data.truncate(at),
        1 => data.extend_from_slice(input.bytes(usize::from(how))),
        _ => {
            let with = input.bytes(usize::from(how >> 2));
            let start = at % data.len().max(1);
            data.iter_mut().skip(start).zip(with).for_each(|(byte, new)| *byte = *new);
        }
    }
}
