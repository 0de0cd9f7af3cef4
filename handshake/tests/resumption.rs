//! Session tickets and early data. Every configuration is built anew from what would survive a
//! restart: the ticket's bytes, the server's ticket key, certificates.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{
    Lines, NAME, Options, Pair, Party, client, identity, server, shake, shake_well, start_client,
};
use quicket_engine::crypto::{Aead, Alert, Direction, Level};
use quicket_handshake::{
    Beginning, Identity, KeyExchange, ProcessRegister, ServerTls, ServerTlsBuilder,
    SharedBeginning, StrikeAnswer, StrikeRegister, TicketId, TicketKey, TicketKeys,
};
use quicket_wire::{Side, TransportParameters, Version, VersionInformation};

const EARLY: (Level, Direction, Direction) =
    (Level::EarlyData, Direction::Send, Direction::Receive);

fn key() -> TicketKey {
    TicketKey::new(&[9; 32]).unwrap()
}

/// A server that starts again and again, with the risk of accepting a repetition.
fn keyed_server(identity: &Identity) -> ServerTlsBuilder {
    server(identity).ticket_keys([key()]).early_data_of_earlier_tickets(true)
}

/// A ticket of a server with [`key`].
fn ticket(identity: &Identity) -> Vec<u8> {
    let client = client(identity).build().unwrap();
    let server = keyed_server(identity).build().unwrap();
    shake_well(&client, &server, &Options::default()).client.tickets.remove(0)
}

fn resume(identity: &Identity, server: &ServerTls, ticket: &[u8]) -> Pair {
    let client = client(identity).build().unwrap();
    shake_well(&client, server, &Options { resume: Some(ticket), ..Options::default() })
}

fn assert_early_data_accepted(pair: &Pair) {
    assert_eq!(pair.client.early_data, [true]);
    assert_eq!(pair.server.early_data, [true]);
    assert_eq!(pair.client.secret(EARLY.0, EARLY.1), pair.server.secret(EARLY.0, EARLY.2));
}

fn assert_early_data_refused(pair: &Pair) {
    assert_eq!(pair.client.early_data, [false]);
    assert_eq!(pair.server.early_data, [false]);
    assert!(pair.client.secrets.contains_key(&(EARLY.0, EARLY.1)));
    assert!(!pair.server.secrets.contains_key(&(EARLY.0, EARLY.2)));
}

fn assert_early_data_not_offered(pair: &Pair) {
    assert!(pair.client.early_data.is_empty());
    assert!(pair.server.early_data.is_empty());
    assert!(!pair.client.secrets.contains_key(&(EARLY.0, EARLY.1)));
}

#[test]
fn a_ticket_resumes_with_early_data_after_both_sides_restarted() {
    let identity = identity();
    for aead in [Aead::Aes128Gcm, Aead::Aes256Gcm, Aead::ChaCha20Poly1305] {
        let client = || client(&identity).cipher_suites(&[aead]).build().unwrap();
        let server = || keyed_server(&identity).build().unwrap();
        let mut first = shake_well(&client(), &server(), &Options::default());
        assert!(!first.client.summary().resumed);
        assert_eq!(first.client.tickets.len(), 2);
        let ticket = first.client.tickets.remove(0);

        let options = Options { resume: Some(&ticket), ..Options::default() };
        let pair = shake_well(&client(), &server(), &options);
        assert!(pair.client.summary().resumed);
        assert_early_data_accepted(&pair);
        // Tickets of a resumed session resume as well.
        assert_eq!(pair.client.tickets.len(), 2);
        let options = Options { resume: Some(&pair.client.tickets[1]), ..Options::default() };
        let third = shake_well(&client(), &server(), &options);
        assert!(third.client.summary().resumed);
        assert_early_data_accepted(&third);
    }
}

/// The test below, run again as a process of its own with this variable set.
const CHILD: &str = "QUICKET_TEST_TICKET";

