//! Gateways, clients and whoever records them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use quicket_register::{Config, Failure, Next, Refusal, Register, SetReply, Ticket, WINDOW};

use super::random::Random;
use super::store::{Event, Store};
use super::tally::Tally;

/// The time since 1970 at which a simulation begins, in milliseconds.
const EPOCH: u64 = 1_700_000_000_000;
/// A step, in milliseconds.
const STEP: u64 = 100;
/// How far clocks of gateways are wrong, in milliseconds, but for one gateway in a hundred.
const SKEW: u64 = 2_000;
/// How far those of clients are wrong about the age of a ticket; TLS allows as much.
const FRESH: i64 = 60_000;
/// How long a recorded flight is tried, in milliseconds, and how often.
const TRIED: u64 = 150_000;
const EVERY: u64 = 4_000;
/// How long gateways may take until they have taken up a rotation.
const ROTATION: u64 = 60_000;

/// How often clients come back.
pub(crate) struct Habits {
    pub(crate) clients: usize,
    /// Percent of the clients, and milliseconds from one return to the next.
    pub(crate) kinds: Vec<(u64, u64)>,
}

pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) gateways: usize,
    pub(crate) habits: Habits,
    pub(crate) minutes: u64,
    pub(crate) replicas: usize,
    /// How many the store has.
    pub(crate) store_replicas: usize,
    pub(crate) deadline: u64,
    pub(crate) events: Vec<(u64, Event)>,
    pub(crate) recorded_one_in: u64,
}

struct Gateway {
    register: Register,
    /// Which store it is connected with.
    store: Option<usize>,
    /// The store that its address leads to.
    home: usize,
    cut_until: u64,
    skew: i64,
    key: u32,
    rotates_at: u64,
}

#[derive(Clone, Copy)]
struct Client {
    ticket: u64,
    key: u32,
}

/// A first flight that somebody has recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    ticket: u64,
    key: u32,
    sent: u64,
    /// By how much the client is wrong about the age of its ticket.
    off: i64,
}

pub(crate) struct Site {
    scenario: Scenario,
    random: Random,
    gateways: Vec<Gateway>,
    clients: Vec<Client>,
    /// Who comes back in which second.
    calendar: Vec<Vec<u32>>,
    stores: Vec<Store>,
    /// Which of them are gone.
    dead: HashSet<usize>,
    down_until: u64,
    slow: (u64, u64),
    set_right_at: u64,
    heals_at: Option<(u64, usize)>,
    key: u32,
    tickets: u64,
    replays: BinaryHeap<Reverse<(u64, Flight)>>,
    /// Recorded flights that were taken, whoever sent them.
    taken: HashSet<u64>,
    commands_before: u64,
    tally: Tally,
}

fn id(ticket: u64) -> Ticket {
    let mut id = [0; 12];
    id[4..].copy_from_slice(&ticket.to_be_bytes());
    id
}

