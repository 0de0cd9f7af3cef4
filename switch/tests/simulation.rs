//! A site in virtual time: two hosts behind a balancer, each with a switch, programs that are upgraded,
//! crash and come back, and switches that crash; clients that rebind, over a network that loses,
//! duplicates and reorders; and strangers who guess and replay.
//!
//! What must hold: no datagram of a living connection reaches the wrong worker more than once, and
//! then only one that was sent before the client heard of the right one.
//!
//! `SIMULATION_SEED` runs one seed instead of those that there are.

#[path = "../src/testing.rs"]
mod testing;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use quicket_engine::ReplyRates;
use quicket_engine::time::{Duration, Time};
use quicket_sim::test_crypto::TestCrypto;
use quicket_steering::{
    Block, BlockCipher, Codec, ConfigId, Configurations, Format, HashKey, Owner, ServerId,
};
use quicket_switch::registry::{
    AddressId, Claim, ListenAddress, ListenerId, Names, OWNER_BITS, Phase, Place, ProcessId,
    Protocol, Receipt, Receipts, RegisterError, Registration, Standing,
};
use quicket_switch::router::{Decision, Piece, Reader, Train};
use quicket_switch::{Registry, Router};
use quicket_wire::{ConnectionId, EcnCodepoint};

use quicket_testing::Rng;
use testing::{Client, client_hello};

/// Virtual time of a seed, in steps of 10 milliseconds.
const STEPS: u64 = 12_000;
const HOSTS: usize = 2;
const PROGRAMS: [&str; 3] = ["web", "dns", "chat"];

#[derive(Debug)]
struct Toy;

impl BlockCipher for Toy {
    fn encrypt(&self, block: &mut Block) {
        block.iter_mut().for_each(|octet| *octet = octet.wrapping_add(91).rotate_left(3));
    }

    fn decrypt(&self, block: &mut Block) {
        block.iter_mut().for_each(|octet| *octet = octet.rotate_right(3).wrapping_sub(91));
    }
}

fn codec() -> Codec {
    let format = Format::new(1, 9).unwrap().with_owner(OWNER_BITS).unwrap();
    let mask = HashKey::new(*b"maskmask");
    Codec::new(ConfigId::new(2).unwrap(), format, Some(Arc::new(Toy)), mask)
}

fn server_id(host: usize) -> ServerId {
    ServerId::new(&[host as u8 + 1]).unwrap()
}

fn listen_address() -> ListenAddress {
    ListenAddress::new("192.0.2.1:443".parse().unwrap(), false)
}

/// A process, which is a generation of a program.
struct Process {
    number: u64,
    program: usize,
    workers: u16,
    /// Its listener, while it is registered.
    listener: Option<ListenerId>,
    generation: u8,
    receipt: Receipt,
    phase: State,
    /// When it does what comes next: becomes ready, comes back to a new switch, or ends.
    at: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Preparing,
    Serving,
    Draining,
}

struct Host {
    registry: Registry,
    router: Router,
    address: Option<AddressId>,
    processes: Vec<Process>,
    switches: u64,
}

/// Where a connection lives.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Home {
    host: usize,
    process: u64,
    worker: u16,
    generation: u8,
}

struct Connection {
    remote: SocketAddr,
    program: usize,
    hello: Vec<Vec<u8>>,
    home: Option<Home>,
    /// The connection IDs that the client knows; the first time it hears of one, its handshake is on.
    ids: Vec<ConnectionId>,
    wrong: u32,
    ends: u64,
}

struct Packet {
    connection: Option<u64>,
    remote: SocketAddr,
    bytes: Vec<u8>,
}

