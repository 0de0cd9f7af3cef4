use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use aws_lc_rs::hmac;

use super::*;
use crate::codec::{Place, ServerId};
use crate::owner::Owner;
use crate::testing::{Aes, hex};
use crate::{BlockCipher, Configurations};
use quicket_testing::Rng;

fn hmac_sha256(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    tag.as_ref().try_into().unwrap()
}

fn aes(key: &[u8; 16]) -> Arc<dyn BlockCipher> {
    let digits: String = key.iter().map(|octet| format!("{octet:02x}")).collect();
    Arc::new(Aes::new(&digits))
}

fn site(seed: u64) -> SiteSecrets {
    let mut rng = Rng::new(seed);
    SiteSecrets::draw(1_764_547_200, &mut |out| rng.fill(out))
}

fn rotated(secrets: &SiteSecrets) -> SiteSecrets {
    let mut rng = Rng::new(secrets.next.number.into());
    secrets.rotate(secrets.next.made + 60, &mut |out| rng.fill(out)).unwrap()
}

fn ring(secrets: &SiteSecrets) -> KeyRing {
    secrets.keys(Tenant::Site, &hmac_sha256).unwrap()
}

fn configurations(secrets: &SiteSecrets) -> Configurations {
    ring(secrets).configurations(&aes).unwrap()
}

/// Worked out by another implementation of HMAC, from RFC 5869.
#[test]
fn keys_are_those_of_hkdf_with_labels() {
    let secret = core::array::from_fn(|at| at as u8);
    let root = Root { number: 9, made: 0, secret };
    let keys = root.keys(Tenant::Site, &hmac_sha256);
    assert_eq!(keys.configuration.number(), 2);
    assert_eq!(keys.block[..], hex("8784cb200d87f6913d379608d2159c4f"));
    assert_eq!(keys.mask[..], hex("37f157c06d92e6fb"));
    let (reset, token, ticket) = (
        "dae7938d0b8a5fa36ac50c40fe9b204add2010e63d0fc22bec3247c5631b25f0",
        "a04473e8031820ee3014b5b8044d6921b89563ddec97865c3c452c735d9d5324",
        "c8d12e8be716202de3891b67a6d02763b9e5806443d89c2183f3a5c9ba7c80bb",
    );
    assert_eq!(keys.reset[..], hex(reset));
    assert_eq!(keys.token[..], hex(token));
    assert_eq!(keys.ticket[..], hex(ticket));
    let (reset, token, ticket) = (
        "de152c80a76c36c0ac1cbd4b3244b999f3e41c2d98e345c20f11d25490621dfe",
        "26b24e7a771331f169e9d707b0c891b70bd6dc633aa0fe62873af6227c750eeb",
        "9e04db63f9cb8929ed94248c7df7ad909b76bf5a5d7ca88acb4faeb09ef69169",
    );
    let other = root.keys(Tenant::User(1000), &hmac_sha256);
    assert_eq!((other.block, other.mask), (keys.block, keys.mask), "a router reads those of all");
    assert_eq!(other.reset[..], hex(reset));
    assert_eq!(other.token[..], hex(token));
    assert_eq!(other.ticket[..], hex(ticket));
}

#[test]
fn a_rotation_moves_each_root_by_one_and_configurations_follow_the_numbers() {
    let mut secrets = site(1);
    assert_eq!(secrets.roots().map(Root::number).collect::<Vec<_>>(), [1, 2]);
    for turn in 0..20 {
        let next = rotated(&secrets);
        assert_eq!(next.previous.as_ref(), Some(&secrets.current), "{turn}");
        assert_eq!(next.current, secrets.next);
        assert_eq!(next.next.number, secrets.next.number + 1);
        let numbers: Vec<_> = next.roots().map(|root| root.configuration().number()).collect();
        let current = (next.current.number % 7) as u8;
        assert_eq!(numbers, [current, (current + 1) % 7, (current + 6) % 7]);
        secrets = next;
    }
    secrets.next.number = u32::MAX;
    assert_eq!(secrets.rotate(0, &mut |_| {}), Err(SecretsError::LastNumber));
}

