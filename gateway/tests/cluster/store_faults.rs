//! What a store, and the way to it, may do: sessions are resumed all the same, and nothing is taken twice.

use std::path::Path;
use std::time::Duration;

use super::proxy::{Fault, Proxy};
use super::site::{Cluster, REFUSED, TAKEN};
use super::store::Store;

/// Clients that come while something is wrong.
const VISITS: usize = 8;

/// Two gateways, each with a way of its own to one store, and what clients have.
struct Trial {
    store: Store,
    ways: Vec<Proxy>,
    site: Cluster,
    tickets: Vec<Vec<u8>>,
    /// Tickets that brought early data.
    used: Vec<Vec<u8>>,
    /// How many came while something was wrong, and all of them were resumed.
    came: usize,
    _dir: tempfile::TempDir,
}

impl Trial {
    fn begin() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::start(dir.path(), "store");
        let way = |name: &str| Proxy::start(dir.path().join(name), &store.socket());
        let ways = vec![way("way0"), way("way1")];
        let paths: Vec<&Path> = ways.iter().map(Proxy::path).collect();
        let site = Cluster::start(&paths, "deadline_ms = 60");
        store.age();
        site.until_all_take();
        let (tickets, used) = (Vec::new(), Vec::new());
        Self { store, ways, site, tickets, used, came: 0, _dir: dir }
    }

    fn ticket(&mut self) -> Vec<u8> {
        if self.tickets.is_empty() {
            self.tickets = self.site.tickets(0);
        }
        self.tickets.pop().unwrap()
    }

    /// All is well: clients have early data taken, at any gateway.
    fn takes(&mut self) {
        self.site.until_all_take();
        // Those of a store that was emptied are of another one.
        self.tickets.clear();
        for gateway in [0, 1] {
            let ticket = self.ticket();
            assert_eq!(self.site.visit(gateway, &ticket), TAKEN, "{gateway}");
            self.used.push(ticket);
        }
    }

    /// Clients come to a gateway that cannot tell: all go on without early data, also those with tickets that were used.
    fn refuses(&mut self, gateway: usize) {
        for number in 0..VISITS {
            let ticket = match self.used.last().filter(|_| number % 2 == 1) {
                Some(used) => used.clone(),
                None => self.ticket(),
            };
            assert_eq!(self.site.visit(gateway, &ticket), REFUSED, "{number}");
            self.came += 1;
        }
    }

    /// After that it is as young as an empty one, until its time has passed; what was used stays used by what is known.
    fn is_young(&mut self, knows_uses: bool) {
        (0..2).for_each(|gateway| self.site.until_it_takes(gateway, false));
        self.refuses(0);
        self.refuses(1);
        self.store.age();
        self.takes();
        if knows_uses {
            let used = self.used[0].clone();
            (0..2).for_each(|gateway| assert_eq!(self.site.visit(gateway, &used), REFUSED));
        }
    }

    fn refused(&self, gateway: usize, why: &str) -> u64 {
        self.site.counter(gateway, "early_data", why)
    }
}

#[test]
fn a_way_that_is_slow_cut_or_garbled_costs_early_data_alone() {
    let mut trial = Trial::begin();
    trial.takes();
    for (fault, why) in [
        (Fault::Slow(Duration::from_millis(150)), "no_answer"),
        (Fault::Silent, "no_answer"),
        (Fault::Gone, "breaker_open"),
        (Fault::Garbage, "breaker_open"),
    ] {
        let before = trial.refused(0, why);
        trial.ways[0].set(fault);
        trial.refuses(0);
        assert!(trial.refused(0, why) > before, "{fault:?}");
        // The other one has the store, and goes on.
        let ticket = trial.ticket();
        assert_eq!(trial.site.visit(1, &ticket), TAKEN, "{fault:?}");
        trial.used.push(ticket);
        trial.ways[0].set(Fault::None);
        // What was used at the one meanwhile is used at the other: the store knows.
        trial.site.until_it_takes(0, true);
        let used = trial.used.last().unwrap().clone();
        assert_eq!(trial.site.visit(0, &used), REFUSED, "{fault:?}");
        trial.takes();
    }
    assert_eq!(trial.came, 4 * VISITS);
}

