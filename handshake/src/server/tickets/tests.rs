use quicket_wire::TransportParameters;

use super::*;
use crate::APPLICATION_LIMITS;

fn tickets(keys: &[&TicketKey], client_auth: &[u8]) -> Tickets {
    let rules = TicketRules {
        lifetime: 100,
        client_auth: client_auth.to_vec(),
        strikes: None,
        beginning: None,
        trust_earlier: false,
        in_common: false,
    };
    Tickets::new(TicketKeys::new(keys.iter().map(|key| (*key).clone())), rules)
}

fn promise(version: Version, initial_max_data: u64) -> Promise {
    let parameters = TransportParameters { initial_max_data, ..TransportParameters::default() };
    let mut promise = Promise::of(&parameters, [0; APPLICATION_LIMITS]);
    promise.version = version;
    promise
}

fn seal(tickets: &Tickets) -> Vec<u8> {
    tickets.seal(b"session", &promise(Version::V1, 50), 1_000).unwrap()
}

fn resumes(tickets: &Tickets, ticket: &[u8], now: u64) -> bool {
    let session = tickets.resume(ticket, Version::V1, now);
    assert!(session.as_ref().is_none_or(|session| session == b"session"));
    session.is_some()
}

fn takes(early_data: EarlyData) -> bool {
    let EarlyData::Ask(question) = early_data else { return false };
    let place = Arc::default();
    question.ask(Arc::clone(&place), Waker::noop().clone());
    place.get() == Some(&true)
}

fn brings_early_data(tickets: &Tickets, ticket: &[u8], now: u64) -> bool {
    takes(tickets.brings_early_data(ticket, Version::V1, &promise(Version::V1, 50), now))
}

#[test]
fn a_ticket_opens_wherever_its_key_is_known_and_nowhere_else() {
    let (old, new) = (TicketKey::random(), TicketKey::random());
    let ticket = seal(&tickets(&[&old], &[]));
    let opens = |keys: &[&TicketKey]| resumes(&tickets(keys, &[]), &ticket, 1_001);
    assert!(opens(&[&old]));
    assert!(opens(&[&new, &old]));
    assert!(!opens(&[&new]));
    assert!(!opens(&[]));
}

#[test]
fn tickets_expire() {
    let tickets = tickets(&[], &[]);
    let ticket = seal(&tickets);
    assert!(resumes(&tickets, &ticket, 1_100));
    assert!(!resumes(&tickets, &ticket, 1_101));
}

#[test]
fn a_ticket_made_without_client_authentication_does_not_open_where_it_is_required() {
    let key = TicketKey::random();
    let ticket = seal(&tickets(&[&key], &[0]));
    assert!(resumes(&tickets(&[&key], &[0]), &ticket, 1_000));
    assert!(!resumes(&tickets(&[&key], &[2]), &ticket, 1_000));
}

#[test]
fn early_data_comes_in_once_per_ticket_and_the_session_always() {
    // RFC 8446, Section 8.1
    let tickets = tickets(&[], &[]);
    let ticket = seal(&tickets);
    assert!(brings_early_data(&tickets, &ticket, 1_000));
    assert!(!brings_early_data(&tickets, &ticket, 1_000));
    assert!(resumes(&tickets, &ticket, 1_000));
}

#[test]
fn early_data_comes_in_with_tickets_that_are_good_now() {
    let tickets = tickets(&[], &[]);
    assert!(!brings_early_data(&tickets, &seal(&tickets), 1_101));
    assert!(!brings_early_data(&tickets, &seal(&tickets), 999));
    assert!(!brings_early_data(&tickets, b"garbage", 1_000));
    assert!(brings_early_data(&tickets, &seal(&tickets), 1_100));
}

#[test]
fn early_data_needs_the_limits_that_the_client_remembers() {
    // RFC 9000, Section 7.4.1
    let tickets = tickets(&[], &[]);
    let ticket = seal(&tickets);
    let brings = |initial_max_data| {
        let promise = promise(Version::V1, initial_max_data);
        takes(tickets.brings_early_data(&ticket, Version::V1, &promise, 1_000))
    };
    assert!(!brings(49));
    assert!(brings(51));
}

#[test]
fn keys_that_take_turns_do_not_push_each_other_out() {
    let tickets = tickets(&[], &[]);
    let first = seal(&tickets);
    for _ in 0..5 {
        for octet in [1, 2] {
            assert!(tickets.rotate(TicketKey([octet; 32])));
        }
    }
    assert!(tickets.resume(&first, Version::V1, 1_000).is_some());
}

#[test]
fn a_ticket_of_another_version_is_refused() {
    // RFC 9369, Section 5
    let tickets = tickets(&[], &[]);
    let ticket = seal(&tickets);
    assert!(tickets.resume(&ticket, Version::V2, 1_000).is_none());
    let promise = promise(Version::V2, 50);
    assert!(!takes(tickets.brings_early_data(&ticket, Version::V2, &promise, 1_000)));
}

