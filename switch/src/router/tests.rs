use std::net::SocketAddr;
use std::sync::Arc;

use quicket_sim::test_crypto::TestCrypto;
use quicket_steering::{Codec, ConfigId, Configurations, Format, Owner, ServerId};
use quicket_wire::{EcnCodepoint, Version};

use super::*;
use crate::registry::{
    Attention, ListenAddress, Names, OWNER_BITS, ProcessId, Protocol, Receipts, Registration,
    ServerName,
};
use crate::testing::{Client, client_hello, long};
use quicket_testing::Rng;

const REMOTE: &str = "198.51.100.7:4000";

struct World {
    rng: Rng,
    registry: Registry,
    router: Router,
    codec: Codec,
    now: Time,
}

fn server_id() -> ServerId {
    ServerId::new(&[7]).unwrap()
}

impl World {
    fn new() -> Self {
        let receipts = Receipts::new(Arc::new(TestCrypto), [5; 32], 0);
        let format = Format::new(1, 9).unwrap().with_owner(OWNER_BITS).unwrap();
        let mask = HashKey::new(*b"maskmask");
        let now = Time::from_nanos(1 << 40);
        Self {
            rng: Rng::new(1),
            registry: Registry::new(now, 1000, receipts, false),
            router: Router::new(Arc::new(TestCrypto), [9; 16], ReplyRates::default()),
            codec: Codec::new(ConfigId::new(0).unwrap(), format, None, mask),
            now,
        }
    }

    fn later(&mut self, millis: u64) {
        self.now = Time::from_nanos(self.now.as_nanos() + millis * 1_000_000);
    }

    fn program(&mut self, name: &str, protocols: &[&str], servers: &[&str]) -> ListenerId {
        let protocols = protocols.iter().map(|name| Protocol::new(name.as_bytes()).unwrap());
        let servers = servers.iter().map(|name| ServerName::new(name).unwrap());
        let new = Registration {
            address: ListenAddress::new("192.0.2.1:443".parse().unwrap(), false),
            uid: 1000,
            process: ProcessId(self.rng.next()),
            program: name.to_owned(),
            names: Names::new(protocols, servers).unwrap(),
            workers: 4,
            reuse_port: false,
            replace: true,
            claim: None,
            family: None,
            attention: Attention::default(),
        };
        let id = self.registry.register(self.now, new).unwrap().listener;
        self.registry.ready(self.now, id, None).unwrap();
        let configurations = Configurations::new(self.codec.clone());
        let reader = Reader { configurations, server_id: Some(server_id()) };
        self.router.set_reader(id.address(), reader);
        id
    }

    fn remove(&mut self, id: ListenerId) {
        assert!(self.registry.remove(self.now, id));
        self.router.remove_listener(id);
    }

    fn address(&self) -> AddressId {
        let address = ListenAddress::new("192.0.2.1:443".parse().unwrap(), false);
        self.registry.address_id(&address).unwrap()
    }

    fn issue(&mut self, owner: Owner) -> ConnectionId {
        let place = quicket_steering::Place { server_id: server_id(), owner: Some(owner) };
        let rng = &mut self.rng;
        self.codec.mint(&place, &mut |out| rng.fill(out)).unwrap()
    }

    fn train(&mut self, segment_size: usize, bytes: &[u8]) -> Vec<Piece> {
        let train = Train {
            address: self.address(),
            remote: REMOTE.parse().unwrap(),
            local: None,
            ecn: EcnCodepoint::NotEct,
            segment_size,
            bytes,
        };
        let mut pieces = Vec::new();
        self.router.route(&mut self.registry, self.now, &train, &mut pieces);
        pieces
    }

    fn one(&mut self, bytes: &[u8]) -> Decision {
        let mut pieces = self.train(bytes.len(), bytes);
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].range, 0..bytes.len());
        pieces.remove(0).decision
    }

    fn counters(&self) -> Counters {
        self.router.counters(self.address()).unwrap()
    }
}

fn short(dcid: &ConnectionId, len: usize) -> Vec<u8> {
    let mut out = [&[0x41][..], dcid.as_slice()].concat();
    out.resize(len, 0x33);
    out
}

fn owner(listener: ListenerId, worker: u16) -> Owner {
    Owner { generation: listener.generation(), worker }
}