#[test]
fn a_ticket_resumes_in_another_process() {
    if let Some(directory) = std::env::var_os(CHILD) {
        let file = |name| std::path::Path::new(&directory).join(name);
        let identity = Identity::from_pem_files(file("chain"), file("key")).unwrap();
        let ticket = std::fs::read(file("ticket")).unwrap();
        let server = keyed_server(&identity).build().unwrap();
        let pair = resume(&identity, &server, &ticket);
        assert!(pair.client.summary().resumed);
        assert_early_data_accepted(&pair);
        return;
    }
    let directory = std::env::temp_dir().join(format!("quicket-ticket-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let identity = identity();
    std::fs::write(directory.join("chain"), identity.chain_pem()).unwrap();
    std::fs::write(directory.join("key"), identity.key_pem()).unwrap();
    std::fs::write(directory.join("ticket"), ticket(&identity)).unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_ticket_resumes_in_another_process"])
        .env(CHILD, &directory)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn events_of_early_data_come_in_order() {
    let identity = identity();
    let ticket = ticket(&identity);
    let server = keyed_server(&identity).build().unwrap();
    let pair = resume(&identity, &server, &ticket);
    assert_eq!(pair.client.story[..2], ["send Initial", "Send EarlyData"]);
    let story: Vec<&str> = pair.client.story.iter().map(String::as_str).collect();
    let at = |what: &str| story.iter().position(|event| *event == what).unwrap();
    assert!(at("Receive Handshake") < at("parameters"));
    assert!(at("parameters") < at("early data true"));
    assert!(at("early data true") < at("complete"));
    assert_eq!(
        pair.server.story[..4],
        ["parameters", "early data true", "Receive EarlyData", "send Initial"]
    );
}

/// RFC 9001, Section 8.1: what early data means depends on the protocol.
#[test]
fn the_server_knows_the_application_protocol_before_it_reads_early_data() {
    let identity = identity();
    let server = keyed_server(&identity).build().unwrap();
    let pair = resume(&identity, &server, &ticket(&identity));
    assert_early_data_accepted(&pair);
    assert_eq!(pair.server.alpn_with_early_data.as_deref(), Some(&b"test"[..]));
    let begun = start_client(&client(&identity).build().unwrap(), &Options::default()).unwrap();
    assert_eq!(begun.handshake.alpn(), None);
}

#[test]
fn a_resumed_session_keeps_the_certificates_of_the_first() {
    let identity = identity();
    let ticket = ticket(&identity);
    let server = keyed_server(&identity).build().unwrap();
    let pair = resume(&identity, &server, &ticket);
    assert!(pair.client.summary().resumed);
    assert_eq!(pair.client.summary().peer_certificates, [identity.chain().next().unwrap()]);
}

#[test]
fn early_data_is_logged() {
    let identity = identity();
    let ticket = ticket(&identity);
    let (client_lines, server_lines) = (Lines::new(), Lines::new());
    let client = client(&identity).key_log(client_lines.clone()).build().unwrap();
    let server = keyed_server(&identity).key_log(server_lines.clone()).build().unwrap();
    shake_well(&client, &server, &Options { resume: Some(&ticket), ..Options::default() });
    let is_early = |line: &&String| line.starts_with("CLIENT_EARLY_TRAFFIC_SECRET ");
    let lines = client_lines.sorted();
    let early = lines.iter().find(is_early).unwrap();
    assert_eq!(server_lines.sorted().iter().find(is_early), Some(early));
}

#[test]
fn early_data_may_be_left_out_by_either_side() {
    let identity = identity();
    let offered = ticket(&identity);
    let server = || keyed_server(&identity).build().unwrap();
    let options = |client_early_data, server_early_data| Options {
        resume: Some(&offered),
        client_early_data,
        server_early_data,
        ..Options::default()
    };
    let any = client(&identity).build().unwrap();

    let pair = shake_well(&any, &server(), &options(false, true));
    assert!(pair.client.summary().resumed);
    assert_early_data_not_offered(&pair);

    let pair = shake_well(&any, &server(), &options(true, false));
    assert!(pair.client.summary().resumed);
    assert_early_data_refused(&pair);

    let never = client(&identity).early_data(false).build().unwrap();
    let pair = shake_well(&never, &server(), &options(true, true));
    assert_early_data_not_offered(&pair);

    let refusing = keyed_server(&identity).early_data(false).build().unwrap();
    let pair = shake_well(&any, &refusing, &options(true, true));
    assert!(pair.client.summary().resumed);
    assert_early_data_refused(&pair);
    // Its own tickets do not allow any.
    let options = Options { resume: Some(&pair.client.tickets[0]), ..Options::default() };
    let pair = shake_well(&any, &server(), &options);
    assert!(pair.client.summary().resumed);
    assert_early_data_not_offered(&pair);
}

#[test]
fn a_ticket_brings_early_data_in_once() {
    // RFC 8446, Section 8.1
    let identity = identity();
    let ticket = ticket(&identity);
    let server = keyed_server(&identity).build().unwrap();
    assert_early_data_accepted(&resume(&identity, &server, &ticket));
    let again = resume(&identity, &server, &ticket);
    assert!(again.client.summary().resumed);
    assert_early_data_refused(&again);
}

/// RFC 8446, Section 8.2: a register that begins empty does not know what was used before.
#[test]
fn a_first_flight_that_is_repeated_after_a_restart_brings_no_early_data_in_again() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let start = || server(&identity).ticket_keys([key()]).build().unwrap();
    let old = start();
    let ticket = shake_well(&client, &old, &Options::default()).client.tickets.remove(0);
    let options = Options { resume: Some(&ticket), ..Options::default() };
    let hello = start_client(&client, &options).unwrap().outbox.remove(0).unwrap().1;
    let accepts = |server: &ServerTls| {
        let mut party = common::start_server(server, &options).unwrap();
        party.handshake.read(Level::Initial, &hello).unwrap();
        party.poll().unwrap();
        party.early_data[0]
    };
    assert!(accepts(&old), "made for the register, used for the first time");
    assert!(!accepts(&old));
    let new = start();
    assert!(!accepts(&new));
    assert!(!accepts(&new));
}

#[test]
fn tickets_of_an_earlier_process_resume_at_once_and_bring_early_data_after_a_window() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let old = server(&identity).ticket_keys([key()]).build().unwrap();
    let tickets = shake_well(&client, &old, &Options::default()).client.tickets;
    let new = server(&identity).ticket_keys([key()]).build().unwrap();
    let first = resume(&identity, &new, &tickets[0]);
    assert!(first.client.summary().resumed);
    assert_early_data_refused(&first);
    // Its own tickets were in use nowhere else.
    assert_early_data_accepted(&resume(&identity, &new, &first.client.tickets[0]));
    // A register that is handed on knows all.
    let register = Arc::new(ProcessRegister::new());
    let sharing = || server(&identity).ticket_keys([key()]).strike_register(register.clone());
    let ticket = &shake_well(&client, &sharing().build().unwrap(), &Options::default());
    let ticket = &ticket.client.tickets[0];
    assert_early_data_accepted(&resume(&identity, &sharing().build().unwrap(), ticket));
    assert_early_data_refused(&resume(&identity, &sharing().build().unwrap(), ticket));
}

/// One that somebody else wrote, in memory.
#[derive(Debug)]
struct OwnRegister(SharedRegister, Beginning);

impl StrikeRegister for OwnRegister {
    fn ask(&self, ticket: &TicketId, now: u64, answer: StrikeAnswer) {
        self.0.ask(ticket, now, answer);
    }

    fn beginning(&self) -> Option<Beginning> {
        Some(self.1)
    }
}

#[test]
fn a_register_of_the_applications_own_may_have_a_beginning_too() {
    let identity = identity();
    let ticket = ticket(&identity);
    let register = Arc::new(OwnRegister(SharedRegister::default(), Beginning::now()));
    let new = server(&identity).ticket_keys([key()]).strike_register(register).build().unwrap();
    let pair = resume(&identity, &new, &ticket);
    assert!(pair.client.summary().resumed);
    assert_early_data_refused(&pair);
    assert_early_data_accepted(&resume(&identity, &new, &pair.client.tickets[0]));
}

/// One that answers when a test says so.
#[derive(Debug)]
struct LaterRegister {
    beginning: SharedBeginning,
    asked: Mutex<Vec<(TicketId, StrikeAnswer)>>,
}

impl LaterRegister {
    fn new() -> Arc<Self> {
        let (beginning, asked) = (SharedBeginning::new(Beginning::now()), Mutex::default());
        Arc::new(Self { beginning, asked })
    }

    /// A server that asks it, as one of several.
    fn server(self: &Arc<Self>, identity: &Identity) -> ServerTls {
        let keys = TicketKeys::new([key()]);
        server(identity).build().unwrap().sharing_tickets(&keys, self.clone(), &self.beginning)
    }

    fn answer(&self, first: bool) -> TicketId {
        let (ticket, answer) = self.asked.lock().unwrap().remove(0);
        answer.give(first);
        ticket
    }
}

impl StrikeRegister for LaterRegister {
    fn ask(&self, ticket: &TicketId, _: u64, answer: StrikeAnswer) {
        self.asked.lock().unwrap().push((*ticket, answer));
    }
}

/// The handshake waits for the answer of a register that is far away, but not for ever.
#[test]
fn a_register_may_answer_later_or_never() {
    let identity = identity();
    let register = LaterRegister::new();
    let built = register.server(&identity);
    let client = client(&identity).build().unwrap();
    let ticket = shake_well(&client, &built, &Options::default()).client.tickets.remove(0);
    let options = Options { resume: Some(&ticket), ..Options::default() };
    let begin = || {
        let hello = start_client(&client, &options).unwrap().outbox.remove(0).unwrap().1;
        let mut party = common::start_server(&built, &options).unwrap();
        party.handshake.read(Level::Initial, &hello).unwrap();
        party.poll().unwrap();
        assert!(party.handshake.waits() && party.story.is_empty(), "{:?}", party.story);
        party
    };
    let goes_on = |mut party: Party, accepted: bool| {
        party.poll().unwrap();
        assert!(!party.handshake.waits());
        assert_eq!(party.early_data, [accepted]);
        // The session is resumed either way: no certificate is sent.
        let sent: usize = party.outbox.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(sent < 500, "{sent} bytes");
    };
    let party = begin();
    let asked = register.answer(true);
    goes_on(party, true);
    let party = begin();
    assert_eq!(register.answer(false), asked);
    goes_on(party, false);
    // Forgotten.
    let party = begin();
    register.asked.lock().unwrap().clear();
    goes_on(party, false);
    // Too late.
    let mut party = begin();
    party.handshake.stop_waiting();
    register.answer(true);
    goes_on(party, false);
    // Another register has taken the place of the one that was asked, and does not know what that knew.
    let party = begin();
    register.beginning.set(Beginning::now());
    register.answer(true);
    goes_on(party, false);
}

/// Nothing is kept of what comes behind a ClientHello while a register is asked about its ticket, and no
/// message behind it decides about early data.
#[test]
fn nothing_may_follow_a_client_hello_that_is_asked_about() {
    let identity = identity();
    let register = LaterRegister::new();
    let built = register.server(&identity);
    let client = client(&identity).build().unwrap();
    let ticket = shake_well(&client, &built, &Options::default()).client.tickets.remove(0);
    let options = Options { resume: Some(&ticket), ..Options::default() };
    let hello = || start_client(&client, &options).unwrap().outbox.remove(0).unwrap().1;
    let refused = |party: &mut Party, bytes: &[u8]| {
        let error = party.handshake.read(Level::Initial, bytes).unwrap_err();
        assert_eq!(error.alert, Alert::UNEXPECTED_MESSAGE, "{error:?}");
        assert!(error.reason.contains("behind the ClientHello"), "{error:?}");
        assert!(!party.handshake.waits() && party.handshake.poll().is_err());
    };
    // Later; a whole message with it, which by itself would bring no early data; a part of one.
    let mut party = common::start_server(&built, &options).unwrap();
    party.handshake.read(Level::Initial, &hello()).unwrap();
    party.poll().unwrap();
    assert!(party.handshake.waits());
    refused(&mut party, &[1]);
    register.answer(true);
    for behind in [&[1, 0, 0, 0][..], &[1]] {
        let mut party = common::start_server(&built, &options).unwrap();
        refused(&mut party, &[&hello()[..], behind].concat());
    }
    assert!(register.asked.lock().unwrap().is_empty());
}

/// What a configuration was not given it has in common with others; and stays as it is.
#[test]
fn servers_share_tickets_as_far_as_they_have_none_of_their_own() {
    let identity = identity();
    let register = Arc::new(ProcessRegister::new());
    let began = SharedBeginning::new(register.beginning().unwrap());
    let keys = TicketKeys::new([key()]);
    let shared = |built: &ServerTls| built.sharing_tickets(&keys, register.clone(), &began);
    let alone = server(&identity).build().unwrap();
    let sharing = || shared(&server(&identity).build().unwrap());
    let client = client(&identity).build().unwrap();
    let tickets = shake_well(&client, &shared(&alone), &Options::default()).client.tickets;
    assert_early_data_accepted(&resume(&identity, &sharing(), &tickets[0]));
    assert_early_data_refused(&resume(&identity, &sharing(), &tickets[0]));
    // It knows nothing of what was made of it.
    let pair = resume(&identity, &alone, &tickets[1]);
    assert!(!pair.client.summary().resumed);
    let ticket = shake_well(&client, &alone, &Options::default()).client.tickets.remove(0);
    assert_early_data_accepted(&resume(&identity, &alone, &ticket));
    // Tickets from before are good, and keys that come later count for both.
    assert!(resume(&identity, &shared(&alone), &ticket).client.summary().resumed);
    let common = shared(&alone);
    let new = TicketKey::random();
    assert!(alone.rotate_ticket_key(new.clone()));
    let ticket = shake_well(&client, &common, &Options::default()).client.tickets.remove(0);
    let elsewhere = server(&identity).ticket_keys([new]).build().unwrap();
    assert!(resume(&identity, &elsewhere, &ticket).client.summary().resumed);
    assert!(resume(&identity, &common, &tickets[1]).client.summary().resumed);

    let own = TicketKey::random();
    let apart = shared(&server(&identity).ticket_keys([own.clone()]).build().unwrap());
    let ticket = shake_well(&client, &apart, &Options::default()).client.tickets.remove(0);
    let elsewhere = server(&identity).ticket_keys([own]).build().unwrap();
    assert!(resume(&identity, &elsewhere, &ticket).client.summary().resumed, "it has its own key");
    let tickets = shake_well(&client, &sharing(), &Options::default()).client.tickets;
    let used = Arc::new(SharedRegister::default());
    let apart = shared(&server(&identity).strike_register(used.clone()).build().unwrap());
    assert_early_data_accepted(&resume(&identity, &apart, &tickets[1]));
    assert_eq!(used.0.lock().unwrap().len(), 1);
}

/// What a store of several servers does, in short.
#[derive(Debug, Default)]
struct SharedRegister(Mutex<Vec<TicketId>>);

impl StrikeRegister for SharedRegister {
    fn ask(&self, ticket: &TicketId, _: u64, answer: StrikeAnswer) {
        let mut used = self.0.lock().unwrap();
        let first = !used.contains(ticket);
        used.push(*ticket);
        drop(used);
        answer.give(first);
    }
}

/// RFC 8446, Section 8.1: servers that share keys may share the register of used tickets too.
#[test]
fn servers_with_one_register_take_early_data_once_between_them() {
    let identity = identity();
    let ticket = ticket(&identity);
    let register = Arc::new(SharedRegister::default());
    let server = || keyed_server(&identity).strike_register(register.clone()).build().unwrap();
    assert_early_data_accepted(&resume(&identity, &server(), &ticket));
    assert_early_data_refused(&resume(&identity, &server(), &ticket));
    let alone = keyed_server(&identity).build().unwrap();
    assert_early_data_accepted(&resume(&identity, &alone, &ticket));
    assert_eq!(register.0.lock().unwrap().len(), 2);
}

#[test]
fn a_replayed_client_hello_gets_no_early_data_read() {
    // RFC 8446, Section 8; RFC 9001, Section 9.2
    let identity = identity();
    let ticket = ticket(&identity);
    let client = client(&identity).build().unwrap();
    let server = keyed_server(&identity).build().unwrap();
    let options = Options { resume: Some(&ticket), ..Options::default() };
    let hello = start_client(&client, &options).unwrap().outbox.remove(0).unwrap().1;
    let mut answers = Vec::new();
    for _ in 0..2 {
        let mut party = common::start_server(&server, &options).unwrap();
        party.handshake.read(Level::Initial, &hello).unwrap();
        party.poll().unwrap();
        answers.push(party.early_data[0]);
    }
    assert_eq!(answers, [true, false]);
}

#[test]
fn a_hello_retry_request_refuses_early_data_but_resumes() {
    // RFC 8446, Section 4.2.10
    let identity = identity();
    let ticket = ticket(&identity);
    let server = keyed_server(&identity).key_exchange(&[KeyExchange::Secp256r1]).build().unwrap();
    let pair = resume(&identity, &server, &ticket);
    assert!(pair.client.summary().resumed);
    assert_early_data_refused(&pair);
    let refused = pair.client.story.iter().position(|event| event == "early data false").unwrap();
    let parameters = pair.client.story.iter().position(|event| event == "parameters").unwrap();
    assert!(refused < parameters, "the client knows before the second ClientHello");
}

#[test]
fn a_resumption_begins_with_the_group_that_the_server_chose() {
    let identity = identity();
    let groups = [KeyExchange::X25519MlKem768, KeyExchange::Secp384r1];
    for group in groups {
        let client = || client(&identity).build().unwrap();
        let server = || keyed_server(&identity).key_exchange(&[group]).build().unwrap();
        let mut first = shake_well(&client(), &server(), &Options::default());
        assert_eq!(first.client.story[..2], ["send Initial", "send Initial"], "asked to retry");
        let ticket = first.client.tickets.remove(0);

        let options = Options { resume: Some(&ticket), ..Options::default() };
        let pair = shake_well(&client(), &server(), &options);
        assert!(pair.client.summary().resumed);
        assert_eq!(pair.client.summary().key_exchange, first.client.summary().key_exchange);
        assert_early_data_accepted(&pair);

        // A client that no longer offers the group gets along without.
        let other = common::client(&identity).key_exchange(&[KeyExchange::X25519]).build().unwrap();
        let server = keyed_server(&identity).build().unwrap();
        let pair = shake_well(&other, &server, &options);
        assert_eq!(pair.client.summary().key_exchange, "X25519");
        assert_early_data_accepted(&pair);
    }
}

#[test]
fn a_server_that_lost_its_key_shakes_hands_in_full() {
    let identity = identity();
    let ticket = ticket(&identity);
    for keys in [vec![], vec![TicketKey::random()]] {
        let server = server(&identity).ticket_keys(keys).build().unwrap();
        let pair = resume(&identity, &server, &ticket);
        assert!(!pair.client.summary().resumed);
        assert_early_data_refused(&pair);
    }
}

#[test]
fn tickets_outlive_the_rotation_of_keys() {
    let identity = identity();
    let old = ticket(&identity);
    let new = TicketKey::new(&[10; 40]).unwrap();
    let later = server(&identity).ticket_keys([new, key()]).build().unwrap();
    assert!(resume(&identity, &later, &old).client.summary().resumed);
    let running = keyed_server(&identity).build().unwrap();
    running.rotate_ticket_key(TicketKey::random());
    let pair = resume(&identity, &running, &old);
    assert!(pair.client.summary().resumed);
    assert!(resume(&identity, &running, &pair.client.tickets[0]).client.summary().resumed);
}

#[test]
fn a_server_may_send_any_number_of_tickets_up_to_eight() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    for (asked, sent) in [(0, 0), (1, 1), (8, 8), (9, 8)] {
        let server = keyed_server(&identity).tickets(asked).build().unwrap();
        let pair = shake_well(&client, &server, &Options::default());
        assert_eq!(pair.client.tickets.len(), sent);
        for ticket in &pair.client.tickets {
            assert!(resume(&identity, &server, ticket).client.summary().resumed);
        }
    }
}

