//! Private keys elsewhere: the same handshakes as with a key here, by a thread that may wait.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::{
    Lines, NAME, Options, Pair, client, identity, server, shake, shake_well, start_client,
    start_server,
};
use quicket_engine::crypto::Alert;
use quicket_handshake::elsewhere::RemoteKey;
use quicket_handshake::{Identity, KeyExchange, ServerTls, TicketKey};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;

/// A key that is not the server's own, as far as the server knows.
#[derive(Debug)]
struct Key {
    key: Arc<dyn SigningKey>,
    signatures: AtomicUsize,
    /// What becomes of jobs.
    jobs: Jobs,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Jobs {
    /// Another thread does them before [`RemoteKey::run`] returns.
    Done,
    Refused,
    Dropped,
    Panic,
}

impl RemoteKey for Key {
    fn sign(&self, scheme: u16, content: &[u8]) -> Result<Vec<u8>, String> {
        self.signatures.fetch_add(1, Ordering::SeqCst);
        assert!(content.starts_with(&[0x20; 64]) && content[64..].starts_with(b"TLS 1.3, server"));
        let signer = self.key.choose_scheme(&[scheme.into()]).ok_or("another scheme")?;
        signer.sign(content).map_err(|error| error.to_string())
    }

    fn run(&self, job: Box<dyn FnOnce() + Send>) -> Result<(), String> {
        match self.jobs {
            Jobs::Done => {
                // Nothing of the handshake is of one thread.
                thread::spawn(job).join().unwrap();
                Ok(())
            }
            Jobs::Refused => Err("there are too many".to_owned()),
            Jobs::Dropped => Ok(()),
            Jobs::Panic => panic!("a fault of the application"),
        }
    }
}

impl Key {
    fn signatures(&self) -> usize {
        self.signatures.load(Ordering::SeqCst)
    }
}

/// The same identity with its key elsewhere.
fn elsewhere(identity: &Identity, key: &Identity, jobs: Jobs) -> (Identity, Arc<Key>) {
    let der = PrivateKeyDer::try_from(key.key().to_vec()).unwrap();
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&der).unwrap();
    let key = Key { key, signatures: AtomicUsize::new(0), jobs };
    let key = Arc::new(key);
    let given = Arc::clone(&key) as Arc<dyn RemoteKey>;
    let chain = identity.chain_pem();
    let moved = Identity::from_pem_with_key_elsewhere(chain.as_bytes(), move |spki| {
        assert!(spki.len() > 60);
        given
    });
    (moved.unwrap(), key)
}

#[test]
fn the_handshake_is_the_same_as_with_a_key_here() {
    let identity = identity();
    let (moved, key) = elsewhere(&identity, &identity, Jobs::Done);
    assert!(moved.key().is_empty() && moved.key_pem().is_empty());
    assert_eq!(moved.key_type().unwrap(), identity.key_type().unwrap());
    let client = client(&identity).build().unwrap();
    for piece in [usize::MAX, 7, 1] {
        let options = Options { piece, ..Options::default() };
        let here = shake_well(&client, &server(&identity).build().unwrap(), &options);
        let before = key.signatures();
        let there = shake_well(&client, &server(&moved).build().unwrap(), &options);
        assert_eq!(there.client.story, here.client.story);
        assert_eq!(there.server.story, here.server.story);
        assert_eq!(key.signatures(), before + 1);
    }
}

#[test]
fn a_hello_retry_request_comes_from_there_as_well() {
    let identity = identity();
    let (moved, key) = elsewhere(&identity, &identity, Jobs::Done);
    let client = client(&identity).build().unwrap();
    let server = server(&moved).key_exchange(&[KeyExchange::Secp384r1]).build().unwrap();
    for piece in [1, usize::MAX] {
        let pair = shake_well(&client, &server, &Options { piece, ..Options::default() });
        assert_eq!(pair.client.summary().key_exchange, "secp384r1");
        assert_eq!(pair.client.story[..2], ["send Initial", "send Initial"]);
    }
    assert_eq!(key.signatures(), 2);
}

