use std::sync::Arc;

use quicket_handshake::AwsLcProvider;
use quicket_sim::test_crypto::TestCrypto;
use quicket_wire::ClientHello;

use super::*;
use crate::registry::{
    Attention, ListenAddress, Names, ProcessId, Receipts, Registration, Registry,
};
use crate::testing::{Client, client_hello, crypto_frame, long};
use quicket_testing::Rng;

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn addresses<const N: usize>() -> [AddressId; N] {
    let receipts = Receipts::new(Arc::new(TestCrypto), [5; 32], 0);
    let mut registry = Registry::new(at(0), 0, receipts, false);
    std::array::from_fn(|number| {
        let address = format!("192.0.2.1:{}", number + 1).parse().unwrap();
        let new = Registration {
            address: ListenAddress::new(address, false),
            uid: 0,
            process: ProcessId(0),
            program: "a".to_owned(),
            names: Names::default(),
            workers: 1,
            reuse_port: false,
            replace: false,
            claim: None,
            family: None,
            attention: Attention::default(),
        };
        registry.register(at(0), new).unwrap().listener.address()
    })
}

fn remote(number: u32) -> SocketAddr {
    SocketAddr::from((number.to_be_bytes(), 4000))
}

fn knock(address: AddressId, client: &Client, bytes: &'static [u8]) -> Knock<'static> {
    Knock {
        address,
        version: client.version,
        dcid: client.dcid,
        remote: remote(0x0a00_0001),
        local: None,
        ecn: EcnCodepoint::Ect0,
        bytes,
    }
}

fn leak(bytes: Vec<u8>) -> &'static [u8] {
    bytes.leak()
}

#[test]
fn a_hello_is_read_from_one_to_five_datagrams_in_any_order_with_holes_and_duplicates() {
    let [address] = addresses();
    let mut rng = Rng::new(1);
    for round in 0..300 {
        let count = 1 + round % 5;
        let message = client_hello(Some("www.example.org"), &["h3", "x"], 900 * (count - 1) + 10);
        let mut client = Client::new(&mut rng);
        client.version = if round % 2 == 0 { Version::V1 } else { Version::V2 };
        let mut sent = client.hello(&TestCrypto, &message, count);
        assert_eq!(sent.len(), count);
        let early = long(client.version, 1, client.dcid.as_slice(), &[], 900);
        rng.shuffle(&mut sent);
        let last = sent.pop().unwrap();
        // Before the last one: each twice, and 0-RTT somewhere between.
        let mut first = FirstPackets::new([1; 8]);
        let mut held = Vec::new();
        for bytes in sent {
            let knock = knock(address, &client, leak(bytes));
            assert_eq!(first.read(&TestCrypto, at(round as u64), &knock), Reading::More);
            let again = first.read(&TestCrypto, at(round as u64), &knock);
            assert_eq!(again, Reading::Dropped(Unread::Duplicate));
            held.push(knock.bytes);
        }
        if rng.index(2) == 0 {
            let knock = knock(address, &client, leak(early));
            assert_eq!(first.hold_early(at(round as u64), &knock), Reading::More);
            held.push(knock.bytes);
        }
        let last = knock(address, &client, leak(last));
        let Reading::Whole { message: read, held: released } =
            first.read(&TestCrypto, at(round as u64), &last)
        else {
            panic!("round {round}: all of it is there");
        };
        assert_eq!(read, message);
        let hello = ClientHello::parse(&read).unwrap();
        assert_eq!(hello.server_name(), Some("www.example.org"));
        let bytes: Vec<&[u8]> = released.iter().map(|held| &held.bytes[..]).collect();
        assert_eq!(bytes, held, "in the order in which they came");
        assert!(released.iter().all(|held| held.ecn == EcnCodepoint::Ect0));
        assert!(first.is_empty() && first.bytes() == 0, "nothing is left behind");
        assert!(
            first.order.is_empty() && first.by_address.is_empty() && first.by_source.is_empty()
        );
    }
}

#[path = "../../../handshake/tests/vectors/mod.rs"]
#[allow(dead_code)]
mod vectors;