#[test]
fn tickets_expire() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = keyed_server(&identity).ticket_lifetime(Duration::from_secs(1)).build().unwrap();
    let first = shake_well(&client, &server, &Options::default());
    std::thread::sleep(Duration::from_millis(2_100));
    let pair = resume(&identity, &server, &first.client.tickets[0]);
    assert!(!pair.client.summary().resumed);
    assert_early_data_not_offered(&pair);
}

#[test]
fn a_ticket_is_not_offered_where_it_does_not_belong() {
    let identity = identity();
    let ticket = ticket(&identity);
    let server = keyed_server(&identity).alpn(["test", "else"]).build().unwrap();
    let options = || Options { resume: Some(&ticket), ..Options::default() };
    let full = |pair: &Pair| {
        assert!(!pair.client.summary().resumed);
        assert_early_data_not_offered(pair);
    };
    let same = client(&identity).build().unwrap();
    full(&shake_well(&same, &server, &Options { name: "other.test", ..options() }));
    let protocol = client(&identity).alpn(["else"]).build().unwrap();
    full(&shake_well(&protocol, &server, &options()));
    let suite = client(&identity).cipher_suites(&[Aead::Aes256Gcm]).build().unwrap();
    full(&shake_well(&suite, &server, &options()));
    let certificate = Identity::self_signed(["client.test"]).unwrap();
    let identified = client(&identity).client_certificate(certificate).build().unwrap();
    full(&shake_well(&identified, &server, &options()));
}