struct World {
    rng: Rng,
    step: u64,
    hosts: Vec<Host>,
    connections: BTreeMap<u64, Connection>,
    flying: BTreeMap<(u64, u64), Packet>,
    recorded: Vec<Packet>,
    /// First connection IDs that strangers have replayed: who sees a client's packets can have its
    /// attempt fail.
    replayed: HashSet<Vec<u8>>,
    next: u64,
    counts: HashMap<&'static str, u64>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            rng: Rng::new(seed),
            step: 0,
            hosts: Vec::new(),
            connections: BTreeMap::new(),
            flying: BTreeMap::new(),
            recorded: Vec::new(),
            replayed: HashSet::new(),
            next: 0,
            counts: HashMap::new(),
        };
        for host in 0..HOSTS {
            let (registry, router) = world.new_switch(host, 0);
            let host = Host { registry, router, address: None, processes: Vec::new(), switches: 0 };
            world.hosts.push(host);
        }
        for host in 0..HOSTS {
            (0..PROGRAMS.len()).for_each(|program| world.start(host, program));
        }
        world
    }

    fn now(&self) -> Time {
        Time::from_nanos((self.step + 1000) * 10_000_000)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn new_switch(&mut self, host: usize, switches: u64) -> (Registry, Router) {
        let begins = self.now().as_nanos();
        let receipts = Receipts::new(Arc::new(TestCrypto), [host as u8; 32], begins);
        let registry = Registry::new(self.now(), 0, receipts, switches > 0);
        let router = Router::new(Arc::new(TestCrypto), [3; 16], ReplyRates::default());
        (registry, router)
    }

    /// A new generation of a program.
    fn start(&mut self, host: usize, program: usize) {
        let number = self.number();
        let workers = 1 + self.rng.index(4) as u16;
        let mut process = Process {
            number,
            program,
            workers,
            listener: None,
            generation: 0,
            receipt: Receipt { incarnation: 0, proof: [0; 16] },
            phase: State::Preparing,
            at: self.step + self.rng.index(100) as u64,
        };
        if self.register(host, &mut process, None).is_ok() {
            self.hosts[host].processes.push(process);
            self.count("generations");
        } else {
            self.count("generations that had to wait");
        }
    }

    fn register(
        &mut self,
        host: usize,
        process: &mut Process,
        claim: Option<Claim>,
    ) -> Result<(), RegisterError> {
        let now = self.now();
        let host_id = host;
        let host = &mut self.hosts[host];
        let name = PROGRAMS[process.program];
        let new = Registration {
            address: listen_address(),
            // Each program has a user of its own, who is not the switch's.
            uid: 1000 + process.program as u32,
            process: ProcessId(process.number),
            program: name.to_owned(),
            names: Names::new([Protocol::new(name.as_bytes()).unwrap()], []).unwrap(),
            workers: process.workers,
            reuse_port: false,
            replace: true,
            claim,
            family: None,
            attention: quicket_switch::registry::Attention::default(),
        };
        let registered = host.registry.register(now, new)?;
        assert!(claim.is_none() || registered.kept, "who had a number has it");
        let address = registered.listener.address();
        if registered.new_address {
            let configurations = Configurations::new(codec());
            let reader = Reader { configurations, server_id: Some(server_id(host_id)) };
            host.router.set_reader(address, reader);
            host.address = Some(address);
        }
        process.listener = Some(registered.listener);
        process.generation = registered.listener.generation();
        process.receipt = registered.receipt;
        Ok(())
    }

    /// What operators, time and misfortune do to a host.
    fn change(&mut self, host: usize) {
        match self.rng.index(4000) {
            0..=7 => {
                let program = self.rng.index(PROGRAMS.len());
                self.start(host, program);
            }
            8..=9 => self.kill(host),
            10 => self.crash_switch(host),
            _ => {}
        }
        let (now, step) = (self.now(), self.step);
        while self.hosts[host].registry.poll(now).is_some() {}
        let mut processes = std::mem::take(&mut self.hosts[host].processes);
        for process in &mut processes {
            self.proceed(host, process, step);
        }
        processes.iter_mut().for_each(|process| self.hear(host, process));
        // Those that drain end with their last connection.
        let (gone, stay) = processes.into_iter().partition(|process: &Process| {
            process.phase == State::Draining
                && process.listener.is_some()
                && !self.connections.values().any(|each| lives_in(each, process.number))
        });
        self.hosts[host].processes = stay;
        let gone: Vec<Process> = gone;
        for process in gone {
            self.end(host, &process);
            self.count("generations that ended");
        }
    }

    fn proceed(&mut self, host: usize, process: &mut Process, step: u64) {
        let now = self.now();
        if process.listener.is_none() && step >= process.at {
            let draining = process.phase == State::Draining;
            let claim =
                Claim { generation: process.generation, receipt: process.receipt, draining };
            self.register(host, process, Some(claim)).expect("it comes back");
            self.count("registered again");
            let id = process.listener.unwrap();
            if process.phase == State::Serving {
                self.hosts[host].registry.ready(now, id, None).unwrap();
            }
        }
        let Some(id) = process.listener else { return };
        if process.phase == State::Preparing && step >= process.at {
            self.hosts[host].registry.ready(now, id, None).unwrap();
            process.phase = State::Serving;
            self.count("upgrades");
        }
    }

    /// As the switch told it.
    fn hear(&self, host: usize, process: &mut Process) {
        let phase = process.listener.and_then(|id| self.hosts[host].registry.phase(id));
        if matches!(phase, Some(Phase::Draining { .. })) {
            process.phase = State::Draining;
        }
    }

    fn end(&mut self, host: usize, process: &Process) {
        let now = self.now();
        let host = &mut self.hosts[host];
        for id in host.registry.remove_process(now, ProcessId(process.number)) {
            host.router.remove_listener(id);
        }
    }

    fn kill(&mut self, host: usize) {
        let count = self.hosts[host].processes.len();
        if count == 0 {
            return;
        }
        let at = self.rng.index(count);
        let process = self.hosts[host].processes.remove(at);
        self.end(host, &process);
        self.count("killed");
        let program = process.program;
        let serves = |each: &Process| each.program == program && each.phase == State::Serving;
        if !self.hosts[host].processes.iter().any(serves) {
            self.start(host, program);
        }
    }

    /// Everything that it remembered is gone; programs come back within a second.
    fn crash_switch(&mut self, host: usize) {
        let switches = self.hosts[host].switches + 1;
        let (registry, router) = self.new_switch(host, switches);
        let step = self.step;
        let mut delays: Vec<u64> = Vec::new();
        for _ in 0..self.hosts[host].processes.len() {
            delays.push(self.rng.index(100) as u64);
        }
        let host = &mut self.hosts[host];
        (host.registry, host.router, host.switches) = (registry, router, switches);
        host.address = None;
        for (process, delay) in host.processes.iter_mut().zip(delays) {
            process.listener = None;
            process.at = process.at.max(step + delay);
        }
        self.count("crashes of a switch");
    }

    fn remote(&mut self) -> SocketAddr {
        let [_, a, b, c] = (self.rng.next() as u32).to_be_bytes();
        SocketAddr::from(([10, a, b, c], 1024 + (self.rng.next() % 60_000) as u16))
    }

    fn connect(&mut self) {
        let mut client = Client::new(&mut self.rng);
        let program = self.rng.index(PROGRAMS.len());
        let datagrams = 1 + self.rng.index(3);
        let message = client_hello(Some("a.org"), &[PROGRAMS[program]], 900 * (datagrams - 1));
        let hello = client.hello(&TestCrypto, &message, datagrams);
        let number = self.number();
        let ends = self.step + 100 + self.rng.index(3000) as u64;
        let connection = Connection {
            remote: self.remote(),
            program,
            hello,
            home: None,
            ids: Vec::new(),
            wrong: 0,
            ends,
        };
        self.connections.insert(number, connection);
        self.count("connections");
    }

    /// A client sends something.
    fn speak(&mut self, number: u64) {
        if self.rng.index(20) == 0 {
            let remote = self.remote();
            self.connections.get_mut(&number).unwrap().remote = remote;
            self.count("rebindings");
        }
        let connection = &self.connections[&number];
        let remote = connection.remote;
        let datagrams = if connection.ids.is_empty() {
            connection.hello.clone()
        } else {
            let id = connection.ids[self.rng.index(connection.ids.len())];
            let mut bytes = [&[0x40][..], id.as_slice()].concat();
            bytes.resize(40 + self.rng.index(1000), 0x77);
            vec![bytes; 1 + self.rng.index(3)]
        };
        for bytes in datagrams {
            self.send(Packet { connection: Some(number), remote, bytes });
        }
    }

    /// One in twenty is lost, one in twenty comes twice, and each takes its time.
    fn send(&mut self, packet: Packet) {
        let fate = self.rng.index(20);
        if fate == 0 {
            return;
        }
        for _ in 0..1 + u64::from(fate == 1) {
            let late = if self.rng.index(20) == 0 { 30 } else { 2 };
            let arrives = self.step + 1 + self.rng.index(late) as u64;
            let number = self.number();
            let copy = Packet { bytes: packet.bytes.clone(), ..packet };
            self.flying.insert((arrives, number), copy);
        }
        if self.recorded.len() < 500 {
            self.recorded.push(packet);
        } else {
            let at = self.rng.index(500);
            self.recorded[at] = packet;
        }
    }

    /// Where the balancer sends a datagram.
    fn host_of(&self, bytes: &[u8]) -> usize {
        let behind = bytes.get(if bytes[0] & 0x80 == 0 { 1.. } else { 6.. }).unwrap_or_default();
        let named = codec().server_id(behind).map(|id| usize::from(id.as_slice()[0]));
        match named {
            Some(host @ 1..=HOSTS) => host - 1,
            _ => {
                behind
                    .get(..8)
                    .unwrap_or_default()
                    .iter()
                    .map(|octet| usize::from(*octet))
                    .sum::<usize>()
                    % HOSTS
            }
        }
    }

    fn arrive(&mut self, packet: &Packet) {
        let host_number = self.host_of(&packet.bytes);
        let now = self.now();
        let host = &mut self.hosts[host_number];
        let Some(address) = host.address else { return };
        let train = Train {
            address,
            remote: packet.remote,
            local: None,
            ecn: EcnCodepoint::NotEct,
            segment_size: packet.bytes.len(),
            bytes: &packet.bytes,
        };
        let mut pieces: Vec<Piece> = Vec::new();
        host.router.route(&mut host.registry, now, &train, &mut pieces);
        let [piece] = &pieces[..] else { panic!("one datagram") };
        let place = match &piece.decision {
            Decision::Deliver { place, .. } | Decision::Release { place, .. } => *place,
            Decision::Reset { dcid, .. } => return self.reset(host_number, packet, dcid),
            _ => return,
        };
        self.deliver(host_number, place, packet);
    }

    /// Only what is dead is reset.
    fn reset(&mut self, host: usize, packet: &Packet, dcid: &ConnectionId) {
        let owner = codec().owner(dcid.as_slice()).unwrap();
        let address = self.hosts[host].address.unwrap();
        let standing = self.hosts[host].registry.standing(address, owner);
        assert!(matches!(standing, Standing::Dead { .. }), "{standing:?}");
        let Some(number) = packet.connection else { return };
        if let Some(connection) = self.connections.get(&number) {
            assert!(!self.is_living(connection), "a living connection is reset");
            self.connections.remove(&number);
            self.count("reset");
        }
    }

    fn is_living(&self, connection: &Connection) -> bool {
        let Some(home) = connection.home else { return true };
        self.hosts[home.host].processes.iter().any(|process| process.number == home.process)
    }

    fn deliver(&mut self, host: usize, place: Place, packet: &Packet) {
        let at = self.hosts[host].processes.iter();
        let mut at = at.filter(|process| process.listener == Some(place.listener));
        let process = at.next().expect("nobody who is gone gets anything");
        assert!(place.worker < process.workers);
        let home = Home {
            host,
            process: process.number,
            worker: place.worker,
            generation: process.generation,
        };
        let program = process.program;
        let Some(connection) = packet.connection.and_then(|number| self.connections.get(&number))
        else {
            return;
        };
        if !self.is_living(connection) {
            // What followed its end: the program that has the number now resets it.
            return;
        }
        let number = packet.connection.unwrap();
        let is_first = packet.bytes[0] & 0x80 != 0;
        let connection = self.connections.get_mut(&number).unwrap();
        if program != connection.program {
            // Who is alone refuses what it does not serve.
            let wanted = connection.program;
            let serves = |each: &Process| each.program == wanted && each.phase == State::Serving;
            let serving = self.hosts[host].processes.iter().find(|each| serves(each));
            let replayed = self.replayed.contains(&packet.bytes[6..14]);
            assert!(is_first && (serving.is_none() || replayed), "{wanted} is served");
            self.connections.remove(&number);
            self.count("refused by who was alone");
            return;
        }
        if connection.home.is_some_and(|known| known != home) {
            connection.wrong += 1;
            assert!(is_first, "seen after the handshake: {:?} and {home:?}", connection.home);
            assert!(connection.wrong <= 1, "the second time");
            // The client has heard of nobody yet: whoever answers now has it.
            if connection.ids.is_empty() {
                connection.home = Some(home);
            }
            self.count("first packets that came to a second worker");
            return;
        }
        connection.home = Some(home);
        self.count("datagrams");
        // The answer may be lost.
        if self.rng.index(10) > 0 {
            self.answer(number, home);
        }
    }

    fn answer(&mut self, number: u64, home: Home) {
        if !self.connections[&number].ids.is_empty() && self.rng.index(4) > 0 {
            return;
        }
        let owner = Some(Owner { generation: home.generation, worker: home.worker });
        let place = quicket_steering::Place { server_id: server_id(home.host), owner };
        let rng = &mut self.rng;
        let id = codec().mint(&place, &mut |out| rng.fill(out)).unwrap();
        let ids = &mut self.connections.get_mut(&number).unwrap().ids;
        ids.push(id);
        if ids.len() > 4 {
            ids.remove(0);
        }
    }

    /// Guesses, replays from elsewhere, and first packets that lead nowhere.
    fn attack(&mut self) {
        let remote = self.remote();
        let mut bytes = vec![0x40; 60];
        self.rng.fill(&mut bytes[1..]);
        self.flying.insert((self.step, self.next + 1), Packet { connection: None, remote, bytes });
        self.next += 1;
        if !self.recorded.is_empty() {
            let at = self.rng.index(self.recorded.len());
            let bytes = self.recorded[at].bytes.clone();
            if bytes[0] & 0x80 != 0 {
                self.replayed.insert(bytes[6..14].to_vec());
            }
            self.flying
                .insert((self.step, self.next + 1), Packet { connection: None, remote, bytes });
            self.next += 1;
        }
    }

    fn run(&mut self) {
        while self.step < STEPS {
            self.step += 1;
            (0..HOSTS).for_each(|host| self.change(host));
            if self.step.is_multiple_of(8) {
                self.connect();
            }
            if self.step.is_multiple_of(3) {
                self.attack();
            }
            let speaking: Vec<u64> = self.connections.keys().copied().collect();
            for number in speaking {
                if self.rng.index(25) == 0 {
                    self.speak(number);
                }
            }
            let step = self.step;
            let over = |connection: &Connection| connection.ends <= step;
            let ended = self.connections.values().filter(|each| over(each)).count() as u64;
            *self.counts.entry("connections that ended well").or_default() += ended;
            self.connections.retain(|_, connection| !over(connection));
            while let Some(entry) = self.flying.first_entry()
                && entry.key().0 <= step
            {
                let packet = entry.remove();
                self.arrive(&packet);
            }
        }
    }
}