#[test]
fn rotation_keeps_old_tickets_good_for_a_while() {
    let tickets = tickets(&[], &[]);
    let ticket = seal(&tickets);
    for _ in 0..MAX_OLD_KEYS {
        tickets.rotate(TicketKey::random());
        assert!(resumes(&tickets, &ticket, 1_000));
    }
    tickets.rotate(TicketKey::random());
    assert!(!resumes(&tickets, &ticket, 1_000));
}

/// A site's keys, as they rotate: the current one, and two that are accepted.
#[test]
fn keys_in_common_are_replaced_in_all_configurations_that_have_them() {
    let all: Vec<TicketKey> = (1..=5).map(|octet| TicketKey([octet; 32])).collect();
    let of = |current: usize, others: [usize; 2]| {
        [current, others[0], others[1]].map(|at| all[at].clone())
    };
    let common = TicketKeys::new(of(1, [0, 2]));
    let rules = || TicketRules {
        lifetime: 100,
        client_auth: Vec::new(),
        strikes: None,
        beginning: None,
        trust_earlier: false,
        in_common: false,
    };
    let own = Tickets::new(common.clone(), rules());
    let register = Arc::new(ProcessRegister::new());
    let shared = tickets(&[], &[]).shared(&common, register.clone(), Known::Once(None));
    let given = tickets(&[&TicketKey([9; 32])], &[]).shared(&common, register, Known::Once(None));
    let first = [seal(&own), seal(&shared)];
    let resume =
        |ticket: &[u8]| [&own, &shared, &given].map(|tickets| resumes(tickets, ticket, 1_000));
    assert_eq!(first.each_ref().map(|ticket| resume(ticket)), [[true; 3]; 2]);
    assert_eq!(resume(&seal(&given)), [false, false, true], "the application's own key goes first");
    common.replace(of(2, [1, 3]));
    assert_eq!(first.each_ref().map(|ticket| resume(ticket)), [[true; 3]; 2]);
    let second = seal(&shared);
    common.replace([]);
    common.replace(of(3, [2, 4]));
    assert_eq!(first.each_ref().map(|ticket| resume(ticket)), [[false; 3]; 2], "two rotations");
    assert_eq!(resume(&second), [true; 3]);
    assert_eq!(format!("{common:?}"), "TicketKeys { .. }");
}

#[test]
fn garbled_tickets_do_not_open() {
    let tickets = tickets(&[], &[]);
    let ticket = seal(&tickets);
    for at in 0..ticket.len() {
        let mut garbled = ticket.clone();
        garbled[at] ^= 1;
        assert!(!resumes(&tickets, &garbled, 1_000), "byte {at}");
        assert!(!resumes(&tickets, &ticket[..at], 1_000), "{at} bytes");
    }
}

#[test]
fn ticket_keys_need_enough_secret() {
    assert_eq!(TicketKey::new(&[1; 31]).unwrap_err(), 31);
    let (one, same) = (TicketKey::new(&[1; 32]).unwrap(), TicketKey::new(&[1; 32]).unwrap());
    assert_eq!(one.name(), same.name());
    assert_ne!(one.name(), TicketKey::new(&[1; 33]).unwrap().name());
}

/// The register of a server that began later tells nothing of what another one took a moment ago.
#[test]
fn a_ticket_of_another_server_with_the_same_keys_brings_no_early_data_in_however_old_it_is() {
    let common = TicketKeys::new([TicketKey::random()]);
    let rules = |in_common| TicketRules {
        lifetime: 10_000,
        client_auth: Vec::new(),
        strikes: None,
        beginning: None,
        trust_earlier: false,
        in_common,
    };
    let [one, other] = [true, true].map(|in_common| Tickets::new(common.clone(), rules(in_common)));
    let joined = Tickets::new(TicketKeys::new([]), rules(false)).with_common(&common);
    let began = UnixTime::now().as_secs();
    let issued = began - 10;
    let ticket = one.seal(b"session", &promise(Version::V1, 50), issued).unwrap();
    let later = began + 1_000;
    // A switch began long after the ticket was made, and has a register of its own; the other host took it a moment ago.
    let behind = |tickets: Tickets, common: &TicketKeys| {
        let register = Arc::new(ProcessRegister::new());
        let beginning = SharedBeginning::new(register.beginning().unwrap());
        tickets.shared(common, register, Known::Shared(beginning))
    };
    let switched =
        behind(Tickets::new(common.clone(), rules(true)), &TicketKeys::new([TicketKey::random()]));
    for other in [&other, &joined, &switched] {
        assert!(other.resume(&ticket, Version::V1, later).is_some());
        assert!(!brings_early_data(other, &ticket, later));
    }
    assert!(brings_early_data(&one, &ticket, later));
    // Alone with its keys, it knows that nobody has taken it since it began.
    let alone = Tickets::new(common.clone(), rules(false));
    assert!(brings_early_data(&alone, &ticket, later));
    // So does a switch with keys that are nobody else's.
    let switched = behind(Tickets::new(TicketKeys::new([]), rules(false)), &common);
    assert!(brings_early_data(&switched, &ticket, later));
}
