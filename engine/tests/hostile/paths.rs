//! Challenges, addresses, ECN marks and MTU probes (RFC 9000, Sections 8.2, 9.3, 13.4 and 14.4).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use quicket_engine::crypto::Level;
use quicket_engine::{EcnState, MtuDiscovery, Side};
use quicket_sim::attack::{Duel, DuelOptions, Payload, Sent, Stage};
use quicket_wire::frame::{PathChallenge, PathResponse, Ping};
use quicket_wire::{EcnCodepoint, EcnCounts, Frame, Frames};

use crate::memory::growth;
use crate::support::{BOTH, KIB, assert_alive, confirmed, ms};

fn challenge(n: u64) -> PathChallenge {
    PathChallenge { data: n.to_be_bytes() }
}

/// CVE-2023-49295 of quic-go and CVE-2023-6193 of quiche: challenges that cannot be answered,
/// because the window is closed.
#[test]
fn challenges_queue_no_answers() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let answers = |duel: &mut Duel| {
            duel.connection().stats().counters.frames_sent.of_type(PathResponse::TYPE)
        };
        let before = answers(&mut duel);
        let grown = growth(&mut duel, |duel| {
            for packet in 0..1_000 {
                let mut payload = Payload::new();
                (0..100).for_each(|n| payload.push(&challenge(packet * 100 + n)));
                duel.attack(Level::OneRtt, &payload);
            }
        });
        assert_alive(&mut duel);
        assert!(grown < 32 * KIB, "{grown} bytes");
        drop(duel.pass(ms(100)));
        let count = answers(&mut duel) - before;
        assert!((1..=4).contains(&count), "{count} answers to 100000 challenges");
    }
}

fn elsewhere(n: u32) -> SocketAddr {
    let [_, b, c, d] = n.to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, b, c, d)), 4_000)
}

/// RFC 9000, Section 9.3.1: whoever spoofs addresses gets each of them no more than three times
/// what it sent there, and the victim keeps few paths.
#[test]
fn packets_from_everywhere_make_few_paths_and_amplify_nothing() {
    let mut duel = confirmed(Side::Client);
    let mut received: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    let mut sent: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    let own = duel.address;
    let grown = growth(&mut duel, |duel| {
        for n in 0..5_000 {
            let payload = match n % 3 {
                0 => Payload::of(&Ping),
                1 => Payload::of(&challenge(u64::from(n))),
                _ => Payload::of(&challenge(1)).frame(&Ping).raw(&[0; 1_000]),
            };
            let mut packet = duel.forge.seal(Level::OneRtt, payload.bytes());
            *received.entry(elsewhere(n)).or_default() += packet.len();
            duel.deliver_from(elsewhere(n), &mut packet);
            for answer in duel.pass(ms(2)) {
                *sent.entry(answer.remote).or_default() += answer.data.len();
            }
        }
        for answer in duel.pass(ms(10_000)) {
            *sent.entry(answer.remote).or_default() += answer.data.len();
        }
    });
    sent.remove(&own);
    for (address, bytes) in &sent {
        let allowed = 3 * received.get(address).copied().unwrap_or_default();
        assert!(*bytes <= allowed, "{bytes} bytes to {address}, {allowed} allowed");
    }
    assert!(!sent.is_empty(), "challenges went out");
    let kept = (sent.len() + received.len()) as isize * 128;
    assert!(grown < 1024 * KIB + kept, "{grown} bytes");
}

/// RFC 9000, Section 9: a client takes nothing from addresses that are not its server's.
#[test]
fn a_client_ignores_other_addresses() {
    let mut duel = confirmed(Side::Server);
    let before = duel.connection().stats().counters.packets_received;
    let grown = growth(&mut duel, |duel| {
        for n in 0..5_000 {
            let mut packet = duel.forge.seal(Level::OneRtt, Payload::of(&challenge(1)).bytes());
            duel.deliver_from(elsewhere(n), &mut packet);
        }
    });
    assert_eq!(duel.connection().stats().counters.packets_received, before);
    assert!(duel.pass(ms(100)).iter().all(|sent| sent.remote == duel.address));
    assert_alive(&mut duel);
    assert!(grown < 8 * KIB, "{grown} bytes");
}

/// RFC 9000, Section 13.4.2.1: counts that cannot be right turn ECN off, and nothing else.
#[test]
fn wrong_ecn_counts_turn_ecn_off() {
    let lies = [
        EcnCounts { ect0: 0, ect1: 0, ce: 0 },
        EcnCounts { ect0: 0, ect1: 100, ce: 0 },
        EcnCounts { ect0: (1 << 62) - 1, ect1: (1 << 62) - 1, ce: (1 << 62) - 1 },
    ];
    for side in BOTH {
        for lie in lies {
            let mut duel = confirmed(side);
            for _ in 0..30 {
                duel.connection().ping();
                let sent = duel.pass(ms(10));
                sent.iter().for_each(|sent| drop(duel.forge.open(&sent.data)));
                let ranges: Vec<_> = duel.forge.opened.iter().rev().cloned().collect();
                duel.attack(Level::OneRtt, &Payload::new().ack(0, &ranges, Some(lie)));
            }
            assert_alive(&mut duel);
            let path = duel.connection().stats().path;
            assert_eq!(path.ecn, EcnState::Failed, "{side:?} {lie:?}");
        }
    }
}