fn lives_in(connection: &Connection, process: u64) -> bool {
    connection.home.is_some_and(|home| home.process == process)
}

#[test]
fn no_datagram_of_a_living_connection_reaches_the_wrong_worker_twice() {
    let first = std::env::var("SIMULATION_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = first.map_or(1..=8, |seed: u64| seed..=seed);
    let mut all: HashMap<&str, u64> = HashMap::new();
    for seed in seeds {
        println!("SIMULATION_SEED={seed}");
        let mut world = World::new(seed);
        world.run();
        for (what, count) in world.counts {
            *all.entry(what).or_default() += count;
        }
    }
    println!("{all:?}");
    if first.is_none() {
        for what in [
            "upgrades",
            "killed",
            "crashes of a switch",
            "registered again",
            "generations that ended",
            "rebindings",
            "reset",
            "connections that ended well",
        ] {
            assert!(all.get(what).is_some_and(|count| *count > 5), "{what} happens: {all:?}");
        }
        let wrong = all.get("first packets that came to a second worker").copied().unwrap_or(0);
        assert!(wrong * 1000 < all["datagrams"], "hardly ever: {all:?}");
    }
    // The time that a switch which takes over gives programs to come back in is enough for these.
    assert!(quicket_switch::registry::RECLAIM_TIME >= Duration::from_secs(1));
}
