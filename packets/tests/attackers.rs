//! What a program may try against others with ports, and what those notice of it: nothing.

mod common;

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::users::Of;
use common::{Liar, Stack, Switch, layout};
use quicket_packets::client::Port;
use quicket_packets::{Counters, Layout, REASONS, Reason, compose};
use quicket_ring::{Consumer, Descriptor, Producer, Way};
use rustix::fs::FallocateFlags;

/// What goes on takes less, also where tests share a core.
const LONG: Duration = Duration::from_secs(120);

/// Two stacks exchange frames while something else goes on: all come, in their order.
fn exchange(one: &mut Stack, other: &mut Stack, while_true: &AtomicBool) -> u64 {
    let (mut number, begun) = (0_u64, Instant::now());
    while while_true.load(Ordering::Relaxed) || number < 200 {
        assert!(begun.elapsed() < LONG, "what goes on meanwhile has no end");
        one.send(other.address, &number.to_ne_bytes());
        assert_eq!(other.receive(), (one.address, number.to_ne_bytes().to_vec()));
        other.send(one.address, &number.to_ne_bytes());
        assert_eq!(one.receive(), (other.address, number.to_ne_bytes().to_vec()));
        number += 1;
    }
    number
}

/// What two others exchange meanwhile loses nothing.
fn beside<T: Send>(switch: &Switch, attack: impl FnOnce() -> T + Send) -> T {
    beside_those([(); 2].map(|()| switch.stack("127.0.0.1")), attack)
}

fn beside_those<T: Send>([mut one, mut other]: [Stack; 2], attack: impl FnOnce() -> T + Send) -> T {
    /// Ends the exchange, also when the attack fails.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }
    let goes_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let _end = End(&goes_on);
            attack()
        });
        let ended = scope.spawn(|| exchange(&mut one, &mut other, &goes_on)).join();
        goes_on.store(false, Ordering::Relaxed);
        let result = attack.join().unwrap();
        let number = ended.unwrap();
        assert!(number >= 200);
        result
    })
}

#[test]
fn a_source_that_is_forged_comes_to_nobody() {
    let switch = Switch::start();
    let (mut forger, mut victim) = (switch.stack("127.0.0.1"), switch.stack("127.0.0.1"));
    let mut target = switch.stack("127.0.0.1");
    let same_address = SocketAddr::new(forger.address.ip(), 1);
    for source in [victim.address, target.address, same_address, "127.0.0.9:53".parse().unwrap()] {
        forger.send_as(source, target.address, b"forged");
    }
    let counters = forger.until(|counters| counters.dropped(Reason::Source) == 4);
    assert_eq!((counters.sent, counters.received), (0, 0));
    assert!(target.has_nothing() && victim.has_nothing());
    // What was its goes with the tuple.
    let gone = victim.address;
    drop(victim);
    forger.send_as(gone, target.address, b"forged");
    forger.until(|counters| counters.dropped(Reason::Source) == 5);
    assert!(target.has_nothing());
    forger.send(target.address, b"true");
    assert_eq!(target.receive(), (forger.address, b"true".to_vec()));
}

#[test]
fn descriptors_that_lead_outside_are_counted_and_nothing_else() {
    let switch = Switch::start();
    beside(&switch, || {
        let mut liar = Liar::open(&switch.path);
        let wrong = |n: u32| Descriptor { slot: 128 + n * 33_554_423, len: 64 };
        for _ in 0..100 {
            let slots: Vec<_> = (0..32).map(wrong).collect();
            liar.publish(&slots);
            let lens = (0..32).map(|n| Descriptor { slot: n, len: 2049 + n as u16 * 2047 });
            liar.publish(&lens.collect::<Vec<_>>());
            liar.publish(&[Descriptor { slot: u32::MAX, len: u16::MAX }]);
        }
        // Empty ones, and slots of receiving, are within: they are frames of nothing.
        liar.publish(&[Descriptor { slot: 0, len: 0 }, Descriptor { slot: 127, len: 2048 }]);
        let begun = Instant::now();
        loop {
            let (answer, _) = common::ask(&liar.control, &[4], None);
            let number =
                |n: usize| u64::from_ne_bytes(answer[1 + n * 8..][..8].try_into().unwrap());
            let (descriptors, lengths) = (number(2), number(5) + number(3));
            if descriptors == 6500 && lengths == 2 {
                break;
            }
            assert!(begun.elapsed() < common::PATIENCE, "{descriptors} {lengths}");
        }
    });
}

