//! Which server is asked.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::header;
use http::request::Parts;
use quicket_steering::{Backend, HashKey, Maglev};

use crate::config::{Balance, HashBy};

/// The same for all gateways, so that they choose alike.
const KEY: HashKey = HashKey::new(*b"quicket\0");
/// How many servers a request is offered to by its hash, before any that is well takes it.
const OFFERS: u8 = 16;

/// What a choice depends on beside the servers.
pub(super) struct Asking<'a> {
    pub(super) client: IpAddr,
    pub(super) parts: &'a Parts,
    /// Servers that were asked already.
    pub(super) asked: &'a [usize],
}

/// Chooses among servers, which it knows by their numbers.
#[derive(Debug)]
pub(super) struct Chooser {
    balance: Balance,
    weights: Vec<u32>,
    /// Begun, or taken over from the configuration before, with the first choice.
    turns: OnceLock<Arc<Turns>>,
    table: Option<(Maglev, HashBy)>,
}

/// Whose turn it is.
#[derive(Debug)]
struct Turns {
    /// What each server is owed, so that those with weights take turns evenly.
    owed: Mutex<Vec<i64>>,
    /// Whose turn it is among those that are equal.
    turn: AtomicUsize,
}

impl Chooser {
    /// Chooses among as many servers as there are names.
    pub(super) fn new(
        balance: Balance,
        hash_by: HashBy,
        names: &[String],
        weights: Vec<u32>,
    ) -> Self {
        let backends: Vec<Backend<'_>> = names
            .iter()
            .zip(&weights)
            .map(|(name, &weight)| Backend { name: name.as_bytes(), weight })
            .collect();
        let hash_by = match balance {
            Balance::ConsistentHash => Some(hash_by),
            Balance::ClientAddress => Some(HashBy::ClientAddress),
            _ => None,
        };
        // Where no server has a weight, there is no table and no choice.
        let table = hash_by.and_then(|by| Maglev::new(&backends).ok().map(|table| (table, by)));
        Self { balance, weights, turns: OnceLock::new(), table }
    }

    fn turns(&self) -> &Arc<Turns> {
        self.turns.get_or_init(|| {
            let owed = Mutex::new(vec![0; self.weights.len()]);
            Arc::new(Turns { owed, turn: AtomicUsize::new(0) })
        })
    }

    /// Goes on where another one is that chooses among the same servers, if they have the same weights.
    pub(super) fn take_over(&self, before: &Self) {
        if self.weights == before.weights {
            // Where requests came already, they have had their turns.
            let _ = self.turns.set(Arc::clone(before.turns()));
        }
    }

    /// A server other than those that were asked. One that is not well is asked if there is no other; one
    /// without weight never is.
    pub(super) fn choose(
        &self,
        asking: &Asking<'_>,
        is_well: impl Fn(usize) -> bool,
        active: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let may = |&at: &usize| self.weights[at] > 0 && !asking.asked.contains(&at);
        let fresh = || (0..self.weights.len()).filter(may);
        let well: Vec<usize> = fresh().filter(|&at| is_well(at)).collect();
        let among = if well.is_empty() { fresh().collect() } else { well };
        match (&self.table, self.balance) {
            (Some((table, by)), _) => self.by_hash(table, &key(by, asking), &among),
            (None, Balance::LeastRequests) => self.with_least(&among, active),
            _ => self.in_turn(&among),
        }
    }

    /// Each is owed its weight, and who is owed most pays for all.
    fn in_turn(&self, among: &[usize]) -> Option<usize> {
        let mut owed = self.turns().owed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = 0;
        for &at in among {
            let weight = i64::from(self.weights[at]);
            owed[at] += weight;
            total += weight;
        }
        // Of those that are owed the same the first one.
        let chosen = among.iter().copied().rev().max_by_key(|&at| owed[at])?;
        owed[chosen] -= total;
        Some(chosen)
    }

    /// The fewest requests under way, as weights have it.
    fn with_least(&self, among: &[usize], active: impl Fn(usize) -> usize) -> Option<usize> {
        // Rotated, so that those that are equal take turns.
        let turn = self.turns().turn.fetch_add(1, Ordering::Relaxed).checked_rem(among.len())?;
        let turns = among[turn..].iter().chain(&among[..turn]).copied();
        turns.min_by(|&one, &other| {
            let load = |at: usize, weight: usize| {
                (active(at) as u64 + 1).saturating_mul(u64::from(self.weights[weight]))
            };
            load(one, other).cmp(&load(other, one))
        })
    }

    /// When a server leaves, only its requests go elsewhere, and evenly to all others.
    fn by_hash(&self, table: &Maglev, key: &[u8], among: &[usize]) -> Option<usize> {
        let mut salted = key.to_vec();
        salted.push(0);
        for offer in 0..OFFERS {
            if let Some(salt) = salted.last_mut() {
                *salt = offer;
            }
            let at = table.pick(KEY.hash(&salted));
            if among.contains(&at) {
                return Some(at);
            }
        }
        let at = (KEY.hash(key) as usize).checked_rem(among.len())?;
        among.get(at).copied()
    }
}