#[test]
fn a_session_is_resumed_without_the_key_and_one_that_is_none_begins_again() {
    let identity = identity();
    let (moved, key) = elsewhere(&identity, &identity, Jobs::Done);
    let client = client(&identity).build().unwrap();
    let ticket_key = || TicketKey::new(&[7; 32]).unwrap();
    let with = |identity: &Identity| server(identity).ticket_keys([ticket_key()]);
    let mut first = shake_well(&client, &with(&moved).build().unwrap(), &Options::default());
    let ticket = first.client.tickets.remove(0);
    let options = Options { resume: Some(&ticket), ..Options::default() };
    // Nobody is there who signs.
    let (gone, never) = elsewhere(&identity, &identity, Jobs::Refused);
    let trusting = || with(&gone).early_data_of_earlier_tickets(true);
    let pair = shake_well(&client, &trusting().build().unwrap(), &options);
    assert!(pair.client.summary().resumed);
    assert_eq!(pair.client.early_data, [true]);
    let retries = trusting().key_exchange(&[KeyExchange::Secp384r1]).build().unwrap();
    // After a HelloRetryRequest, TLS is asked where it may wait.
    assert_eq!(shake(&client, &retries, &options).err().unwrap().alert(), 80);
    assert_eq!((key.signatures(), never.signatures()), (1, 0));
    // It looks like a session, and the server has other keys by now.
    let lines = Lines::new();
    let log = Arc::clone(&lines) as Arc<dyn quicket_handshake::KeyLog>;
    let other = server(&moved).key_log(log).build().unwrap();
    let pair = shake_well(&client, &other, &options);
    assert!(!pair.client.summary().resumed);
    assert_eq!(pair.client.early_data, [false]);
    assert_eq!(key.signatures(), 2);
    // The log knows nothing of the attempt: each label is there once.
    let lines = lines.sorted();
    let mut labels: Vec<_> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let all = labels.len();
    labels.dedup();
    assert!(all >= 5 && labels.len() == all, "{lines:?}");
}

#[test]
fn whoever_is_not_served_hears_internal_error() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    for (jobs, why) in [
        (Jobs::Refused, "there are too many"),
        (Jobs::Dropped, "nobody had the time"),
        (Jobs::Panic, "nobody had the time"),
    ] {
        let (moved, key) = elsewhere(&identity, &identity, jobs);
        let failure = shake(&client, &server(&moved).build().unwrap(), &Options::default());
        let failure = failure.err().unwrap();
        assert_eq!(failure.alert(), Alert::INTERNAL_ERROR.0, "{failure:?}");
        assert!(format!("{failure:?}").contains(why), "{failure:?}");
        assert_eq!(key.signatures(), 0);
    }
}

#[test]
fn a_signature_by_another_key_is_the_clients_to_refuse() {
    let (identity, other) = (identity(), identity());
    let (moved, key) = elsewhere(&identity, &other, Jobs::Done);
    let client = client(&identity).build().unwrap();
    let failure = shake(&client, &server(&moved).build().unwrap(), &Options::default());
    // decrypt_error
    assert_eq!(failure.err().unwrap().alert(), 51);
    assert_eq!(key.signatures(), 1);
}

#[test]
fn certificates_with_keys_here_go_their_way_beside_it() {
    let (identity, own) = (identity(), Identity::self_signed(["own.test"]).unwrap());
    let (moved, key) = elsewhere(&identity, &identity, Jobs::Refused);
    let server: ServerTls =
        server(&moved).certificate_for(["own.test"], own.clone()).build().unwrap();
    assert!(server.has_keys_elsewhere());
    let options = Options { name: "own.test", ..Options::default() };
    let pair = shake_well(&client(&own).build().unwrap(), &server, &options);
    assert_eq!(pair.client.summary().peer_certificates, [own.chain().next().unwrap()]);
    assert_eq!(key.signatures(), 0);
    assert_ne!(NAME, "own.test");
}

#[test]
fn what_comes_before_the_answer_is_no_part_of_a_handshake() {
    let identity = identity();
    let (moved, _) = elsewhere(&identity, &identity, Jobs::Done);
    let mut pair = Pair {
        client: start_client(&client(&identity).build().unwrap(), &Options::default()).unwrap(),
        server: start_server(&server(&moved).build().unwrap(), &Options::default()).unwrap(),
    };
    let (level, hello) = pair.client.outbox.pop_front().unwrap();
    pair.server.handshake.read(level, &hello).unwrap();
    let error = pair.server.handshake.read(level, &[1]).unwrap_err();
    assert_eq!(error.alert, Alert::UNEXPECTED_MESSAGE);
    assert!(pair.server.poll().is_err());
    // A ClientHello that does not end.
    let mut endless = start_server(&server(&moved).build().unwrap(), &Options::default()).unwrap();
    endless.handshake.read(level, &[1, 0xff, 0xff, 0xff]).unwrap();
    let more = (0..100).find_map(|_| endless.handshake.read(level, &[0; 4096]).err());
    assert_eq!(more.unwrap().alert, Alert::UNEXPECTED_MESSAGE);
}
