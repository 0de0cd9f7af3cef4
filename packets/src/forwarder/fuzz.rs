//! Errors of ICMP on their way to ports, for fuzzing.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quicket_ring::program::{Receiver, halves};
use quicket_ring::{Bell, Layout, Memory};

use super::Forwarder;
use crate::fuzz::HERE;
use crate::registry::Owner;
use crate::tuple::Tuple;

/// As good as drawn: with small numbers, flows would lie together.
const SEED: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0];
const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;
/// The longest frame that is tried.
const SLOT: u32 = 8192;
const DEVICE: u32 = 7;

/// A forwarder with two ports, one of which has three queues.
pub(crate) struct Copies {
    forwarder: Forwarder,
    tuples: Vec<(usize, Tuple)>,
    /// With the number of the port.
    queues: Vec<(usize, Receiver)>,
    /// The other ends of the bells: without those, ports would be gone.
    bells: Vec<Bell>,
    now: Instant,
}

impl Copies {
    pub(crate) fn new() -> Self {
        let mut copies = Self {
            forwarder: Forwarder::new(SEED),
            tuples: Vec::new(),
            queues: Vec::new(),
            bells: Vec::new(),
            now: Instant::now(),
        };
        for (port, queues) in [3, 1].into_iter().enumerate() {
            let first = copies.queue(port, None);
            for _ in 1..queues {
                copies.queue(port, Some(first));
            }
            for address in HERE {
                let ends = if port == 0 { [(UDP, 4433), (TCP, 80)] } else { [(UDP, 53), (GRE, 0)] };
                for (protocol, number) in ends {
                    let tuple = Tuple { address, protocol, port: number };
                    assert_eq!(copies.forwarder.register(first, tuple), Ok(()));
                    copies.tuples.push((port, tuple));
                }
            }
        }
        copies
    }

    fn queue(&mut self, port: usize, of: Option<Owner>) -> Owner {
        let layout = Layout::new(16, 16, SLOT).expect("a layout");
        let memory = Memory::create(layout).expect("memory");
        let theirs = memory.as_fd().try_clone_to_owned().expect("a descriptor");
        let (ours, bell) = Bell::pair().expect("a bell");
        let number = match of {
            None => Some(self.forwarder.add(memory, ours)),
            Some(first) => self.forwarder.add_queue(first, memory, ours),
        };
        let (_, receiver) = halves(Memory::open(theirs, layout).expect("memory"));
        self.queues.push((port, receiver));
        self.bells.push(bell);
        number.expect("there may be one more")
    }

    /// A frame comes by a device, and quotes a packet between these ends, if it is in order.
    pub(crate) fn check(&mut self, frame: &[u8], ends: Option<(Tuple, Tuple)>) {
        if frame.len() > SLOT as usize {
            return;
        }
        self.forwarder.shown[..frame.len()].copy_from_slice(frame);
        // Bounds have their own tests.
        self.now += Duration::from_secs(1);
        self.forwarder.copy_error(DEVICE, DEVICE, 0, frame.len() as u16, self.now);
        self.forwarder.publish();
        let owner = |tuple: Tuple| {
            let found = self.tuples.iter().find(|(_, other)| *other == tuple);
            found.map(|(port, _)| *port)
        };
        // Between ports there are no errors.
        let expected =
            ends.filter(|(_, far)| owner(*far).is_none()).and_then(|(near, _)| owner(near));
        let mut heard = Vec::new();
        for (port, queue) in &mut self.queues {
            let ready = queue.ready().expect("the switch does not lie");
            for at in 0..ready {
                assert_eq!(queue.frame(at), Some(frame), "a copy as it came");
                heard.push(*port);
            }
            queue.release(ready);
        }
        assert_eq!(heard, expected.into_iter().collect::<Vec<_>>(), "whose it is, once");
        assert!(self.forwarder.take_broken().is_none());
    }
}
