//! Strike registers that answer later.

use std::sync::Mutex;

use quicket::{Beginning, Identity, ServerTls, StrikeAnswer, StrikeRegister, TicketId};

use super::*;

/// Answers from another thread after a while, or never.
#[derive(Debug)]
struct Far {
    beginning: Beginning,
    used: Arc<Mutex<Vec<TicketId>>>,
    silent: Option<Mutex<Vec<StrikeAnswer>>>,
}

impl StrikeRegister for Far {
    fn ask(&self, ticket: &TicketId, _: u64, answer: StrikeAnswer) {
        if let Some(silent) = &self.silent {
            return silent.lock().unwrap().push(answer);
        }
        let (ticket, used) = (*ticket, Arc::clone(&self.used));
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            let mut used = used.lock().unwrap();
            let first = !used.contains(&ticket);
            used.push(ticket);
            answer.give(first);
        });
    }

    fn beginning(&self) -> Option<Beginning> {
        Some(self.beginning)
    }
}

fn asking(silent: bool) -> (ServerConfig, ClientConfig, Arc<MemorySessionStore>) {
    let register = Far {
        beginning: Beginning::now(),
        used: Arc::default(),
        silent: silent.then(Mutex::default),
    };
    let store = Arc::new(MemorySessionStore::new());
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let tls = quicket::ClientTls::builder().dangerous_no_verification().alpn(["test"]);
    let client = ClientConfig::new(tls.build().unwrap()).sessions(store.clone());
    let tls = ServerTls::builder(identity).alpn(["test"]).early_data(true);
    let tls = tls.strike_register(Arc::new(register)).build().unwrap();
    (ServerConfig::new(tls).early_data(true), client, store)
}

#[test]
fn early_data_waits_for_a_register_that_answers_later_and_is_read_once() {
    let (server, client, store) = asking(false);
    let gate = serve(server);
    get_to_know(&gate, &client, &*store);
    let session = store.take_session(&gate.name()).unwrap();
    for first in [true, false] {
        store.save_session(&gate.name(), &session);
        let (connection, stream) = connect_and_ask(&gate, &client, b"again");
        gate.open();
        assert_eq!(answer(stream, b"again"), first);
        assert!(connection.handshake().unwrap().resumed);
        // What came later is not used.
        while store.take_session(&gate.name()).is_some() {}
    }
}

#[test]
fn a_register_that_never_answers_costs_the_early_data_and_not_the_resumption() {
    let (server, client, store) = asking(true);
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
