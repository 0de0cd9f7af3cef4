//! Every kind of datagram, and what two balancers and a change of servers do to flows.

use super::*;
use crate::config::Config;
use crate::health::Health;
use crate::site::Site;
use crate::snapshot::Numbers;
use crate::testing::toy_cipher;
use quicket_steering::{Configurations, Place, ServerId};
use quicket_testing::Rng;

const SITE: &str = "config 0 server-id 3 nonce 13 key 8f95f09245765f80256934e50c66207f
config 2 server-id 3 nonce 13 plain\nissue 0\n";

fn reader() -> Configurations {
    Site::parse(SITE).unwrap().reader(&|key| toy_cipher(*key)).unwrap()
}

fn file(count: usize) -> String {
    let server = |n: usize| format!("server s{n} 10.0.{}.{} id {n:06x}\n", n / 250, 1 + n % 250);
    (0..count).map(server).fold("listen 192.0.2.1:443\n".to_owned(), |all, one| all + &one)
}

fn snapshot(file: &str, numbers: &mut Numbers) -> Snapshot {
    let config = Config::parse(file).unwrap();
    Snapshot::new(&config, Some(reader()), &Health::new(0), numbers, 0)
}

fn flow(number: u32) -> Flow {
    let [a, b, c, d] = number.to_be_bytes();
    Flow {
        client: std::net::SocketAddr::from(([10, a, b, c], 1024 + u16::from(d))),
        local: "192.0.2.1:443".parse().unwrap(),
    }
}

fn flows() -> Flows {
    Flows::new(1 << 16, 60, [9; 16])
}

/// A connection ID of configuration `number` that leads to a server.
fn minted(number: u8, server: u32, rng: &mut Rng) -> Vec<u8> {
    let [_, id @ ..] = server.to_be_bytes();
    let place = Place { server_id: ServerId::new(&id).unwrap(), owner: None };
    let id = quicket_steering::ConfigId::new(number).unwrap();
    let all = reader();
    let minted = all.get(id).unwrap().mint(&place, &mut |out| rng.fill(out)).unwrap();
    minted.as_slice().to_vec()
}

fn long(first: u8, version: u32, dcid: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    out.extend(version.to_be_bytes());
    out.push(dcid.len() as u8);
    out.extend(dcid);
    out.extend([4, 1, 2, 3, 4, 0]);
    out.resize(1200, 0);
    out
}

fn short(dcid: &[u8]) -> Vec<u8> {
    [&[0x41], dcid, &[0; 40]].concat()
}

fn way(decision: Decision) -> Option<Way> {
    match decision {
        Decision::Forward { way, .. } => Some(way),
        Decision::Refuse(_) => None,
    }
}

fn server(decision: Decision) -> usize {
    match decision {
        Decision::Forward { server, .. } => server,
        Decision::Refuse(why) => panic!("{why:?}"),
    }
}