#[test]
fn connection_ids_are_read_before_and_after_a_rotation_and_not_after_two() {
    let first = rotated(&site(2));
    let (second, third) = (rotated(&first), rotated(&rotated(&first)));
    let owner = Some(Owner { generation: 3, worker: 200 });
    let place = Place { server_id: ServerId::new(&[7]).unwrap(), owner };
    let mut rng = Rng::new(5);
    let mut mint = |by: &SiteSecrets| {
        let id = configurations(by).current().mint(&place, &mut |out| rng.fill(out)).unwrap();
        assert_eq!(id.len(), 14);
        id
    };
    let (of_first, of_second) = (mint(&first), mint(&second));
    let read = |by: &SiteSecrets, id: &quicket_wire::ConnectionId| {
        let all = configurations(by);
        all.of(id.as_slice()).and_then(|codec| codec.place(id.as_slice()))
    };
    assert_eq!(read(&first, &of_first), Some(place));
    assert_eq!(read(&second, &of_first), Some(place));
    assert_eq!(read(&first, &of_second), Some(place), "another host has rotated earlier");
    assert_eq!(read(&third, &of_first), None, "previous but one");
    let keys = |by: &SiteSecrets| ring(by).of(of_first.as_slice()).unwrap().reset;
    assert_eq!(keys(&first), keys(&second), "one reset token for one connection ID");
    assert_ne!(keys(&first), keys(&third));
}

#[test]
fn rings_have_each_configuration_once_and_take_in_earlier_sets() {
    let (one, other) = (ring(&site(3)), ring(&site(4)));
    assert_eq!(KeyRing::new(Vec::new()), Err(RingError::Empty));
    let twice = [one.sets(), other.sets()].concat();
    let error = KeyRing::new(twice).unwrap_err();
    assert_eq!(error, RingError::Twice(ConfigId::new(1).unwrap()));
    assert!(error.to_string().contains("configuration 1"));
    assert_eq!(one.clone().with_earlier(&other), one, "no room where numbers are the same");
    let later = rotated(&rotated(&rotated(&site(4))));
    let both = ring(&later).with_earlier(&one);
    assert_eq!(both.current(), ring(&later).current());
    assert!(both.covers(&one) && both.covers(&ring(&later)) && !one.covers(&both));
}

#[test]
fn a_file_says_what_it_was_written_from() {
    for secrets in [site(6), rotated(&site(6))] {
        let file = secrets.to_file();
        assert_eq!(SiteSecrets::parse(file.as_bytes()), Ok(secrets.clone()));
        let commented = file.replace("current", "\n# the one in use\n  current");
        assert_eq!(SiteSecrets::parse(commented.as_bytes()), Ok(secrets.clone()));
        let upper = file.to_uppercase().replace("QUICKET-SECRETS", "quicket-secrets");
        assert_eq!(SiteSecrets::parse(upper.as_bytes()), Err(SecretsError::Kind(2)));
        let windows = file.replace('\n', "\r\n");
        assert_eq!(SiteSecrets::parse(windows.as_bytes()), Ok(secrets));
    }
}

