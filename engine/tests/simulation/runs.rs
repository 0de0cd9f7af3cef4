//! Runs of packets: what is looked at once for many of them comes to the same as one by one.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quicket_engine::crypto::CryptoProvider;
use quicket_engine::random::Random;
use quicket_engine::time::{Duration, Time};
use quicket_engine::{
    ClientConfig, Connection, Counters, Datagram, Dir, EndpointConfig, Event, ReadError,
    ServerConfig, StreamId, TransmitStatus, TransportConfig, WhenFull,
};
use quicket_sim::attack::Party;
use quicket_sim::null_tls::{NullTls, NullTlsOptions};
use quicket_sim::offload::LateCrypto;
use quicket_sim::rng::SimRng;
use quicket_sim::test_crypto::TestCrypto;
use quicket_wire::EcnCodepoint;

const SEGMENTS: usize = 44;
const BUFFER: usize = 65_536;
const ROUNDS: usize = 120;

/// How datagrams that were sent together reach the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Trains,
    OneByOne,
}

/// What the path does, in percent of the datagrams.
#[derive(Clone, Copy, Debug)]
struct Path {
    lost: u64,
    doubled: u64,
    swapped: u64,
    corrupted: u64,
    cut: u64,
}

const CLEAN: Path = Path { lost: 0, doubled: 0, swapped: 0, corrupted: 0, cut: 0 };
const POOR: Path = Path { lost: 2, doubled: 2, swapped: 2, corrupted: 2, cut: 1 };

/// Two endpoints, no network between them, and an application that does all it can at random.
struct World {
    now: Time,
    client: Party,
    server: Party,
    delivery: Delivery,
    path: Path,
    /// What the application does.
    will: SimRng,
    /// What the path does.
    fate: SimRng,
    /// Bytes written to each stream of the client's, and whether it was ended.
    written: BTreeMap<StreamId, (Vec<u8>, bool)>,
    read: BTreeMap<StreamId, (Vec<u8>, bool)>,
    /// Every datagram that the server sent.
    sent: Vec<Vec<u8>>,
    buffer: Vec<u8>,
}

impl World {
    fn new(seed: u64, delivery: Delivery, path: Path, crypto: &Arc<dyn CryptoProvider>) -> Self {
        let at = |host| SocketAddr::from((Ipv4Addr::new(192, 0, 2, host), 4433));
        let tls = Arc::new(NullTls::new(1, NullTlsOptions::default()));
        let transport = Arc::new(TransportConfig {
            mtu_discovery: None,
            initial_stream_window: 200_000,
            initial_receive_window: 300_000,
            ..TransportConfig::default()
        });
        let mut server = ServerConfig::new(tls.clone());
        server.transport = transport.clone();
        let mut config = ClientConfig::new(tls);
        config.transport = transport;
        let endpoint = || EndpointConfig::new([1; 32], [2; 32]);
        let server = Party::new(at(1), endpoint(), Some(server), crypto.clone(), seed);
        let mut client = Party::new(at(2), endpoint(), None, crypto.clone(), seed + 1);
        let now = Time::ZERO + Duration::from_secs(1);
        let (handle, connection) =
            client.endpoint.connect(now, config, at(1), None, "server").expect("it can connect");
        client.connections.insert(handle, connection);
        let rng = SimRng::new(seed);
        let mut world = Self {
            now,
            client,
            server,
            delivery,
            path,
            will: rng.stream("will"),
            fate: rng.stream("fate"),
            written: BTreeMap::new(),
            read: BTreeMap::new(),
            sent: Vec::new(),
            buffer: vec![0; BUFFER],
        };
        world.handshake();
        world
    }

    fn handshake(&mut self) {
        for _ in 0..20 {
            let (client, server) = (self.client.address, self.server.address);
            for mut sent in self.client.transmit(self.now) {
                self.server.receive(self.now, client, sent.ecn, &mut sent.data);
            }
            for mut sent in self.server.transmit(self.now) {
                self.client.receive(self.now, server, sent.ecn, &mut sent.data);
            }
            self.pass(Duration::from_millis(1));
        }
        assert!(self.client.connection().is_confirmed());
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for party in [&mut self.client, &mut self.server] {
            // Due or not: a cipher that was not ready is asked again.
            party
                .connections
                .values_mut()
                .for_each(|connection| connection.handle_timeout(self.now));
            party.handle_timeouts(self.now);
        }
    }