impl Site {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let mut random = Random::new(scenario.seed);
        let config = Config { deadline: scenario.deadline, replicas: scenario.replicas };
        let gateways = (0..scenario.gateways).map(|number| Gateway {
            register: Register::new(random.below(1_000), config),
            store: None,
            home: 0,
            cut_until: 0,
            skew: if number % 100 == 99 { 30_000 } else { random.around(SKEW) },
            key: 1,
            rotates_at: u64::MAX,
        });
        let gateways = gateways.collect();
        let seconds = scenario.minutes * 60;
        let mut calendar = vec![Vec::new(); seconds as usize];
        let count = scenario.habits.clients;
        for client in 0..count as u32 {
            let first = random.below(period(&scenario.habits, client)) / 1_000;
            if first < seconds {
                calendar[first as usize].push(client);
            }
        }
        let clients = (0..count as u64).map(|ticket| Client { ticket, key: 1 }).collect();
        let mut site = Self {
            tickets: count as u64,
            scenario,
            random,
            gateways,
            clients,
            calendar,
            stores: vec![Store::new(0, EPOCH)],
            dead: HashSet::new(),
            down_until: 0,
            slow: (0, 0),
            set_right_at: u64::MAX,
            heals_at: None,
            key: 1,
            replays: BinaryHeap::new(),
            taken: HashSet::new(),
            commands_before: 0,
            tally: Tally::default(),
        };
        site.stores[0].replicas = site.scenario.store_replicas;
        // It has run for long.
        site.look(0, WINDOW);
        site.stores[0].is_old(WINDOW);
        site
    }

    pub(crate) fn run(mut self) -> Tally {
        let seconds = self.scenario.minutes * 60;
        for second in 0..seconds {
            let mut coming = std::mem::take(&mut self.calendar[second as usize]);
            let steps = 1_000 / STEP;
            for step in 0..steps {
                let now = WINDOW + second * 1_000 + step * STEP;
                self.happens(now);
                for gateway in 0..self.gateways.len() {
                    self.follow(gateway, now);
                }
                let rest = coming.len() as u64 / (steps - step);
                for client in coming.split_off(coming.len() - rest as usize) {
                    self.comes(client, now, second);
                }
                self.replay(now);
            }
            self.tally.peak = self.tally.peak.max(self.tally.commands - self.commands_before);
            self.commands_before = self.tally.commands;
        }
        self.tally.seconds = seconds;
        self.tally
    }

    /// The events of a step.
    fn happens(&mut self, now: u64) {
        let due = |(at, _): &(u64, Event)| WINDOW + *at == now;
        let events: Vec<Event> =
            self.scenario.events.iter().filter(|event| due(event)).map(|event| event.1).collect();
        events.into_iter().for_each(|event| self.happen(event, now));
        if now >= self.set_right_at {
            self.set_right_at = u64::MAX;
            self.stores.iter_mut().for_each(|store| store.ahead = EPOCH);
        }
        if let Some((_, master)) = self.heals_at.take_if(|(at, _)| now >= *at) {
            // The old master hears of it, and ends: its clients find the new one, whose replica it becomes.
            (0..self.stores.len()).filter(|store| *store != master).for_each(|store| {
                self.dead.insert(store);
            });
            self.gateways.iter_mut().for_each(|gateway| gateway.home = master);
            self.stores[master].alone_since = None;
        }
    }

    fn master(&self) -> usize {
        self.stores.len() - 1
    }

    fn happen(&mut self, event: Event, now: u64) {
        let master = self.master();
        let next = self.stores.len();
        match event {
            Event::Rotate => {
                self.key += 1;
                for gateway in &mut self.gateways {
                    gateway.rotates_at = now + self.random.below(ROTATION);
                }
            }
            Event::RestartEmpty => {
                let mut empty = Store::new(next as u64, self.stores[master].ahead);
                empty.replicas = self.stores[master].replicas;
                self.replace(empty);
            }
            Event::Restart { percent } => {
                let Scenario { deadline, replicas, .. } = self.scenario;
                let (random, config) = (&mut self.random, Config { deadline, replicas });
                let gateways = &mut self.gateways;
                gateways.iter_mut().filter(|_| random.below(100) < percent).for_each(|gateway| {
                    (gateway.register, gateway.store) = (Register::new(now, config), None);
                });
            }
            Event::RestartFromFile { lost_ms } => {
                let copy = self.stores[master].copy(next as u64, next as u64, now - lost_ms);
                self.replace(copy);
            }
            Event::Down { for_ms } => {
                self.down_until = now + for_ms;
                let copy = self.stores[master].copy(next as u64, next as u64, now);
                self.replace(copy);
            }
            Event::Slow { ms, for_ms } => self.slow = (ms, now + for_ms),
            Event::Flush => self.stores[master].flush(),
            Event::Evict { part } => self.stores[master].evict(part),
            Event::ClockJump { ms, for_ms } => {
                self.stores[master].ahead += ms;
                self.set_right_at = now + for_ms;
            }
            Event::Partition { percent, for_ms } => {
                let random = &mut self.random;
                let gateways = &mut self.gateways;
                gateways.iter_mut().filter(|_| random.below(100) < percent).for_each(|gateway| {
                    gateway.cut_until = now + for_ms;
                });
            }
            Event::FailOver { split_percent, for_ms } => {
                // What came in the last half second was not told to the replica.
                let mut copy = self.stores[master].copy(next as u64, next as u64, now - 500);
                (copy.alone_since, self.stores[master].alone_since) = (Some(0), Some(now));
                if split_percent >= 50 {
                    // It gets a replica of its own at once.
                    copy.alone_since = None;
                }
                self.stores.push(copy);
                for gateway in &mut self.gateways {
                    if self.random.below(100) >= split_percent {
                        (gateway.home, gateway.store) = (next, None);
                    }
                }
                self.heals_at = Some((now + for_ms, next));
            }
        }
    }

    /// Another process has the address.
    fn replace(&mut self, store: Store) {
        self.dead.extend(0..self.stores.len());
        self.stores.push(store);
        let home = self.master();
        self.gateways.iter_mut().for_each(|gateway| gateway.home = home);
    }

    /// What a gateway does by itself.
    fn follow(&mut self, number: usize, now: u64) {
        let gateway = &mut self.gateways[number];
        if now >= gateway.rotates_at {
            (gateway.key, gateway.rotates_at) = (self.key, u64::MAX);
        }
        if gateway.store.is_some_and(|store| self.dead.contains(&store)) {
            gateway.store = None;
            gateway.register.broken(now);
        }
        if gateway.register.look_at() <= now {
            self.look(number, now);
        }
    }

    fn reaches(&self, number: usize, now: u64) -> bool {
        let gateway = &self.gateways[number];
        now >= gateway.cut_until && now >= self.down_until && !self.dead.contains(&gateway.home)
    }

    /// As the gateway's keeper does.
    fn look(&mut self, number: usize, now: u64) {
        self.tally.looks += 1;
        if !self.reaches(number, now) {
            self.gateways[number].store = None;
            self.gateways[number].register.broken(now);
            return;
        }
        let gateway = &mut self.gateways[number];
        let store = &mut self.stores[gateway.store.unwrap_or(gateway.home)];
        gateway.store.get_or_insert(gateway.home);
        store.info(now);
        loop {
            self.tally.commands += 7;
            match gateway.register.looked(now, store.look(now, self.random.next())) {
                Next::Write(mark) => store.write(mark.text()),
                Next::Known | Next::Unfit(_) => return,
            }
        }
    }

    /// A client comes back to any gateway, and gets another ticket.
    fn comes(&mut self, number: u32, now: u64, second: u64) {
        let Client { ticket, key } = self.clients[number as usize];
        let gateway = self.random.below(self.gateways.len() as u64) as usize;
        let off = if self.random.one_in(100) { self.random.around(50_000) } else { 0 };
        let flight = Flight { ticket, key, sent: now, off };
        let is_recorded = self.random.one_in(self.scenario.recorded_one_in);
        self.tally.returns += 1;
        // Whoever is on the way may be faster.
        if is_recorded && self.random.one_in(4) {
            self.send_again(flight, now);
        }
        match self.arrives(gateway, flight, now) {
            None => self.tally.expired += 1,
            Some(false) => {}
            Some(true) => {
                self.tally.taken += 1;
                if is_recorded && !self.taken.insert(ticket) {
                    self.tally.replays_taken += 1;
                }
            }
        }
        if is_recorded {
            self.replays.push(Reverse((now + self.random.below(EVERY), flight)));
        }
        self.tickets += 1;
        self.clients[number as usize] =
            Client { ticket: self.tickets, key: self.gateways[gateway].key };
        let period = period(&self.scenario.habits, number);
        let next = second + (period / 2 + self.random.below(period)) / 1_000;
        if let Some(day) = self.calendar.get_mut(next as usize) {
            day.push(number);
        }
    }

    /// Whoever records sends again, to any two gateways each time.
    fn replay(&mut self, now: u64) {
        while let Some(Reverse((at, flight))) = self.replays.peek().copied() {
            if at > now {
                return;
            }
            self.replays.pop();
            self.send_again(flight, now);
            if now < flight.sent + TRIED {
                self.replays.push(Reverse((now + EVERY / 2 + self.random.below(EVERY), flight)));
            }
        }
    }

    fn send_again(&mut self, flight: Flight, now: u64) {
        for _ in 0..2 {
            let gateway = self.random.below(self.gateways.len() as u64) as usize;
            self.tally.replays += 1;
            let is_taken = self.arrives(gateway, flight, now) == Some(true);
            if is_taken && !self.taken.insert(flight.ticket) {
                self.tally.replays_taken += 1;
            }
        }
    }

    /// A first flight comes to a gateway: whether its early data is taken; nothing if its ticket is not resumed.
    fn arrives(&mut self, number: usize, flight: Flight, now: u64) -> Option<bool> {
        let gateway = &self.gateways[number];
        if flight.key.abs_diff(gateway.key) > 1 {
            return None;
        }
        let unix = (EPOCH + now).saturating_add_signed(gateway.skew);
        // How TLS sees the age of the ticket (RFC 8446, Section 8.3).
        let age = (now - flight.sent).cast_signed() + gateway.skew + flight.off;
        let asked = self.question(number, flight.ticket, unix / 1_000, now);
        let taken = match asked {
            Ok(()) => age.abs() <= FRESH,
            Err(why) => {
                *self.tally.refusals.entry(why).or_default() += 1;
                false
            }
        };
        Some(taken)
    }

    fn question(&mut self, number: usize, ticket: u64, unix: u64, now: u64) -> Result<(), Refusal> {
        let reaches = self.reaches(number, now);
        let latency = match self.slow {
            (ms, until) if now < until => ms,
            _ => 1 + self.random.below(2),
        };
        let gateway = &mut self.gateways[number];
        gateway.register.ask(now, unix, &id(ticket))?;
        self.tally.questions += 1;
        let Some(at) = gateway.store.filter(|at| reaches && !self.dead.contains(at)) else {
            let late =
                gateway.register.judge(now + self.scenario.deadline, 1, now, Err(Failure::Late));
            return late.of(SetReply::Held);
        };
        // The key, the mark, the time, and how many keys were evicted.
        self.tally.commands += 4;
        let store = &mut self.stores[at];
        let reply = store.set(now, id(ticket));
        gateway.register.judge(now + latency, 1, now, Ok(store.trailer(now + latency))).of(reply)
    }
}

fn period(habits: &Habits, client: u32) -> u64 {
    // The kinds are spread over the numbers of clients.
    let mut place = u64::from(client) * 37 % 100;
    for (percent, period) in &habits.kinds {
        if place < *percent {
            return *period;
        }
        place -= percent;
    }
    habits.kinds.last().map_or(1, |kind| kind.1)
}