#[test]
fn every_kind_of_datagram_goes_where_it_should() {
    use Cause::{UnknownServer, Unroutable};
    use Refusal::{Malformed, TooShort, VersionNegotiation};
    let mut rng = Rng::new(1);
    let (one, two) = (minted(0, 7, &mut rng), minted(2, 8, &mut rng));
    let unroutable: Vec<u8> = [&[0xe5], &one[1..]].concat();
    let nobody = minted(2, 77, &mut rng);
    let chosen = [0x3f, 1, 2, 3, 4, 5, 6, 7];
    let snapshot = snapshot(&file(20), &mut Numbers::default());
    let named = Ok((Way::Named, true));
    let hashed = |cause| Ok((Way::Hashed(cause), false));
    let table = [
        ("short header, enciphered", short(&one), named),
        (
            "short header without the fixed bit (RFC 9287)",
            [&[1], &short(&one)[1..]].concat(),
            named,
        ),
        ("short header, the other configuration", short(&two), Ok((Way::Named, false))),
        ("Initial with the server's", long(0xc0, 1, &one), named),
        ("Handshake", long(0xe0, 1, &one), named),
        ("Handshake of version 2", long(0xf0, 0x6b33_43cf, &one), named),
        ("a version of tomorrow", long(0x8f, 0x7a7a_7a7a, &one), named),
        ("Initial with the client's own", long(0xc0, 1, &chosen), hashed(Unroutable)),
        ("0-RTT", long(0xd0, 1, &chosen), hashed(Unroutable)),
        ("a connection ID of 255 octets", long(0x80, 99, &[0; 255]), hashed(Unroutable)),
        ("no connection ID", long(0xc0, 1, &[]), hashed(Unroutable)),
        ("longer than ours", long(0xc0, 1, &[&one[..], &[0]].concat()), hashed(Unroutable)),
        ("configuration 0b111", short(&unroutable), hashed(Unroutable)),
        ("a configuration that there is not", short(&[0x3f; 17]), hashed(Unroutable)),
        ("a server that nobody is", short(&nobody), hashed(UnknownServer)),
        ("the same in Handshake", long(0xe0, 1, &nobody), hashed(UnknownServer)),
        ("the same in Initial: perhaps by chance", long(0xc0, 1, &nobody), hashed(Unroutable)),
        ("the same in 0-RTT", long(0xd0, 1, &nobody), hashed(Unroutable)),
        ("the same in a version of tomorrow", long(0x8f, 0x7a7a_7a7a, &nobody), hashed(Unroutable)),
        ("nothing", vec![], Err(TooShort)),
        ("one octet", vec![0x40], Err(TooShort)),
        ("shorter than any packet", vec![0x40; 20], Err(TooShort)),
        ("half a connection ID", long(0xc0, 1, &one)[..15].to_vec(), Err(Malformed)),
        ("no version", vec![0xc0, 0, 0], Err(Malformed)),
        ("Version Negotiation", long(0xc0, 0, &one), Err(VersionNegotiation)),
    ];
    for (what, payload, expected) in table {
        let decision = snapshot.decide(&mut flows(), &flow(1), &payload, 0);
        match (decision, expected) {
            (Decision::Forward { server, way }, Ok((wanted, seven))) => {
                assert_eq!(way, wanted, "{what}");
                if way == Way::Named {
                    assert_eq!(server, if seven { 7 } else { 8 }, "{what}");
                }
            }
            (Decision::Refuse(why), Err(wanted)) => assert_eq!(why, wanted, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn without_configurations_all_go_by_their_flow() {
    let config =
        Config::parse("listen 192.0.2.1:443\nserver a 10.0.0.1\nserver b 10.0.0.2").unwrap();
    let mut numbers = Numbers::default();
    let snapshot = Snapshot::new(&config, None, &Health::new(0), &mut numbers, 0);
    let mut flows = flows();
    let first = snapshot.decide(&mut flows, &flow(1), &long(0xc0, 1, &[7; 8]), 0);
    assert_eq!(way(first), Some(Way::Hashed(Cause::Unroutable)));
    for payload in [short(&[0; 8]), long(0xe0, 1, &[0x11; 20])] {
        let next = snapshot.decide(&mut flows, &flow(1), &payload, 1);
        assert_eq!(
            next,
            Decision::Forward { server: server(first), way: Way::Kept(Cause::Unroutable) }
        );
    }
}

#[test]
fn no_octets_make_it_panic() {
    let snapshot = snapshot(&file(3), &mut Numbers::default());
    let (mut rng, mut flows) = (Rng::new(5), flows());
    for _ in 0..100_000 {
        let mut payload = vec![0; rng.index(80)];
        rng.fill(&mut payload);
        snapshot.decide(&mut flows, &flow(rng.next() as u32), &payload, 0);
    }
}

#[test]
fn two_balancers_agree_without_talking_to_each_other() {
    // Their lists are in another order, one has been at work for long, and their secrets differ.
    let mut lines: Vec<String> = file(50).lines().map(str::to_owned).collect();
    lines[1..].reverse();
    let one = snapshot(&file(50), &mut Numbers::default());
    let mut used = Numbers::default();
    snapshot(&file(70), &mut used);
    let other = snapshot(&lines.join("\n"), &mut used);
    let (mut flows_one, mut flows_other) = (flows(), Flows::new(64, 60, [1; 16]));
    let mut rng = Rng::new(3);
    for number in 0..20_000 {
        let payload = match rng.index(3) {
            0 => long(0xc0, 1, &[0xff; 8]),
            1 => short(&minted(0, rng.index(50) as u32, &mut rng)),
            _ => short(&minted(2, rng.index(90) as u32, &mut rng)),
        };
        let name = |snapshot: &Snapshot, flows: &mut Flows| {
            let at = server(snapshot.decide(flows, &flow(number % 5000), &payload, 0));
            snapshot.members()[at].name.clone()
        };
        assert_eq!(name(&one, &mut flows_one), name(&other, &mut flows_other), "{number}");
    }
}

#[test]
fn a_server_that_goes_moves_its_own_flows_and_few_new_ones() {
    let mut numbers = Numbers::default();
    let before = snapshot(&file(20), &mut numbers);
    let without: String = file(20)
        .lines()
        .filter(|line| !line.contains(" s7 "))
        .fold(String::new(), |all, line| all + line + "\n");
    let after = snapshot(&without, &mut numbers);
    let mut flows = flows();
    let initial = long(0xc0, 1, &[0xff; 8]);
    let name = |snapshot: &Snapshot, flows: &mut Flows, number: u32| {
        let at = server(snapshot.decide(flows, &flow(number), &initial, 1));
        snapshot.members()[at].name.clone()
    };
    let known: Vec<String> = (0..5000).map(|n| name(&before, &mut flows, n)).collect();
    for (number, old) in known.iter().enumerate() {
        let new = name(&after, &mut flows, number as u32);
        assert_eq!(new == *old, old != "s7", "flow {number} of {old}");
    }
    // Of flows that nobody remembers, about one in twenty was that server's; few others move.
    let moved = (10_000..30_000_u32).filter(|number| {
        let old = name(&before, &mut Flows::new(8, 1, [0; 16]), *number);
        old != name(&after, &mut Flows::new(8, 1, [0; 16]), *number)
    });
    let moved = moved.count();
    assert!((900..1500).contains(&moved), "{moved} of 20000 new flows moved");
}

#[test]
fn a_server_that_drains_keeps_its_flows_and_takes_no_new_ones() {
    let mut numbers = Numbers::default();
    let before = snapshot(&file(4), &mut numbers);
    let drained = file(4).replace("id 000002", "id 000002 drain");
    let after = snapshot(&drained, &mut numbers);
    let mut flows = flows();
    let initial = long(0xc0, 1, &[0xff; 8]);
    let old: Vec<usize> =
        (0..1000).map(|n| server(before.decide(&mut flows, &flow(n), &initial, 0))).collect();
    assert!(old.contains(&2));
    for (number, old) in old.iter().enumerate() {
        let now = server(after.decide(&mut flows, &flow(number as u32), &initial, 1));
        assert_eq!(now, *old);
    }
    for number in 1000..3000 {
        assert_ne!(server(after.decide(&mut flows, &flow(number), &initial, 1)), 2);
    }
    let named = short(&minted(0, 2, &mut Rng::new(1)));
    assert_eq!(server(after.decide(&mut flows, &flow(9999), &named, 1)), 2);
}

#[test]
fn a_client_that_connects_anew_from_one_port_leaves_a_server_that_drains() {
    let mut numbers = Numbers::default();
    let before = snapshot(&file(4), &mut numbers);
    let after = snapshot(&file(4).replace("id 000002", "id 000002 drain"), &mut numbers);
    let (initial, unroutable) = (long(0xc0, 1, &[0xff; 8]), short(&[0xff; 17]));
    let mut flows = flows();
    let mut theirs =
        (0..).filter(|n| server(before.decide(&mut flows, &flow(*n), &initial, 0)) == 2);
    let (anew, talks) = (flow(theirs.next().unwrap()), flow(theirs.next().unwrap()));
    drop(theirs);
    for now in (20..=60).step_by(20) {
        assert_eq!(server(after.decide(&mut flows, &anew, &initial, now)), 2, "after {now} s");
        assert_eq!(server(after.decide(&mut flows, &talks, &unroutable, now)), 2);
    }
    assert_ne!(server(after.decide(&mut flows, &anew, &initial, 61)), 2);
    assert_eq!(server(after.decide(&mut flows, &talks, &unroutable, 61)), 2, "it has a connection");
}

#[test]
fn who_is_down_gets_what_names_it_and_loses_its_flows() {
    let mut numbers = Numbers::default();
    let before = snapshot(&file(4), &mut numbers);
    let after = snapshot(&file(4).replace("id 000002", "id 000002 down"), &mut numbers);
    let mut flows = flows();
    let initial = long(0xc0, 1, &[0xff; 8]);
    let number =
        (0..).find(|n| server(before.decide(&mut flows, &flow(*n), &initial, 0)) == 2).unwrap();
    let moved = after.decide(&mut flows, &flow(number), &initial, 1);
    assert!(server(moved) != 2 && matches!(way(moved), Some(Way::Hashed(_))));
    assert_eq!(
        after.decide(&mut flows, &flow(number), &initial, 1),
        Decision::Forward { server: server(moved), way: Way::Kept(Cause::Unroutable) }
    );
    let named = short(&minted(0, 2, &mut Rng::new(1)));
    assert_eq!(server(after.decide(&mut flows, &flow(number), &named, 1)), 2);
}

#[test]
fn where_all_are_silent_all_are_tried_and_where_none_is_wanted_nothing_goes() {
    let report = "reports 10.9.9.9:1\n".to_owned() + &file(3).replace("\n", " report\n");
    let config = Config::parse(&report.replacen(":443 report", ":443", 1)).unwrap();
    let mut numbers = Numbers::default();
    let at = |now: u64, numbers: &mut Numbers| {
        Snapshot::new(&config, None, &Health::new(0), numbers, now)
    };
    assert!(!at(0, &mut numbers).is_desperate());
    let late = at(60_000, &mut numbers);
    assert!(late.is_desperate());
    let decided = |snapshot: &Snapshot, n: u32| {
        snapshot.decide(&mut flows(), &flow(n), &long(0xc0, 1, &[0xff; 8]), 0)
    };
    let mut seen: Vec<usize> = (0..100).map(|n| server(decided(&late, n))).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [0, 1, 2]);
    let none = snapshot(&file(2).replace("id 0", "drain id 0"), &mut numbers);
    assert_eq!(decided(&none, 1), Decision::Refuse(Refusal::NoServer));
}

#[test]
fn a_full_table_of_flows_still_gives_the_answer_of_the_hash() {
    let snapshot = snapshot(&file(10), &mut Numbers::default());
    let (mut small, mut large) = (Flows::new(64, 60, [1; 16]), flows());
    let initial = long(0xc0, 1, &[0xff; 8]);
    for number in (0..10_000).chain(0..10_000) {
        let decide = |flows: &mut Flows| server(snapshot.decide(flows, &flow(number), &initial, 0));
        assert_eq!(decide(&mut small), decide(&mut large));
    }
    assert!(small.evicted() > 0 && small.len(0) <= 64);
}