    /// Does something at random, then carries what there is to send both ways.
    fn round(&mut self) {
        self.act();
        self.carry(true);
        self.serve();
        self.carry(false);
        let pause = Duration::from_micros(50 + self.will.below(3000));
        self.pass(pause);
    }

    fn act(&mut self) {
        let now = self.now;
        let choice = self.will.below(100);
        if self.written.len() < 2 || choice < 3 {
            let dir = if choice.is_multiple_of(2) { Dir::Bidi } else { Dir::Uni };
            if let Ok(id) = self.client.connection().open(dir) {
                self.written.insert(id, (Vec::new(), false));
            }
        }
        match choice {
            3 | 20..23 => drop(self.client.connection().update_keys(now)),
            4 | 23..26 => drop(self.server.connection().update_keys(now)),
            5..9 => drop(self.client.connection().send_datagram(&[9; 50], WhenFull::DropOldest)),
            9 => self.client.connection().ping(),
            10 => drop(self.client.connection().rotate_remote_cid(now)),
            11 => drop(self.client.connection().rotate_local_cids(now)),
            12 => drop(self.server.connection().rotate_remote_cid(now)),
            _ => {}
        }
        let ids: Vec<StreamId> = self.written.keys().copied().collect();
        let id = ids[self.will.below(ids.len() as u64) as usize];
        let len = self.will.below(120_000) as usize;
        let (data, ended) = self.written.get_mut(&id).expect("it is open");
        if *ended {
            return;
        }
        let offset = data.len();
        let new: Vec<u8> = (offset..offset + len).map(|n| (n * 7 + n / 251) as u8).collect();
        if let Ok(taken) = self.client.connection().write(id, &new) {
            data.extend_from_slice(&new[..taken]);
        }
        if choice < 8 && self.client.connection().finish(id).is_ok() {
            *ended = true;
        }
    }

    /// The server reads, and says something now and then.
    fn serve(&mut self) {
        let server = self.server.connection();
        for dir in [Dir::Bidi, Dir::Uni] {
            while let Some(id) = server.accept(dir) {
                self.read.insert(id, (Vec::new(), false));
            }
        }
        let mut out = vec![0; 30_000];
        for (id, (data, ended)) in &mut self.read {
            while !*ended {
                match server.read(*id, &mut out) {
                    Ok(outcome) => {
                        data.extend_from_slice(&out[..outcome.len]);
                        *ended = outcome.fin;
                    }
                    Err(ReadError::Blocked) => break,
                    Err(error) => panic!("{id:?} cannot be read: {error}"),
                }
            }
            if id.dir() == Dir::Bidi && self.will.below(10) == 0 {
                // Closed streams refuse it.
                let _ = server.write(*id, b"well received");
            }
        }
        while server.poll_event().is_some() {}
        let client = self.client.connection();
        while let Some(event) = client.poll_event() {
            assert!(!matches!(event, Event::Closed(_)), "{event:?}");
        }
    }

    /// Carries what one side has to send to the other, in bursts as it sends them.
    fn carry(&mut self, up: bool) {
        for _ in 0..8 {
            let from = if up { self.client.connection() } else { self.server.connection() };
            let transmit = loop {
                match from.poll_transmit(self.now, &mut self.buffer, SEGMENTS) {
                    TransmitStatus::Ready(transmit) => break transmit,
                    TransmitStatus::NotYet => {}
                    TransmitStatus::Idle => return,
                }
            };
            let segments = self.buffer[..transmit.len].chunks(transmit.segment_size);
            let mut burst: Vec<Vec<u8>> = segments.map(<[u8]>::to_vec).collect();
            if !up {
                self.sent.extend(burst.iter().cloned());
            }
            self.spoil(&mut burst);
            self.deliver(up, transmit.ecn, burst);
        }
    }

    fn spoil(&mut self, burst: &mut Vec<Vec<u8>>) {
        let path = self.path;
        let mut n = 0;
        while n < burst.len() {
            let datagram = &mut burst[n];
            let at = self.fate.below(datagram.len() as u64) as usize;
            let mut percent = self.fate.below(100);
            let mut happens = |chance| {
                let yes = percent < chance;
                percent = percent.wrapping_sub(chance);
                yes
            };
            if happens(path.lost) {
                burst.remove(n);
                continue;
            } else if happens(path.doubled) {
                let copy = datagram.clone();
                burst.insert(n, copy);
                n += 1;
            } else if happens(path.swapped) && n > 0 {
                burst.swap(n - 1, n);
            } else if happens(path.corrupted) {
                datagram[at] ^= 1 << (at % 8);
            } else if happens(path.cut) {
                datagram.truncate(at.max(1));
            }
            n += 1;
        }
    }

