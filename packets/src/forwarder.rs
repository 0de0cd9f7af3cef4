//! From the ring of the port that sends into that of the port that owns the destination.

use std::io;
use std::sync::Arc;

use quicket_bpf::Tuples;
use quicket_ring::{Bell, Consumer, Descriptor, Lie, MAX_SLOT, Memory, Producer, Way};

use crate::counters::{Counters, Reason};
use crate::device::Network;
use crate::frame;
use crate::registry::{Owner, Refusal, Registry};
use crate::tuple::{Key, Tuple};

/// Frames of a port in one turn: then others have theirs.
pub const BATCH: u32 = 64;
/// Turns without frames after which a port is not looked at any more until it rings.
pub const IDLE_TURNS: u32 = 2000;

/// A port, as the switch has it.
struct Port {
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
    /// The switch's own copy of a frame: what is checked is what is delivered.
    copy: Box<[u8]>,
    /// Where frames come from and go to that are nobody's here.
    network: Network,
    /// Counters of ports that have gone.
    gone: Counters,
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
            copy: vec![0; MAX_SLOT as usize].into(),
            network: Network::new(),
            gone: Counters::default(),
        }
    }

    /// Adds a port, whose memory nobody has used. Returns its number, which was perhaps that of one that has gone.
    pub fn add(&mut self, memory: Memory, bell: Bell) -> Owner {
        let port = Port {
            memory,
            bell,
            send: Consumer::new(),
            receive: Producer::new(),
            pending: 0,
            is_touched: false,
            is_active: true,
            idle: 0,
            counters: Counters::default(),
        };
        let free = self.ports.iter().position(Option::is_none);
        let number = free.unwrap_or(self.ports.len());
        match free {
            Some(at) => self.ports[at] = Some(port),
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

    /// Removes a port, whose `tuples` these are.
    pub fn remove(&mut self, number: Owner, tuples: impl IntoIterator<Item = Tuple>) {
        for tuple in tuples {
            self.unregister(number, tuple);
        }
        if let Some(port) = self.ports.get_mut(number as usize).and_then(Option::take) {
            self.gone.add(&port.counters);
        }
        for list in [&mut self.active, &mut self.touched, &mut self.broken] {
            list.retain(|other| *other != number);
        }
    }

    /// Gives a port a tuple.
    ///
    /// # Errors
    ///
    /// When somebody has it, or there are as many as there may be.
    pub fn register(&mut self, number: Owner, tuple: Tuple) -> Result<(), Refusal> {
        self.registry.register(tuple.into(), number)?;
        if let Err(error) = self.network.add_tuple(tuple) {
            log::warn!("the kernel does not take {tuple}: {error}");
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

    /// What became of a port's frames.
    #[must_use]
    pub fn counters(&self, number: Owner) -> Option<Counters> {
        Some(self.ports.get(number as usize)?.as_ref()?.counters)
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

    /// Looks at a port again that has rung.
    pub fn rouse(&mut self, number: Owner) {
        let Some(port) = port(&mut self.ports, number) else { return };
        if port.bell.hush().is_err() {
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
            for at in 0..n {
                let came = self.network.receive(place, at, &mut self.copy);
                let outcome = came.and_then(|(len, ends)| {
                    // Who is here does not come from outside.
                    if self.registry.owner(ends.source).is_some() {
                        return Err(Reason::Source);
                    }
                    let owner = self.registry.owner(ends.destination).ok_or(Reason::Destination)?;
                    self.deliver(owner, len)
                });
                self.network.count(place, outcome);
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
        let mut sent = 0;
        for at in 0..n {
            let delivered = self.forward(number, at);
            let Some(source) = port(&mut self.ports, number) else { return Ok(n) };
            match delivered {
                Ok(()) => sent += 1,
                // Counted where the room was missing.
                Err(Reason::Full | Reason::Slot) => {}
                Err(reason) => source.counters.drop_one(reason),
            }
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

    /// Copies, checks and delivers the frame at a position.
    #[inline]
    fn forward(&mut self, number: Owner, at: u32) -> Result<(), Reason> {
        let source = port(&mut self.ports, number).ok_or(Reason::Descriptor)?;
        let Descriptor { slot, len } = source.send.get(source.memory.lines(Way::Send), at);
        let frame = source.memory.load(slot, len.into(), &mut self.copy);
        let frame = frame.ok_or(Reason::Descriptor)?;
        let ends = frame::check(frame)?;
        if self.registry.owner(ends.source) != Some(number) {
            return Err(Reason::Source);
        }
        match self.registry.owner(ends.destination) {
            Some(owner) => self.deliver(owner, len),
            None => self.network.send(frame, &ends, number),
        }
    }

    /// Puts the copy into a slot of its owner.
    #[inline]
    fn deliver(&mut self, owner: Owner, len: u16) -> Result<(), Reason> {
        let port = port(&mut self.ports, owner).ok_or(Reason::Destination)?;
        let lines = port.memory.lines(Way::Receive);
        let Ok(room) = port.receive.room(lines, port.pending + 1) else {
            self.broken.push(owner);
            return Err(Reason::Destination);
        };
        if port.pending >= room {
            port.counters.drop_one(Reason::Full);
            return Err(Reason::Full);
        }
        let slot = port.receive.get(lines, port.pending).slot;
        if !port.memory.store(slot, &mut self.copy, len.into()) {
            port.counters.drop_one(Reason::Slot);
            return Err(Reason::Slot);
        }
        port.receive.put(lines, port.pending, Descriptor { slot, len });
        port.pending += 1;
        port.counters.received += 1;
        if !port.is_touched {
            port.is_touched = true;
            self.touched.push(owner);
        }
        Ok(())
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