fn delivered(listener: ListenerId, worker: u16, way: Way) -> Decision {
    Decision::Deliver { place: Place { listener, worker }, way }
}

#[test]
fn packets_go_where_their_connection_id_leads() {
    let mut world = World::new();
    let (a, b) = (world.program("a", &["a"], &[]), world.program("b", &["b"], &[]));
    for (listener, worker) in [(a, 0), (a, 3), (b, 2)] {
        let id = world.issue(owner(listener, worker));
        let expected = delivered(listener, worker, Way::Owner);
        assert_eq!(world.one(&short(&id, 40)), expected);
        for kind in 0..4 {
            let bytes = long(Version::V1, kind, id.as_slice(), &[], 1200);
            assert_eq!(world.one(&bytes), expected, "kind {kind}");
        }
        // The fixed bit means nothing (RFC 9287).
        let mut bytes = short(&id, 40);
        bytes[0] &= !0x40;
        assert_eq!(world.one(&bytes), expected);
    }
    for nobody in [owner(a, 4), Owner { generation: 77, worker: 0 }] {
        let id = world.issue(nobody);
        assert_eq!(world.one(&short(&id, 40)), Decision::Drop(DropReason::Unroutable));
        let bytes = long(Version::V1, 2, id.as_slice(), &[], 1200);
        assert_eq!(world.one(&bytes), Decision::Drop(DropReason::Unroutable));
    }
    let place = quicket_steering::Place {
        server_id: ServerId::new(&[8]).unwrap(),
        owner: Some(owner(a, 0)),
    };
    let elsewhere = world.codec.mint(&place, &mut |out| out.fill(3)).unwrap();
    let bytes = long(Version::V1, 2, elsewhere.as_slice(), &[], 1200);
    assert_eq!(world.one(&bytes), Decision::Drop(DropReason::Unroutable), "another host's");
    assert_eq!(world.counters().dropped(DropReason::Unroutable), 5);
    assert_eq!(world.counters().by_owner, 18);
}

/// A door has been shut: its program notes the last clients that it has had.
#[test]
fn clients_that_nobody_knows_wait_while_a_program_says_whose_they_are() {
    let mut world = World::new();
    let a = world.program("a", &["a"], &[]);
    let mut rng = Rng::new(5);
    let mut hello = |alpn| {
        let mut client = Client::new(&mut rng);
        client.hello(&TestCrypto, &client_hello(None, &[alpn], 0), 1).remove(0)
    };
    let (noted, new) = (hello("b"), hello("b"));
    let id =
        |packet: &[u8]| ConnectionId::new(InvariantHeader::parse(packet).unwrap().dcid).unwrap();
    world.router.set_quiet(a.address(), true);
    assert!(!world.router.is_clear_for(a));
    let b = world.program("b", &["b"], &[]);
    for packet in [&noted, &new] {
        assert_eq!(world.one(packet), Decision::Wait { held: Vec::new() });
    }
    // Connections do not, and neither do clients that are known.
    let connection = world.issue(owner(b, 1));
    assert_eq!(world.one(&short(&connection, 40)), delivered(b, 1, Way::Owner));
    let place = Place { listener: a, worker: 2 };
    world.router.pins.add_first(world.now, a.address(), id(&noted), place);
    assert_eq!(world.one(&noted), delivered(a, 2, Way::Pin));
    // However late it is: whoever looks at what was noted last ends it.
    world.later(1000);
    assert_eq!(world.one(&new), Decision::Wait { held: Vec::new() });
    world.router.set_quiet(a.address(), false);
    assert!(matches!(
        world.one(&new),
        Decision::Deliver { place, way: Way::FirstPacket } if place.listener == b
    ));
    assert_eq!(world.one(&noted), delivered(a, 2, Way::Pin));
    assert!(!world.router.is_clear_for(a) && !world.router.is_clear_for(b));
    world.remove(b);
    assert!(world.router.is_clear_for(a));
}

