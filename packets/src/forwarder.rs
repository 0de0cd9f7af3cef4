//! From the ring of the port that sends into that of the port that owns the destination.

mod errors;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use quicket_bpf::Tuples;
use quicket_ring::{Bell, Consumer, Descriptor, Lie, MAX_ENTRIES, MAX_SLOT, Memory, Producer, Way};

use crate::batch::{BATCH, Batch, Rule};
use crate::counters::{Counters, Reason};
use crate::device::Network;
use crate::frame;
use crate::registry::{Owner, Refusal, Registry};
use crate::told::Told;
use crate::tuple::{Key, Tuple};
use crate::watch;
use errors::Shares;

pub use errors::{ERRORS_OF_EACH_PORT, ERRORS_PER_SECOND, ERRORS_PER_SECOND_OF_DEVICE};

/// Turns without frames after which a port is not looked at any more until it rings.
pub const IDLE_TURNS: u32 = 2000;

/// A queue of a port, as the switch has it: most ports have one.
struct Port {
    /// The port, which is the first of its queues and has the tuples of all.
    owner: Owner,
    memory: Memory,
    bell: Bell,
    send: Consumer,
    receive: Producer,
    /// Frames that stand in its receive ring, and are not published yet.
    pending: u32,
    /// Whether it is in the list of those that have some.
    is_touched: bool,
    is_active: bool,
    /// Turns without frames.
    idle: u32,
    counters: Counters,
    /// The port that is shown what this one sends and what comes for it.
    watcher: Option<Owner>,
    /// What it has heard of ICMP, of each device.
    errors: Shares,
}

impl Port {
    /// Puts frames into slots, as many as there is room for; they are published later. What has no room is counted. Returns
    /// how many have.
    #[inline]
    fn take(&mut self, batch: &mut Batch, frames: Range<usize>) -> Result<u32, Lie> {
        let lines = self.memory.lines(Way::Receive);
        let before = self.pending;
        let room = self.receive.room(lines, before + frames.len() as u32)?;
        for n in 0..frames.len() as u32 {
            self.memory.prefetch_to_write(self.receive.get(lines, before + n).slot);
        }
        for n in frames {
            let Some((copy, len)) = batch.frame(n) else { break };
            self.store(copy, len, room);
        }
        let delivered = self.pending - before;
        self.counters.received += u64::from(delivered);
        Ok(delivered)
    }

    /// Puts what stands at the beginning of a buffer into the next slot, if there is room. Otherwise that is counted.
    fn put(&mut self, buffer: &mut [u8], len: u16) -> Result<(), Lie> {
        let room = self.receive.room(self.memory.lines(Way::Receive), self.pending + 1)?;
        self.counters.received += u64::from(self.store(buffer, len, room));
        Ok(())
    }

    /// The same, where so many frames in all have room. Returns whether it is there.
    #[inline]
    fn store(&mut self, buffer: &mut [u8], len: u16, room: u32) -> bool {
        if self.pending >= room {
            self.counters.drop_one(Reason::Full);
            return false;
        }
        let lines = self.memory.lines(Way::Receive);
        let slot = self.receive.get(lines, self.pending).slot;
        if !self.memory.store(slot, buffer, len.into()) {
            self.counters.drop_one(Reason::Slot);
            return false;
        }
        self.receive.put(lines, self.pending, Descriptor { slot, len });
        self.pending += 1;
        true
    }
}

/// Who has sent the frames of a batch.
#[derive(Clone, Copy)]
enum Sender {
    Port(Owner),
    /// A queue of a network device, by its place ([`Network::places`]).
    Device(usize),
}

/// All ports and their tuples. One thread has it, and nothing in it waits.
pub struct Forwarder {
    registry: Registry,
    ports: Vec<Option<Port>>,
    /// Ports that are looked at in each turn.
    active: Vec<Owner>,
    touched: Vec<Owner>,
    /// Ports whose side has lied or gone, to be removed.
    broken: Vec<Owner>,
    batch: Batch,
    /// Room for a frame that is shown to somebody, and what is before it.
    shown: Box<[u8]>,
    /// Where frames come from and go to that are nobody's here.
    network: Network,
    /// What each device has had copied of ICMP, to all ports.
    errors: Shares,
    /// Counters of ports that have gone.
    gone: Counters,
    told: Told,
}

