//! What a switch does with bytes of strangers and of programs, and what must hold whatever they are.

#[path = "../../src/testing.rs"]
mod testing;

use std::sync::Arc;

use quicket_engine::ReplyRates;
use quicket_engine::time::Time;
use quicket_sim::test_crypto::TestCrypto;
use quicket_steering::{Codec, ConfigId, Configurations, Format, HashKey, Owner, Place, ServerId};
use quicket_switch::first_packet::{MAX_HELD_BYTES, MAX_HELLOS};
use quicket_switch::registry::{
    Claim, ListenAddress, ListenerId, MAX_LISTENERS_PER_USER, Names, OWNER_BITS, Phase, ProcessId,
    Protocol, Receipts, Registered, Registration, ServerName, Standing,
};
use quicket_switch::router::{Decision, Piece, Reader, Train};
use quicket_switch::{Registry, Router};
use quicket_testing::Rng;
use quicket_wire::EcnCodepoint;
use testing::{Client, crypto_frame};

const START: u64 = 1 << 40;

fn codec() -> Codec {
    let format = Format::new(1, 9).unwrap().with_owner(OWNER_BITS).unwrap();
    Codec::new(ConfigId::new(0).unwrap(), format, None, HashKey::new(*b"maskmask"))
}

fn registry(own_uid: u32, takes_over: bool) -> Registry {
    let receipts = Receipts::new(Arc::new(TestCrypto), [5; 32], 0);
    Registry::new(Time::from_nanos(START), own_uid, receipts, takes_over)
}

fn asks(program: &str, protocol: &[u8]) -> Registration {
    Registration {
        address: ListenAddress::new("192.0.2.1:443".parse().unwrap(), false),
        uid: 1000,
        process: ProcessId(0),
        program: program.to_owned(),
        names: Names::new([Protocol::new(protocol).unwrap()], []).unwrap(),
        workers: 2,
        reuse_port: false,
        replace: false,
        claim: None,
        family: None,
        attention: quicket_switch::registry::Attention::default(),
    }
}

/// Two programs, and a third that is dead.
fn world() -> (Registry, Router, [ListenerId; 3]) {
    let mut registry = registry(0, false);
    let mut router = Router::new(Arc::new(TestCrypto), [9; 16], ReplyRates::default());
    let now = Time::from_nanos(START);
    let ids = ["a", "b", "c"].map(|name| {
        let id = registry.register(now, asks(name, name.as_bytes())).unwrap().listener;
        registry.ready(now, id, None).unwrap();
        registry.note(id, |counters| counters.datagrams += 1);
        id
    });
    assert!(registry.remove(now, ids[2]));
    let reader = Reader { configurations: Configurations::new(codec()), server_id: None };
    router.set_reader(ids[0].address(), reader);
    (registry, router, ids)
}

/// The first byte chooses what the input is.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 4 {
        0 => train(bytes, *choice),
        1 => hello(bytes),
        2 => programs(bytes),
        _ => names(bytes),
    }
}

/// A train of a stranger; behind a good connection ID, if the choice says so.
fn train(bytes: &[u8], choice: u8) {
    let (mut registry, mut router, ids) = world();
    let owner = Owner { generation: ids[usize::from(choice >> 4) % 3].generation(), worker: 1 };
    let place = Place { server_id: ServerId::new(&[1]).unwrap(), owner: Some(owner) };
    let id = codec().mint(&place, &mut |out| out.fill(choice)).unwrap();
    let mut all = Vec::new();
    if choice & 4 != 0 {
        all = [&[0x40][..], id.as_slice()].concat();
    }
    all.extend_from_slice(bytes);
    let train = Train {
        address: ids[0].address(),
        remote: "198.51.100.7:5000".parse().unwrap(),
        local: None,
        ecn: EcnCodepoint::NotEct,
        segment_size: if choice & 8 != 0 { 100 } else { all.len() },
        bytes: &all,
    };
    let now = Time::from_nanos(START);
    let mut pieces = Vec::new();
    router.route(&mut registry, now, &train, &mut pieces);
    check(&registry, &pieces, all.len());
    let again = &mut Vec::new();
    let (mut registry, mut router, _) = world();
    router.route(&mut registry, now, &train, again);
    assert_eq!(&pieces, again, "nothing but the datagrams decides");
}

/// Pieces are all of the train, in order, and what is delivered goes to somebody.
fn check(registry: &Registry, pieces: &[Piece], len: usize) {
    let mut at = 0;
    for piece in pieces {
        assert!(piece.range.start == at && piece.range.end > at);
        at = piece.range.end;
        match &piece.decision {
            Decision::Deliver { place, .. } | Decision::Release { place, .. } => {
                assert!(registry.workers(place.listener).is_some_and(|all| place.worker < all));
            }
            Decision::Refuse { version, .. } => assert!(version.is_supported()),
            _ => {}
        }
    }
    assert_eq!(at, len);
}

