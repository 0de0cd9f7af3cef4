//! Random traffic over a bad network: every byte arrives exactly, and nothing is left behind.

use alloc::collections::BTreeMap;

use super::super::WriteError;
use super::*;
use crate::testing::XorShift;

/// What a writer wanted and a reader got of one direction of a stream.
#[derive(Default)]
struct Flow {
    written: Vec<u8>,
    /// How much to write before the end.
    planned: usize,
    ended: bool,
    reset: bool,
    got: Vec<u8>,
    /// The reader has seen the end, a reset, or wants no more.
    read: bool,
    complete: bool,
}

struct Packet {
    from_client: bool,
    packet: TestPacket,
    declared_lost: bool,
}

struct World {
    rng: XorShift,
    client: Streams,
    server: Streams,
    now: Time,
    flows: BTreeMap<(u64, bool), Flow>,
    flying: Vec<Packet>,
    violent: bool,
}

impl World {
    fn new(seed: u64, violent: bool, config: StreamsConfig) -> Self {
        let (client, server) = pair(config);
        Self {
            rng: XorShift::new(seed),
            client,
            server,
            now: Time::ZERO,
            flows: BTreeMap::new(),
            flying: Vec::new(),
            violent,
        }
    }

    fn side(&mut self, client: bool) -> &mut Streams {
        if client { &mut self.client } else { &mut self.server }
    }

    fn plan(&mut self, id: StreamId, from_client: bool) {
        let planned = self.rng.below(30_000) as usize;
        self.flows.insert((id.as_u64(), from_client), Flow { planned, ..Flow::default() });
    }

    fn open(&mut self, by_client: bool) {
        let dir = if self.rng.chance(50) { Dir::Bidi } else { Dir::Uni };
        let Ok(id) = self.side(by_client).open(dir) else { return };
        if self.rng.chance(50) {
            let priority = self.rng.below(3) as i32 - 1;
            self.side(by_client).set_priority(id, priority).unwrap();
        }
        self.plan(id, by_client);
        if dir == Dir::Bidi {
            self.plan(id, !by_client);
        }
    }

    /// Writes on, ends or resets a flow.
    fn write(&mut self, id: StreamId, client: bool, flow: &mut Flow) {
        if flow.ended {
            return;
        }
        let streams = if client { &mut self.client } else { &mut self.server };
        if self.violent && self.rng.chance(1) {
            flow.ended = true;
            flow.reset |= streams.reset(id, 3).is_ok();
            return;
        }
        let want = (self.rng.below(5000) as usize).min(flow.planned - flow.written.len());
        let data: Vec<u8> = (0..want).map(|_| self.rng.next() as u8).collect();
        match streams.write(id, &data) {
            Ok(len) => flow.written.extend_from_slice(&data[..len]),
            Err(WriteError::Blocked) => {}
            Err(WriteError::Stopped(9)) => (flow.ended, flow.reset) = (true, true),
            // Stopped, reset and freed since.
            Err(WriteError::ClosedStream) if self.violent => flow.ended = true,
            Err(error) => panic!("{error}"),
        }
        if !flow.ended && flow.written.len() == flow.planned {
            flow.ended = true;
            streams.finish(id).unwrap();
        }
    }

    /// Reads some of a flow, or stops it.
    fn read(&mut self, id: StreamId, client: bool, flow: &mut Flow) {
        let streams = if client { &mut self.client } else { &mut self.server };
        if flow.read {
            return;
        }
        if self.violent && self.rng.chance(1) && streams.stop_sending(id, 9).is_ok() {
            flow.read = true;
            return;
        }
        let mut buffer = alloc::vec![0; 1 + self.rng.below(6000) as usize];
        match streams.read(id, &mut buffer) {
            Ok(read) => {
                flow.got.extend_from_slice(&buffer[..read.len]);
                (flow.read, flow.complete) = (read.fin, read.fin);
            }
            Err(ReadError::Blocked) => {}
            Err(ReadError::Reset(_)) => flow.read = true,
            Err(error) => panic!("{id:?}: {error}"),
        }
    }

    fn apply(&mut self, accepted: &mut BTreeMap<u64, ()>) {
        for client in [true, false] {
            for dir in [Dir::Bidi, Dir::Uni] {
                while let Some(id) = self.side(client).accept(dir) {
                    accepted.insert(id.as_u64(), ());
                }
            }
            while self.side(client).poll_event().is_some() {}
        }
        let mut flows = core::mem::take(&mut self.flows);
        for ((raw, from_client), flow) in &mut flows {
            let id = StreamId::from_u64(*raw).unwrap();
            let opened_by_client = id.initiator() == Side::Client;
            let known = accepted.contains_key(raw);
            if (*from_client == opened_by_client || known) && self.rng.chance(50) {
                self.write(id, *from_client, flow);
            }
            if (*from_client != opened_by_client || known) && self.rng.chance(50) {
                self.read(id, !*from_client, flow);
            }
        }
        self.flows = flows;
    }

