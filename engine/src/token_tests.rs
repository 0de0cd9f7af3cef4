use alloc::collections::BTreeSet;

use super::*;
use crate::cid::test_support::{TestCrypto, TestRandom};
use crate::random::Random;

const KEY: [u8; 32] = [3; 32];
const NOW: UnixSeconds = 1_800_000_000;
const LIFETIMES: TokenLifetimes = TokenLifetimes { retry: 15, new_token: 1000 };

fn sealer(now: UnixSeconds) -> TokenSealer<'static> {
    TokenSealer { crypto: &TestCrypto, keys: TokenKeys::new(&KEY, []), now }
}

fn client(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn cid(len: usize) -> ConnectionId {
    ConnectionId::new(&[len as u8; 20][..len]).unwrap()
}

fn retry(from: &str) -> Vec<u8> {
    let mut random = TestRandom::new(1);
    seal_retry(&sealer(NOW), client(from), &cid(20), &cid(8), &mut random).unwrap()
}

fn new_token(from: &str, seed: u64) -> Vec<u8> {
    seal_new_token(&sealer(NOW), client(from).ip(), &mut TestRandom::new(seed)).unwrap()
}

fn open(token: &[u8], from: &str, now: UnixSeconds) -> TokenVerdict {
    sealer(now).open(token, client(from), LIFETIMES)
}

/// RFC 9000, Sections 7.3 and 8.1.2.
#[test]
fn a_retry_token_brings_back_both_connection_ids() {
    for from in ["192.0.2.1:4433", "[2001:db8::1]:4433"] {
        for (original, retry_scid) in [(8, 0), (20, 20), (0, 20)] {
            let mut random = TestRandom::new(2);
            let (original, retry_scid) = (cid(original), cid(retry_scid));
            let token = seal_retry(&sealer(NOW), client(from), &original, &retry_scid, &mut random);
            let token = token.unwrap();
            assert!(token.len() <= MAX_TOKEN_LEN);
            let expected = TokenVerdict::Retry { original_dcid: original, retry_scid };
            assert_eq!(open(&token, from, NOW), expected);
            assert_eq!(open(&token, from, NOW + 15), expected);
        }
    }
}

/// RFC 9000, Section 8.1.2: such a connection is closed with INVALID_TOKEN.
#[test]
fn a_retry_token_from_elsewhere_or_too_late_is_invalid() {
    let token = retry("192.0.2.1:4433");
    for (from, now) in [
        ("192.0.2.1:4434", NOW),
        ("192.0.2.2:4433", NOW),
        ("[2001:db8::1]:4433", NOW),
        ("192.0.2.1:4433", NOW + 16),
        ("192.0.2.1:4433", NOW - 60),
    ] {
        assert_eq!(open(&token, from, now), TokenVerdict::InvalidRetry, "{from} {now}");
    }
}

/// RFC 9000, Sections 8.1.3 and 8.1.4.
#[test]
fn a_new_token_is_good_from_any_port_of_the_address_for_its_lifetime() {
    let token = new_token("192.0.2.1:4433", 1);
    for (from, now, good) in [
        ("192.0.2.1:4433", NOW, true),
        ("192.0.2.1:9", NOW + 1000, true),
        ("192.0.2.1:9", NOW + 1001, false),
        ("192.0.2.9:4433", NOW, false),
        ("192.0.2.1:9", NOW - 1, true),
        ("192.0.2.1:9", NOW - 3, false),
    ] {
        let verdict = open(&token, from, now);
        assert_eq!(matches!(verdict, TokenVerdict::NewToken { .. }), good, "{from} {now}");
        assert!(good || verdict == TokenVerdict::Unknown, "as if there were no token");
    }
}

#[test]
fn an_ipv4_client_of_a_dual_stack_socket_is_the_same_client() {
    let token = new_token("[::ffff:192.0.2.1]:1", 1);
    assert!(matches!(open(&token, "192.0.2.1:2", NOW), TokenVerdict::NewToken { .. }));
    assert!(matches!(open(&token, "[::ffff:192.0.2.1]:2", NOW), TokenVerdict::NewToken { .. }));
}

#[test]
fn tokens_differ_and_have_different_names() {
    let id = |seed| match open(&new_token("192.0.2.1:1", seed), "192.0.2.1:1", NOW) {
        TokenVerdict::NewToken { id, issued } => (id, issued),
        other => panic!("{other:?}"),
    };
    assert_ne!(id(1).0, id(2).0);
    assert_eq!(id(1).1, NOW);
}

/// RFC 9000, Section 8.1.4: integrity protected.
#[test]
fn altered_shortened_foreign_and_random_tokens_are_unknown() {
    let token = retry("192.0.2.1:4433");
    let is_unknown = |token: &[u8]| open(token, "192.0.2.1:4433", NOW) == TokenVerdict::Unknown;
    for n in 0..token.len() {
        let mut altered = token.clone();
        altered[n] ^= 0x10;
        assert!(is_unknown(&altered), "byte {n}");
        assert!(is_unknown(&token[..n]), "{n} bytes");
    }
    let mut random = TestRandom::new(3);
    for len in 0..200 {
        let mut bytes = alloc::vec![0; len];
        random.fill(&mut bytes);
        assert!(is_unknown(&bytes));
    }
    let other = TokenSealer { keys: TokenKeys::new(&[4; 32], []), ..sealer(NOW) };
    let verdict = other.open(&token, client("192.0.2.1:4433"), LIFETIMES);
    assert_eq!(verdict, TokenVerdict::Unknown);
}

/// Keys rotate: what the next key, or the one before, has sealed is opened; what a key has sealed that is
/// none of them any more is as if there were no token.
#[test]
fn tokens_outlive_one_rotation_of_their_key_and_not_two() {
    let keys = |current: u8, others: [u8; 2]| TokenSealer {
        keys: TokenKeys::new(&[current; 32], &others.map(|key| [key; 32])),
        ..sealer(NOW)
    };
    let from = client("192.0.2.1:4433");
    let verdict = |of: &TokenSealer<'_>, by: &TokenSealer<'_>| {
        let retry = seal_retry(of, from, &cid(20), &cid(8), &mut TestRandom::new(1)).unwrap();
        let token = seal_new_token(of, from.ip(), &mut TestRandom::new(2)).unwrap();
        let is_retry = matches!(by.open(&retry, from, LIFETIMES), TokenVerdict::Retry { .. });
        let is_new = matches!(by.open(&token, from, LIFETIMES), TokenVerdict::NewToken { .. });
        (is_retry, is_new)
    };
    let [first, second, third] = [keys(2, [3, 1]), keys(3, [4, 2]), keys(4, [5, 3])];
    assert_eq!(verdict(&first, &second), (true, true));
    assert_eq!(verdict(&second, &first), (true, true), "another host has rotated earlier");
    assert_eq!(verdict(&first, &third), (false, false));
}

fn id(n: u64) -> TokenId {
    let mut bytes = [0; 12];
    TestRandom::new(n).fill(&mut bytes);
    TokenId(bytes)
}

/// RFC 9000, Section 8.1.4: tokens must not be accepted twice.
#[test]
fn each_token_is_good_once() {
    let mut log = StrikeRegister::new(10_000);
    for n in 0..2000 {
        assert!(log.first_use(id(n), NOW, 1000, NOW), "{n}");
    }
    for n in 0..2000 {
        assert!(!log.first_use(id(n), NOW, 1000, NOW + 1), "{n}");
    }
}

#[test]
fn a_full_register_refuses_rather_than_forgets() {
    let mut log = StrikeRegister::new(100);
    let accepted = (0..1000).filter(|n| log.first_use(id(*n), NOW, 1000, NOW)).count();
    assert_eq!(accepted, 100);
    assert!(log.current.slots.len() <= 256);
    assert!((0..1000).all(|n| !log.first_use(id(n), NOW, 1000, NOW)));
    assert!(!StrikeRegister::new(0).first_use(id(1), NOW, 1000, NOW));
}

#[test]
fn tokens_from_before_the_register_count_as_used() {
    let mut log = StrikeRegister::new(100);
    assert!(!log.first_use(id(1), NOW - 100, 1000, NOW));
    assert!(log.first_use(id(2), NOW, 1000, NOW));
}

/// The first token that comes back may have been issued long ago.
#[test]
fn tokens_from_before_the_first_that_comes_back_are_good() {
    let mut log = StrikeRegister::new(100);
    log.begin(NOW);
    log.begin(NOW + 50);
    assert!(log.first_use(id(1), NOW + 10, 1000, NOW + 500));
    assert!(log.first_use(id(2), NOW, 1000, NOW + 501));
    assert!(!log.first_use(id(1), NOW + 10, 1000, NOW + 502));
    assert!(!log.first_use(id(3), NOW - 100, 1000, NOW + 503), "of the register before");
}

/// Over many lifetimes: no token twice, memory bounded, and every token of a client that does
/// nothing wrong is accepted.
#[test]
fn generations_follow_the_clock() {
    let mut log = StrikeRegister::new(2000);
    let mut used = BTreeSet::new();
    assert!(log.first_use(id(u64::MAX), NOW, 100, NOW));
    for second in 1..1000u64 {
        let now = NOW + second;
        // One token of each age is used, and again half its life later.
        let issued = now - (second * 7919) % second.clamp(1, 99);
        assert!(log.first_use(id(second), issued, 100, now), "{second}");
        used.insert((second, issued));
        for &(n, issued) in used.iter().rev().take(200) {
            if now - issued <= 100 {
                assert!(!log.first_use(id(n), issued, 100, now), "{n} again at {second}");
            }
        }
        assert!(log.current.used + log.previous.used <= 4000);
    }
}

/// Nearly all values are above what 32 bits hold. They are spread there, too.
#[test]
fn values_have_places_of_their_own_whatever_the_width_of_the_machine() {
    assert_eq!(first_place(0x0123_4567_89ab_cdef, 0xff), 0xef);
    assert_eq!(first_place(u64::MAX, u32::MAX), u32::MAX);
    assert_eq!(first_place(1 << 32, 0x3f), 0);
    let value = |n: u64| n << 32 | n;
    let places: BTreeSet<u32> = (0..64).map(|n| first_place(value(n), 0x3f)).collect();
    assert_eq!(places.len(), 64);
    // Of random ones, at least half of the places are somebody's first.
    let places: BTreeSet<u32> = (0..1024).map(|n| first_place(fingerprint(id(n)), 0x3ff)).collect();
    assert!(places.len() > 512, "{}", places.len());
}
