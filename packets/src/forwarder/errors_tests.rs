use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use quicket_ring::program::{Receiver, halves};
use quicket_ring::{Bell, Layout, Memory};

use super::*;
use crate::compose;
use crate::icmp::tests::message;
use crate::icmp::{Failure, Report};
use crate::registry::Owner;
use crate::tuple::Tuple;

const UDP: u8 = 17;
/// As good as drawn: with small numbers, flows would lie together.
const SEED: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0];
const HOST: [u8; 4] = [192, 0, 2, 1];
/// The numbers of two devices.
const ONE: u32 = 7;
const OTHER: u32 = 8;

/// A forwarder with ports of so many queues each, which have the UDP ports 1, 2, ... of one address.
struct Ports {
    forwarder: Forwarder,
    /// Their numbers, and the ends of their queues.
    ports: Vec<(Owner, Vec<Receiver>)>,
    now: Instant,
}

impl Ports {
    fn new(queues: &[usize]) -> Self {
        let (mut forwarder, mut ports) = (Forwarder::new(SEED), Vec::new());
        for (n, count) in queues.iter().enumerate() {
            let (memory, bell, receiver) = queue();
            let number = forwarder.add(memory, bell);
            let mut receivers = vec![receiver];
            for _ in 1..*count {
                let (memory, bell, receiver) = queue();
                forwarder.add_queue(number, memory, bell).unwrap();
                receivers.push(receiver);
            }
            let tuple = Tuple { address: HOST.into(), protocol: UDP, port: 1 + n as u16 };
            forwarder.register(number, tuple).unwrap();
            ports.push((number, receivers));
        }
        Self { forwarder, ports, now: Instant::now() }
    }

    /// A device says that a datagram of a port did not reach that one of the far end. Returns which queue has heard of it.
    fn say(&mut self, device: u32, port: usize, far: u16) -> Option<usize> {
        let from = SocketAddr::from((HOST, 1 + port as u16));
        let to = SocketAddr::from(([198, 51, 100, 7], far));
        let mut slot = [0; 128];
        let len = compose::udp(&mut slot, from, to, b"lost").unwrap();
        let frame = message(0, [3, 3, 0, 0, 0, 0, 0, 0], &slot[14..len], &from.ip().to_string());
        self.forwarder.shown[..frame.len()].copy_from_slice(&frame);
        self.forwarder.copy_error(device, device, 0, frame.len() as u16, self.now);
        self.forwarder.publish();
        let mut heard = Vec::new();
        for (other, (_, queues)) in self.ports.iter_mut().enumerate() {
            for (n, queue) in queues.iter_mut().enumerate() {
                for at in 0..queue.ready().unwrap() {
                    assert_eq!(other, port, "another port has heard of it");
                    assert_eq!(queue.frame(at), Some(&frame[..]), "a copy as it came");
                    heard.push(n);
                }
                let ready = queue.ready().unwrap();
                queue.release(ready);
            }
        }
        let report = Report::read(&frame).unwrap();
        assert_eq!((report.failure, report.destination.port), (Failure::Port, far));
        assert!(heard.len() < 2, "it has come twice");
        heard.pop()
    }

    /// How many of so many are heard of.
    fn flood(&mut self, device: u32, port: usize, count: u32) -> u32 {
        let heard = (0..count).filter(|far| self.say(device, port, 1 + *far as u16).is_some());
        heard.count() as u32
    }

    fn dropped(&self, port: usize) -> u64 {
        let counters = self.forwarder.counters(self.ports[port].0).unwrap();
        counters.dropped(Reason::Icmp)
    }
}

fn queue() -> (Memory, Bell, Receiver) {
    let layout = Layout::new(16, 16, 256).unwrap();
    let memory = Memory::create(layout).unwrap();
    let theirs = memory.as_fd().try_clone_to_owned().unwrap();
    let (_, receiver) = halves(Memory::open(theirs, layout).unwrap());
    // The far end of the bell stays open with this process: nobody is to be found gone.
    let (ours, bell) = Bell::pair().unwrap();
    std::mem::forget(bell);
    (memory, ours, receiver)
}

#[test]
fn each_device_has_its_share_of_a_second() {
    let (mut shares, now) = (Shares::default(), Instant::now());
    let used = |shares: &mut Shares, device, now| {
        let second = shares.second(now);
        shares.of(device, second).copied()
    };
    for second in 0..3 {
        let now = now + Duration::from_secs(second);
        for device in [ONE, OTHER] {
            for before in 0..5000 {
                let second = shares.second(now);
                let used = shares.of(device, second).unwrap();
                assert_eq!(*used, before);
                *used += 1;
            }
        }
    }
    let last = now + Duration::from_millis(2900);
    assert_eq!(used(&mut shares, ONE, last), Some(5000));
    assert_eq!(used(&mut shares, ONE, last + Duration::from_millis(100)), Some(0));
    // Devices that come and go take no memory.
    let next = last + Duration::from_secs(2);
    let devices = (0..1000).filter(|device| used(&mut shares, *device, next).is_some()).count();
    assert_eq!((devices, shares.used.len()), (MAX_DEVICES, MAX_DEVICES));
}