    fn transmit(&mut self) {
        for from_client in [true, false] {
            for _ in 0..self.rng.below(8) {
                let size = 100 + self.rng.below(1300) as usize;
                let mut packet = TestPacket::new(size);
                let now = self.now;
                self.side(from_client).write_frames(now, RTT, &mut packet);
                if !packet.frames().is_empty() {
                    self.flying.push(Packet { from_client, packet, declared_lost: false });
                }
            }
        }
    }

    /// Delivers, duplicates, loses and reorders packets.
    fn deliver(&mut self) {
        for _ in 0..self.rng.below(16) {
            if self.flying.is_empty() {
                return;
            }
            let at = self.rng.below(self.flying.len() as u64) as usize;
            if self.rng.chance(10) && !self.flying[at].declared_lost {
                // Declared lost, though it may still arrive.
                self.flying[at].declared_lost = true;
                let (sent, from) =
                    (self.flying[at].packet.sent.clone(), self.flying[at].from_client);
                lost(self.side(from), &sent);
                continue;
            }
            let flight = self.flying.swap_remove(at);
            if self.rng.chance(20) {
                if !flight.declared_lost {
                    lost(self.side(flight.from_client), &flight.packet.sent);
                }
                continue;
            }
            receive_all(self.side(!flight.from_client), &flight.packet);
            acked(self.side(flight.from_client), &flight.packet.sent);
            if self.rng.chance(10) {
                receive_all(self.side(!flight.from_client), &flight.packet);
            }
        }
    }

    fn done(&self, opened: usize) -> bool {
        self.flows.values().all(|flow| flow.ended && flow.read)
            && opened == 0
            && self.client.len() == 0
            && self.server.len() == 0
    }

    fn run(mut self, streams: usize) {
        let mut to_open = streams;
        let mut accepted = BTreeMap::new();
        let mut rounds = 0;
        while !self.done(to_open) {
            rounds += 1;
            assert!(rounds < 100_000, "no progress: {} streams left", self.client.len());
            if to_open > 0 && self.rng.chance(30) {
                let by_client = self.rng.chance(50);
                self.open(by_client);
                to_open -= 1;
            }
            self.apply(&mut accepted);
            self.transmit();
            self.deliver();
            self.now += Duration::from_millis(1);
        }
        for flow in self.flows.values() {
            assert!(flow.written.starts_with(&flow.got));
            assert!(!flow.complete || flow.got == flow.written);
            assert!(self.violent || flow.complete);
        }
        self.check_nothing_left();
    }

    fn check_nothing_left(&mut self) {
        while !self.flying.is_empty() {
            self.deliver();
        }
        for client in [true, false] {
            let side = self.side(client);
            assert_eq!((side.len(), side.held, side.pieces), (0, 0, 0));
            assert!(side.scheduler.is_empty() && !side.scheduler.has_blocked());
            assert!(side.control.is_empty() && side.events.is_empty() && side.writers.is_empty());
            assert_eq!(side.window.unread(), 0, "all received data freed the window");
        }
    }
}

#[test]
fn every_byte_arrives_exactly_over_a_bad_network() {
    for seed in 0..25 {
        World::new(seed, false, config()).run(20);
    }
}

#[test]
fn resets_and_stops_leave_nothing_behind() {
    for seed in 0..40 {
        World::new(seed, true, config()).run(30);
    }
}

#[test]
fn tight_limits_slow_down_but_never_deadlock() {
    let tight = StreamsConfig {
        stream_window: 300,
        windows: crate::config::StreamWindows::default(),
        max_stream_window: 700,
        window: 500,
        max_window: 900,
        max_streams_bidi: 2,
        max_streams_uni: 1,
        max_streams_step: None,
        stream_send_buffer: 1000,
        send_buffer: 1500,
        send_ahead: usize::MAX,
        fair: false,
    };
    for seed in 0..6 {
        World::new(seed, seed % 2 == 0, tight.clone()).run(8);
    }
    for send_ahead in [0, 1, 100, 600] {
        let tight = StreamsConfig { send_ahead, ..tight.clone() };
        for seed in 0..6 {
            World::new(seed, seed % 2 == 0, tight.clone()).run(8);
        }
    }
}

#[test]
fn windows_grow_for_a_reader_that_keeps_up() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    let mut now = Time::ZERO;
    let mut total = 0;
    while total < 400_000 {
        total += client.write(id, &[0; 16_384]).unwrap_or(0);
        let packet = packet_of(&mut client, PACKET);
        receive_all(&mut server, &packet);
        acked(&mut client, &packet.sent);
        server.accept(Dir::Uni);
        read_all(&mut server, id);
        let mut packet = TestPacket::new(PACKET);
        server.write_frames(now, RTT, &mut packet);
        receive_all(&mut client, &packet);
        now += Duration::from_micros(100);
    }
    assert_eq!(server.window.size(), 60_000);
    let slot = server.table.find(id).unwrap();
    let window = server.receiving(slot).unwrap().0.open_window().unwrap().size();
    assert_eq!(window, 40_000);
}