/// The clients' Initial packets of RFC 9001, Section A.2, and RFC 9369, Section A.2.
#[test]
fn the_packets_of_the_rfcs_are_read() {
    let [address] = addresses();
    let packets =
        [(Version::V1, vectors::V1_CLIENT_PACKET), (Version::V2, vectors::V2_CLIENT_PACKET)];
    for (version, packet) in packets {
        let mut client = Client::new(&mut Rng::new(4));
        client.version = version;
        client.dcid = ConnectionId::new(&0x8394_c8f0_3e51_5708_u64.to_be_bytes()).unwrap();
        let octets = (0..packet.len()).step_by(2);
        let bytes = octets.map(|at| u8::from_str_radix(&packet[at..at + 2], 16).unwrap()).collect();
        let mut first = FirstPackets::new([1; 8]);
        let Reading::Whole { message, held } =
            first.read(&AwsLcProvider, at(0), &knock(address, &client, leak(bytes)))
        else {
            panic!("the packet of the RFC is whole");
        };
        assert!(held.is_empty());
        let hello = ClientHello::parse(&message).unwrap();
        assert_eq!(hello.server_name(), Some("example.com"));
        assert_eq!(hello.alpn().collect::<Vec<_>>(), [b"alpn"]);
    }
}

#[test]
fn packets_that_are_coalesced_with_others_are_found() {
    let [address] = addresses();
    let mut client = Client::new(&mut Rng::new(9));
    let message = client_hello(None, &["h3"], 700);
    let (a, b) = message.split_at(300);
    let early = long(client.version, 1, client.dcid.as_slice(), &[], 200);
    let other = Client::new(&mut Rng::new(10)).initial(&TestCrypto, &crypto_frame(0, b"other"), 0);
    let datagram = [
        client.initial(&TestCrypto, &crypto_frame(300, b), 0),
        early,
        other,
        client.initial(&TestCrypto, &crypto_frame(0, a), 0),
        vec![0x40; 30],
    ]
    .concat();
    let mut first = FirstPackets::new([1; 8]);
    let read = first.read(&TestCrypto, at(0), &knock(address, &client, leak(datagram)));
    assert_eq!(read, Reading::Whole { message, held: Vec::new() });
}

#[test]
fn what_cannot_be_read_leaves_nothing_and_changes_nothing() {
    let [address] = addresses();
    let mut client = Client::new(&mut Rng::new(2));
    let message = client_hello(Some("a.org"), &["h3"], 1500);
    let mut sent = client.hello(&TestCrypto, &message, 2);
    let last = leak(sent.pop().unwrap());
    let one = leak(sent.pop().unwrap());
    let mut first = FirstPackets::new([1; 8]);
    let mut damaged = one.to_vec();
    damaged[700] ^= 1;
    let server_hello = client.initial(&TestCrypto, &crypto_frame(0, &[2, 0, 0, 9]), 1200);
    let no_frames = client.initial(&TestCrypto, &[0x3f; 9], 1200);
    let far = client.initial(&TestCrypto, &crypto_frame(20_000, b"far"), 1200);
    let bad = [
        (leak(damaged), Unread::Undecryptable),
        (leak(server_hello), Unread::NoClientHello),
        (leak(no_frames), Unread::Malformed),
        (leak(far), Unread::TooLarge),
    ];
    for (bytes, why) in bad {
        let read = first.read(&TestCrypto, at(0), &knock(address, &client, bytes));
        assert_eq!(read, Reading::Dropped(why));
        assert!(first.is_empty());
    }
    let half = first.read(&TestCrypto, at(1), &knock(address, &client, last));
    assert_eq!((half, first.len()), (Reading::More, 1));
    for (bytes, why) in [bad[0], bad[2], bad[3]] {
        let read = first.read(&TestCrypto, at(2), &knock(address, &client, bytes));
        assert_eq!((read, first.len()), (Reading::Dropped(why), 1));
    }
    let whole = first.read(&TestCrypto, at(3), &knock(address, &client, one));
    assert!(matches!(whole, Reading::Whole { message: read, .. } if read == message));
}

#[test]
fn halves_are_forgotten_after_a_while() {
    let [address] = addresses();
    let mut client = Client::new(&mut Rng::new(2));
    let message = client_hello(Some("a.org"), &["h3"], 1500);
    let sent = client.hello(&TestCrypto, &message, 2);
    let mut first = FirstPackets::new([1; 8]);
    for bytes in sent.clone() {
        let knock = knock(address, &client, leak(bytes));
        assert_eq!(first.read(&TestCrypto, at(0), &knock), Reading::More);
        first.expire(at(4999));
        assert_eq!(first.len(), 1);
        first.expire(at(5000));
        assert_eq!((first.len(), first.bytes()), (0, 0));
    }
    assert_eq!(first.lost(), 2);
}