    /// Hands a burst over as trains, as receive offload makes them, or one datagram at a time.
    fn deliver(&mut self, up: bool, ecn: EcnCodepoint, burst: Vec<Vec<u8>>) {
        let now = self.now;
        let (from, to) = if up {
            (self.client.address, &mut self.server)
        } else {
            (self.server.address, &mut self.client)
        };
        let local = Some(to.address);
        let to = to.connection();
        let mut rest = burst.as_slice();
        while let Some(first) = rest.first() {
            let stride = first.len();
            let mut count = rest.iter().take_while(|next| next.len() == stride).count();
            // The last one of a train may be shorter.
            count += usize::from(rest.get(count).is_some_and(|next| next.len() < stride));
            let mut data = rest[..count].concat();
            rest = &rest[count..];
            let mut data = data.as_mut_slice();
            while !data.is_empty() {
                let len = stride.min(data.len());
                let used = match self.delivery {
                    Delivery::Trains => {
                        let mut train = Datagram { remote: from, local, ecn, data };
                        let used = to.handle_train(now, &mut train, stride);
                        data = train.data;
                        used
                    }
                    Delivery::OneByOne => {
                        let one = &mut data[..len];
                        to.handle_datagram(
                            now,
                            &mut Datagram { remote: from, local, ecn, data: one },
                        );
                        len
                    }
                };
                assert!(used > 0);
                data = &mut data[used..];
            }
        }
    }

    /// Goes on on a clean path until the server has read all.
    fn settle(&mut self) {
        self.path = CLEAN;
        for (id, (_, ended)) in &mut self.written {
            *ended = *ended || self.client.connection().finish(*id).is_ok();
        }
        for _ in 0..2000 {
            if self.client.connection().is_delivered() {
                break;
            }
            self.carry(true);
            self.serve();
            self.carry(false);
            self.pass(Duration::from_millis(2));
        }
        self.serve();
        for (id, (data, _)) in &self.written {
            let (read, ended) = self.read.get(id).unwrap_or_else(|| panic!("{id:?} came"));
            assert!(*ended && read == data, "{id:?}: {} of {} bytes", read.len(), data.len());
        }
    }

    fn counters(connection: &Connection) -> Counters {
        connection.stats().counters
    }
}

fn run(seed: u64, delivery: Delivery, path: Path, crypto: &Arc<dyn CryptoProvider>) -> World {
    let mut world = World::new(seed, delivery, path, crypto);
    for _ in 0..ROUNDS {
        world.round();
    }
    world.settle();
    world
}

fn test_crypto() -> Arc<dyn CryptoProvider> {
    Arc::new(TestCrypto)
}

#[test]
fn ciphers_that_are_not_ready_in_the_middle_of_a_run_lose_nothing() {
    for every in [3, 7, 50] {
        let late = LateCrypto::new(test_crypto(), every, Arc::default());
        let refused = late.refused();
        run(every, Delivery::Trains, POOR, &(Arc::new(late) as Arc<dyn CryptoProvider>));
        assert!(refused.load(Ordering::Relaxed) > 10);
    }
}

#[test]
fn trains_are_answered_byte_for_byte_like_their_datagrams_one_by_one() {
    let (mut updates, mut dropped) = (0, 0);
    for seed in 0..12 {
        for path in [CLEAN, POOR] {
            let mut trains = run(seed, Delivery::Trains, path, &test_crypto());
            let mut single = run(seed, Delivery::OneByOne, path, &test_crypto());
            let context = format!("seed {seed}, {path:?}");
            let first = trains.sent.iter().zip(&single.sent).position(|(a, b)| a != b);
            assert_eq!(first, None, "{context}: the server's answers differ from this one on");
            assert_eq!(trains.sent.len(), single.sent.len(), "{context}");
            for up in [true, false] {
                let of = |world: &mut World| {
                    let party = if up { &mut world.client } else { &mut world.server };
                    World::counters(party.connection())
                };
                assert_eq!(of(&mut trains), of(&mut single), "{context}");
                updates += of(&mut trains).key_updates;
                dropped += of(&mut trains).packets_dropped;
            }
        }
    }
    assert!(updates > 20 && dropped > 100, "the runs were interrupted: {updates}, {dropped}");
}