#[test]
fn what_is_wrong_in_a_file_is_said_with_the_line_and_without_the_secret() {
    let file = rotated(&site(7)).to_file();
    let lines: Vec<&str> = file.lines().collect();
    let [head, previous, current, next] = lines[..] else { panic!("{}", lines.len()) };
    let secret = next.rsplit(' ').next().unwrap();
    let of = |lines: &[&str]| SiteSecrets::parse(lines.join("\n").as_bytes()).unwrap_err();
    let rows = [
        (of(&[]), SecretsError::Head),
        (of(&["quicket-secrets 2", current, next]), SecretsError::Head),
        (of(&[head, previous, next]), SecretsError::Missing("current")),
        (of(&[head, previous, current]), SecretsError::Missing("next")),
        (of(&[head, current, current, next]), SecretsError::Twice(3)),
        (of(&[head, current, next, secret]), SecretsError::Kind(4)),
        (of(&[head, current, "next 3 4"]), SecretsError::Words(3)),
        (of(&[head, current, &format!("{next} x")]), SecretsError::Words(3)),
        (of(&[head, current, &format!("next +3 4 {secret}")]), SecretsError::Number(3)),
        (of(&[head, current, &format!("next 3 -4 {secret}")]), SecretsError::Number(3)),
        (of(&[head, current, &format!("next 4294967296 4 {secret}")]), SecretsError::Number(3)),
        (of(&[head, current, &format!("next 3 4 {}", &secret[1..])]), SecretsError::Secret(3)),
        (of(&[head, current, &format!("next 3 4 +{}", &secret[1..])]), SecretsError::Secret(3)),
        (of(&[head, current, &format!("next 4 4 {secret}")]), SecretsError::Order),
        (of(&[head, &previous.replace(" 1 ", " 0 "), current, next]), SecretsError::Order),
        (of(&[head, &format!("current 2 4 {secret}"), next]), SecretsError::Same),
    ];
    for (at, (error, expected)) in rows.into_iter().enumerate() {
        assert_eq!(error, expected, "row {at}");
        let text = error.to_string();
        assert!(text.contains("quicket switch secrets new") && !text.contains(secret), "{text}");
    }
    assert_eq!(SiteSecrets::parse(&[b'#'; MAX_FILE + 1]), Err(SecretsError::TooLong));
    assert_eq!(SiteSecrets::parse(b"quicket-secrets 1\n\xff"), Err(SecretsError::NotText));
    assert_eq!(SiteSecrets::parse("quicket-secrets 1\nü".as_bytes()), Err(SecretsError::NotText));
}

/// Random octets, and files with some octets changed: never a panic, and what is taken is whole.
#[test]
fn files_of_any_kind_are_read_without_harm() {
    let file = rotated(&site(8)).to_file();
    let mut rng = Rng::new(9);
    let mut taken = 0;
    for _ in 0..20_000 {
        let len = rng.next() as usize % 300;
        assert!(SiteSecrets::parse(&rng.bytes(len)).is_err());
        let mut changed = file.clone().into_bytes();
        for _ in 0..=rng.next() % 3 {
            let at = rng.next() as usize % changed.len();
            match rng.next() % 3 {
                0 => changed[at] = b" \n#0fz"[rng.next() as usize % 6],
                1 => changed.truncate(at.max(1)),
                _ => changed.insert(at, b"0 \n"[rng.next() as usize % 3]),
            }
        }
        if let Ok(secrets) = SiteSecrets::parse(&changed) {
            taken += 1;
            assert_eq!(SiteSecrets::parse(secrets.to_file().as_bytes()), Ok(secrets));
        }
    }
    assert!(taken > 100, "{taken}: changes of digits make other secrets");
}

#[test]
fn nothing_that_is_printed_is_secret() {
    let secrets = rotated(&site(10));
    let ring = ring(&secrets);
    let printed = format!("{secrets:?} {secrets:#?} {ring:?} {ring:#?} {:?}", secrets.current());
    let file = secrets.to_file();
    for line in file.lines().skip(1) {
        let secret = line.rsplit(' ').next().unwrap();
        assert!(!printed.contains(secret));
        assert!(!printed.contains(&format!("{:?}", &hex(secret)[..4]).replace(['[', ']'], "")));
    }
    for set in ring.sets() {
        for key in [&set.block[..], &set.mask, &set.reset, &set.token, &set.ticket] {
            assert!(!printed.contains(&format!("{:?}", &key[..4]).replace(['[', ']'], "")));
        }
    }
    assert!(printed.contains("number: 2"), "{printed}");
}