/// Nothing more has to come for that.
#[test]
fn a_half_read_hello_is_in_the_way_of_a_door_for_a_while_only() {
    let mut world = World::new();
    let (a, b) = (world.program("a", &["a"], &[]), world.program("b", &["b"], &[]));
    let mut rng = Rng::new(6);
    let mut client = Client::new(&mut rng);
    let sent = client.hello(&TestCrypto, &client_hello(None, &["a"], 1000), 2);
    assert_eq!(world.one(&sent[0]), Decision::Held);
    world.remove(b);
    world.later(4999);
    world.router.expire(world.now);
    assert!(!world.router.is_clear_for(a));
    world.later(1);
    world.router.expire(world.now);
    assert!(world.router.is_clear_for(a));
}

#[test]
fn trains_are_cut_where_the_owner_changes_and_nowhere_else() {
    let mut world = World::new();
    let (a, b) = (world.program("a", &["a"], &[]), world.program("b", &["b"], &[]));
    let (one, two) = (world.issue(owner(a, 1)), world.issue(owner(a, 1)));
    let other = world.issue(owner(b, 1));
    let ids = [one, one, two, other, other, one];
    let mut bytes: Vec<u8> = ids.iter().flat_map(|id| short(id, 100)).collect();
    bytes.truncate(550);
    let pieces = world.train(100, &bytes);
    let ranges: Vec<_> = pieces.iter().map(|piece| piece.range.clone()).collect();
    assert_eq!(ranges, [0..300, 300..500, 500..550]);
    assert_eq!(pieces[0].decision, delivered(a, 1, Way::Owner));
    assert_eq!(pieces[1].decision, delivered(b, 1, Way::Owner));
    assert_eq!(pieces[2].decision, delivered(a, 1, Way::Owner));
    assert_eq!(world.counters().by_owner, 6);
    let status = world.registry.status();
    assert_eq!(status.addresses[0].listeners[0].counters.datagrams, 4);
    // Strangers between are not taken along.
    let bytes = [short(&one, 100), vec![0x40; 100], short(&one, 100)].concat();
    assert_eq!(world.train(100, &bytes).len(), 3);
    assert!(world.train(0, &short(&one, 30)).len() <= 30, "a size of 0 does not hang it");
    assert_eq!(world.train(100, &[]), []);
}

