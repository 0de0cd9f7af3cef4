//! Two sides in a time of their own, over a way that loses segments, with rings that are full, and readers that pause.

use quicket_packets::{Layout, Memory, halves};
use smoltcp::time::Duration;

use super::*;

/// How long a segment is on its way.
const WAY: Duration = Duration::from_millis(5);
/// Programs do something as often.
const STEP: Duration = Duration::from_millis(20);
/// Beyond that, a connection stands still.
const PATIENCE: Duration = Duration::from_secs(3600);

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// How a talk goes.
#[derive(Clone, Copy, Debug)]
struct Talk {
    seed: u64,
    /// Buffers of both.
    buffer: usize,
    /// Octets each way.
    octets: [usize; 2],
    /// One segment of so many is lost.
    lost: u64,
}

struct Side {
    connections: Connections,
    out: Out,
    id: Option<Id>,
    octets: usize,
    written: usize,
    read: usize,
    has_closed: bool,
    has_ended: bool,
    /// Until when it reads nothing.
    pause: Instant,
}

/// An octet of the data at a place.
const fn octet(at: usize) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8
}

fn out() -> Out {
    let layout = Layout::new(16, 16, 2048).unwrap();
    Out::new(halves(Memory::create(layout).unwrap()).0)
}

impl Side {
    fn new(buffer: usize, octets: usize) -> Self {
        let sizes = Sizes { receive: buffer, send: buffer, mtu: 1500 };
        Self {
            connections: Connections::new(sizes),
            out: out(),
            id: None,
            octets,
            written: 0,
            read: 0,
            has_closed: false,
            has_ended: false,
            pause: Instant::ZERO,
        }
    }

    /// The switch takes what is there, or not yet. Returns what leaves.
    fn leave(&mut self, random: &mut Random, now: Instant) -> Vec<Vec<u8>> {
        if !self.out.has_room() && random.below(4) == 0 {
            let old = std::mem::replace(&mut self.out, out());
            self.connections.settle_starved(&mut self.out, now);
            let mut left = old.log;
            left.append(&mut self.out.log);
            return left;
        }
        std::mem::take(&mut self.out.log)
    }

    /// What the program does. `theirs` are the octets that the other one has.
    fn act(&mut self, random: &mut Random, theirs: usize, now: Instant) {
        let Some(id) = self.id else { return };
        let connection = self.connections.get(id).unwrap();
        assert_eq!(connection.error, None, "{now}");
        if !connection.is_established() {
            return;
        }
        if self.written < self.octets {
            let most = (self.octets - self.written).min(random.below(20_000) as usize);
            let data: Vec<u8> = (self.written..self.written + most).map(octet).collect();
            self.written += connection.write(&data).unwrap();
        }
        if self.written == self.octets && !self.has_closed {
            self.has_closed = true;
            connection.close();
        }
        if now >= self.pause && !self.has_ended {
            let mut buffer = vec![0; random.below(100_000) as usize + 1];
            match connection.read(&mut buffer, false) {
                Some(len) => {
                    let is_right = |(at, found): (usize, &u8)| *found == octet(self.read + at);
                    assert!(buffer[..len].iter().enumerate().all(is_right));
                    self.read += len;
                }
                None => {
                    assert_eq!(self.read, theirs, "the end has come too early");
                    self.has_ended = true;
                }
            }
            if random.below(16) == 0 {
                self.pause = now + Duration::from_millis(random.below(8000));
            }
        }
        self.connections.settle(id, &mut self.out, now);
    }

    const fn is_over(&self) -> bool {
        self.has_closed && self.has_ended
    }
}

fn talk(talk: Talk) {
    let mut random = Random(talk.seed);
    let mut sides = talk.octets.map(|octets| Side::new(talk.buffer, octets));
    let ends = Ends { local: ([192, 0, 2, 1], 80).into(), remote: ([192, 0, 2, 2], 1024).into() };
    let mut now = Instant::from_secs(1);
    let [server, client] = &mut sides;
    server.connections.owned.listen(ends.local);
    server.connections.listen(ends.local, 4);
    let theirs = Ends { local: ends.remote, remote: ends.local };
    client.id = Some(client.connections.connect(theirs, &mut client.out, now).unwrap());
    let mut under_way: VecDeque<(Instant, usize, Vec<u8>)> = VecDeque::new();
    let mut step = now;
    while !sides.iter().all(Side::is_over) {
        assert!(now < Instant::ZERO + PATIENCE, "it stands still: {talk:?}");
        let timers = sides.iter().filter_map(|side| side.connections.next_timer()).min();
        let arrival = under_way.front().map(|(at, ..)| *at);
        now = [timers, arrival, Some(step)].into_iter().flatten().min().unwrap().max(now);
        while let Some((_, to, frame)) = under_way.pop_front_if(|(at, ..)| *at <= now) {
            let (side, segment) = (&mut sides[to], Segment::read(&frame).unwrap());
            side.connections.deliver(&segment, &mut side.out, now);
        }
        for side in &mut sides {
            side.connections.settle_touched(&mut side.out, now);
            side.connections.settle_due(&mut side.out, now);
        }
        sides[0].id = sides[0].id.or_else(|| sides[0].connections.accept(ends.local));
        if now >= step {
            step = now + STEP;
            for at in 0..2 {
                let theirs = sides[1 - at].octets;
                sides[at].act(&mut random, theirs, now);
            }
        }
        for (at, side) in sides.iter_mut().enumerate() {
            for frame in side.leave(&mut random, now) {
                if random.below(talk.lost) != 0 {
                    under_way.push_back((now + WAY, 1 - at, frame));
                }
            }
        }
    }
}

#[test]
fn all_data_comes_and_then_its_end() {
    for seed in 1..40 {
        let mut random = Random(seed << 32 | 0x9e37_79b9);
        random.below(1);
        let buffer = [4096, 65_536, 256 << 10][random.below(3) as usize];
        let mut octets = || random.below(20 * buffer as u64) as usize;
        let octets = [octets(), octets()];
        let lost = [20, 100, 1000][random.below(3) as usize];
        talk(Talk { seed: random.0, buffer, octets, lost });
    }
}