impl Forwarder {
    /// Without ports. The seed keeps others from knowing how tuples are hashed.
    #[must_use]
    pub fn new(seed: [u64; 3]) -> Self {
        Self {
            registry: Registry::new(seed),
            ports: Vec::new(),
            active: Vec::new(),
            touched: Vec::new(),
            broken: Vec::new(),
            batch: Batch::new(),
            shown: vec![0; MAX_SLOT as usize].into(),
            network: Network::new(),
            errors: Shares::default(),
            gone: Counters::default(),
            told: Told::default(),
        }
    }

    /// Adds a port, whose memory nobody has used. Returns its number, which was perhaps that of one that has gone.
    pub fn add(&mut self, memory: Memory, bell: Bell) -> Owner {
        let free = self.ports.iter().position(Option::is_none);
        let number = free.unwrap_or(self.ports.len());
        self.put_at(number, number as Owner, memory, bell)
    }

    /// Adds a queue to a port, whose flows are spread over all of its queues from now on. Each queue sends with the tuples of that
    /// port. Returns its number, as that of a port; none if there is no such port, or it has as many as there may be.
    pub fn add_queue(&mut self, owner: Owner, memory: Memory, bell: Bell) -> Option<Owner> {
        let first = port(&mut self.ports, owner)?;
        let watcher = first.watcher;
        if first.owner != owner {
            return None;
        }
        let free = self.ports.iter().position(Option::is_none);
        let number = free.unwrap_or(self.ports.len());
        if !self.registry.queues.add(owner, number as Owner) {
            return None;
        }
        let queue = self.put_at(number, owner, memory, bell);
        port(&mut self.ports, queue)?.watcher = watcher;
        Some(queue)
    }

    fn put_at(&mut self, number: usize, owner: Owner, memory: Memory, bell: Bell) -> Owner {
        let port = Port {
            owner,
            memory,
            bell,
            send: Consumer::new(),
            receive: Producer::new(),
            pending: 0,
            is_touched: false,
            is_active: true,
            idle: 0,
            counters: Counters::default(),
            watcher: None,
            errors: Shares::default(),
        };
        match self.ports.get_mut(number) {
            Some(place) => *place = Some(port),
            None => self.ports.push(Some(port)),
        }
        self.active.push(number as Owner);
        number as Owner
    }

    /// What rings when a port wants to be looked at again ([`Forwarder::rouse`]).
    #[must_use]
    pub fn bell(&self, number: Owner) -> Option<&Bell> {
        Some(&self.ports.get(number as usize)?.as_ref()?.bell)
    }

    /// Removes a port with all of its queues, and its `tuples`; or a queue. What was sent before is forwarded, up to
    /// [`MAX_ENTRIES`] frames of all its queues. Returns their bells: in one that nobody has listened to may be descriptors, so that
    /// closing it can wait as long as its program likes.
    pub fn remove(&mut self, number: Owner, tuples: impl IntoIterator<Item = Tuple>) -> Vec<Bell> {
        let queues: Vec<Owner> = self.registry.queues.all(number).collect();
        self.serve_last(&queues);
        for tuple in tuples {
            self.unregister(number, tuple);
        }
        self.registry.queues.forget(number);
        queues.into_iter().filter_map(|queue| self.remove_queue(queue)).collect()
    }

    fn remove_queue(&mut self, number: Owner) -> Option<Bell> {
        let port = self.ports.get_mut(number as usize).and_then(Option::take);
        if let Some(port) = &port {
            self.gone.add(&port.counters);
            // There is nothing to see any more.
            self.broken.extend(port.watcher);
        }
        for list in [&mut self.active, &mut self.touched, &mut self.broken] {
            list.retain(|other| *other != number);
        }
        for port in self.ports.iter_mut().flatten() {
            port.watcher = port.watcher.filter(|watcher| *watcher != number);
        }
        port.map(|port| port.bell)
    }