#[test]
fn a_session_is_not_resumed_with_a_server_that_would_not_be_trusted_now() {
    let identity = identity();
    let ticket = ticket(&identity);
    let server = keyed_server(&identity).build().unwrap();
    let options = Options { resume: Some(&ticket), ..Options::default() };
    // The pins have changed since: the ticket is left aside, and the server refused.
    let other = Identity::self_signed([NAME]).unwrap();
    let strict = client(&other).build().unwrap();
    let party = start_client(&strict, &options).unwrap();
    assert!(!party.secrets.contains_key(&(Level::EarlyData, Direction::Send)));
    let failure = shake(&strict, &server, &options).err().unwrap();
    assert!(matches!(failure, common::Failure::Client(_)));
}

#[test]
fn a_rebuilt_session_does_not_weaken_the_verification_of_a_full_handshake() {
    // The server does not know the ticket any more and presents another certificate.
    let identity = identity();
    let ticket = ticket(&identity);
    let options = Options { resume: Some(&ticket), ..Options::default() };
    let client = client(&identity).build().unwrap();
    let impostor = Identity::self_signed([NAME]).unwrap();
    let server = server(&impostor).build().unwrap();
    let failure = shake(&client, &server, &options).err().unwrap();
    assert!(matches!(failure, common::Failure::Client(_)));
    // Nor does anyone get by who has the certificate, but not its key.
    let server = common::server(&identity).build().unwrap();
    let error = common::spoil_signature(&client, &server, &options);
    assert!(error.reason.contains("BadSignature"), "{error}");
}