#[test]
fn who_lies_about_indices_loses_his_port() {
    let switch = Switch::start();
    beside(&switch, || {
        for way in [Way::Send, Way::Receive] {
            for count in [65, 1 << 16, 1 << 31, u32::MAX] {
                let liar = Liar::open(&switch.path);
                let mine = liar.register();
                match way {
                    Way::Send => {
                        let _ = Producer::new().publish(liar.memory.lines(way), count);
                    }
                    // It has taken what never came.
                    Way::Receive => {
                        let _ = Consumer::new().release(liar.memory.lines(way), count);
                    }
                }
                let _ = liar.bell.ring();
                if way == Way::Receive {
                    // It is found when the room that there was in the beginning is used up.
                    let mut sender = switch.stack("127.0.0.1");
                    // One after the other: of frames that are forwarded together, some may find no room before.
                    for n in 0..64 {
                        sender.send(mine, b"look");
                        sender.until(|counters| counters.sent == n + 1);
                    }
                    sender.send(mine, b"look");
                    sender.until(|counters| counters.dropped(Reason::Destination) == 1);
                }
                assert!(liar.is_expelled(), "{way:?} {count}");
                // What it had is free.
                let begun = Instant::now();
                while UdpSocket::bind(mine).is_err() {
                    assert!(begun.elapsed() < common::PATIENCE, "its socket is still kept");
                    std::thread::yield_now();
                }
            }
        }
    });
}

#[test]
fn who_scribbles_on_his_memory_harms_himself() {
    let switch = Switch::start();
    beside(&switch, || {
        let mut random = 7_u64;
        let mut expelled = 0;
        for _ in 0..50 {
            let liar = Liar::open(&switch.path);
            let mine = liar.register();
            let mut sender = switch.stack("127.0.0.1");
            let mut noise = [0; 2048];
            for n in 0..500_u32 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let number = (random >> 33) as u32;
                let way = if number & 1 == 0 { Way::Send } else { Way::Receive };
                let wild = Descriptor { slot: number >> (number & 31), len: number as u16 };
                Producer::new().put(liar.memory.lines(way), number >> 3, wild);
                // Mostly what can be.
                let _ = Producer::new().publish(liar.memory.lines(Way::Send), number & 63);
                let _ = Consumer::new().sleep(liar.memory.lines(Way::Receive));
                let _ = Producer::new().wait(liar.memory.lines(Way::Send));
                noise.fill(number as u8);
                let _ = liar.memory.store(number & 127, &mut noise, 2048);
                let _ = liar.bell.ring();
                if n % 8 == 0 {
                    let to = (sender.address, mine);
                    let _ = sender
                        .port
                        .send(|slot| compose::udp(slot, to.0, to.1, b"in between"))
                        .unwrap();
                }
            }
            let _ = Producer::new().publish(liar.memory.lines(Way::Send), number_beyond(random));
            let _ = liar.bell.ring();
            expelled += u32::from(liar.is_expelled());
        }
        assert_eq!(expelled, 50);
    });
}

/// An index that no count of the ring can be near to: half of all away.
fn number_beyond(random: u64) -> u32 {
    (1 << 31) + (random >> 48) as u32
}

