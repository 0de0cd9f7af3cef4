//! Ports with several queues.

mod common;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Liar, PATIENCE, Stack, Switch, layout, see, tuple};
use quicket_packets::client::Port;
use quicket_packets::{Layout, MAX_QUEUES, Queue, Reason, compose};

const QUEUES: usize = 4;
const FLOWS: usize = 64;
const FRAMES: u64 = 50;

/// A port with so many queues, and a tuple.
fn open(switch: &Switch, address: &str, queues: usize) -> (Stack, Vec<Queue>) {
    let mut port = switch.open();
    let more = (1..queues).map(|_| port.add_queue(layout()).unwrap()).collect();
    let tuple = port.register(UdpSocket::bind((address, 0)).unwrap()).unwrap();
    (Stack { port, address: (tuple.address, tuple.port).into() }, more)
}

/// The port that sent a frame, and its number.
fn read(frame: &[u8]) -> (u16, u64) {
    let udp = if frame[12..14] == [8, 0] { 34 } else { 54 };
    let port = u16::from_be_bytes([frame[udp], frame[udp + 1]]);
    (port, u64::from_ne_bytes(frame[udp + 8..udp + 16].try_into().unwrap()))
}

/// Reads what comes to a queue until all have what they should, and answers it.
fn echo(queue: &mut Queue, here: SocketAddr, all: &AtomicU64) -> HashMap<u16, u64> {
    let mut next = HashMap::<u16, u64>::new();
    let begun = std::time::Instant::now();
    while all.load(Ordering::Relaxed) < FLOWS as u64 * FRAMES {
        assert!(begun.elapsed() < PATIENCE, "not all frames have come");
        queue.wait(Some(Duration::from_millis(5))).unwrap();
        let mut came = Vec::new();
        queue.receive(u32::MAX, |frame| came.push(read(frame))).unwrap();
        for (port, number) in came {
            let expected = next.entry(port).or_default();
            assert_eq!(number, *expected, "a flow keeps its order");
            *expected += 1;
            let to = SocketAddr::new(here.ip(), port);
            let mut once = Some(());
            while once.is_some() {
                assert!(queue.wait_for_room(Some(PATIENCE)).unwrap(), "there is no room");
                assert!(begun.elapsed() < PATIENCE, "it does not leave");
                let write = |slot: &mut [u8]| {
                    once.take().and_then(|()| compose::udp(slot, here, to, &number.to_ne_bytes()))
                };
                queue.send(write).unwrap();
            }
            all.fetch_add(1, Ordering::Relaxed);
        }
    }
    next
}

#[test]
fn flows_are_spread_over_queues_and_each_comes_to_one_in_order() {
    let switch = Switch::start();
    for address in ["127.0.0.1", "::1"] {
        let (mut server, mut more) = open(&switch, address, QUEUES);
        let here = server.address;
        let all = AtomicU64::new(0);
        let found = Mutex::new(Vec::new());
        // As many flows as sources.
        let mut client = switch.open();
        let sources: Vec<SocketAddr> = (0..FLOWS)
            .map(|_| {
                let tuple = client.register(UdpSocket::bind((address, 0)).unwrap()).unwrap();
                (tuple.address, tuple.port).into()
            })
            .collect();
        std::thread::scope(|scope| {
            for queue in &mut more {
                let (all, found) = (&all, &found);
                scope.spawn(move || {
                    let next = echo(queue, here, all);
                    found.lock().unwrap().push(next);
                });
            }
            let (all, found) = (&all, &found);
            let server = &mut server;
            scope.spawn(move || {
                let next = echo(server.port.queue(), here, all);
                found.lock().unwrap().push(next);
            });
            for number in 0..FRAMES {
                let mut sources = sources.iter();
                let sent = client
                    .send(|slot| compose::udp(slot, *sources.next()?, here, &number.to_ne_bytes()));
                assert_eq!(sent.unwrap(), FLOWS as u32);
                // Every answer is there before the next round: the ring has room for as many.
                let mut answers = 0;
                while answers < FLOWS as u32 {
                    assert!(client.wait(Some(PATIENCE)).unwrap(), "no answer");
                    answers += client
                        .receive(u32::MAX, |frame| assert_eq!(read(frame), (here.port(), number)))
                        .unwrap();
                }
            }
        });
        let found = found.into_inner().unwrap();
        let flows: Vec<usize> = found.iter().map(HashMap::len).collect();
        // No flow came to two, and no queue had none: of 64 flows that would be chance once in 100 million times.
        assert_eq!(flows.iter().sum::<usize>(), FLOWS);
        assert!(flows.len() == QUEUES && flows.iter().all(|flows| *flows > 0), "{flows:?}");
        assert!(found.iter().flat_map(HashMap::values).all(|frames| *frames == FRAMES));
        let (counters, all) = (server.port.counters().unwrap(), FLOWS as u64 * FRAMES);
        assert_eq!((counters.sent, counters.received), (all, all));
    }
}

