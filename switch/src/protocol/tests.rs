//! Messages, those that make sense and others.

use super::*;
use crate::options::SocketOptions;
use quicket_testing::Rng;

fn secrets() -> Secrets {
    let mut next = 0;
    Secrets::draw(&mut |out| {
        out.fill_with(|| {
            next += 7;
            next as u8
        });
    })
}

fn receipt() -> Receipt {
    Receipt { incarnation: u64::MAX, proof: Hex([0xa5; 16]) }
}

fn resume(secrets: Secrets) -> Resume {
    let (receipt, drain_seconds_left) = (receipt(), Some(7));
    let served = Some(Served { serve: serve(), proof: Hex([4; 16]) });
    let sockets = vec![7, 8];
    Resume { generation: 9, receipt, served, draining: true, drain_seconds_left, secrets, sockets }
}

fn ask(request: Request) -> Question {
    Question { version: VERSION, number: 7, request }
}

fn join() -> Join {
    Join {
        address: "[::]:443".parse().unwrap(),
        only_v6: false,
        workers: 2,
        label: "shop".into(),
        has_socket: true,
        has_keep: true,
        has_ledger: true,
        steered: true,
        remains: false,
        options: SocketOptions::default(),
        resume: Some(Box::new(resume(secrets()))),
        kin: Some(Kin { family: Hex([8; 16]), attention: Attention::Busy }),
    }
}

fn serve() -> Serve {
    Serve {
        protocols: vec![Octets(b"h3".to_vec()), Octets(vec![0, 0xff])],
        server_names: vec!["*.example.org".into()],
        shared: true,
        replace: false,
        upgrades: true,
        drain_seconds: Some(30),
    }
}

fn requests() -> Vec<Request> {
    let strike = Strike { register: Hex([1; 8]), ticket: Hex([2; 12]) };
    vec![
        Request::Join(join()),
        Request::Join(Join { resume: None, ..join() }),
        Request::Serve(serve()),
        Request::Cease,
        Request::Bequeath(Kin { family: Hex([9; 16]), attention: Attention::Away }),
        Request::Attention(Attention::Accepting),
        Request::Heard,
        Request::Leave,
        Request::Connections(Some(7)),
        Request::Connections(None),
        Request::Mint(127),
        Request::Strike(strike),
        Request::Status,
        Request::Upgrade,
    ]
}

fn messages() -> Vec<Message> {
    let register = Register { name: Hex([3; 8]), began: 1 << 40 };
    let (receipt, secrets, sockets) = (receipt(), secrets(), vec![1, 300]);
    let served = Some(Hex([5; 16]));
    let minted = |worker, anew| Minted { worker, anew, ids: vec![Hex([7; ID_LEN]); 3] };
    let address = "[2001:db8::1]:443".parse().unwrap();
    let tenancy = Some(Tenancy { address, minted: vec![minted(0, true), minted(1, true)] });
    let joined = Joined {
        generation: 255,
        receipt,
        served,
        register,
        secrets,
        sockets,
        tenancy,
        forwards: true,
    };
    let refused = || Refused { why: Refusal::InUse, text: "\"h3\" is taken\n".into() };
    let replies = [
        Reply::Joined(Box::new(joined)),
        Reply::Bind { patience: 2000 },
        Reply::Done,
        Reply::Served(Hex([6; 16])),
        Reply::Refused(refused()),
        Reply::Struck(true),
        Reply::Status { text: "{}".into(), last: true },
    ];
    let answers = replies.into_iter().map(|reply| Message::Answer { number: u32::MAX, reply });
    let rotated = Notice::Secrets(Box::new(self::secrets()));
    let minted = Notice::Minted(minted(9, false));
    let notices =
        [Notice::Superseded, Notice::Upgrade, Notice::DrainOver, Notice::Count, minted, rotated];
    let others = notices.map(Message::Notice).into_iter().chain([Message::Refused(refused())]);
    answers.chain(others).collect()
}

#[test]
fn what_is_written_is_read() {
    for request in requests() {
        let question = ask(request);
        assert_eq!(Question::decode(&encode(&question).unwrap()).unwrap(), question);
    }
    for message in messages() {
        assert_eq!(Message::decode(&encode(&message).unwrap()).unwrap(), message);
    }
}

/// What a tenant gets when it joins with as many workers as it may have.
#[test]
fn connection_ids_for_all_workers_fit_into_a_message() {
    let workers = MAX_WORKERS as u16;
    let ids = vec![Hex([0xff; ID_LEN]); MAX_MINTED / MAX_WORKERS];
    let minted = (0..workers).map(|worker| Minted { worker, anew: true, ids: ids.clone() });
    let tenancy = Tenancy { address: "[::]:443".parse().unwrap(), minted: minted.collect() };
    assert!(encode(&tenancy).unwrap().len() < MAX_MESSAGE - (8 << 10));
    let all = Minted { worker: 0, anew: true, ids: vec![Hex([0xff; ID_LEN]); MAX_MINTED] };
    assert!(encode(&all).unwrap().len() < MAX_MESSAGE);
}

