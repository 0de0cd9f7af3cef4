//! What others on the network may send: garbage, replays, pieces of packets.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use quicket_engine::random::Random;
use quicket_engine::time::Duration;
use quicket_sim::app::Workload;
use quicket_sim::datagram::Datagram;
use quicket_sim::network::HostId;
use quicket_sim::sim::{Pair, PairOptions, Sim};
use quicket_wire::EcnCodepoint;

use crate::support::{P2P, establish, ms, ok, pair, secs};

/// Lets `attack` make datagrams out of those seen, every few milliseconds.
fn harass(
    pair: &mut Pair,
    attack: impl Fn(&mut dyn Random, &[Datagram]) -> Option<Datagram> + 'static,
) {
    let seen: Arc<Mutex<Vec<Datagram>>> = Arc::default();
    let copies = seen.clone();
    pair.sim.network_mut().set_tap(move |_, datagram| {
        let mut copies = copies.lock().unwrap();
        if copies.len() >= 500 {
            copies.remove(0);
        }
        copies.push(datagram.clone());
        true
    });
    let rng = pair.rng();
    again(&mut pair.sim, rng, seen, Arc::new(attack));
}

type Attack = Arc<dyn Fn(&mut dyn Random, &[Datagram]) -> Option<Datagram>>;

fn again(
    sim: &mut Sim,
    mut rng: quicket_sim::rng::SimRng,
    seen: Arc<Mutex<Vec<Datagram>>>,
    attack: Attack,
) {
    sim.after(Duration::from_micros(2_500), move |sim| {
        let datagram = attack(&mut rng, &seen.lock().unwrap());
        if let Some(datagram) = datagram {
            let now = sim.now();
            sim.network_mut().send(now, datagram);
        }
        if sim.now().as_nanos() < 30_000_000_000 {
            again(sim, rng, seen, attack);
        }
    });
}

fn choose<'a>(rng: &mut dyn Random, seen: &'a [Datagram]) -> Option<&'a Datagram> {
    seen.get(rng.below(seen.len() as u64) as usize)
}

fn work() -> Workload {
    Workload { request_len: (0, 20_000), response_len: (0, 40_000), ..Workload::requests(40, 4) }
}

fn survives(attack: impl Fn(&mut dyn Random, &[Datagram]) -> Option<Datagram> + 'static) {
    let mut pair = pair(PairOptions::new(P2P));
    harass(&mut pair, attack);
    pair.connect(work());
    ok(pair.run(secs(60)));
    ok(pair.close());
}

#[test]
fn random_bytes_change_nothing() {
    survives(|rng, seen| {
        let like = choose(rng, seen)?;
        let mut payload = vec![0; rng.below(1_500) as usize];
        rng.fill(&mut payload);
        Some(Datagram { payload, ..like.clone() })
    });
}

#[test]
fn headers_with_random_payload_change_nothing() {
    survives(|rng, seen| {
        let mut datagram = choose(rng, seen)?.clone();
        let keep = (rng.below(40) as usize).min(datagram.payload.len());
        rng.fill(&mut datagram.payload[keep..]);
        Some(datagram)
    });
}

#[test]
fn truncated_and_extended_packets_change_nothing() {
    survives(|rng, seen| {
        let mut datagram = choose(rng, seen)?.clone();
        let len = rng.below(1_600) as usize;
        datagram.payload.resize(len, 0);
        Some(datagram)
    });
}

/// RFC 9000, Section 12.3 and 9.3: replays are dropped, wherever they come from.
#[test]
fn replays_change_nothing() {
    survives(|rng, seen| choose(rng, seen).cloned());
}

#[test]
fn replays_from_elsewhere_change_nothing() {
    survives(|rng, seen| {
        let mut datagram = choose(rng, seen)?.clone();
        if datagram.dst.port() == 443 {
            datagram.src.set_port(1_024 + rng.below(100) as u16);
        }
        Some(datagram)
    });
}

/// RFC 9000, Section 10.3: a reset needs its token.
#[test]
fn forged_resets_change_nothing() {
    survives(|rng, seen| {
        let like = choose(rng, seen)?;
        let mut payload = vec![0; 21 + rng.below(60) as usize];
        rng.fill(&mut payload);
        payload[0] = 0x40 | (payload[0] & 0x3f);
        Some(Datagram { payload, ..like.clone() })
    });
}

/// RFC 9000, Section 17.2.5: a Retry needs its tag, and comes too late after the first packet.
#[test]
fn forged_retries_change_nothing() {
    survives(|rng, seen| {
        let like = seen.iter().find(|d| d.dst.port() != 443 && d.payload[0] & 0x80 != 0)?;
        let mut payload = like.payload.clone();
        payload[0] |= 0xf0;
        payload.truncate(40 + rng.below(60) as usize);
        Some(Datagram { payload, ..like.clone() })
    });
}

fn send(sim: &mut Sim, src: SocketAddr, dst: SocketAddr, payload: Vec<u8>) {
    let now = sim.now();
    sim.network_mut().send(now, Datagram { src, dst, ecn: EcnCodepoint::NotEct, payload });
}

/// RFC 9000, Sections 5.2.2, 8.1 and 14.1: strangers get at most three times what they sent;
/// the simulation counts.
#[test]
fn strangers_get_little() {
    let mut pair = pair(PairOptions::new("delay=1ms"));
    let mut rng = pair.rng();
    let server = pair.sim.host(pair.server).address();
    for i in 0..3_000_u16 {
        let mut payload = vec![0; rng.below(1_400) as usize];
        rng.fill(&mut payload);
        if let (Some(first), true) = (payload.first_mut(), i % 2 == 0) {
            *first |= 0xc0;
        }
        if payload.len() > 6 && i % 4 == 0 {
            payload[1..5].copy_from_slice(&[0, 0, 0, 1]);
            payload[5] %= 21;
        }
        let client = pair.sim.host(pair.client).address();
        let src = SocketAddr::new(client.ip(), 1_024 + i);
        send(&mut pair.sim, src, server, payload);
        ok(pair.sim.run_for(ms(1)));
    }
    let server = pair.server;
    assert_eq!(pair.sim.host_mut(server).endpoint().connections(), 0);
}

#[test]
fn first_packets_from_many_addresses_are_bounded() {
    let mut pair = pair(PairOptions::new("delay=1ms"));
    let first: Arc<Mutex<Option<Datagram>>> = Arc::default();
    let seen = first.clone();
    pair.sim.network_mut().set_tap(move |_, datagram| {
        seen.lock().unwrap().get_or_insert_with(|| datagram.clone());
        true
    });
    pair.connect(Workload::none());
    establish(&mut pair);
    let original = first.lock().unwrap().clone().unwrap();
    for port in 2_000..2_200 {
        let src = SocketAddr::new(original.src.ip(), port);
        send(&mut pair.sim, src, original.dst, original.payload.clone());
    }
    ok(pair.sim.run_for(secs(60)));
    let left: Vec<HostId> = [pair.client, pair.server]
        .into_iter()
        .filter(|host| pair.sim.host_mut(*host).endpoint().connections() > 0)
        .collect();
    assert!(left.is_empty(), "all attempts have ended: {left:?}");
}