#[test]
fn a_flood_by_one_device_leaves_a_port_what_another_one_says() {
    let mut ports = Ports::new(&[1, 1]);
    assert_eq!(ports.flood(ONE, 0, 1500), ERRORS_PER_SECOND);
    assert_eq!(ports.dropped(0), 500);
    // By the other device, and of the other port.
    assert_eq!(ports.flood(OTHER, 0, 100), 100);
    assert_eq!(ports.flood(ONE, 1, 100), 100);
    ports.now += SECOND;
    assert_eq!(ports.flood(ONE, 0, 100), 100);
    assert_eq!((ports.dropped(0), ports.dropped(1)), (500, 0));
}

/// A second of the port's own would give it another share in the middle of the device's.
#[test]
fn a_port_that_is_flooded_late_in_a_second_has_one_share_of_it() {
    let mut ports = Ports::new(&[1; 2]);
    assert_eq!(ports.flood(ONE, 0, 1), 1);
    ports.now += SECOND / 2;
    assert_eq!(ports.flood(ONE, 1, 1500), ERRORS_PER_SECOND);
    ports.now += SECOND * 2 / 5;
    assert_eq!(ports.flood(ONE, 1, 100), 0);
    ports.now += SECOND / 5;
    assert_eq!(ports.flood(ONE, 1, 1500), ERRORS_PER_SECOND);
    ports.now += SECOND / 2;
    assert_eq!(ports.flood(ONE, 1, 100), 0);
}

#[test]
fn ports_that_are_flooded_together_have_the_same_and_leave_others_theirs() {
    for flooded in [4, 16] {
        let mut ports = Ports::new(&[1; 18]);
        let mut heard = vec![0; flooded];
        for far in 0..1500 {
            for (port, heard) in heard.iter_mut().enumerate() {
                *heard += u32::from(ports.say(ONE, port, 1 + far).is_some());
            }
        }
        let share = ERRORS_PER_SECOND_OF_DEVICE / (3 + flooded as u32);
        let expected = share - ERRORS_OF_EACH_PORT..=share + ERRORS_OF_EACH_PORT;
        assert!(heard.iter().all(|heard| expected.contains(heard)), "{heard:?}");
        // Who was quiet has what he had alone, as far as it is left, and so has the next one.
        for quiet in [flooded, flooded + 1] {
            let heard = ports.flood(ONE, quiet, 1100);
            assert!(heard > share / 2, "{heard} beside {share}");
        }
        // That is counted at the device, and what others say is heard.
        assert_eq!((0..18).map(|port| ports.dropped(port)).sum::<u64>(), 0);
        assert_eq!(ports.flood(OTHER, 0, 100), 100);
        ports.now += SECOND;
        assert_eq!(ports.flood(ONE, 0, 100), 100);
    }
}

#[test]
fn whoever_is_flooded_first_a_device_has_its_bound_and_each_port_some() {
    const PORTS: usize = 64;
    let mut ports = Ports::new(&[1; PORTS]);
    let heard: Vec<u32> = (0..PORTS).map(|port| ports.flood(ONE, port, 1100)).collect();
    assert_eq!((heard[0], ports.dropped(0)), (ERRORS_PER_SECOND, 100));
    assert!(heard[1] > ERRORS_PER_SECOND / 2, "{heard:?}");
    assert!(heard.iter().all(|heard| *heard >= ERRORS_OF_EACH_PORT), "{heard:?}");
    let most = ERRORS_PER_SECOND_OF_DEVICE + PORTS as u32 * ERRORS_OF_EACH_PORT;
    assert!(heard.iter().sum::<u32>() <= most, "{heard:?}");
}

#[test]
fn all_queues_of_a_port_have_one_bound_and_each_flow_one_queue() {
    let mut ports = Ports::new(&[4, 1]);
    let mut of = [0; 4];
    for far in 1..=ERRORS_PER_SECOND as u16 / 2 {
        let queue = ports.say(ONE, 0, far).expect("within the bound");
        assert_eq!(ports.say(ONE, 0, far), Some(queue), "a flow has one queue");
        of[queue] += 2;
    }
    // Of 500 flows, a quarter each, but for chance.
    assert!(of.iter().all(|heard| (150..350).contains(heard)), "{of:?}");
    assert!((1..200).all(|far| ports.say(ONE, 0, far).is_none()), "a queue has a bound of its own");
    assert_eq!(ports.dropped(0), 199);
    assert_eq!(ports.flood(ONE, 1, 10), 10);
}

#[test]
fn what_quotes_nobody_takes_nothing_of_any_bound() {
    let mut ports = Ports::new(&[1]);
    // The UDP port 9 is nobody's, and neither is the address.
    for _ in 0..2 * ERRORS_PER_SECOND_OF_DEVICE {
        assert_eq!(ports.say(ONE, 8, 7), None);
    }
    assert_eq!(ports.flood(ONE, 0, 1000), 1000);
    let address: IpAddr = HOST.into();
    let tuple = Tuple { address, protocol: UDP, port: 1 };
    let number = ports.ports[0].0;
    assert!(ports.forwarder.unregister(number, tuple));
    ports.now += SECOND;
    assert_eq!(ports.say(ONE, 0, 7), None, "it has the tuple no more");
}
