//! What a port gets of one that has died, whose number or tuple it has: nothing.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Instant;

use common::{Switch, layout};
use quicket_packets::registry::Owner;
use quicket_packets::{
    Bell, Counters, Forwarder, Memory, Reason, Receiver, Sender, compose, halves,
};

/// A port in this thread.
struct Local {
    number: Owner,
    sender: Sender,
    receiver: Receiver,
    _bell: Bell,
}

impl Local {
    fn add(forwarder: &mut Forwarder) -> Self {
        let memory = Memory::create(layout()).unwrap();
        let theirs = memory.as_fd().try_clone_to_owned().unwrap();
        let (sender, receiver) = halves(Memory::open(theirs, layout()).unwrap());
        let (ours, bell) = Bell::pair().unwrap();
        Self { number: forwarder.add(memory, ours), sender, receiver, _bell: bell }
    }

    /// So many datagrams at once.
    fn send(&mut self, from: SocketAddr, to: SocketAddr, count: u32) {
        assert!(self.sender.room(count).unwrap() >= count);
        for n in 0..count {
            let slot = self.sender.slot(n).unwrap();
            let len = compose::udp(slot, from, to, b"for the first one").unwrap();
            self.sender.set_len(n, len as u16);
        }
        let _ = self.sender.publish(count);
    }
}

#[test]
fn who_gets_the_number_of_a_dead_port_gets_neither_its_frames_nor_its_counters() {
    let mut forwarder = Forwarder::new([1, 2, 3]);
    let [from, to] = ["192.0.2.1:1", "192.0.2.1:2"].map(|text| text.parse().unwrap());
    let (mut sender, mut first) = (Local::add(&mut forwarder), Local::add(&mut forwarder));
    forwarder.register(sender.number, common::tuple(from)).unwrap();
    forwarder.register(first.number, common::tuple(to)).unwrap();
    // Some come, which it does not take; some of its own are under way, too.
    sender.send(from, to, 10);
    while forwarder.counters(sender.number).unwrap().sent < 10 {
        forwarder.turn();
    }
    sender.send(from, to, 10);
    first.send(to, from, 3);
    let _ = forwarder.remove(first.number, [common::tuple(to)]);
    let mut next = Local::add(&mut forwarder);
    assert_eq!(next.number, first.number, "this test is about a number that comes again");
    while forwarder.counters(sender.number).unwrap().dropped(Reason::Destination) < 10 {
        forwarder.turn();
    }
    // Now its tuple as well: nothing is kept for that.
    forwarder.register(next.number, common::tuple(to)).unwrap();
    (0..10).for_each(|_| assert_eq!(forwarder.turn(), 0));
    assert_eq!(forwarder.counters(next.number), Some(Counters::default()));
    assert_eq!(next.receiver.ready().unwrap(), 0);
    // What the first one had got is in its own memory, and what it had sent has come.
    assert_eq!((first.receiver.ready().unwrap(), sender.receiver.ready().unwrap()), (10, 3));
    assert_eq!(forwarder.total().received, 13);
    sender.send(from, to, 1);
    while forwarder.counters(next.number).unwrap().received < 1 {
        forwarder.turn();
    }
    assert_eq!((next.receiver.ready().unwrap(), first.receiver.ready().unwrap()), (1, 10));
}

/// The first one dies while frames for it are under way.
#[test]
fn who_gets_the_tuple_of_a_dead_port_gets_no_frames_that_were_sent_before() {
    const COUNT: u64 = 60;
    let switch = Switch::start();
    let mut sender = switch.stack("127.0.0.1");
    let mut sent = 0;
    for _ in 0..50 {
        let first = switch.stack("127.0.0.1");
        let (from, to) = (sender.address, first.address);
        assert!(u64::from(sender.port.room(COUNT as u32).unwrap()) >= COUNT);
        let mut left = COUNT;
        let published = sender.port.send(|slot| {
            left = left.checked_sub(1)?;
            compose::udp(slot, from, to, b"for the first one")
        });
        assert_eq!(u64::from(published.unwrap()), COUNT);
        drop(first);
        sent += COUNT;
        // Either it has got them, or nobody.
        sender.until(|counters| counters.sent + counters.dropped(Reason::Destination) == sent);
        let begun = Instant::now();
        let socket = loop {
            match UdpSocket::bind(to) {
                Ok(socket) => break socket,
                Err(error) => assert!(begun.elapsed() < common::PATIENCE, "{error}"),
            }
            std::thread::yield_now();
        };
        let mut port = switch.open();
        port.register(&socket).unwrap();
        let mut next = common::Stack { port, address: to };
        assert_eq!(next.port.counters().unwrap(), Counters::default());
        assert!(next.has_nothing());
        sender.send(to, b"for this one");
        assert_eq!(next.receive(), (from, b"for this one".to_vec()));
        sent += 1;
        assert_eq!(next.port.counters().unwrap().received, 1);
    }
}
