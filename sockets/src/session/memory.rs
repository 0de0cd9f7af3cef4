//! Sessions for the life of the process.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::SessionStore;

/// How many sessions, and how many tokens, are kept per server.
pub(super) const PER_SERVER: usize = 4;
/// How many servers are remembered; the one that was heard of least recently is forgotten.
const SERVERS: usize = 256;

/// What is kept of one server; the newest at the back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) sessions: VecDeque<Vec<u8>>,
    pub(super) tokens: VecDeque<Vec<u8>>,
}

impl Remembered {
    pub(super) fn add_session(&mut self, session: &[u8]) {
        add(&mut self.sessions, session);
    }

    pub(super) fn add_token(&mut self, token: &[u8]) {
        add(&mut self.tokens, token);
    }
}

fn add(queue: &mut VecDeque<Vec<u8>>, item: &[u8]) {
    if queue.len() >= PER_SERVER {
        queue.pop_front();
    }
    queue.push_back(item.to_vec());
}

/// A [`SessionStore`] in memory. Holds four sessions and four tokens for each of 256 servers.
#[derive(Debug, Default)]
pub struct MemorySessionStore {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    servers: HashMap<String, Entry>,
    clock: u64,
}

#[derive(Debug, Default)]
struct Entry {
    remembered: Remembered,
    last_heard: u64,
}

impl MemorySessionStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn entry(&mut self, server: &str) -> &mut Remembered {
        self.clock += 1;
        if !self.servers.contains_key(server) && self.servers.len() >= SERVERS {
            let oldest = self.servers.iter().min_by_key(|(_, entry)| entry.last_heard);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.servers.remove(&oldest);
            }
        }
        let entry = self.servers.entry(server.to_owned()).or_default();
        entry.last_heard = self.clock;
        &mut entry.remembered
    }
}

impl SessionStore for MemorySessionStore {
    fn save_session(&self, server: &str, session: &[u8]) {
        self.lock().entry(server).add_session(session);
    }

    fn take_session(&self, server: &str) -> Option<Vec<u8>> {
        self.lock().servers.get_mut(server)?.remembered.sessions.pop_back()
    }

    fn save_token(&self, server: &str, token: &[u8]) {
        self.lock().entry(server).add_token(token);
    }

    fn take_token(&self, server: &str) -> Option<Vec<u8>> {
        self.lock().servers.get_mut(server)?.remembered.tokens.pop_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_given_once_and_the_newest_first() {
        let store = MemorySessionStore::new();
        for i in 0..6 {
            store.save_session("a:1", &[i]);
            store.save_token("a:1", &[10 + i]);
        }
        let sessions: Vec<_> = std::iter::from_fn(|| store.take_session("a:1")).collect();
        assert_eq!(sessions, [[5], [4], [3], [2]]);
        assert_eq!(store.take_token("a:1"), Some(vec![15]));
        assert_eq!(store.take_session("b:1"), None);
    }

    #[test]
    fn the_server_heard_of_least_recently_is_forgotten() {
        let store = MemorySessionStore::new();
        for i in 0..=SERVERS {
            store.save_session(&format!("{i}"), b"s");
            store.save_session("first", b"s");
        }
        assert_eq!(store.lock().servers.len(), SERVERS);
        assert!(store.take_session("first").is_some());
        assert!(store.take_session("0").is_none());
    }
}