#[test]
fn a_client_reaches_who_serves_what_it_asks_for_and_stays_there() {
    let mut world = World::new();
    let mut newest = [world.program("a", &["a"], &[]), world.program("b", &["b"], &["b.org"])];
    let asked = [(None, "a", 1, 0), (Some("b.org"), "b", 1, 1), (Some("b.org"), "b", 3, 1)];
    for (server, protocol, datagrams, which) in asked {
        let mut rng = Rng::new(world.rng.next());
        let mut client = Client::new(&mut rng);
        let message = client_hello(server, &[protocol], 900 * datagrams - 800);
        let mut sent = client.hello(&TestCrypto, &message, datagrams);
        sent.reverse();
        let last = sent.pop().unwrap();
        for bytes in &sent {
            assert_eq!(world.one(bytes), Decision::Held);
        }
        let place = match world.one(&last) {
            Decision::Deliver { place, way: Way::FirstPacket } if sent.is_empty() => place,
            Decision::Release { place, held } => {
                let held: Vec<_> = held.into_iter().map(|held| held.bytes).collect();
                assert_eq!(held, sent);
                place
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(place.listener, newest[which]);
        // What comes after, 0-RTT and repeated, needs no reading; a new generation changes nothing.
        newest[which] = world.program(protocol, &[protocol], server.as_slice());
        let early = long(Version::V1, 1, client.dcid.as_slice(), &[], 300);
        let expected = Decision::Deliver { place, way: Way::Pin };
        assert_eq!((world.one(&early), world.one(&last)), (expected.clone(), expected));
    }
    let mut rng = Rng::new(77);
    let mut client = Client::new(&mut rng);
    let sent = client.hello(&TestCrypto, &client_hello(None, &["c"], 0), 1).remove(0);
    let Client { version, dcid, scid, .. } = client;
    assert_eq!(world.one(&sent), Decision::Refuse { version, dcid, scid });
}

#[test]
fn one_program_alone_gets_everything_that_begins_something() {
    let mut world = World::new();
    let a = world.program("a", &["a"], &["a.org"]);
    // Another version, with a longer connection ID, to which no worker can say that it is not its.
    for bytes in [
        long(Version::V1, 0, &[5; 8], &[], 1200),
        long(Version::V1, 0, &[5; 8], &[], 1200),
        long(Version(0x1a2a_3a4a), 0, &[6; 8], &[], 1200),
        long(Version(0x1a2a_3a4a), 0, &[6; 200], &[], 1200),
    ] {
        let Decision::Deliver { place, .. } = world.one(&bytes) else { panic!("{bytes:?}") };
        assert_eq!(place.listener, a);
        let Decision::Deliver { place: again, .. } = world.one(&bytes) else { panic!("{bytes:?}") };
        assert_eq!(again, place);
    }
    let small = long(Version::V1, 0, &[5; 9], &[], 1199);
    assert_eq!(world.one(&small), Decision::Drop(DropReason::TooShort));
}

/// It may come first, and its client's Initial when the next generation serves. So may what a client says in a version
/// that nobody speaks, before it does so in another one with the same connection ID.
#[test]
fn what_comes_ahead_of_a_first_packet_binds_its_client_to_nobody() {
    let early = long(Version::V1, 1, &[5; 8], &[], 600);
    let unknown = long(Version(0x1a2a_3a4a), 0, &[5; 8], &[], 1200);
    for ahead in [early, unknown] {
        let mut world = World::new();
        let old = world.program("a", &["a"], &[]);
        let first = long(Version::V1, 0, &[5; 8], &[], 1200);
        let whose = |decision| match decision {
            Decision::Deliver { place, way } => (place.listener, way),
            other => panic!("{other:?}"),
        };
        assert_eq!(whose(world.one(&ahead)), (old, Way::Ahead));
        let new = world.program("a", &["a"], &[]);
        assert_eq!(whose(world.one(&first)), (new, Way::FirstPacket));
        assert_eq!(whose(world.one(&ahead)), (new, Way::Pin));
    }
}

#[test]
fn the_switch_negotiates_versions_where_nobody_else_can() {
    let mut world = World::new();
    world.program("a", &["a"], &[]);
    world.program("b", &["b"], &[]);
    let unknown = long(Version(0x1a2a_3a4a), 0, &[6; 200], &[7; 30], 1200);
    assert_eq!(world.one(&unknown), Decision::NegotiateVersion);
    let answered = (1..3000).filter(|_| world.one(&unknown) == Decision::NegotiateVersion).count();
    assert_eq!(answered, 999, "so many in a second");
    assert_eq!(world.counters().dropped(DropReason::Answers), 2000);
    world.later(1000);
    assert_eq!(world.one(&unknown), Decision::NegotiateVersion);
    // One that answers is not answered.
    let answer = long(Version::NEGOTIATION, 0, &[6; 8], &[7; 8], 1200);
    assert_eq!(world.one(&answer), Decision::Drop(DropReason::Unroutable));
}

#[test]
fn only_what_leads_to_the_dead_is_reset() {
    let mut world = World::new();
    let (a, b) = (world.program("a", &["a"], &[]), world.program("b", &["b"], &[]));
    let id = world.issue(owner(a, 1));
    assert_eq!(world.one(&short(&id, 40)), delivered(a, 1, Way::Owner));
    world.remove(a);
    assert_eq!(world.one(&short(&id, 40)), Decision::Reset { dcid: id, uid: 1000 });
    // Too short for anything that is shorter, and a packet of the handshake.
    assert_eq!(world.one(&short(&id, 21)), Decision::Drop(DropReason::Dead));
    let bytes = long(Version::V1, 2, id.as_slice(), &[], 1200);
    assert_eq!(world.one(&bytes), Decision::Drop(DropReason::Dead));
    // Guessed ones lead there by chance, and are not answered.
    let mut reset = 0;
    for _ in 0..200_000 {
        let mut octets = [0; 13];
        world.rng.fill(&mut octets);
        let guess = ConnectionId::new(&octets).unwrap();
        reset += usize::from(matches!(world.one(&short(&guess, 40)), Decision::Reset { .. }));
    }
    assert!(reset < 3, "{reset}");
    // A client that comes back with it begins anew, at whoever is there.
    let bytes = long(Version::V1, 0, id.as_slice(), &[], 1200);
    let Decision::Deliver { place, way: Way::FirstPacket } = world.one(&bytes) else {
        panic!("b is alone");
    };
    assert_eq!(place.listener, b);
}

#[test]
fn a_client_comes_back_after_a_retry_to_who_sent_it() {
    let mut world = World::new();
    let old = world.program("a", &["a"], &[]);
    world.program("b", &["b"], &[]);
    let retry = world.issue(owner(old, 2));
    let new = world.program("a", &["a"], &[]);
    assert_ne!(old, new);
    let mut client = Client::new(&mut Rng::new(5));
    (client.dcid, client.token) = (retry, vec![8; 60]);
    let sent = client.hello(&TestCrypto, &client_hello(None, &["a"], 0), 1).remove(0);
    assert_eq!(world.one(&sent), delivered(old, 2, Way::Owner), "as long as it is there");
    world.remove(old);
    let Decision::Deliver { place, way: Way::FirstPacket } = world.one(&sent) else {
        panic!("the new generation opens tokens of the old one");
    };
    assert_eq!(place.listener, new);
}

#[test]
fn a_program_that_is_a_client_hears_of_resets() {
    let mut world = World::new();
    let (a, b) = (world.program("a", &["a"], &[]), world.program("b", &["b"], &[]));
    let place = Place { listener: a, worker: 1 };
    let remote: SocketAddr = REMOTE.parse().unwrap();
    let token = quicket_wire::StatelessResetToken([0x33; 16]);
    assert!(world.router.pins.add_reset(world.now, place, remote, token));
    // Its random octets look as if it were for somebody else.
    let id = world.issue(owner(b, 0));
    assert_eq!(world.one(&short(&id, 50)), Decision::Deliver { place, way: Way::Pin });
    world.remove(a);
    assert_eq!(world.one(&short(&id, 50)), delivered(b, 0, Way::Owner));
}

#[test]
fn an_address_without_anybody_drops_what_comes() {
    let mut world = World::new();
    let a = world.program("a", &["a"], &[]);
    world.registry.drain(a, None).unwrap();
    let bytes = long(Version::V1, 0, &[5; 8], &[], 1200);
    assert_eq!(world.one(&bytes), Decision::Drop(DropReason::NotServed));
    let id = world.issue(owner(a, 0));
    assert_eq!(world.one(&short(&id, 40)), delivered(a, 0, Way::Owner));
    let address = world.address();
    world.router.remove_address(address);
    assert_eq!(world.one(&bytes), Decision::Drop(DropReason::UnknownAddress));
}

/// One source sends 100,000 whole hellos a second to one program: what comes through is bounded, and
/// clients of the other program notice nothing, nor do those that have a pin.
#[test]
fn a_flood_at_one_name_leaves_the_others_in_peace() {
    let mut world = World::new();
    let (_, b) = (world.program("a", &["a"], &[]), world.program("b", &["b"], &[]));
    let hellos = ["a", "b"].map(|protocol| client_hello(None, &[protocol], 0));
    let mut own = Vec::new();
    let (mut flooded, mut rng) = (0, Rng::new(3));
    for number in 0..50_000_u32 {
        world.now = Time::from_nanos(world.now.as_nanos() + 10_000);
        let bytes = Client::new(&mut rng).hello(&TestCrypto, &hellos[0], 1).remove(0);
        flooded += u32::from(matches!(world.one(&bytes), Decision::Deliver { .. }));
        if number % 500 == 0 {
            let bytes = Client::new(&mut rng).hello(&TestCrypto, &hellos[1], 1).remove(0);
            let remote = SocketAddr::from((number.to_be_bytes(), 9));
            let train = Train {
                address: world.address(),
                remote,
                local: None,
                ecn: EcnCodepoint::NotEct,
                segment_size: bytes.len(),
                bytes: &bytes,
            };
            let mut pieces = Vec::new();
            world.router.route(&mut world.registry, world.now, &train, &mut pieces);
            let Decision::Deliver { place, way: Way::FirstPacket } = pieces[0].decision else {
                panic!("{pieces:?}");
            };
            assert_eq!(place.listener, b);
            own.push((place, bytes));
        }
    }
    // A second's worth at once, and half a second.
    assert!((1400..=1510).contains(&flooded), "{flooded}");
    assert_eq!(world.counters().dropped(DropReason::Rate), u64::from(50_000 - flooded));
    for (place, bytes) in own {
        assert_eq!(world.one(&bytes), Decision::Deliver { place, way: Way::Pin });
    }
}

/// Programs come back one after the other, and their clients wait for that.
#[test]
fn a_switch_that_takes_over_refuses_nobody_too_early() {
    let mut world = World::new();
    let receipts = Receipts::new(Arc::new(TestCrypto), [5; 32], 0);
    world.registry = Registry::new(world.now, 1000, receipts, true);
    let receipt = crate::registry::Receipt { incarnation: 0, proof: [0; 16] };
    let new = Registration {
        address: ListenAddress::new("192.0.2.1:443".parse().unwrap(), false),
        uid: 1000,
        process: ProcessId(0),
        program: "a".to_owned(),
        names: Names::new([Protocol::new(b"a").unwrap()], []).unwrap(),
        workers: 1,
        reuse_port: false,
        replace: false,
        claim: Some(crate::registry::Claim { generation: 3, receipt, draining: false }),
        family: None,
        attention: Attention::default(),
    };
    let back = world.registry.register(world.now, new).unwrap().listener;
    world.registry.ready(world.now, back, None).unwrap();
    let configurations = Configurations::new(world.codec.clone());
    world.router.set_reader(back.address(), Reader { configurations, server_id: None });
    let mut client = Client::new(&mut Rng::new(5));
    let other = client.hello(&TestCrypto, &client_hello(None, &["b"], 0), 1).remove(0);
    let mut client = Client::new(&mut Rng::new(6));
    let own = client.hello(&TestCrypto, &client_hello(None, &["a"], 0), 1).remove(0);
    let unknown = long(Version(0x1a2a_3a4a), 0, &[6; 20], &[7; 8], 1200);
    assert_eq!(world.one(&other), Decision::Drop(DropReason::NotServed));
    assert_eq!(world.one(&unknown), Decision::Drop(DropReason::NotServed));
    assert_eq!(world.one(&own), delivered(back, 0, Way::FirstPacket));
    world.later(2000);
    assert_eq!(world.one(&other), delivered(back, 0, Way::FirstPacket), "it is alone");
}

#[test]
fn reasons_have_names_of_their_own() {
    let names: std::collections::BTreeSet<_> =
        DropReason::ALL.iter().map(|each| each.name()).collect();
    assert_eq!(names.len(), DropReason::ALL.len());
    for (number, reason) in DropReason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, number);
    }
}