fn parameters(side: Side, version: Version, initial_max_data: u64) -> Vec<u8> {
    let parameters = TransportParameters {
        initial_max_data,
        version_information: Some(VersionInformation {
            chosen_version: version,
            available_versions: vec![Version::V1, Version::V2],
        }),
        ..TransportParameters::default()
    };
    let mut encoded = Vec::new();
    parameters.encode(side, &mut encoded, None);
    encoded
}

#[test]
fn early_data_is_refused_when_limits_have_become_lower() {
    // RFC 9000, Section 7.4.1
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = keyed_server(&identity).build().unwrap();
    let parameters = |limit| parameters(Side::Server, Version::V1, limit);
    let first = Options { server_parameters: &parameters(1_000), ..Options::default() };
    let tickets = shake_well(&client, &server, &first).client.tickets;
    for (ticket, limit, accepted) in [(&tickets[0], 999, false), (&tickets[1], 1_001, true)] {
        let options = Options {
            server_parameters: &parameters(limit),
            resume: Some(ticket),
            ..Options::default()
        };
        let pair = shake_well(&client, &server, &options);
        assert!(pair.client.summary().resumed);
        assert_eq!(pair.client.early_data, [accepted]);
        assert_eq!(pair.server.early_data, [accepted]);
    }
}

