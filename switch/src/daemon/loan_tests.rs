//! When an address's socket is lent, and for how long.

use std::io;

use super::*;
use crate::client;
use crate::daemon::testing::{Program, System};
use crate::options::SocketOptions;
use crate::registry::ListenerId;
use crate::rule::Rule;

fn place(worker: u16) -> Place {
    Place { listener: ListenerId::for_test(0), worker }
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// Nothing wrong, and something else that waits each time.
fn seen(now: Time) -> Seen {
    let mut first = [0; BEGINNING];
    first[..8].copy_from_slice(&now.as_nanos().to_be_bytes());
    let memory = SocketMemory { held: 0, room: 1000, dropped: 0 };
    Seen { now, first: Some(first), memory, read: false, others: true, declined: false }
}

fn lent(now: Time) -> Lending {
    let mut lending = Lending::default();
    lending.begin(now, place(0), 0);
    lending
}

#[test]
fn it_is_lent_after_a_run_for_one_worker_within_a_moment() {
    let mut lending = Lending::default();
    for train in 1..=RUN {
        let now = Time::ZERO + Duration::from_micros(train.into());
        assert_eq!(lending.on_trains(now, Some(place(0)), 1), train == RUN, "{train}");
    }
    // Something for another one in between.
    let mut lending = Lending::default();
    for train in 0..10 * RUN {
        let to = (train % (RUN - 1) > 0).then(|| place(0));
        assert!(!lending.on_trains(at(0), to, 1), "{train}");
    }
    let mut lending = Lending::default();
    for train in 0..10 * RUN {
        let to = place(u16::from(train % RUN == 0));
        assert!(!lending.on_trains(at(0), Some(to), 1), "{train}");
    }
    // Too slowly.
    let mut lending = Lending::default();
    for train in 0..10 * RUN {
        assert!(!lending.on_trains(at(u64::from(train)), Some(place(0)), 1), "{train}");
    }
}

#[test]
fn who_reads_keeps_it_as_long_as_something_comes() {
    let mut lending = lent(at(0));
    for look in 1..1000_u64 {
        assert_eq!(lending.look(seen(at(5 * look))), Look::Stay, "{look}");
    }
    for idle in 1..=MOST_IDLE {
        let now = at(5000 + 5 * u64::from(idle));
        let look = lending.look(Seen { first: None, ..seen(now) });
        assert_eq!(look, if idle < MOST_IDLE { Look::Stay } else { Look::End }, "{idle}");
    }
    lending.end(at(6000), false);
    assert_eq!(lending.to(), None);
    assert!(lending.on_trains(at(6000), Some(place(0)), RUN), "it is lent again at once");
}

#[test]
fn who_stands_still_loses_it_within_a_moment() {
    let mut lending = lent(at(0));
    let (same, mut now) = (seen(at(5)), at(5));
    while lending.look(Seen { now, ..same }) == Look::Stay {
        now += LOOK;
    }
    assert_eq!(now.since(at(5)), PATIENCE);
    // One that has read it before that.
    for between in [Seen { first: None, ..same }, seen(at(6))] {
        let mut lending = lent(at(0));
        assert_eq!(lending.look(same), Look::Stay);
        assert_eq!(lending.look(Seen { now: at(20), ..between }), Look::Stay);
        assert_eq!(lending.look(Seen { now: at(25), ..same }), Look::Stay);
    }
}

#[test]
fn who_declines_or_has_too_much_for_others_or_loses_theirs_loses_it() {
    let fails = |lending: &mut Lending, seen| matches!(lending.look(seen), Look::Fail(_));
    assert!(fails(&mut lent(at(0)), Seen { declined: true, ..seen(at(5)) }));
    let mut lending = lent(at(0));
    lending.on_strays(at(1), place(1), 10 * MOST_STRAYS);
    lending.on_strays(at(1), place(0), MOST_STRAYS);
    assert_eq!(lending.look(seen(at(5))), Look::Stay);
    lending.on_strays(at(6), place(0), MOST_STRAYS + 1);
    assert_eq!(lending.loan.as_ref().unwrap().look_at, at(6), "at once");
    assert!(fails(&mut lending, seen(at(6))));
    let mut lending = lent(at(0));
    let dropped = |dropped, now| {
        let memory = SocketMemory { dropped, ..seen(at(0)).memory };
        Seen { memory, ..seen(at(now)) }
    };
    assert_eq!(lending.look(Seen { others: false, ..dropped(3, 5) }), Look::Stay);
    assert!(!fails(&mut lending, dropped(3, 10)), "they are not new");
    assert!(fails(&mut lending, dropped(4, 15)));
}

/// One that keeps up leaves nothing that waits.
#[test]
fn who_reads_all_at_once_keeps_it_as_long_as_it_reads() {
    let mut lending = lent(at(0));
    let nothing = |look: u64, read| Seen { first: None, read, ..seen(at(5 * look)) };
    for look in 1..1000 {
        assert_eq!(lending.look(nothing(look, look % 5 == 0)), Look::Stay, "{look}");
    }
    assert_eq!(lending.look(nothing(1000, true)), Look::Stay);
    let mut looks = (1001..).map(|look| lending.look(nothing(look, false)));
    assert_eq!(looks.position(|look| look == Look::End), Some(MOST_IDLE as usize - 1));
}

#[test]
fn who_is_slow_loses_it_if_others_are_there() {
    for (others, held, fails) in [(true, 501, true), (true, 500, false), (false, 1000, false)] {
        let mut lending = lent(at(0));
        let memory = |held| SocketMemory { held, ..seen(at(0)).memory };
        let mut look = |n: u32, held| {
            lending.look(Seen { memory: memory(held), others, ..seen(at(5 * u64::from(n))) })
        };
        // A burst.
        (1..MOST_FULL).for_each(|n| assert_eq!(look(n, held), Look::Stay));
        assert_eq!(look(MOST_FULL, 0), Look::Stay);
        (1..MOST_FULL).for_each(|n| assert_eq!(look(MOST_FULL + n, held), Look::Stay));
        assert_eq!(matches!(look(2 * MOST_FULL, held), Look::Fail(_)), fails, "{held} {others}");
    }
}

#[test]
fn what_fails_is_not_tried_again_at_once() {
    let mut lending = Lending::default();
    let mut now = at(0);
    let mut pause = PAUSE;
    for _ in 0..10 {
        assert!(lending.on_trains(now, Some(place(0)), RUN), "{now:?}");
        lending.begin(now, place(0), 0);
        now += LOOK;
        lending.end(now, true);
        let before = now + Duration::from_nanos(pause.as_nanos() - 1);
        assert!(!lending.on_trains(before, Some(place(0)), RUN));
        now += pause;
        pause = pause.times(2).min(LONGEST_PAUSE);
    }
    // One that only ends changes nothing.
    lending.begin(now, place(0), 0);
    lending.end(now + LOOK, false);
    lending.begin(now + LOOK, place(0), 0);
    now += LOOK.times(2);
    lending.end(now, true);
    let before = now + Duration::from_nanos(pause.as_nanos() - 1);
    assert!(!lending.on_trains(before, Some(place(0)), RUN));
    now += pause;
    // One that was worth it for a while forgives all that.
    lending.begin(now, place(0), 0);
    now += WORTH;
    lending.end(now, true);
    assert!(lending.on_trains(now + PAUSE, Some(place(0)), RUN));
}

/// The daemon of `system` lends the worker of its only program the socket if it may have it. Whether it does.
fn lends(system: &mut System) -> bool {
    let daemon = &mut system.daemon;
    let now = daemon.now();
    let listener = daemon.programs.listeners().next().unwrap().0;
    daemon.lend(now, Place { listener, worker: 0 });
    daemon.addresses.values().next().unwrap().lending.to().is_some()
}

fn at_address(system: &mut System, steered: bool, remains: bool) -> io::Result<Program> {
    let options = SocketOptions::default();
    let address = system.address;
    let place = client::Place { address, only_v6: false, workers: 1, steered, remains, options };
    system.join_at(place)
}

#[test]
fn it_is_lent_to_nobody_who_may_not_have_it() {
    let mut system = System::plain("loan-plain");
    let _program = at_address(&mut system, false, false).unwrap();
    assert!(lends(&mut system));
    let mut system = System::plain("loan-steered");
    let _program = at_address(&mut system, true, false).unwrap();
    let listener = system.daemon.programs.listeners().next().unwrap().0;
    assert!(system.daemon.is_steered(listener), "the kernel helps here");
    assert!(!lends(&mut system), "it has a socket of its own");
    let mut system = System::plain("loan-remains");
    let _program = at_address(&mut system, false, true).unwrap();
    assert!(!lends(&mut system), "somebody had the address to itself");
    let rule = Rule::parse("user * ports 1024-65535").unwrap();
    let mut system = System::new("loan-tenant", rule);
    let _program = system.join(SocketOptions::default()).unwrap();
    assert!(!lends(&mut system), "it is another user's");
}

/// Who loses its place hears that it has lost the socket, too, and the switch reads that again.
#[test]
fn who_is_dismissed_is_told() {
    let mut system = System::plain("loan-dismissed");
    let (_member, mut inlets, way) = at_address(&mut system, false, false).unwrap();
    let client::Way::Own(socket) = way else { panic!("it is the switch's own user") };
    let mut inlet = inlets.pop().unwrap();
    inlet.may_borrow(&socket).unwrap();
    let hear = |inlet: &crate::channel::Inlet| {
        let mut octets = [0; 100];
        let mut buffers = [io::IoSliceMut::new(&mut octets)];
        let heard = quicket_udp::Port::receive(inlet, &mut buffers, &mut [Default::default()]);
        assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::WouldBlock, "nothing but words");
        quicket_udp::Port::is_lent(inlet)
    };
    assert!(lends(&mut system));
    assert!(hear(&inlet));
    let process = system.daemon.programs.iter().next().unwrap().0;
    system.daemon.dismiss(process);
    assert!(!hear(&inlet));
}

