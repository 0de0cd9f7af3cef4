//! A site in virtual time: connections that rebind, servers that come, drain and die, and
//! configurations that rotate. A connection may be lost with its server, and for no other reason.

#[path = "../src/testing.rs"]
mod testing;

use std::collections::HashMap;
use std::net::SocketAddr;

use quicket_balancer::{Config, Decision, Flow, Flows, Health, Numbers, Site, Snapshot};
use quicket_steering::{Configurations, Place, ServerId};
use quicket_testing::Rng;
use testing::toy_cipher;

/// Seconds of virtual time.
const SECONDS: u32 = 900;
const BALANCERS: usize = 2;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Serving,
    Draining,
    Dead,
}

struct Server {
    id: u32,
    state: State,
    /// The number of the configuration that it writes.
    issues: u8,
}

struct Connection {
    flow: Flow,
    server: u32,
    /// What the client sends to; the server's, once it has answered.
    dcid: Vec<u8>,
    answered: bool,
    ends: u32,
}

struct Balancer {
    numbers: Numbers,
    flows: Flows,
    snapshot: Snapshot,
}

struct World {
    rng: Rng,
    now: u32,
    servers: Vec<Server>,
    next_id: u32,
    next_port: u32,
    /// Numbers of configurations that balancers read.
    read: Vec<u8>,
    connections: Vec<Connection>,
    balancers: Vec<Balancer>,
    counts: HashMap<&'static str, u32>,
}

fn site(read: &[u8]) -> Site {
    let lines: String = read
        .iter()
        .map(|n| format!("config {n} server-id 4 nonce 12 key {}\n", format!("{n:02x}").repeat(16)))
        .collect();
    Site::parse(&format!("{lines}issue {}", read[0])).unwrap()
}