#[test]
fn tickets_promise_the_limits_that_counted_when_their_handshake_began() {
    // RFC 9114, Section 7.2.4.2: SETTINGS of a connection and what its tickets promise are the same.
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = keyed_server(&identity).build().unwrap();
    let (more, less) = ([1_000, 0, 0, 0], [999, 0, 0, 0]);
    server.announce_application_limits(more);
    let mut first = Pair::start(&client, &server, &Options::default()).unwrap();
    server.announce_application_limits(less);
    assert_eq!(first.server.handshake.application_limits(), Some(more));
    first.run(usize::MAX).unwrap();
    assert_eq!(first.server.handshake.application_limits(), Some(more));
    let [one, other] = &first.client.tickets[..] else { panic!("two tickets") };
    let refused = resume(&identity, &server, one);
    assert!(refused.client.summary().resumed);
    assert_early_data_refused(&refused);
    assert_eq!(refused.server.handshake.application_limits(), Some(less));
    server.announce_application_limits(more);
    assert_early_data_accepted(&resume(&identity, &server, other));
}

#[test]
fn a_ticket_is_good_for_the_version_that_it_was_issued_in() {
    // RFC 9369, Section 5: the negotiated version counts, and then the first flight's.
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = keyed_server(&identity).build().unwrap();
    let shake = |original, negotiated, resume| {
        let options = Options {
            client_parameters: &parameters(Side::Client, original, 0),
            server_parameters: &parameters(Side::Server, negotiated, 0),
            resume,
            ..Options::default()
        };
        shake_well(&client, &server, &options)
    };
    let first = shake(Version::V1, Version::V2, None);
    let [one, other] = &first.client.tickets[..] else { panic!("two tickets") };
    assert!(!shake(Version::V1, Version::V2, Some(&one[..])).client.summary().resumed);
    assert!(shake(Version::V2, Version::V2, Some(&other[..])).client.summary().resumed);
}

