//! The file of a site's secrets, and the keys that programs have from the switch: what must hold whatever is in them.

use quicket_engine::crypto::CryptoProvider;
use quicket_sim::test_crypto::TestCrypto;
use quicket_steering::{KeyRing, SiteSecrets, Tenant};
use quicket_switch::protocol::{Message, Notice, Secrets, encode};

/// The shortest word of an input that is taken for a part of a secret.
const SECRET: usize = 24;

/// The first byte chooses what the input is.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 2 {
        0 => file(bytes),
        _ => keys(bytes),
    }
}

/// The operator's file: what is understood is written so that it is understood the same, and gives keys that are told
/// apart. Nothing of it is repeated, whatever becomes of it.
fn file(bytes: &[u8]) {
    let secrets = match SiteSecrets::parse(bytes) {
        Ok(secrets) => secrets,
        Err(error) => {
            let said = format!("{error} {error:?}");
            assert!(said.len() > 10);
            return repeats_nothing(bytes, &said);
        }
    };
    repeats_nothing(bytes, &format!("{secrets:?}"));
    assert_eq!(SiteSecrets::parse(secrets.to_file().as_bytes()).unwrap(), secrets);
    let hmac = |key: &[u8; 32], message: &[u8]| TestCrypto.keyed_hash(key, message);
    let ring = secrets.keys(Tenant::Site, &hmac).unwrap();
    assert_eq!(ring.sets().len(), secrets.roots().count());
    assert_eq!(ring.current().unwrap().number, secrets.current().number());
    hand_over(&ring);
    let user = secrets.keys(Tenant::User(7), &hmac).unwrap();
    let pairs = || ring.sets().iter().zip(user.sets());
    assert!(pairs().all(|(site, user)| site.block == user.block && site.reset != user.reset));
    match secrets.rotate(1, &mut |out| out.fill(7)) {
        Ok(rotated) => {
            assert_eq!(rotated.current().number(), secrets.current().number() + 1);
            let keys = rotated.keys(Tenant::Site, &hmac).unwrap();
            // What was current is accepted over one rotation.
            assert!(ring.current().is_some_and(|set| keys.sets().contains(set)));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// What a switch tells programs: they get the same keys, or understand nothing.
fn keys(bytes: &[u8]) {
    let told = [br#"{"notice":{"secrets":"#, bytes, b"}}"].concat();
    match Message::decode(&told) {
        Ok(Message::Notice(Notice::Secrets(secrets))) => {
            repeats_nothing(bytes, &format!("{secrets:?}"));
            let ring = secrets.ring().unwrap();
            assert_eq!(Secrets::of_site(&ring, secrets.server_id), *secrets);
            hand_over(&ring);
        }
        // Braces in it may end the notice.
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Keys come to programs as they are; to those of other users without the ones of connection IDs.
fn hand_over(ring: &KeyRing) {
    let secrets = Secrets::of_site(ring, 7);
    let notice = Message::Notice(Notice::Secrets(Box::new(secrets.clone())));
    let written = encode(&notice).unwrap();
    assert_eq!(Message::decode(&written).unwrap(), notice);
    assert_eq!(secrets.ring().unwrap().sets(), ring.sets());
    for keys in secrets.without_ids().keys {
        assert!(keys.key.0 == [0; 16] && keys.mask.0 == [0; 8]);
    }
}

fn repeats_nothing(input: &[u8], said: &str) {
    let words = input.split(|octet| !octet.is_ascii_hexdigit());
    for word in words.filter(|word| word.len() >= SECRET) {
        let word = str::from_utf8(word).unwrap();
        assert!(!said.contains(word), "{said} repeats {word}");
    }
}
