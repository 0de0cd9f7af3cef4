//! Ciphers and handshakes that answer late, as when they run on another processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quicket_sim::app::Workload;
use quicket_sim::offload::{LateCrypto, LateTls};
use quicket_sim::sim::PairOptions;
use quicket_sim::test_crypto::TestCrypto;

use crate::support::{P2P, ms, pair, secs};

/// Replaces both ciphers by late ones, and returns how often each was not ready.
fn late_ciphers(options: &mut PairOptions, client: u64, server: u64) -> [Arc<AtomicU64>; 2] {
    let late = |every| LateCrypto::new(Arc::new(TestCrypto), every, options.clock.clone());
    let (client, server) = (late(client), late(server));
    let counts = [client.refused(), server.refused()];
    options.client_crypto = Arc::new(client);
    options.server_crypto = Arc::new(server);
    counts
}

#[test]
fn late_ciphers_lose_nothing() {
    for every in [2, 3, 7, 50] {
        for scenario in ["delay=10ms", "delay=10ms loss=3% reorder=5%,5ms"] {
            let mut options = PairOptions::new(scenario);
            let counts = late_ciphers(&mut options, every, every);
            let work = Workload { response_len: (0, 60_000), ..Workload::requests(20, 4) };
            pair(options).transfer(work, secs(60));
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 0));
        }
    }
}

#[test]
fn late_ciphers_and_key_updates_get_along() {
    let mut options = PairOptions::new(P2P);
    late_ciphers(&mut options, 3, 2);
    let work =
        Workload { response_len: (0, 60_000), key_update_every: 3, ..Workload::requests(40, 4) };
    pair(options).transfer(work, secs(60));
}

#[test]
fn late_handshakes_complete() {
    for (client, server) in [(0, 50), (50, 0), (7, 300), (1_000, 1_000)] {
        let mut options = PairOptions::new("delay=10ms");
        let late = |tls, delay| Arc::new(LateTls::new(tls, options.clock.clone(), delay));
        let (client, server) = (
            late(options.client.tls.clone(), ms(client)),
            late(options.server.tls.clone(), ms(server)),
        );
        options.client.tls = client;
        options.server.tls = server;
        pair(options).transfer(Workload::requests(3, 3), secs(9));
    }
}