/// RFC 9002, Section 8.3: a peer that reports every packet as marked slows itself down only.
#[test]
fn congestion_marks_without_end_close_the_window_to_its_minimum() {
    let mut duel = confirmed(Side::Client);
    let mut marked = 0;
    for _ in 0..200 {
        duel.connection().ping();
        let sent = duel.pass(ms(10));
        marked += sent.iter().filter(|sent| sent.ecn == EcnCodepoint::Ect0).count() as u64;
        sent.iter().for_each(|sent| drop(duel.forge.open(&sent.data)));
        let ranges: Vec<_> = duel.forge.opened.iter().rev().cloned().collect();
        let ecn = EcnCounts { ect0: 0, ect1: 0, ce: 1_000 + marked };
        duel.attack(Level::OneRtt, &Payload::new().ack(0, &ranges, Some(ecn)));
    }
    assert_alive(&mut duel);
    assert!(duel.connection().stats().path.congestion_window >= 2 * 1_200);
}

/// RFC 9000, Section 14.4: who acknowledges probes that never arrived gets larger datagrams,
/// which are lost, and the size falls back.
#[test]
fn acknowledged_probes_that_never_arrived_do_not_stop_the_connection() {
    let mut options = DuelOptions::new(Side::Client);
    Arc::make_mut(&mut options.server.transport).mtu_discovery = Some(MtuDiscovery::default());
    let mut duel = Duel::new(options, Stage::Confirmed);
    for _ in 0..100 {
        duel.connection().ping();
        let sent = duel.pass(ms(20));
        sent.iter().for_each(|sent| drop(duel.forge.open(&sent.data)));
        duel.acknowledge();
    }
    let high = duel.connection().stats().path.mtu;
    assert!(high > 1_452, "the lie is believed: {high}");
    // Only what is small arrives from now on.
    let grown = growth(&mut duel, |duel| {
        for n in 0..3_000 {
            if n % 10 == 0 {
                let id = duel.connection().open(quicket_engine::Dir::Uni);
                if let Ok(id) = id {
                    let _ = duel.connection().write(id, &[1; 60_000]);
                    let _ = duel.connection().finish(id);
                }
            }
            let sent = duel.pass(ms(20));
            for sent in sent.iter().filter(|sent| sent.data.len() <= 1_400) {
                duel.forge.open(&sent.data);
            }
            duel.acknowledge();
        }
    });
    assert_alive(&mut duel);
    let low = duel.connection().stats().path.mtu;
    assert!(low <= 1_400, "{low}");
    assert!(grown < 8 * 1024 * KIB, "{grown} bytes");
}

/// Answers the challenges among these datagrams from where they went.
fn answer_challenges(duel: &mut Duel, sent: &[Sent]) {
    for sent in sent {
        for opened in duel.forge.open(&sent.data) {
            for frame in Frames::new(&opened.payload) {
                if let Ok(Frame::PathChallenge(challenge)) = frame {
                    let response = Payload::of(&PathResponse { data: challenge.data });
                    let mut packet = duel.forge.seal(Level::OneRtt, response.bytes());
                    duel.deliver_from(sent.remote, &mut packet);
                }
            }
        }
    }
}

/// A search for a larger MTU is due while the client does not show that it is where its packets
/// come from (RFC 9000, Section 9.3). The search waits for that, without a timer that is due.
#[test]
fn a_search_for_a_larger_mtu_waits_until_the_client_is_found() {
    let mut options = DuelOptions::new(Side::Client);
    let discovery = MtuDiscovery { interval: ms(4_000).into(), ..MtuDiscovery::default() };
    Arc::make_mut(&mut options.server.transport).mtu_discovery = Some(discovery);
    let mut duel = Duel::new(options, Stage::Confirmed);
    // What was found until now does not hold: only what is small arrives from now on.
    let id = duel.connection().open(quicket_engine::Dir::Uni).unwrap();
    duel.connection().write(id, &[1; 60_000]).unwrap();
    let probes = |sent: &[Sent]| sent.iter().filter(|sent| sent.data.len() > 1_400).count();
    let mut last_probe = 0;
    for step in 0..800 {
        if step >= 150 && step % 10 == 0 {
            duel.address.set_port(step);
        }
        duel.attack(Level::OneRtt, &Payload::of(&Ping));
        let sent = duel.pass(ms(10));
        if probes(&sent) > 0 {
            last_probe = step;
        }
        sent.iter().filter(|sent| sent.data.len() <= 1_400).for_each(|sent| {
            duel.forge.open(&sent.data);
        });
        duel.acknowledge();
    }
    assert_alive(&mut duel);
    assert!(
        (1..150).contains(&last_probe),
        "a search ends, and is the last until now: {last_probe}"
    );
    let mut more = 0;
    for _ in 0..500 {
        duel.attack(Level::OneRtt, &Payload::of(&Ping));
        let sent = duel.pass(ms(10));
        more += probes(&sent);
        answer_challenges(&mut duel, &sent);
        duel.acknowledge();
    }
    assert!(more > 0, "the next search begins");
}

/// CVE-2026-12707 of quiche: moves that the application does not ask about.
#[test]
fn moves_without_end_make_a_bounded_number_of_events() {
    let mut duel = confirmed(Side::Client);
    let grown = growth(&mut duel, |duel| {
        for n in 0..3_000 {
            let mut packet = duel.forge.seal(Level::OneRtt, Payload::of(&Ping).bytes());
            duel.deliver_from(elsewhere(n), &mut packet);
            for _ in 0..3 {
                let sent = duel.pass(ms(5));
                answer_challenges(duel, &sent);
            }
        }
    });
    assert_alive(&mut duel);
    let moves = duel.connection().stats().counters.path_changes;
    assert!(moves > 1_000, "the attacker moved {moves} times");
    let mut events = 0;
    while duel.connection().poll_event().is_some() {
        events += 1;
    }
    assert!(events <= 64, "{events} events");
    assert!(grown < 2048 * KIB, "{grown} bytes");
}