    /// Has a port shown what another one sends, and what comes for it, from now on. Returns false if one is already,
    /// or there is no such port.
    pub fn watch(&mut self, number: Owner, watcher: Owner) -> bool {
        let Some(port) = port(&mut self.ports, number) else { return false };
        if number == watcher || port.watcher.is_some() {
            return false;
        }
        for queue in self.registry.queues.all(number) {
            if let Some(port) = self::port(&mut self.ports, queue) {
                port.watcher = Some(watcher);
            }
        }
        true
    }

    /// Whether a port has a tuple.
    #[must_use]
    pub fn has(&self, tuple: Tuple) -> bool {
        self.registry.owner(tuple.into()).is_some()
    }

    /// Gives a port a tuple.
    ///
    /// # Errors
    ///
    /// When somebody has it, or there are as many as there may be.
    pub fn register(&mut self, number: Owner, tuple: Tuple) -> Result<(), Refusal> {
        self.registry.register(tuple.into(), number)?;
        if let Err(error) = self.network.add_tuple(tuple) {
            let line = format_args!("the kernel does not take {tuple}: {error}");
            self.told.say(log::Level::Warn, line);
            self.registry.remove(tuple.into(), number);
            return Err(Refusal::Full);
        }
        Ok(())
    }

    /// Takes a tuple from its port; returns whether it had it.
    pub fn unregister(&mut self, number: Owner, tuple: Tuple) -> bool {
        let is_removed = self.registry.remove(Key::from(tuple), number);
        if is_removed {
            self.network.remove_tuple(tuple);
        }
        is_removed
    }

    /// The network devices that frames come by and leave by.
    pub(crate) const fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Makes ready for network devices.
    pub(crate) fn prepare_network(&mut self) -> io::Result<Arc<Tuples>> {
        let Self { registry, network, .. } = self;
        network.prepare(registry.keys().map(Tuple::from))
    }

    /// How many tuples there are.
    #[must_use]
    pub const fn tuples(&self) -> usize {
        self.registry.len()
    }

    /// What became of a port's frames, those of all its queues.
    #[must_use]
    pub fn counters(&self, number: Owner) -> Option<Counters> {
        let of = |number: Owner| self.ports.get(number as usize)?.as_ref();
        let mut counters = of(number)?.counters;
        let more = self.registry.queues.all(number).skip(1);
        more.filter_map(of).for_each(|queue| counters.add(&queue.counters));
        Some(counters)
    }

    /// What became of the frames of all ports, those included that have gone.
    #[must_use]
    pub fn total(&self) -> Counters {
        let mut total = self.gone;
        self.ports.iter().flatten().for_each(|port| total.add(&port.counters));
        total
    }