#[test]
fn a_store_that_lies_is_full_or_evicts_is_not_believed() {
    let mut trial = Trial::begin();
    trial.takes();
    (0..2).for_each(|way| trial.ways[way].set(Fault::Yes));
    (0..2).for_each(|gateway| trial.site.until_it_takes(gateway, false));
    trial.refuses(0);
    trial.refuses(1);
    assert!(trial.refused(0, "lies") + trial.refused(1, "lies") > 0);
    (0..2).for_each(|way| trial.ways[way].set(Fault::None));
    trial.takes();
    // There is no room, and it says so.
    assert_eq!(trial.store.say(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]), "OK");
    assert_eq!(trial.store.say(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    trial.refuses(0);
    trial.refuses(1);
    assert!(trial.refused(0, "failed") > 0);
    assert_eq!(trial.store.say(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    trial.takes();
    // There is no room, and it makes some.
    assert_eq!(trial.store.say(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]), "OK");
    assert_eq!(trial.store.say(&["CONFIG", "SET", "maxmemory", "100mb"]), "OK");
    trial.takes();
    assert_eq!(trial.store.say(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    let evicted = |store: &Store| {
        let stats = store.say(&["INFO", "stats"]);
        !stats.contains("evicted_keys:0\r") && !stats.contains("evicted_keys:0\n")
    };
    // It evicts when it is asked for something.
    let ticket = trial.ticket();
    assert_eq!(trial.site.visit(0, &ticket), REFUSED);
    assert!(evicted(&trial.store));
    assert_eq!(trial.store.say(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    trial.is_young(false);
}

#[test]
fn a_store_that_is_flushed_or_started_again_is_an_empty_one() {
    let mut trial = Trial::begin();
    trial.takes();
    assert_eq!(trial.store.say(&["FLUSHALL"]), "OK");
    // The first answer says so.
    let used = trial.used.pop().unwrap();
    let other = if trial.site.visit(0, &used) == REFUSED { 1 } else { panic!("taken twice") };
    assert_eq!(trial.site.visit(other, &used), REFUSED);
    trial.is_young(false);
    trial.store.restart();
    trial.is_young(false);
    // It comes up with what it had saved, and does not know what came after that.
    assert_eq!(trial.store.say(&["SAVE"]), "OK");
    trial.takes();
    trial.store.restart();
    trial.is_young(false);
}

#[test]
fn a_replica_that_becomes_the_master_is_an_empty_store() {
    let mut trial = Trial::begin();
    trial.takes();
    let dir = tempfile::tempdir().unwrap();
    let next = Store::start(dir.path(), "next");
    let port = quicket_testing::free_port().to_string();
    assert_eq!(trial.store.say(&["CONFIG", "SET", "port", &port]), "OK");
    assert_eq!(next.say(&["REPLICAOF", "127.0.0.1", &port]), "OK");
    quicket_testing::until("a copy", || {
        next.say(&["INFO", "replication"]).contains("master_link_status:up")
    });
    // A replica takes no writes, and knows only what it was told.
    trial.ways.iter().for_each(|way| way.lead_to(&next.socket()));
    (0..2).for_each(|gateway| trial.site.until_it_takes(gateway, false));
    let before = trial.refused(0, "replica");
    quicket_testing::until("it is known as a replica", || {
        let ticket = trial.ticket();
        assert_eq!(trial.site.visit(0, &ticket), REFUSED);
        trial.refused(0, "replica") > before
    });
    trial.refuses(0);
    assert_eq!(next.say(&["REPLICAOF", "NO", "ONE"]), "OK");
    trial.store = next;
    trial.is_young(true);
}
