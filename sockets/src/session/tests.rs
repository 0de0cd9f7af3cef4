use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// A store that stands still until it is told to go on.
struct Slow {
    entered: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
    memory: MemorySessionStore,
}

impl SessionStore for Slow {
    fn save_session(&self, server: &str, session: &[u8]) {
        assert_ne!(session, b"poison", "as stores may");
        let _ = self.entered.send(());
        let _ = self.go_on.lock().unwrap_or_else(PoisonError::into_inner).recv();
        self.memory.save_session(server, session);
    }

    fn take_session(&self, server: &str) -> Option<Vec<u8>> {
        self.memory.take_session(server)
    }

    fn save_token(&self, server: &str, token: &[u8]) {
        self.memory.save_token(server, token);
    }

    fn take_token(&self, server: &str) -> Option<Vec<u8>> {
        self.memory.take_token(server)
    }
}

#[test]
fn slow_stores_and_those_that_panic_hold_up_nobody_and_what_is_taken_is_up_to_date() {
    let (entered, has_entered) = sync_channel(10);
    let (tell, go_on) = sync_channel(10);
    let slow = Slow { entered, go_on: Mutex::new(go_on), memory: MemorySessionStore::new() };
    let store: Arc<dyn SessionStore> = Arc::new(slow);
    let sink = SessionSink::new(Arc::clone(&store), "a:1");
    sink.session(b"poison".to_vec());
    sink.session(b"one".to_vec());
    has_entered.recv_timeout(Duration::from_secs(20)).unwrap();
    // The store stands still; who has something to keep goes on.
    sink.session(b"two".to_vec());
    sink.token(b"token".to_vec());
    let helper = thread::spawn({
        let store = Arc::clone(&store);
        move || settle(&store)
    });
    // Both threads are in the store now, each with one of the two.
    has_entered.recv_timeout(Duration::from_secs(20)).unwrap();
    tell.send(()).unwrap();
    tell.send(()).unwrap();
    helper.join().unwrap();
    assert!(store.take_session("a:1").is_some() && store.take_session("a:1").is_some());
    assert_eq!(store.take_token("a:1").as_deref(), Some(&b"token"[..]));
}

/// A store of somebody else's that does not wait.
#[derive(Default)]
struct Foreign(MemorySessionStore);

impl SessionStore for Foreign {
    fn save_session(&self, server: &str, session: &[u8]) {
        self.0.save_session(server, session);
    }

    fn take_session(&self, server: &str) -> Option<Vec<u8>> {
        self.0.take_session(server)
    }

    fn save_token(&self, server: &str, token: &[u8]) {
        self.0.save_token(server, token);
    }

    fn take_token(&self, server: &str) -> Option<Vec<u8>> {
        self.0.take_token(server)
    }
}

#[test]
fn what_is_kept_in_memory_is_there_at_once() {
    let store = Arc::new(MemorySessionStore::new());
    let sink = SessionSink::new(Arc::clone(&store) as Arc<dyn SessionStore>, "a:1");
    sink.session(b"one".to_vec());
    sink.token(b"token".to_vec());
    assert_eq!(store.take_session("a:1").as_deref(), Some(&b"one"[..]));
    assert_eq!(store.take_token("a:1").as_deref(), Some(&b"token"[..]));
}

#[test]
fn what_waits_is_kept_before_a_flush_ends() {
    let store = Arc::new(Foreign::default());
    let sink = SessionSink::new(Arc::clone(&store) as Arc<dyn SessionStore>, "a:1");
    let start = Instant::now();
    while store.take_session("a:1").is_none() {
        assert!(start.elapsed() < Duration::from_secs(20));
        sink.session(b"one".to_vec());
        // Another test's store may stand still, for as long as a flush waits at most.
        flush();
    }
}
