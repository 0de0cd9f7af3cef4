//! What a link did, as a table for people and as JSON.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Options;
use super::delay_error::DelayError;
use super::direction::Tally;
use super::nat::NatTally;

/// What a link did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The scenario in full, as text.
    pub scenario: String,
    /// The server.
    pub to: SocketAddr,
    /// Where chance started from.
    pub seed: u64,
    /// Time from the first datagram to the end.
    pub seconds: f64,
    /// CPU time that the link used.
    pub cpu_seconds: f64,
    /// From clients to the server.
    pub up: WayReport,
    /// From the server to clients.
    pub down: WayReport,
    /// Sockets on the outside.
    pub nat: NatReport,
}

/// What one direction did; counts are of datagrams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WayReport {
    /// Came in.
    pub offered: u64,
    /// Came in, in bytes of IP packets.
    pub offered_bytes: u64,
    /// Left, copies included.
    pub delivered: u64,
    /// Left, in bytes of IP packets.
    pub delivered_bytes: u64,
    /// Lost one by one.
    pub lost: u64,
    /// Lost in bursts.
    pub lost_in_bursts: u64,
    /// Dropped because their number was listed.
    pub dropped_by_number: u64,
    /// Dropped because the queue was full.
    pub dropped_by_queue: u64,
    /// Dropped because they were longer than the MTU.
    pub dropped_by_mtu: u64,
    /// Swallowed by a black hole.
    pub dropped_by_blackhole: u64,
    /// Passed with flipped bits.
    pub corrupted: u64,
    /// Held back so that others overtook them.
    pub reordered: u64,
    /// Passed twice.
    pub duplicated: u64,
    /// Marked CE.
    pub marked: u64,
    /// Passed with another ECN field, marking apart.
    pub ecn_rewritten: u64,
    /// Longest queue, in packets.
    pub longest_queue_packets: u64,
    /// Longest queue, in bytes.
    pub longest_queue_bytes: u64,
    /// Dropped because the link had no memory for them.
    pub overruns: u64,
    /// Left, but the system refused to send them.
    pub refused: u64,
    /// How late they left.
    pub delay_error: DelayError,
}

/// What the sockets on the outside did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NatReport {
    /// Sockets that were made: one for each client, and again after a rebinding.
    pub bindings: u64,
    /// Rebindings.
    pub rebindings: u64,
    /// Datagrams for a socket that has no client any more, or from somebody else than the server.
    pub unknown: u64,
    /// Datagrams of clients for whom there was no socket.
    pub turned_away: u64,
    /// Datagrams that the kernel dropped because the link did not take them in time.
    pub kernel_drops: u64,
}