/// No seal forbids that. What is gone is zeros, and pages that the kernel has to make again.
#[test]
fn who_punches_holes_into_his_memory_harms_himself() {
    let switch = Switch::start();
    beside(&switch, || {
        let mut sender = switch.stack("127.0.0.1");
        let mut sent = 0;
        let punch = |liar: &Liar, from: u64| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let len = layout().memory() as u64;
            rustix::fs::fallocate(&liar.memory, flags, from, len - from).unwrap();
        };
        let mut send = |to| {
            sender.send(to, b"into a hole");
            sent += 1;
            let dropped = |all: &Counters| REASONS.map(|why| all.dropped(why)).iter().sum::<u64>();
            sender.until(|counters| counters.sent + dropped(counters) == sent)
        };
        // Slots alone: those for receiving are the second half of them. The port lives on, and gets what comes.
        let mut liar = Liar::open(&switch.path);
        let mine = liar.register();
        let before = send(mine).sent;
        for n in 0..60 {
            punch(&liar, layout().memory() as u64 / 2);
            // Frames of zeros.
            liar.publish(&[Descriptor { slot: 127, len: 64 }]);
            assert_eq!(send(mine).sent, before + n + 1);
        }
        assert_eq!(common::ask(&liar.control, &[4], None).0[0], 0, "it is still there");
        // All of it, indices as well, while frames go both ways.
        for n in 0..200_u32 {
            let mut liar = Liar::open(&switch.path);
            let mine = liar.register();
            for n in 0..n % 5 {
                liar.publish(&[Descriptor { slot: n, len: 64 }]);
                send(mine);
            }
            punch(&liar, 0);
            send(mine);
            punch(&liar, 0);
            let _ = liar.bell.ring();
            send(mine);
        }
    });
}

#[test]
fn who_never_reads_loses_his_own_frames_only() {
    let switch = Switch::start();
    let mut deaf = switch.stack("127.0.0.1");
    beside(&switch, || {
        let mut sender = switch.stack("127.0.0.1");
        for _ in 0..1000 {
            sender.send(deaf.address, b"hear");
        }
        sender.until(|counters| counters.sent == 64);
        sender.until(|_| deaf.port.counters().unwrap().dropped(Reason::Full) == 936);
    });
    let mut came = 0;
    deaf.port.receive(1000, |_| came += 1).unwrap();
    assert_eq!(came, 64, "what came first is still there");
}

/// Bells that are never heard, rung without end, and whose flags are taken back.
#[test]
fn a_bell_has_nobody_wait() {
    let switch = Switch::start();
    let liar = Liar::open(&switch.path);
    let mine = liar.register();
    rustix::fs::fcntl_setfl(&liar.bell, rustix::fs::OFlags::empty()).unwrap();
    beside(&switch, || {
        let mut sender = switch.stack("127.0.0.1");
        for _ in 0..2000 {
            // It says that it sleeps, and takes what comes, so that the switch rings each time.
            let _ = Consumer::new().sleep(liar.memory.lines(Way::Receive));
            sender.send(mine, b"ring");
            for _ in 0..16 {
                let _ = rustix::net::send(&liar.bell, &[1; 512], rustix::net::SendFlags::DONTWAIT);
            }
        }
        sender.until(|counters| counters.sent >= 64);
    });
}

#[test]
fn requests_without_sense_and_answers_that_nobody_reads_end_a_connection() {
    let switch = Switch::start();
    beside(&switch, || {
        let liar = Liar::open(&switch.path);
        for request in [&[][..], &[0], &[9], &[1, 1], &[2, 0], &[3; 30], &[4, 4], &[7; 600]] {
            if request.is_empty() {
                continue;
            }
            let (answer, _) = common::ask(&liar.control, request, None);
            assert_eq!(answer[0], 1, "{request:?}");
        }
        // A socket without a port, a port twice, a removal of what is another's.
        let (answer, _) = common::ask(&liar.control, &[2], None);
        assert_eq!(answer[0], 1);
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let begun = Instant::now();
        loop {
            match rustix::net::send(&liar.control, &[4], flags) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => std::thread::yield_now(),
                Err(_) => break,
            }
            assert!(begun.elapsed() < common::PATIENCE, "it is still listened to");
        }
    });
}

