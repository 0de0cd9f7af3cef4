//! Strike registers that answer at once, later, or never; that do other things meanwhile, and panic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use quicket::{Beginning, Identity, ServerTls, StrikeAnswer, StrikeRegister, TicketId};

use super::*;

/// Whose answer is the first one for each ticket, and comes as a test has it.
struct Scripted {
    beginning: Beginning,
    used: Mutex<Vec<TicketId>>,
    gives: Box<dyn Fn(StrikeAnswer, bool) + Send + Sync>,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

impl StrikeRegister for Scripted {
    fn ask(&self, ticket: &TicketId, _: u64, answer: StrikeAnswer) {
        let mut used = self.used.lock().unwrap();
        let first = !used.contains(ticket);
        used.push(*ticket);
        drop(used);
        (self.gives)(answer, first);
    }

    fn beginning(&self) -> Option<Beginning> {
        Some(self.beginning)
    }
}

fn asking(
    gives: impl Fn(StrikeAnswer, bool) + Send + Sync + 'static,
) -> (ServerConfig, ClientConfig) {
    let register =
        Scripted { beginning: Beginning::now(), used: Mutex::default(), gives: Box::new(gives) };
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let tls = quicket::ClientTls::builder().dangerous_no_verification().alpn(["test"]);
    let client = ClientConfig::new(tls.build().unwrap());
    let tls = ServerTls::builder(identity).alpn(["test"]).early_data(true);
    let tls = tls.strike_register(Arc::new(register)).build().unwrap();
    (ServerConfig::new(tls).early_data(true), client)
}

/// A client that keeps its sessions in a place of their own: tickets that come late are nobody else's.
fn with_sessions(client: &ClientConfig) -> (ClientConfig, Arc<MemorySessionStore>) {
    let store = Arc::new(MemorySessionStore::new());
    (client.clone().sessions(store.clone()), store)
}

/// Tickets that are used, and then copied, so many; early data is read once. An answer that is lost costs the early
/// data of the first use.
fn assert_read_once(gate: &Gate, client: &ClientConfig, tickets: usize) {
    for _ in 0..tickets {
        let (knows, store) = with_sessions(client);
        get_to_know(gate, &knows, &*store);
        let session = store.take_session(&gate.name()).unwrap();
        for first in [true, false] {
            let (knows, store) = with_sessions(client);
            store.save_session(&gate.name(), &session);
            let (connection, stream) = connect_and_ask(gate, &knows, b"again");
            gate.open();
            assert_eq!(answer(stream, b"again"), first);
            assert!(connection.handshake().unwrap().resumed);
        }
    }
}

fn is_read_once(gives: impl Fn(StrikeAnswer, bool) + Send + Sync + 'static, tickets: usize) {
    let (server, client) = asking(gives);
    assert_read_once(&serve(server), &client, tickets);
}

#[test]
fn early_data_is_read_once_if_the_answer_comes_during_the_call() {
    is_read_once(StrikeAnswer::give, 2);
}

#[test]
fn early_data_is_read_once_if_another_thread_answers_during_the_call() {
    let gives = |answer: StrikeAnswer, first| {
        thread::spawn(move || answer.give(first)).join().unwrap();
    };
    is_read_once(gives, 2);
}

/// The answer and the return of the call race with each other.
#[test]
fn early_data_is_read_once_if_the_answer_comes_while_the_call_returns() {
    let gives = |answer: StrikeAnswer, first| {
        let returns = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&returns);
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            ready.send(()).unwrap();
            while !seen.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            answer.give(first);
        });
        is_ready.recv().unwrap();
        returns.store(true, Ordering::SeqCst);
    };
    is_read_once(gives, 20);
}

/// Whatever a register does with the endpoint that asks it, nothing of that is locked.
#[test]
fn a_register_may_use_the_endpoint_that_asks() {
    let endpoint = Arc::new(OnceLock::<quicket::Endpoint>::new());
    let (_, stranger) = configs();
    let uses = Arc::clone(&endpoint);
    let (server, client) = asking(move |answer, first| {
        let endpoint = uses.get().unwrap();
        let connection =
            endpoint.connect_early(endpoint.local_addr(), "localhost", &stranger).unwrap();
        connection.close(0, b"");
        assert_eq!(endpoint.worker_stats().len(), 1);
        answer.give(first);
    });
    let bound = quicket::Endpoint::bind("127.0.0.1:0").unwrap();
    let listener = bound.listen_early(server).unwrap();
    let gate = Gate::before(bound.local_addr());
    endpoint.set(bound).unwrap();
    thread::spawn(move || echo(&listener));
    assert_read_once(&gate, &client, 1);
}

/// The thread that it is called by serves others, too.
#[test]
fn a_register_that_panics_costs_the_early_data_and_nothing_else() {
    let (server, client) = asking(|_, _| panic!("a test's"));
    let gate = serve(server);
    for _ in 0..2 {
        let (client, store) = with_sessions(&client);
        get_to_know(&gate, &client, &*store);
        let (connection, stream) = connect_and_ask(&gate, &client, b"second");
        gate.open();
        assert!(!answer(stream, b"second"));
        assert_eq!(connection.early_data(), EarlyData::Rejected);
        assert!(connection.handshake().unwrap().resumed);
    }
}

#[test]
fn early_data_waits_for_a_register_that_answers_later_and_is_read_once() {
    let gives = |answer: StrikeAnswer, first| {
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            answer.give(first);
        });
    };
    is_read_once(gives, 1);
}

#[test]
fn a_register_that_never_answers_costs_the_early_data_and_not_the_resumption() {
    let kept = Mutex::new(Vec::new());
    let (server, client) = asking(move |answer, _| kept.lock().unwrap().push(answer));
    let (client, store) = with_sessions(&client);
    let gate = serve(server);
    get_to_know(&gate, &client, &*store);
    let (connection, stream) = connect_and_ask(&gate, &client, b"second");
    let begun = Instant::now();
    gate.open();
    assert!(!answer(stream, b"second"));
    assert!(begun.elapsed() >= Duration::from_millis(240), "{:?}", begun.elapsed());
    assert_eq!(connection.early_data(), EarlyData::Rejected);
    assert!(connection.handshake().unwrap().resumed);
}