/// CRYPTO frames in a client's packets: an octet says how much of what follows is in the next frame,
/// two its offset; above 200 a new packet begins.
fn hello(mut bytes: &[u8]) {
    let (mut registry, mut router, ids) = world();
    let mut client = Client::new(&mut Rng::new(1));
    let now = Time::from_nanos(START);
    let (mut frames, mut packets) = (Vec::new(), Vec::new());
    while let [len, high, low, rest @ ..] = bytes {
        let (data, behind) = rest.split_at(usize::from(*len).min(rest.len()));
        frames.extend(crypto_frame(usize::from(u16::from_be_bytes([*high, *low])), data));
        if *len > 200 || frames.len() > 1000 {
            packets.push(std::mem::take(&mut frames));
        }
        bytes = behind;
    }
    packets.push(frames);
    let mut released = false;
    for frames in packets {
        let bytes = client.initial(&TestCrypto, &frames, 1200);
        let train = Train {
            address: ids[0].address(),
            remote: "198.51.100.7:5000".parse().unwrap(),
            local: None,
            ecn: EcnCodepoint::NotEct,
            segment_size: bytes.len(),
            bytes: &bytes,
        };
        let mut pieces = Vec::new();
        router.route(&mut registry, now, &train, &mut pieces);
        check(&registry, &pieces, bytes.len());
        let [piece] = &pieces[..] else { panic!("one datagram") };
        assert!(!released || matches!(piece.decision, Decision::Deliver { .. }), "it is pinned");
        released |= matches!(piece.decision, Decision::Deliver { .. } | Decision::Release { .. });
        assert!(router.first_packets().len() <= MAX_HELLOS);
        assert!(router.first_packets().bytes() <= MAX_HELD_BYTES);
    }
}

/// What programs do, two octets each: who, and what.
fn programs(bytes: &[u8]) {
    let mut registry = registry(1000, bytes.first().is_some_and(|first| first & 1 != 0));
    let mut had: Vec<(u8, Registered)> = Vec::new();
    let mut now = Time::from_nanos(START);
    for pair in bytes.chunks_exact(2) {
        let (who, what) = (pair[0], pair[1]);
        let picked = had.get(usize::from(who) % had.len().max(1)).cloned();
        match (what % 8, picked) {
            (0..=2, picked) => {
                let claim = picked.filter(|_| what & 8 != 0).map(|(_, known)| Claim {
                    generation: known.listener.generation(),
                    receipt: known.receipt,
                    draining: what & 16 != 0,
                });
                let new = Registration {
                    uid: 1000 + u32::from(who & 1),
                    process: ProcessId(u64::from(who)),
                    replace: what & 32 != 0,
                    reuse_port: what & 64 != 0,
                    claim,
                    ..asks(if who & 2 == 0 { "a" } else { "b" }, &[b'a' + (who >> 2) % 3])
                };
                if let Ok(registered) = registry.register(now, new) {
                    had.push((who, registered));
                }
            }
            (3, Some((_, known))) => drop(registry.ready(now, known.listener, None)),
            (4, Some((_, known))) => drop(registry.remove(now, known.listener)),
            (5, _) => drop(registry.remove_process(now, ProcessId(u64::from(who)))),
            (6, Some((_, known))) => registry.note(known.listener, |all| all.datagrams += 1),
            _ => now = Time::from_nanos(now.as_nanos() + (u64::from(who) << 30)),
        }
        while registry.poll(now).is_some() {}
        consistent(&registry);
    }
}

/// Whoever serves a protocol is of one user, and one program or a group; nobody has too much.
fn consistent(registry: &Registry) {
    let status = registry.status();
    for address in &status.addresses {
        let active = address.listeners.iter().filter(|each| each.phase == Phase::Active);
        let active: Vec<_> = active.collect();
        for (number, one) in active.iter().enumerate() {
            for other in active.iter().skip(number + 1) {
                let same = one.protocols.iter().any(|each| other.protocols.contains(each));
                assert!(!same || one.uid == other.uid, "{one:?} and {other:?}");
            }
        }
        for each in &address.listeners {
            let owner = Owner { generation: each.generation, worker: 0 };
            let standing = registry.standing(each.listener.address(), owner);
            assert_eq!(standing, Standing::Living(each.listener));
        }
        let own = address.listeners.iter().filter(|each| each.uid == 1000).count();
        assert!(own <= MAX_LISTENERS_PER_USER);
    }
}

fn names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(name) = ServerName::new(&text) {
        assert_eq!(ServerName::new(&name.to_string()), Ok(name), "what is shown is understood");
    }
    if let Ok(protocol) = Protocol::new(bytes) {
        assert_eq!(protocol.as_bytes(), bytes);
        assert!(protocol.to_string().is_ascii());
    }
}
