//! A site in virtual time: gateways with the product's own decisions, clients that come back, a store with its failures,
//! and somebody who records first flights and sends them again, to any gateway, at any time.
//!
//! `ten_million_clients_of_a_thousand_gateways` is the large one; it prints what came of it:
//!
//! ```text
//! cargo test --release -p quicket-register --test simulation -- --ignored --nocapture
//! ```

mod random;
mod site;
mod store;
mod tally;

use site::{Habits, Scenario, Site};
use store::Event;

const MINUTE: u64 = 60_000;

fn habits(clients: usize) -> Habits {
    // A fifth comes back three times in an hour, two fifths once, and the rest once in a day.
    Habits { clients, kinds: vec![(20, 20 * MINUTE), (40, 60 * MINUTE), (40, 24 * 60 * MINUTE)] }
}

/// What may happen to a store, spread over an hour. Keys are rotated four times.
fn failures() -> Vec<(u64, Event)> {
    vec![
        (4 * MINUTE, Event::Rotate),
        (6 * MINUTE, Event::RestartEmpty),
        (12 * MINUTE, Event::Down { for_ms: 30_000 }),
        (16 * MINUTE, Event::Rotate),
        (18 * MINUTE, Event::Partition { percent: 30, for_ms: 60_000 }),
        (22 * MINUTE, Event::FailOver { split_percent: 10, for_ms: 90_000 }),
        (30 * MINUTE, Event::Rotate),
        (31 * MINUTE, Event::Evict { part: 3 }),
        (37 * MINUTE, Event::Slow { ms: 20, for_ms: 60_000 }),
        (41 * MINUTE, Event::Flush),
        (46 * MINUTE, Event::RestartFromFile { lost_ms: 60_000 }),
        (51 * MINUTE, Event::ClockJump { ms: 120_000, for_ms: 60_000 }),
        (53 * MINUTE, Event::Rotate),
        (56 * MINUTE, Event::FailOver { split_percent: 40, for_ms: 60_000 }),
    ]
}

fn scenario(seed: u64, gateways: usize, clients: usize) -> Scenario {
    Scenario {
        seed,
        gateways,
        habits: habits(clients),
        minutes: 60,
        replicas: 1,
        store_replicas: 1,
        deadline: 5,
        events: failures(),
        recorded_one_in: 50,
    }
}

#[test]
fn without_failures_nearly_all_early_data_is_taken() {
    for seed in 1..=2 {
        let quiet = vec![(20 * MINUTE, Event::Rotate), (40 * MINUTE, Event::Rotate)];
        // Whoever is faster than the client uses up its ticket: one in 800 here.
        let scenario =
            Scenario { events: quiet, recorded_one_in: 200, ..scenario(seed, 30, 60_000) };
        let tally = Site::new(scenario).run();
        assert!(tally.returns > 40_000 && tally.replays > 5_000, "seed {seed}: {tally}");
        assert!(tally.share() > 0.995, "seed {seed}: {tally}");
        assert_eq!(tally.replays_taken, 0, "seed {seed}: {tally}");
    }
}

#[test]
fn no_replay_is_taken_whatever_happens_to_the_store() {
    for seed in 1..=3 {
        let mut scenario = scenario(seed, 30, 60_000);
        for minute in [20, 55] {
            scenario.events.push((minute * MINUTE, Event::Restart { percent: 50 }));
        }
        let tally = Site::new(scenario).run();
        assert!(tally.replays > 10_000, "seed {seed}: {tally}");
        assert_eq!(tally.replays_taken, 0, "seed {seed}: {tally}");
        // The store was an empty one for half of the time.
        assert!(tally.share() > 0.4, "seed {seed}: {tally}");
        for why in ["used", "seen", "no_answer", "breaker_open", "young", "changed", "replicas"] {
            assert!(tally.refused(why) > 0, "seed {seed}: {why} never came: {tally}");
        }
    }
}

/// That the simulation would find it: a master that was replaced goes on, where nobody has said that it has a replica.
#[test]
fn two_masters_for_long_are_found_where_the_operator_has_not_named_replicas() {
    let split = Event::FailOver { split_percent: 50, for_ms: 10 * MINUTE };
    let events = vec![(5 * MINUTE, split)];
    let scenario = |store_replicas, replicas| Scenario {
        replicas,
        store_replicas,
        minutes: 20,
        events: events.clone(),
        recorded_one_in: 5,
        ..scenario(7, 20, 60_000)
    };
    // The master that was replaced keeps one of two.
    for (there_are, named) in [(1, 0), (2, 1)] {
        let without = Site::new(scenario(there_are, named)).run();
        assert!(without.replays_taken > 0, "{named} of {there_are}: {without}");
    }
    for all in [1, 2] {
        let with = Site::new(scenario(all, all)).run();
        assert_eq!(with.replays_taken, 0, "{all}: {with}");
    }
}

#[test]
#[ignore = "it takes two minutes; ./test has the short ones"]
fn ten_million_clients_of_a_thousand_gateways() {
    let large = || scenario(1, 1_000, 10_000_000);
    // Each of the failures once in three hours; and an hour without any.
    let events = failures().into_iter().map(|(at, event)| (3 * at, event)).collect();
    let failing = Scenario { minutes: 180, events, recorded_one_in: 200, ..large() };
    let rotations = [10, 35].map(|at| (at * MINUTE, Event::Rotate)).to_vec();
    let quiet = Scenario { events: rotations, recorded_one_in: 2_000, ..large() };
    for (what, scenario, least) in [("failures", failing, 0.75), ("none", quiet, 0.98)] {
        let begun = std::time::Instant::now();
        let tally = Site::new(scenario).run();
        println!("{what}: {tally}in {:.0} s of this machine", begun.elapsed().as_secs_f64());
        assert_eq!(tally.replays_taken, 0);
        // One gateway in a hundred has a clock that is wrong, and takes none.
        assert!(tally.share() > least);
    }
}