fn reader(read: &[u8]) -> Configurations {
    site(read).reader(&|key| toy_cipher(*key)).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            rng: Rng::new(seed),
            now: 0,
            servers: Vec::new(),
            next_id: 1,
            next_port: 0,
            read: vec![0],
            connections: Vec::new(),
            balancers: Vec::new(),
            counts: HashMap::new(),
        };
        for _ in 0..8 {
            world.add_server();
        }
        for number in 0..BALANCERS {
            let mut numbers = Numbers::default();
            let snapshot = world.snapshot(&mut numbers);
            let flows = Flows::new(1 << 14, 60, [number as u8; 16]);
            world.balancers.push(Balancer { numbers, flows, snapshot });
        }
        world
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn add_server(&mut self) {
        let issues = *self.read.last().unwrap();
        self.servers.push(Server { id: self.next_id, state: State::Serving, issues });
        self.next_id += 1;
    }

    fn snapshot(&self, numbers: &mut Numbers) -> Snapshot {
        let mut file = "listen 192.0.2.1:443\n".to_owned();
        for server in &self.servers {
            let state = match server.state {
                State::Serving => "",
                State::Draining => "drain",
                State::Dead => "down",
            };
            let id = server.id;
            file += &format!("server s{id} 10.0.0.{} id {id:08x} {state}\n", id % 250 + 1);
        }
        let config = Config::parse(&file).unwrap();
        Snapshot::new(&config, Some(reader(&self.read)), &Health::new(0), numbers, 0)
    }

    /// Tells all balancers what there is now.
    fn reload(&mut self) {
        let mut balancers = std::mem::take(&mut self.balancers);
        for balancer in &mut balancers {
            balancer.snapshot = self.snapshot(&mut balancer.numbers);
        }
        self.balancers = balancers;
    }

    /// The server that a balancer sends a datagram to.
    fn deliver(&mut self, balancer: usize, flow: &Flow, payload: &[u8]) -> Option<u32> {
        let balancer = &mut self.balancers[balancer];
        match balancer.snapshot.decide(&mut balancer.flows, flow, payload, self.now) {
            Decision::Forward { server, .. } => {
                balancer.snapshot.members()[server].name[1..].parse().ok()
            }
            Decision::Refuse(_) => None,
        }
    }

    fn server(&mut self, id: u32) -> Option<&mut Server> {
        self.servers.iter_mut().find(|server| server.id == id)
    }

    fn new_flow(&mut self) -> Flow {
        self.next_port += 1;
        let [_, a, b, c] = self.next_port.to_be_bytes();
        let client = SocketAddr::from(([172, a, b, c], 40_000));
        Flow { client, local: "192.0.2.1:443".parse().unwrap() }
    }

    fn mint(&mut self, id: u32) -> Vec<u8> {
        let issues = self.server(id).unwrap().issues;
        let reader = reader(&[issues]);
        let place = Place { server_id: ServerId::new(&id.to_be_bytes()).unwrap(), owner: None };
        let rng = &mut self.rng;
        let minted = reader.current().mint(&place, &mut |out| rng.fill(out)).unwrap();
        minted.as_slice().to_vec()
    }

    fn connect(&mut self) {
        let flow = self.new_flow();
        let mut dcid = vec![0; 8];
        self.rng.fill(&mut dcid);
        let initial = long(&dcid);
        let Some(id) = self.deliver(0, &flow, &initial) else { return self.count("refused") };
        match self.server(id).map(|server| server.state) {
            Some(State::Serving) => {}
            // Killed, and nobody has told the balancers yet: the client's next Initial is tried.
            _ => return self.count("attempts at a dead server"),
        }
        self.count("connections");
        let ends = self.now + 1 + self.rng.index(300) as u32;
        let answered = false;
        self.connections.push(Connection { flow, server: id, dcid, answered, ends });
    }

    /// A connection sends something. Whether it lives on.
    fn speak(&mut self, connection: &mut Connection) -> bool {
        let alive = match self.server(connection.server) {
            Some(server) => server.state != State::Dead,
            None => false,
        };
        // Once it has a connection ID of the server's, either balancer will do.
        let balancer = match connection.answered {
            true => self.rng.index(BALANCERS),
            false => 0,
        };
        let payload = match connection.answered {
            true => [&[0x40], &connection.dcid[..], &[0; 30]].concat(),
            false => long(&connection.dcid),
        };
        let went = self.deliver(balancer, &connection.flow, &payload);
        if !alive {
            self.count("lost with their server");
            return false;
        }
        assert_eq!(went, Some(connection.server), "at {} s a datagram went elsewhere", self.now);
        self.count("datagrams");
        if !connection.answered || self.rng.index(4) == 0 {
            connection.answered = true;
            connection.dcid = self.mint(connection.server);
        }
        if self.rng.index(5) == 0 {
            self.count("rebindings");
            connection.flow = self.new_flow();
        }
        self.now < connection.ends
    }

    fn second(&mut self) {
        self.now += 1;
        let mut connections = std::mem::take(&mut self.connections);
        connections.retain_mut(|connection| self.speak(connection));
        self.connections = connections;
        self.change();
        for _ in 0..3 {
            self.connect();
        }
    }

    /// What operators and misfortune do.
    fn change(&mut self) {
        match self.rng.index(60) {
            0 if self.servers.len() < 20 => {
                self.count("added");
                self.add_server();
            }
            1 => {
                let at = self.rng.index(self.servers.len());
                if self.servers.iter().filter(|one| one.state == State::Serving).count() > 3 {
                    self.count("killed");
                    self.servers[at].state = State::Dead;
                }
            }
            2 => {
                let at = self.rng.index(self.servers.len());
                if self.servers.iter().filter(|one| one.state == State::Serving).count() > 3 {
                    self.count("drained");
                    self.servers[at].state = State::Draining;
                }
            }
            3 => {
                // A drained one has no connections any more, a dead one never will: both are removed.
                let busy: Vec<u32> = self.connections.iter().map(|one| one.server).collect();
                let done = |server: &Server| {
                    server.state == State::Dead
                        || server.state == State::Draining && !busy.contains(&server.id)
                };
                self.servers.retain(|server| !done(server));
                self.count("removals");
            }
            4 if self.read.len() < 3 => {
                // First where datagrams are routed, then where connection IDs are issued.
                let next = (self.read.last().unwrap() + 1) % 7;
                self.read.push(next);
                self.count("rotations begun");
            }
            5 => {
                let newest = *self.read.last().unwrap();
                self.servers.iter_mut().for_each(|server| server.issues = newest);
            }
            6 => {
                // The oldest is forgotten once no connection uses it.
                let oldest = self.read[0];
                let used = |one: &Connection| !one.answered || one.dcid[0] >> 5 == oldest;
                let issued = self.servers.iter().any(|server| server.issues == oldest);
                if self.read.len() > 1 && !issued && !self.connections.iter().any(used) {
                    self.read.remove(0);
                    self.count("rotations ended");
                }
            }
            _ => return,
        }
        self.reload();
    }
}

fn long(dcid: &[u8]) -> Vec<u8> {
    let mut out = vec![0xc0, 0, 0, 0, 1, dcid.len() as u8];
    out.extend(dcid);
    out.resize(1200, 0);
    out
}

#[test]
fn connections_are_lost_with_their_server_only() {
    let first = std::env::var("SIMULATION_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = first.map_or(1..=6, |seed: u64| seed..=seed);
    let mut all: HashMap<&str, u32> = HashMap::new();
    for seed in seeds {
        println!("SIMULATION_SEED={seed}");
        let mut world = World::new(seed);
        for _ in 0..SECONDS {
            world.second();
        }
        for (what, count) in world.counts {
            *all.entry(what).or_default() += count;
        }
    }
    println!("{all:?}");
    if first.is_none() {
        for what in [
            "connections",
            "rebindings",
            "added",
            "killed",
            "drained",
            "removals",
            "rotations begun",
            "rotations ended",
            "lost with their server",
        ] {
            assert!(all.get(what).is_some_and(|count| *count > 5), "{what} happens: {all:?}");
        }
    }
}
