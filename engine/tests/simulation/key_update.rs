//! Key updates: RFC 9001, Section 6.

use quicket_sim::app::Workload;
use quicket_sim::sim::PairOptions;

use crate::support::{CLEAN, P2P, establish, ms, ok, pair, secs};

fn updating(requests: u64, every: u64) -> Workload {
    Workload {
        response_len: (0, 20_000),
        key_update_every: every,
        ..Workload::requests(requests, 3)
    }
}

#[test]
fn both_sides_follow_an_update() {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.connect(Workload::none());
    establish(&mut pair);
    for round in 1..=5 {
        let now = pair.now();
        let at_client = round % 2 == 0;
        let session = if at_client { pair.at_client() } else { pair.at_server() };
        session.connection.update_keys(now).unwrap();
        // RFC 9001, Section 6.1: not again before it is acknowledged.
        assert!(session.connection.update_keys(now).is_err());
        session.connection.ping();
        ok(pair.sim.run_for(secs(1)));
        // Each side needs an acknowledgment in the new phase before it may update again.
        pair.at_client().connection.ping();
        pair.at_server().connection.ping();
        ok(pair.sim.run_for(secs(3)));
        for host in [pair.client, pair.server] {
            let stats = pair.sim.host_mut(host).session().connection.stats();
            assert_eq!(stats.counters.key_updates, round);
        }
    }
    ok(pair.close());
}

#[test]
fn updates_in_the_middle_of_transfers_lose_nothing() {
    for scenario in [
        P2P.to_owned(),
        format!("{P2P}; loss=5%"),
        format!("{P2P}; reorder=20%,40ms"),
        format!("{P2P}; duplicate=20% corrupt=2%"),
    ] {
        let mut options = PairOptions::new(&scenario);
        options.server_work =
            Workload { key_update_every: 2, unidirectional: 1, ..Workload::requests(30, 2) };
        let mut pair = pair(options);
        pair.connect(updating(60, 2));
        establish(&mut pair);
        ok(pair.run(secs(60)));
        let updates = pair.at_client().connection.stats().counters.key_updates;
        assert!(updates >= 3, "{updates} updates on {scenario}");
        ok(pair.close());
    }
}

/// RFC 9001, Section 6.6: long before a key is used up, it is replaced.
#[test]
fn keys_are_replaced_after_so_many_packets() {
    let options = PairOptions::new("delay=5ms rate=100mbit queue=200 mtu=1500")
        .server_transport(|t| t.key_update_after = 200);
    let mut pair = pair(options);
    pair.connect(Workload::download(10_000_000));
    ok(pair.run(secs(30)));
    let counters = pair.at_server().connection.stats().counters;
    assert!(counters.key_updates >= 4, "{counters:?}");
    let followed = pair.at_client().connection.stats().counters.key_updates;
    assert!(counters.key_updates - followed <= 1, "{followed} of {}", counters.key_updates);
    ok(pair.close());
}

#[test]
fn both_sides_may_update_at_the_same_time() {
    for offset in 0..8 {
        let mut pair = pair(PairOptions::new("delay=20ms"));
        pair.connect(Workload { response_len: (1_000, 1_000), ..Workload::requests(400, 1) });
        establish(&mut pair);
        let (client, server) = (pair.client, pair.server);
        for (host, delay) in [(client, 100), (server, 100 + 10 * offset)] {
            pair.sim.after(ms(delay), move |sim| {
                let now = sim.now();
                // Refused where the other side's update has come and is not acknowledged.
                let done = sim.host_mut(host).session().connection.update_keys(now);
                assert!(done.is_ok() || host == server && offset > 0);
            });
        }
        ok(pair.run(secs(60)));
        ok(pair.close());
    }
}