#[test]
fn garbled_tickets_are_left_aside() {
    let identity = identity();
    let ticket = ticket(&identity);
    let client = client(&identity).build().unwrap();
    let server = keyed_server(&identity).build().unwrap();
    for len in 0..ticket.len() {
        let options = Options { resume: Some(&ticket[..len]), ..Options::default() };
        let party = start_client(&client, &options).unwrap();
        assert!(!party.secrets.contains_key(&(Level::EarlyData, Direction::Send)), "{len} bytes");
    }
    for at in 0..ticket.len() {
        let mut garbled = ticket.clone();
        garbled[at] ^= 1 << (at % 8);
        let options = Options { resume: Some(&garbled), ..Options::default() };
        let pair = shake_well(&client, &server, &options);
        assert!(!pair.client.summary().resumed, "byte {at}");
        assert_early_data_not_offered(&pair);
    }
}

#[test]
fn one_configuration_resumes_again_and_again() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = keyed_server(&identity).build().unwrap();
    let mut pair = shake_well(&client, &server, &Options::default());
    for _ in 0..4 {
        let ticket = pair.client.tickets.remove(0);
        let options = Options { resume: Some(&ticket), ..Options::default() };
        pair = shake_well(&client, &server, &options);
        assert!(pair.client.summary().resumed);
        assert_early_data_accepted(&pair);
        assert_eq!(pair.client.summary().peer_certificates, [identity.chain().next().unwrap()]);
    }
}

#[test]
fn tickets_beyond_those_that_a_process_remembers_resume_all_the_same() {
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let server = keyed_server(&identity).build().unwrap();
    let mut tickets = Vec::new();
    while tickets.len() < 300 {
        tickets.append(&mut shake_well(&client, &server, &Options::default()).client.tickets);
    }
    for ticket in [&tickets[0], tickets.last().unwrap()] {
        // The second time, the session is rebuilt from the ticket.
        for _ in 0..2 {
            let options =
                Options { resume: Some(ticket), client_early_data: false, ..Options::default() };
            assert!(shake_well(&client, &server, &options).client.summary().resumed);
        }
    }
}