impl Report {
    pub(super) fn new(
        options: &Options,
        (elapsed, cpu): (Duration, Duration),
        [up, down]: [Tally<'_>; 2],
        nat: NatTally,
    ) -> Self {
        let NatTally { bindings, rebindings, unknown, turned_away, kernel_drops } = nat;
        Self {
            scenario: options.scenario.to_string(),
            to: options.to,
            seed: options.seed,
            seconds: elapsed.as_secs_f64(),
            cpu_seconds: cpu.as_secs_f64(),
            up: WayReport::new(&up),
            down: WayReport::new(&down),
            nat: NatReport { bindings, rebindings, unknown, turned_away, kernel_drops },
        }
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// As a table. Rows that are zero in both directions are left out, but for the first two.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{:<28}{:>14}{:>14}\n", "", "up", "down");
        for (index, (name, up, down)) in self.rows().into_iter().enumerate() {
            if index < 2 || up != "0" || down != "0" {
                // Writing to a String does not fail.
                let _ = writeln!(text, "{name:<28}{up:>14}{down:>14}");
            }
        }
        let NatReport { bindings, rebindings, unknown, turned_away, kernel_drops } = self.nat;
        let _ = writeln!(
            text,
            "{:.1} s, {:.1} s of CPU time; {bindings} outside sockets, {rebindings} rebindings",
            self.seconds, self.cpu_seconds
        );
        for (count, what) in [
            (unknown, "came from the server for an earlier binding, or from somebody else"),
            (turned_away, "came from clients beyond the most that there can be"),
            (kernel_drops, "were dropped by the kernel before the link could take them"),
        ] {
            if count > 0 {
                let _ = writeln!(text, "{count} datagrams {what}");
            }
        }
        text
    }

    fn rows(&self) -> Vec<(&'static str, String, String)> {
        let count = |name, of: fn(&WayReport) -> u64| {
            (name, of(&self.up).to_string(), of(&self.down).to_string())
        };
        let rate = |way: &WayReport| {
            let bits = way.delivered_bytes as f64 * 8.0;
            let rate = bits / self.seconds.max(f64::MIN_POSITIVE) / 1e6;
            if way.delivered == 0 { "0".to_owned() } else { format!("{rate:.1} Mbit/s") }
        };
        let late = |name, of: fn(&DelayError) -> f64| {
            let text = |way: &WayReport| match way.delay_error.count {
                0 => "0".to_owned(),
                _ => format!("{:.1} us", of(&way.delay_error)),
            };
            (name, text(&self.up), text(&self.down))
        };
        vec![
            count("datagrams in", |way| way.offered),
            count("datagrams out", |way| way.delivered),
            ("rate out", rate(&self.up), rate(&self.down)),
            count("lost", |way| way.lost),
            count("lost in bursts", |way| way.lost_in_bursts),
            count("dropped by number", |way| way.dropped_by_number),
            count("dropped by the queue", |way| way.dropped_by_queue),
            count("dropped by the MTU", |way| way.dropped_by_mtu),
            count("dropped by a black hole", |way| way.dropped_by_blackhole),
            count("corrupted", |way| way.corrupted),
            count("reordered", |way| way.reordered),
            count("duplicated", |way| way.duplicated),
            count("marked CE", |way| way.marked),
            count("ECN field rewritten", |way| way.ecn_rewritten),
            count("longest queue, packets", |way| way.longest_queue_packets),
            count("longest queue, bytes", |way| way.longest_queue_bytes),
            count("dropped for want of memory", |way| way.overruns),
            count("refused by the system", |way| way.refused),
            late("too late by, mean", |error| error.mean_us),
            late("too late by, 50 %", |error| error.p50_us),
            late("too late by, 90 %", |error| error.p90_us),
            late("too late by, 99 %", |error| error.p99_us),
            late("too late by, 99.9 %", |error| error.p999_us),
            late("too late by, worst", |error| error.max_us),
        ]
    }
}

impl WayReport {
    fn new(tally: &Tally<'_>) -> Self {
        let link = tally.link;
        Self {
            offered: link.offered,
            offered_bytes: link.offered_bytes,
            delivered: link.delivered,
            delivered_bytes: link.delivered_bytes,
            lost: link.lost,
            lost_in_bursts: link.lost_in_bursts,
            dropped_by_number: link.dropped_by_number,
            dropped_by_queue: link.dropped_by_queue,
            dropped_by_mtu: link.dropped_by_mtu,
            dropped_by_blackhole: link.dropped_by_blackhole,
            corrupted: link.corrupted,
            reordered: link.reordered,
            duplicated: link.duplicated,
            marked: link.marked,
            ecn_rewritten: link.ecn_rewritten,
            longest_queue_packets: link.longest_queue_packets,
            longest_queue_bytes: link.longest_queue_bytes,
            overruns: tally.overruns,
            refused: tally.refused,
            delay_error: tally.delay_error,
        }
    }
}

#[cfg(test)]
mod tests {
    use quicket_engine::time::Time;
    use quicket_sim::rng::SimRng;
    use quicket_wire::EcnCodepoint;

    use super::super::direction::{Burst, Direction};
    use super::*;

    fn report() -> Report {
        let scenario = "delay=1ms; up drop=2".parse().unwrap();
        let options = Options::new("127.0.0.1:9".parse().unwrap(), scenario);
        let (up, down) = options.scenario.channels(Time::ZERO, &SimRng::new(1));
        let mut up = Direction::<()>::new(up, 28, 1000);
        let down = Direction::<()>::new(down, 28, 1000);
        for _ in 0..3 {
            up.offer(Time::ZERO, (), EcnCodepoint::NotEct, &mut [0; 100]);
        }
        let (mut burst, later) = (Burst::new(), Time::from_nanos(1_250_000));
        while up.take(later, &mut burst) {
            up.has_left(later, &burst);
        }
        let nat = NatTally { bindings: 1, kernel_drops: 7, ..NatTally::default() };
        let times = (Duration::from_secs(2), Duration::from_secs(1));
        Report::new(&options, times, [up.tally(), down.tally()], nat)
    }

    #[test]
    fn table_shows_what_happened_and_nothing_else() {
        let table = report().table();
        for row in [
            "datagrams in                             3             0",
            "datagrams out                            2             0",
            "dropped by number                        1             0",
            "too late by, worst                250.0 us             0",
            "2.0 s, 1.0 s of CPU time; 1 outside sockets, 0 rebindings",
            "7 datagrams were dropped by the kernel",
        ] {
            assert!(table.contains(row), "{row}\n{table}");
        }
        assert!(!table.contains("corrupted") && !table.contains("memory"), "{table}");
    }

    #[test]
    fn json_has_all_of_it() {
        let report = report();
        assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
        let value: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(value["up"]["dropped_by_number"], 1);
        assert_eq!(value["scenario"], "delay=1ms; up drop=2");
    }
}