/// What the same server is for. Where a request lacks it, the client's address counts.
fn key(by: &HashBy, asking: &Asking<'_>) -> Vec<u8> {
    let headers = &asking.parts.headers;
    let found = match by {
        HashBy::ClientAddress => None,
        HashBy::Path => Some(asking.parts.uri.path().as_bytes()),
        HashBy::Header(name) => headers.get(name.as_str()).map(http::HeaderValue::as_bytes),
        HashBy::Cookie(name) => headers
            .get_all(header::COOKIE)
            .iter()
            .flat_map(|value| value.as_bytes().split(|&byte| byte == b';'))
            .find_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")),
    };
    found.map_or_else(|| asking.client.to_canonical().to_string().into_bytes(), <[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn chooser(balance: Balance, hash_by: HashBy, weights: &[u32]) -> Chooser {
        let names: Vec<String> = (0..weights.len()).map(|at| format!("http://s{at}")).collect();
        Chooser::new(balance, hash_by, &names, weights.to_vec())
    }

    fn choose(
        chooser: &Chooser,
        request: &Request<()>,
        last: u8,
        asked: &[usize],
    ) -> Option<usize> {
        let (parts, ()) = request.clone().into_parts();
        let asking = Asking { client: IpAddr::from([192, 0, 2, last]), parts: &parts, asked };
        chooser.choose(&asking, |_| true, |_| 0)
    }

    fn any() -> Request<()> {
        Request::new(())
    }

    #[test]
    fn servers_take_turns_as_their_weights_say() {
        let turns = |weights: &[u32]| -> Vec<usize> {
            let chooser = chooser(Balance::RoundRobin, HashBy::ClientAddress, weights);
            (0..8).map(|_| choose(&chooser, &any(), 1, &[]).unwrap()).collect()
        };
        assert_eq!(turns(&[1, 1, 1, 1]), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(turns(&[3, 1]), [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(turns(&[0, 1]), [1; 8]);
    }

    #[test]
    fn the_one_with_the_least_to_do_is_chosen() {
        let chooser = chooser(Balance::LeastRequests, HashBy::ClientAddress, &[1, 1, 4, 1]);
        let (parts, ()) = any().into_parts();
        let with = |asked: &[usize], active: [usize; 4]| {
            let asking = Asking { client: IpAddr::from([192, 0, 2, 1]), parts: &parts, asked };
            chooser.choose(&asking, |_| true, |at| active[at])
        };
        assert!((0..8).all(|_| with(&[], [1, 1, 0, 1]) == Some(2)));
        assert_ne!(with(&[2], [1, 1, 0, 1]), Some(2), "it was asked already");
        assert!((0..8).all(|_| with(&[], [1, 1, 6, 1]) == Some(2)), "it takes four times as much");
        assert!((0..8).all(|_| with(&[], [1, 1, 8, 1]) != Some(2)));
    }

    #[test]
    fn a_client_keeps_its_server_until_that_is_gone() {
        let chooser = chooser(Balance::ClientAddress, HashBy::ClientAddress, &[1; 4]);
        let before: Vec<_> =
            (0..=255).map(|last| choose(&chooser, &any(), last, &[]).unwrap()).collect();
        for at in 0..4 {
            let count = before.iter().filter(|&&chosen| chosen == at).count();
            assert!((32..128).contains(&count), "server {at} has {count} of 256 clients");
        }
        for (last, &before) in before.iter().enumerate() {
            let after = choose(&chooser, &any(), last as u8, &[3]).unwrap();
            assert!(after == before || before == 3);
        }
    }

    #[test]
    fn what_is_hashed_is_what_the_file_says() {
        let same = |by: HashBy, one: Request<()>, other: Request<()>| {
            let chooser = chooser(Balance::ConsistentHash, by, &[1; 100]);
            choose(&chooser, &one, 1, &[]) == choose(&chooser, &other, 2, &[])
        };
        let header =
            |name: &str, value: &str| Request::get("/a").header(name, value).body(()).unwrap();
        assert!(same(HashBy::Path, header("x", "1"), header("x", "2")));
        let by = || HashBy::Header("x-user".to_owned());
        assert!(same(by(), header("x-user", "1"), header("x-user", "1")));
        assert!(!same(by(), header("x-user", "1"), header("x-user", "2")));
        assert!(!same(by(), any(), any()), "the client's address counts");
        let by = || HashBy::Cookie("id".to_owned());
        assert!(same(by(), header("cookie", "a=b; id=7"), header("cookie", "id=7; a=c")));
        assert!(!same(by(), header("cookie", "xid=7"), header("cookie", "xid=7")));
    }

    #[test]
    fn servers_that_fail_are_left_out_unless_all_do() {
        for balance in [Balance::RoundRobin, Balance::LeastRequests, Balance::ClientAddress] {
            let chooser = chooser(balance, HashBy::ClientAddress, &[1; 4]);
            let (parts, ()) = any().into_parts();
            let with = |asked: &[usize]| {
                let asking = Asking { client: IpAddr::from([192, 0, 2, 1]), parts: &parts, asked };
                chooser.choose(&asking, |at| at == 3, |_| 0)
            };
            assert!((0..8).all(|_| with(&[]) == Some(3)));
            assert!(with(&[3]).is_some(), "there is no other");
            assert_eq!(with(&[0, 1, 2, 3]), None);
        }
    }
}