/// The switch reads nothing that is lent, whatever it hears of the socket.
#[test]
fn what_is_lent_is_left_alone() {
    let mut system = System::plain("loan-alone");
    let _program = at_address(&mut system, false, false).unwrap();
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let received = |system: &mut System| {
        let address = system.daemon.addresses.keys().next().unwrap().number();
        client.send_to(&[0x40; 60], system.address).unwrap();
        let both = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
        system.daemon.on_event(Token::Address(address), both);
        system.daemon.addresses.values().next().unwrap().counters.received
    };
    assert_eq!(received(&mut system), 1);
    assert!(lends(&mut system));
    assert_eq!(received(&mut system), 1);
}

/// The system does not let the switch watch a socket again: it is tried until it does.
#[test]
fn a_socket_that_is_not_watched_is_watched_later() {
    let mut system = System::plain("loan-unwatched");
    let _program = at_address(&mut system, false, false).unwrap();
    assert!(lends(&mut system));
    let daemon = &mut system.daemon;
    let (id, socket) =
        daemon.addresses.iter().map(|(id, at)| (*id, at.socket.clone())).next().unwrap();
    daemon.events.remove(&socket).unwrap();
    daemon.end_loan(id, false);
    let unwatched = |daemon: &Daemon| daemon.addresses[&id].lending.unwatched;
    let at = unwatched(daemon).expect("it is not watched");
    assert_eq!(daemon.next_look_at_loan(), Some(at));
    daemon.events.add(&socket, EpollFlags::empty(), Token::Address(id.number())).unwrap();
    while daemon.now() < at {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    daemon.tend_loans();
    assert_eq!((unwatched(daemon), daemon.next_look_at_loan()), (None, None));
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(&[0x40; 60], system.address).unwrap();
    system.daemon.step();
    assert_eq!(system.daemon.addresses[&id].counters.received, 1);
}