/// A listener that was passed on over fork(2), and that nobody accepts from yet.
#[test]
fn clients_of_a_listener_that_nobody_accepts_from_wait_and_those_of_others_do_not() {
    for beside in [false, true] {
        let mut world = World::new();
        let master = world.program("a", &["a"], &[]);
        if beside {
            world.program("b", &["b"], &[]);
        }
        world.registry.set_attention(master, Attention::Away);
        let mut rng = Rng::new(world.rng.next());
        let mut client = Client::new(&mut rng);
        let sent = client.hello(&TestCrypto, &client_hello(None, &["a"], 1000), 2);
        let mut held = Vec::new();
        for (number, bytes) in sent.iter().enumerate() {
            match world.one(bytes) {
                // The hello is not whole yet, where it has to be read.
                Decision::Held => assert!(beside && number == 0),
                Decision::Wait { held: before } => {
                    held.extend(before.into_iter().map(|held| held.bytes));
                    held.push(bytes.clone());
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(held, sent);
        assert_eq!(world.counters().waited, 2);
        assert_eq!(world.router.pins.len(), 0);
        // What belongs to a connection does not wait.
        let id = world.issue(owner(master, 1));
        assert_eq!(world.one(&short(&id, 40)), delivered(master, 1, Way::Owner));
        world.registry.set_attention(master, Attention::Busy);
        let mut places = held.iter().map(|bytes| world.one(bytes)).collect::<Vec<_>>().into_iter();
        let first = places.next().unwrap();
        match (beside, &first, places.next().unwrap()) {
            (false, Decision::Deliver { place, .. }, Decision::Deliver { place: same, .. }) => {
                assert_eq!((place.listener, *place), (master, same));
            }
            (true, Decision::Held, Decision::Release { place, held }) => {
                assert_eq!((place.listener, held.len()), (master, 1));
            }
            other => panic!("{other:?}"),
        }
    }
}