/// 10,000 of each, beside an exchange. docs/packets.md says how many there are in a second; the bound is for a machine whose cores others
/// take.
#[test]
fn registrations_and_removals_without_end_keep_nobody_waiting() {
    const ROUNDS: u32 = 100;
    let test = "registrations_and_removals_without_end_keep_nobody_waiting";
    let Some(switch) = Of::one(test) else { return };
    let sockets: Vec<_> = (0..100).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let mut port = Port::open(&switch.path, layout()).unwrap();
    let mut round = || {
        let tuples: Vec<_> = sockets.iter().map(|s| port.register(s).unwrap()).collect();
        tuples.into_iter().for_each(|tuple| port.remove(tuple).unwrap());
    };
    let exchanging = [(); 2].map(|()| switch.stack());
    // What the switch allocates once it has by then.
    round();
    let (memory, descriptors) = (switch.memory(), switch.descriptors());
    let taken = beside_those(exchanging, || {
        let begun = Instant::now();
        (0..ROUNDS).for_each(|_| round());
        begun.elapsed()
    });
    let rate = f64::from(ROUNDS * 100) / taken.as_secs_f64();
    println!("{rate:.0} registrations and removals a second, beside an exchange");
    assert!(taken < Duration::from_secs(60), "{taken:?}");
    // The clerk closes what was handed over, and what the switch had bound for it.
    let begun = Instant::now();
    while switch.descriptors() > descriptors {
        let now = switch.descriptors();
        assert!(begun.elapsed() < common::PATIENCE, "{descriptors} descriptors before, {now} now");
        std::thread::sleep(Duration::from_millis(5));
    }
    let now = switch.memory();
    assert!(now < memory + (1 << 20), "{memory} octets before, and {now} now");
}

/// This program, started again, is killed while it sends and receives in batches.
#[test]
fn who_is_killed_in_the_middle_of_a_batch_is_gone_at_once() {
    const PATH: &str = "QUICKET_PACKETS_VICTIM";
    if let Some(path) = std::env::var_os(PATH) {
        return be_killed(path.as_ref());
    }
    let switch = Switch::start();
    beside(&switch, || {
        for _ in 0..5 {
            let test = "who_is_killed_in_the_middle_of_a_batch_is_gone_at_once";
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([test, "--exact", "--nocapture"])
                .env(PATH, &switch.path)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
            let address = loop {
                let mut line = String::new();
                assert!(std::io::BufRead::read_line(&mut lines, &mut line).unwrap() > 0);
                if let Some((_, address)) = line.trim().split_once("address ") {
                    break address.parse::<SocketAddr>().unwrap();
                }
            };
            let mut sender = switch.stack("127.0.0.1");
            for _ in 0..500 {
                sender.send(address, b"until the end");
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let begun = Instant::now();
            while UdpSocket::bind(address).is_err() {
                assert!(begun.elapsed() < common::PATIENCE, "its tuple is kept");
                std::thread::sleep(Duration::from_millis(1));
            }
            sender.send(address, b"nobody");
            sender.until(|counters| counters.dropped(Reason::Destination) > 0);
        }
    });
}

fn be_killed(path: &std::path::Path) {
    let mut port = Port::open(path, Layout::new(64, 64, 2048).unwrap()).unwrap();
    let tuple = port.register(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    let address = SocketAddr::new(tuple.address, tuple.port);
    println!("\naddress {address}");
    std::io::stdout().flush().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < common::PATIENCE {
        port.send(|slot| compose::udp(slot, address, address, b"on and on")).unwrap();
        port.receive(7, |_| ()).unwrap();
    }
}

/// What a user hands over is closed and looked into by his own thread: descriptors of all kinds, many at once.
#[test]
fn descriptors_that_nobody_wants_are_closed() {
    let switch = Switch::start();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut port = switch.open();
    let (file, before) = (std::fs::File::open("/dev/null").unwrap(), open());
    for _ in 0..1000 {
        assert!(port.register(&file).is_err());
    }
    // The other tests of this process open descriptors, too: not as many.
    let begun = Instant::now();
    while open() > before + 500 {
        assert!(begun.elapsed() < common::PATIENCE, "{} and {before} before", open());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(port.as_fd().try_clone_to_owned().is_ok());
}