#[test]
fn one_hello_holds_so_many_datagrams_and_no_more() {
    let [address] = addresses();
    let mut client = Client::new(&mut Rng::new(2));
    let mut first = FirstPackets::new([1; 8]);
    for number in 0..40 {
        let piece = client.initial(&TestCrypto, &crypto_frame(100 + number, b"x"), 1200);
        let read = first.read(&TestCrypto, at(0), &knock(address, &client, leak(piece)));
        let fits = number < MAX_HELD_DATAGRAMS;
        assert_eq!(read, if fits { Reading::More } else { Reading::Dropped(Unread::TooLarge) });
    }
    assert!(first.bytes() < 30_000, "{}", first.bytes());
}

/// Whoever began a half can send more to its connection ID, each of which costs an AEAD, without end.
#[test]
fn garbage_behind_a_half_is_opened_a_few_times_only() {
    let [address] = addresses();
    let mut client = Client::new(&mut Rng::new(2));
    let mut first = FirstPackets::new([1; 8]);
    let half = client.initial(&TestCrypto, &crypto_frame(100, b"x"), 1200);
    assert_eq!(first.read(&TestCrypto, at(0), &knock(address, &client, leak(half))), Reading::More);
    let mut opened = 0;
    for number in 0..1000_u32 {
        let mut garbage = client.initial(&TestCrypto, &crypto_frame(200, b"x"), 1200);
        let end = garbage.len() - 4;
        garbage[end..].copy_from_slice(&number.to_be_bytes());
        match first.read(&TestCrypto, at(0), &knock(address, &client, leak(garbage))) {
            Reading::Dropped(Unread::Undecryptable) => opened += 1,
            read => assert_eq!(read, Reading::Dropped(Unread::TooLarge)),
        }
    }
    assert_eq!(opened, MAX_OPENED - 1);
}

/// 100,000 halves in a second from addresses that are made up: memory is bounded, and a client of
/// another address, whose two datagrams come one after the other, gets through each time.
#[test]
fn a_flood_of_halves_is_bounded_and_others_come_through() {
    let [flooded, other] = addresses();
    let mut first = FirstPackets::new([1; 8]);
    let mut rng = Rng::new(6);
    let message = client_hello(Some("a.org"), &["h3"], 1500);
    let half = |rng: &mut Rng| {
        let mut client = Client::new(rng);
        let datagram = client.hello(&TestCrypto, &message, 2).remove(0);
        (client, datagram)
    };
    let (mut through, mut rate) = (0, 0);
    for number in 0..100_000_u32 {
        let now = Time::from_nanos(u64::from(number) * 10_000);
        let (client, datagram) = half(&mut rng);
        let from =
            Knock { remote: remote(number.wrapping_mul(7919)), ..knock(flooded, &client, &[]) };
        match first.read(&TestCrypto, now, &Knock { bytes: &datagram, ..from }) {
            Reading::Dropped(Unread::Rate) => rate += 1,
            read => assert_eq!(read, Reading::More),
        }
        if number % 1000 == 0 {
            let mut client = Client::new(&mut rng);
            let sent = client.hello(&TestCrypto, &message, 2);
            for bytes in &sent {
                let own = Knock { bytes, ..knock(other, &client, &[]) };
                let read = first.read(&TestCrypto, now, &own);
                through += usize::from(matches!(read, Reading::Whole { .. }));
            }
        }
        assert!(first.len() <= MAX_HELLOS && first.bytes() <= MAX_HELD_BYTES);
    }
    assert_eq!(through, 100);
    // All at once in the beginning, and then as many as there may be in a second.
    assert!((58_000..=60_100).contains(&rate), "{rate}");
}

#[test]
fn one_source_has_its_share_only() {
    let [address] = addresses();
    let mut first = FirstPackets::new([1; 8]);
    let mut rng = Rng::new(6);
    let message = client_hello(Some("a.org"), &["h3"], 1500);
    let mut read = 0;
    for _ in 0..5000 {
        let mut client = Client::new(&mut rng);
        let bytes = client.hello(&TestCrypto, &message, 2).remove(0);
        let knock = Knock { bytes: &bytes, ..knock(address, &client, &[]) };
        read += u32::from(first.read(&TestCrypto, at(0), &knock) == Reading::More);
    }
    assert_eq!((read, first.len()), (HELLOS_PER_SOURCE, MAX_HALVES_PER_SOURCE));
    first.remove_address(address);
    assert_eq!((first.len(), first.bytes()), (0, 0));
}