    /// Whether there are ports that want to be looked at in the next turn. Otherwise each will ring.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        !self.active.is_empty() || self.network.is_active()
    }

    /// Forwards what is in the rings of a port's queues, in turns: as much in all as one ring has, since its side may go
    /// on filling them, and others wait meanwhile.
    fn serve_last(&mut self, queues: &[Owner]) {
        self.network.begin();
        let mut left = MAX_ENTRIES;
        loop {
            let before = left;
            for queue in queues {
                left = left.saturating_sub(self.serve(*queue).unwrap_or(0));
                if left == 0 {
                    break;
                }
            }
            if left == 0 || left == before {
                break;
            }
        }
        self.network.end();
    }

    /// Looks at a port again that has rung. One is broken by whose bell descriptors have come: they are still in there.
    pub fn rouse(&mut self, number: Owner) {
        let Some(port) = port(&mut self.ports, number) else { return };
        if port.bell.hush_stranger().is_err() {
            self.broken.push(number);
        } else if !port.is_active {
            (port.is_active, port.idle) = (true, 0);
            port.send.wake(port.memory.lines(Way::Send));
            self.active.push(number);
        }
    }

    /// Ports to be removed, as their side has lied or gone.
    pub fn take_broken(&mut self) -> Option<Owner> {
        self.broken.pop()
    }

    /// Takes up to [`BATCH`] frames of each active port, and delivers them. Returns how many there were, those included
    /// that were dropped.
    pub fn turn(&mut self) -> u64 {
        self.network.begin();
        let mut frames = self.serve_network();
        let mut at = 0;
        while let Some(&number) = self.active.get(at) {
            match self.serve(number) {
                Ok(0) if self.rests(number) => {
                    self.active.swap_remove(at);
                    continue;
                }
                Ok(n) => frames += u64::from(n),
                Err(Lie) => {
                    self.broken.push(number);
                    self.active.swap_remove(at);
                    continue;
                }
            }
            at += 1;
        }
        self.network.end();
        frames
    }

    /// Takes up to [`BATCH`] frames of each queue of network devices that are active.
    fn serve_network(&mut self) -> u64 {
        let mut frames = 0;
        for place in 0..self.network.places() {
            let n = self.network.ready(place).min(BATCH);
            if n == 0 {
                continue;
            }
            let mut at = 0;
            while at < n {
                let Self { network, batch, registry, .. } = self;
                at = network.receive(place, (at, n), batch, registry);
                let received = self.deliver(Sender::Device(place));
                if let Some(counters) = self.network.counters(place) {
                    counters.received += received;
                }
            }
            self.network.release(place, n);
            self.publish();
            frames += u64::from(n);
        }
        frames
    }

    /// Whether a port without frames is not to be looked at any more. It has been told then to ring.
    fn rests(&mut self, number: Owner) -> bool {
        let Some(port) = port(&mut self.ports, number) else { return true };
        port.idle += 1;
        if port.idle < IDLE_TURNS {
            return false;
        }
        // A lie is found in the next turn.
        port.is_active = !port.send.sleep(port.memory.lines(Way::Send)).unwrap_or(false);
        port.idle = 0;
        !port.is_active
    }

    /// One turn of a port.
    #[inline]
    fn serve(&mut self, number: Owner) -> Result<u32, Lie> {
        let Some(source) = port(&mut self.ports, number) else { return Ok(0) };
        let lines = source.memory.lines(Way::Send);
        let n = source.send.ready(lines)?.min(BATCH);
        if n == 0 {
            return Ok(0);
        }
        source.idle = 0;
        self.network.begin_port();
        for at in 0..n {
            source.memory.prefetch(source.send.get(lines, at).slot);
        }
        let (mut at, mut sent) = (0, 0);
        while at < n {
            let Some(source) = port(&mut self.ports, number) else { return Ok(n) };
            let Port { owner, memory, send, counters, .. } = source;
            let lines = memory.lines(Way::Send);
            let get = |position| {
                let Descriptor { slot, len } = send.get(lines, position);
                (slot, len)
            };
            at = self.batch.fill((at, n), counters, get, |slot, len, to| {
                memory.load(slot, len.into(), to).map(|_| ()).ok_or(Reason::Descriptor)
            });
            let may_leave = self.network.len() > 0;
            let rule = Rule { sender: Some(*owner), may_leave, entrance: None };
            self.batch.check(rule, &self.registry, counters, |frame| Ok((frame::check(frame)?, 0)));
            sent += self.deliver(Sender::Port(number));
        }
        let Some(source) = port(&mut self.ports, number) else { return Ok(n) };
        source.counters.sent += sent;
        let waits = source.send.release(source.memory.lines(Way::Send), n);
        if waits && source.bell.ring().is_err() {
            self.broken.push(number);
        }
        self.publish();
        Ok(n)
    }

    /// Hands the frames of the batch to those to whom they go, in order. Returns how many were delivered, or have left.
    #[inline]
    fn deliver(&mut self, sender: Sender) -> u64 {
        let watcher = match sender {
            Sender::Port(number) => port(&mut self.ports, number).and_then(|port| port.watcher),
            Sender::Device(_) => None,
        };
        let (mut at, mut delivered) = (0, 0);
        while let Some((owner, run)) = self.batch.run(at) {
            let frames = at..at + run;
            at = frames.end;
            delivered += match (owner, sender) {
                (Some(owner), _) => {
                    if let Some(watcher) = watcher {
                        self.show(watcher, frames.clone());
                    }
                    self.hand_over(sender, owner, frames)
                }
                (None, Sender::Port(number)) => self.send_out(number, watcher, frames),
                // Checking has left them out.
                (None, Sender::Device(_)) => 0,
            };
        }
        delivered
    }

    /// Puts frames into slots of the port that they are for. Returns how many.
    #[inline]
    fn hand_over(&mut self, sender: Sender, owner: Owner, frames: Range<usize>) -> u64 {
        let watcher = port(&mut self.ports, owner).and_then(|port| port.watcher);
        if let Some(watcher) = watcher {
            self.show(watcher, frames.clone());
        }
        let run = frames.len() as u64;
        let delivered = port(&mut self.ports, owner).and_then(|port| {
            let delivered = port.take(&mut self.batch, frames).ok()?;
            if !port.is_touched && port.pending > 0 {
                port.is_touched = true;
                self.touched.push(owner);
            }
            Some(delivered)
        });
        if let Some(delivered) = delivered {
            return delivered.into();
        }
        self.broken.push(owner);
        let counters = match sender {
            Sender::Port(number) => port(&mut self.ports, number).map(|port| &mut port.counters),
            Sender::Device(place) => self.network.counters(place),
        };
        if let Some(counters) = counters {
            counters.drop_many(Reason::Destination, run);
        }
        0
    }

    /// Has frames of a port that are for nobody here leave by network devices, and shows them to who watches the port.
    /// Returns how many have left.
    #[inline(never)]
    fn send_out(&mut self, number: Owner, watcher: Option<Owner>, frames: Range<usize>) -> u64 {
        let mut sent = 0;
        for n in frames {
            let Some((frame, ends)) = self.batch.leaving(n) else { break };
            match self.network.send(frame, &ends, number) {
                Ok(()) => sent += 1,
                // Counted where the room was missing.
                Err(Reason::Full) => {}
                Err(reason) => {
                    if let Some(source) = port(&mut self.ports, number) {
                        source.counters.drop_one(reason);
                    }
                    continue;
                }
            }
            if let Some(watcher) = watcher {
                self.show(watcher, n..n + 1);
            }
        }
        sent
    }

    /// Copies frames to who watches the port that they come from or go to, as many as there is room for.
    #[cold]
    fn show(&mut self, watcher: Owner, frames: Range<usize>) {
        let Some(port) = port(&mut self.ports, watcher) else { return };
        let (now, slot) = (watch::now(), port.memory.layout().slot_len() as usize);
        for n in frames {
            let Some((copy, len)) = self.batch.frame(n) else { break };
            let kept = usize::from(len).min(slot.saturating_sub(watch::HEAD));
            let Some((head, octets)) = self.shown.split_first_chunk_mut() else { break };
            *head = watch::head(now, len, port.counters.dropped(Reason::Full) as u32);
            let (Some(octets), Some(copy)) = (octets.get_mut(..kept), copy.get(..kept)) else {
                break;
            };
            octets.copy_from_slice(copy);
            if port.put(&mut self.shown, (watch::HEAD + kept) as u16).is_err() {
                self.broken.push(watcher);
                return;
            }
        }
        if !port.is_touched && port.pending > 0 {
            port.is_touched = true;
            self.touched.push(watcher);
        }
    }

    /// Shows what has been delivered: one store for each port, and one ring for each that sleeps.
    #[inline]
    fn publish(&mut self) {
        while let Some(number) = self.touched.pop() {
            let Some(port) = port(&mut self.ports, number) else { continue };
            let n = std::mem::take(&mut port.pending);
            port.is_touched = false;
            let sleeps = port.receive.publish(port.memory.lines(Way::Receive), n);
            if sleeps && port.bell.ring().is_err() {
                self.broken.push(number);
            }
        }
    }
}

#[inline]
fn port(ports: &mut [Option<Port>], number: Owner) -> Option<&mut Port> {
    ports.get_mut(number as usize)?.as_mut()
}