/// Whoever speaks another version is told so, and what to do.
#[test]
fn other_versions_are_told_so_in_words() {
    let next = VERSION + 1;
    let newer =
        format!("{{\"version\":{next},\"number\":1,\"request\":{{\"dance\":true}},\"more\":[]}}");
    let newer_alike = encode(&Question { version: next, ..ask(Request::Cease) }).unwrap();
    let first = "{\"join\":{\"version\":1,\"address\":\"[::]:443\",\"only_v6\":false}}";
    let questions = [newer.as_bytes(), &newer_alike, first.as_bytes(), b"\"status\""];
    for (question, theirs) in questions.into_iter().zip([next, next, 1, 1]) {
        let error = Question::decode(question).unwrap_err();
        let Refused { why, text } = Refused::from(&error);
        assert_eq!(why, Refusal::Version, "{text}");
        assert!(text.contains(&format!("version {VERSION}, and the program {theirs}:")), "{text}");
        let older = if theirs == 1 { "program" } else { "switch" };
        assert!(text.contains(&format!("start the {older} again")), "{text}");
    }
    // What version 1 says, and reads.
    let refused = "{\"refused\":{\"why\":\"version\",\"text\":\"x\"}}";
    let message = Message::decode(refused.as_bytes()).unwrap();
    assert_eq!(message, Message::Refused(Refused { why: Refusal::Version, text: "x".into() }));
    assert_eq!(encode(&message).unwrap(), refused.as_bytes());
}

/// Bits that flip, octets that are lost or come twice: refused, or understood as something that can be
/// written and read again.
#[test]
fn damaged_messages_are_refused_or_mean_something() {
    let mut rng = Rng::new(3);
    let questions = requests().into_iter().map(ask);
    let whole: Vec<_> = questions.map(|question| encode(&question).unwrap()).collect();
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut bytes = whole[rng.index(whole.len())].clone();
        for _ in 0..=rng.index(3) {
            let at = rng.index(bytes.len());
            match rng.index(3) {
                0 => bytes[at] ^= 1 << rng.index(8),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, bytes[at]),
            }
        }
        match Question::decode(&bytes) {
            Ok(question) => {
                assert_eq!(Question::decode(&encode(&question).unwrap()).unwrap(), question);
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
        let bytes = encode(&ask(Request::Join(join))).unwrap();
        let text = Question::decode(&bytes).unwrap_err().to_string();
        assert!(text.contains(reason), "{text}");
    };
    refuse(Join { workers: 0, ..join() }, "number of workers");
    refuse(Join { workers: 129, ..join() }, "number of workers");
    refuse(Join { label: "x".repeat(65), ..join() }, "name is longer");
    refuse(Join { label: "a\u{1b}[2J".into(), ..join() }, "not printable");
    let with = |keys: Vec<Keys>| {
        let secrets = Secrets { keys, ..secrets() };
        Join { resume: Some(Box::new(resume(secrets))), ..join() }
    };
    let one = || secrets().keys.remove(0);
    refuse(with(vec![Keys { configuration: 7, ..one() }]), "configuration");
    refuse(with(Vec::new()), "no keys");
    refuse(with(vec![one(), one()]), "two keys are of one configuration");
    let notice = Notice::Secrets(Box::new(Secrets { keys: Vec::new(), ..secrets() }));
    let bytes = encode(&Message::Notice(notice)).unwrap();
    assert!(Message::decode(&bytes).unwrap_err().to_string().contains("no keys"));
    for sockets in [vec![1], vec![1, 0], vec![1, 2, 3]] {
        let resume = Resume { sockets, ..resume(self::secrets()) };
        refuse(Join { resume: Some(Box::new(resume)), ..join() }, "a socket for each worker");
    }
    let long = Reply::Status { text: "x".repeat(MAX_MESSAGE), last: true };
    assert!(matches!(encode(&long), Err(ProtocolError::TooLong(_))));
    assert!(matches!(
        Question::decode(&vec![b' '; MAX_MESSAGE + 1]),
        Err(ProtocolError::TooLong(_))
    ));
    let deep = vec![b'['; 100_000];
    assert!(matches!(Question::decode(&deep), Err(ProtocolError::Malformed(_))));
}

#[test]
fn secrets_are_not_printed() {
    let secrets = secrets();
    let text = format!("{:?} {:?}", secrets, secrets.keys[0].key);
    let key: String = secrets.keys[0].key.0.iter().map(|octet| format!("{octet:02x}")).collect();
    assert!(!text.contains(&key[..6]) && !text.contains("49"), "{text}");
}

#[test]
fn connection_ids_have_fourteen_octets_and_room_for_all_owners() {
    let format = Secrets::format().unwrap();
    let bits = format.owner().unwrap();
    assert_eq!((format.id_len(), bits.generations(), bits.workers()), (14, 256, 256));
}
