//! Messages, those that make sense and others.

use super::*;
use crate::testing::Rng;

fn secrets() -> Secrets {
    let mut next = 0;
    Secrets::draw(&mut |out| {
        out.fill_with(|| {
            next += 7;
            next as u8
        });
    })
}

fn join() -> Join {
    Join {
        version: VERSION,
        address: "[::]:443".parse().unwrap(),
        only_v6: false,
        workers: 2,
        label: "shop".into(),
        has_socket: true,
        resume: Some(Resume { generation: 9, secrets: secrets() }),
    }
}

fn requests() -> Vec<Request> {
    let serve = Serve {
        protocols: vec![Octets(b"h3".to_vec()), Octets(vec![0, 0xff])],
        server_names: vec!["*.example.org".into()],
        shared: true,
        replace: false,
        upgrades: true,
    };
    vec![
        Request::Join(join()),
        Request::Join(Join { resume: None, ..join() }),
        Request::Serve(serve),
        Request::Cease,
        Request::Status,
        Request::Upgrade,
    ]
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Joined { generation: 255, secrets: secrets() },
        Reply::Bind,
        Reply::Done,
        Reply::Refused { why: Refusal::InUse, text: "\"h3\" is taken\n".into() },
        Reply::Superseded,
        Reply::Upgrade,
        Reply::Status { text: "{}".into(), last: true },
    ]
}

#[test]
fn what_is_written_is_read() {
    for request in requests() {
        assert_eq!(Request::decode(&encode(&request).unwrap()).unwrap(), request);
    }
    for reply in replies() {
        assert_eq!(Reply::decode(&encode(&reply).unwrap()).unwrap(), reply);
    }
}

/// Bits that flip, octets that are lost or come twice: refused, or understood as something that can be
/// written and read again.
#[test]
fn damaged_messages_are_refused_or_mean_something() {
    let mut rng = Rng(3);
    let whole: Vec<_> = requests().iter().map(|request| encode(request).unwrap()).collect();
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut bytes = whole[rng.below(whole.len())].clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len());
            match rng.below(3) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, bytes[at]),
            }
        }
        match Request::decode(&bytes) {
            Ok(request) => {
                assert_eq!(Request::decode(&encode(&request).unwrap()).unwrap(), request);
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(refused > 10_000, "{refused} were refused");
}

#[test]
fn values_that_cannot_be_are_refused_with_a_reason() {
    let refuse = |join: Join, reason: &str| {
        let bytes = encode(&Request::Join(join)).unwrap();
        let text = Request::decode(&bytes).unwrap_err().to_string();
        assert!(text.contains(reason), "{text}");
    };
    refuse(Join { workers: 0, ..join() }, "number of workers");
    refuse(Join { workers: 129, ..join() }, "number of workers");
    refuse(Join { label: "x".repeat(65), ..join() }, "name is longer");
    refuse(Join { label: "a\u{1b}[2J".into(), ..join() }, "not printable");
    let secrets = Secrets { configuration: 7, ..secrets() };
    refuse(Join { resume: Some(Resume { generation: 0, secrets }), ..join() }, "configuration");
    let long = Reply::Status { text: "x".repeat(MAX_MESSAGE), last: true };
    assert!(matches!(encode(&long), Err(ProtocolError::TooLong(_))));
    assert!(matches!(
        Request::decode(&vec![b' '; MAX_MESSAGE + 1]),
        Err(ProtocolError::TooLong(_))
    ));
    let deep = vec![b'['; 100_000];
    assert!(matches!(Request::decode(&deep), Err(ProtocolError::Malformed(_))));
}

#[test]
fn secrets_are_not_printed() {
    let secrets = secrets();
    let text = format!("{:?} {:?}", secrets, secrets.key);
    let key = to_hex(&secrets.key.0);
    assert!(!text.contains(&key[..6]) && !text.contains("49"), "{text}");
}

#[test]
fn connection_ids_have_fourteen_octets_and_room_for_all_owners() {
    let format = Secrets::format().unwrap();
    let bits = format.owner().unwrap();
    assert_eq!((format.id_len(), bits.generations(), bits.workers()), (14, 256, 256));
}