#[test]
fn each_queue_sends_with_the_tuples_of_its_port_and_no_other_and_is_seen() {
    let switch = Switch::start();
    let (mut one, mut more) = open(&switch, "127.0.0.1", 3);
    let mut other = switch.stack("127.0.0.1");
    // Who watches has one queue, to which all is shown.
    let (mut several, layout) = (switch.open(), Layout::new(64, 64, 2048).unwrap());
    let _second = several.add_queue(layout).unwrap();
    let error = several.watch(tuple(one.address)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let mut watcher = switch.open();
    watcher.watch(tuple(one.address)).unwrap();
    for (n, queue) in more.iter_mut().enumerate() {
        for (from, is_ours) in [(one.address, true), (other.address, false)] {
            let mut once = Some(());
            let write = |slot: &mut [u8]| {
                once.take().and_then(|()| compose::udp(slot, from, other.address, &[n as u8; 30]))
            };
            assert_eq!(queue.send(write).unwrap(), 1);
            if is_ours {
                assert_eq!(other.receive(), (one.address, vec![n as u8; 30]));
            }
        }
    }
    let counters = one.until(|counters| counters.dropped(Reason::Source) == 2);
    assert_eq!(counters.sent, 2);
    assert_eq!(see(&mut watcher, 2), [(72, Some(0)), (72, Some(1))]);
    // A queue that is dropped ends the port, which has it watched no more; others go on.
    drop(more);
    let begun = std::time::Instant::now();
    while one.port.counters().is_ok() || watcher.counters().is_ok() {
        assert!(begun.elapsed() < PATIENCE, "nobody has missed the queues");
        let mut to = (0..16).map(|_| one.address);
        other.port.send(|slot| compose::udp(slot, other.address, to.next()?, b"x")).unwrap();
        // From other sources than that, too: each queue has some flow.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tuple = other.port.register(&socket).unwrap();
        let from = (tuple.address, tuple.port).into();
        let mut to = Some(one.address);
        other.port.send(|slot| compose::udp(slot, from, to.take()?, b"x")).unwrap();
        other.port.remove(tuple).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut again, _queues) = open(&switch, "127.0.0.1", 2);
    other.send(again.address, b"again");
    let begun = std::time::Instant::now();
    while again.port.counters().unwrap().received == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing has come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn queues_are_charged() {
    let switch = Switch::start();
    let small = Layout::new(16, 16, 128).unwrap();
    let mut port = switch.open();
    let queues: Vec<_> = (1..MAX_QUEUES).map(|_| port.add_queue(small).unwrap()).collect();
    let error = port.add_queue(small).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
    // Those of a user count as his ports do: others of his get as many as are left.
    let mut second = switch.open();
    let more: Vec<_> = std::iter::from_fn(|| second.add_queue(small).ok()).collect();
    assert!((50..MAX_QUEUES).contains(&more.len()), "{}", more.len());
    let refused = Port::open(&switch.path, small);
    assert!(refused.is_err(), "he has as many as he may");
    // Their end gives all of it back.
    drop((port, queues, second, more));
    let begun = std::time::Instant::now();
    // 128 MiB each, of 256.
    let large = Layout::new(2048, 4096, 16384).unwrap();
    let mut port = loop {
        match Port::open(&switch.path, large) {
            Ok(port) => break port,
            Err(_) => assert!(begun.elapsed() < PATIENCE, "dead queues are still counted"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let _queue = port.add_queue(large).unwrap();
    let error = port.add_queue(large).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
}

/// Whoever asks for more than there may be, for such as cannot be, or without a port, hears why and keeps what he has.
#[test]
fn queues_that_may_not_be_are_refused_and_those_that_are_go_on() {
    let switch = Switch::start();
    let request = |sizes: [u32; 3]| {
        let sizes = sizes.into_iter().flat_map(u32::to_ne_bytes);
        std::iter::once(9).chain(sizes).collect::<Vec<u8>>()
    };
    let liar = Liar::open(&switch.path);
    let mut kept = Vec::new();
    for _ in 1..MAX_QUEUES {
        for wrong in [[0; 3], [u32::MAX; 3], [15, 16, 128], [16, 8192, 128], [16, 16, 100]] {
            let (answer, descriptors) = common::ask(&liar.control, &request(wrong), None);
            assert_eq!((answer[0], descriptors.len()), (1, 0), "{wrong:?}");
        }
        let (answer, descriptors) = common::ask(&liar.control, &request([16, 16, 128]), None);
        assert_eq!((&answer[..], descriptors.len()), (&[0][..], 2));
        kept.extend(descriptors);
    }
    for _ in 0..100 {
        let (answer, descriptors) = common::ask(&liar.control, &request([16, 16, 128]), None);
        assert_eq!((answer[0], descriptors.len()), (1, 0));
        assert_eq!(answer[1..5], rustix::io::Errno::DQUOT.raw_os_error().to_ne_bytes());
    }
    // It is still there, and what comes for it is spread.
    let (mut sender, mine) = (switch.stack("127.0.0.1"), liar.register());
    sender.send(mine, b"here");
    sender.until(|counters| counters.sent == 1);
}

/// One that has queues added sends and receives before and after, with others' frames on their way all the while.
#[test]
fn queues_are_added_while_frames_are_under_way() {
    const MORE: usize = 6;
    let switch = Switch::start();
    let (mut server, mut sender) = (switch.open(), switch.stack("127.0.0.1"));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tuple = server.register(&socket).unwrap();
    let here = SocketAddr::from((tuple.address, tuple.port));
    let sources: Vec<SocketAddr> = std::iter::once(sender.address)
        .chain((0..15).map(|_| {
            let tuple = sender.port.register(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
            (tuple.address, tuple.port).into()
        }))
        .collect();
    let is_over = AtomicU64::new(0);
    let mut queues: Vec<Queue> = Vec::new();
    // The last number of each flow in each queue, and which queue had it since there are so many.
    let mut last = HashMap::<(u16, usize), u64>::new();
    let mut came = 0;
    let mut take =
        |server: &mut Port, queues: &mut [Queue], of: Option<&mut HashMap<u16, usize>>| {
            let all = std::iter::once(server.queue()).chain(queues.iter_mut());
            let mut of = of;
            for (n, queue) in all.enumerate() {
                let read = |frame: &[u8]| {
                    let (port, number) = read(frame);
                    if let Some(before) = last.insert((port, n), number) {
                        assert!(number > before, "a flow keeps its order, and nothing comes twice");
                    }
                    if let Some(of) = &mut of {
                        let queue = *of.entry(port).or_insert(n);
                        assert_eq!(queue, n, "a flow has one queue as long as there are so many");
                    }
                    came += 1;
                };
                queue.receive(u32::MAX, read).unwrap();
            }
            came
        };
    let (mut sender, sent) = std::thread::scope(|scope| {
        let is_over = &is_over;
        let sending = scope.spawn(move || {
            let (mut number, mut sent) = (0_u64, 0);
            while is_over.load(Ordering::Relaxed) == 0 {
                let mut all = sources.iter();
                let write =
                    |slot: &mut [u8]| compose::udp(slot, *all.next()?, here, &number.to_ne_bytes());
                assert!(sender.port.wait_for_room(Some(PATIENCE)).unwrap());
                sent += u64::from(sender.port.send(write).unwrap());
                number += 1;
            }
            (sender, sent)
        });
        // Ended also when something fails.
        let end = End(is_over);
        for n in 0..=MORE {
            let begun = std::time::Instant::now();
            let mut of = HashMap::new();
            // What came to queues of before the last one was added is there by now.
            let before = take(&mut server, &mut queues, None);
            while take(&mut server, &mut queues, Some(&mut of)) < before + 500 {
                assert!(begun.elapsed() < PATIENCE, "nothing comes with {n} more queues");
            }
            let busy: std::collections::HashSet<_> = of.values().collect();
            assert!(n < 3 || busy.len() > 1, "all flows of {} come to one queue", of.len());
            if n < MORE {
                queues.push(server.add_queue(layout()).unwrap());
            }
        }
        drop(end);
        sending.join().unwrap()
    });
    // All that was sent has come, or was counted.
    sender.until(|theirs| {
        let ours = server.counters().unwrap();
        let dropped = ours.dropped(Reason::Full) + theirs.dropped(Reason::Destination);
        theirs.sent == ours.received && theirs.sent + dropped == sent
    });
    let all = take(&mut server, &mut queues, None);
    assert_eq!(all, server.counters().unwrap().received);
}

struct End<'a>(&'a AtomicU64);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Relaxed);
    }
}
