//! Which servers take connections: what the operator wants and what they report.

use std::collections::HashMap;

use quicket_steering::ServerId;

use crate::config::{Config, Server, Wish};
use crate::report::{Report, ReportError};

/// How far the clock of a server may be from ours, in milliseconds.
const CLOCK_ERROR: u64 = 30_000;

/// What becomes of datagrams for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It takes connections.
    Serving,
    /// It keeps those that it has.
    Draining,
    /// What names it still goes there; flows that were given to it go elsewhere.
    Down,
}

impl Standing {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Down => "down",
        }
    }
}

/// The last report of a server.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// When it came, by our clock.
    at: u64,
    report: Report,
}

/// What servers have reported. Times are milliseconds of a clock that only grows.
#[derive(Debug)]
pub struct Health {
    since: u64,
    /// Only of servers in the file.
    heard: HashMap<ServerId, Heard>,
}

impl Health {
    /// Nobody has reported yet, and all may take until `now` and a timeout to do so.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self { since: now, heard: HashMap::new() }
    }

    /// Takes note of a report; `wall` is our clock in milliseconds since 1970.
    ///
    /// # Errors
    /// When it is of no server of the file, or from another time.
    pub fn hear(
        &mut self,
        report: Report,
        config: &Config,
        now: u64,
        wall: u64,
    ) -> Result<(), ReportError> {
        if !config.servers.iter().any(|server| server.ids.contains(&report.id)) {
            return Err(ReportError::Unknown);
        }
        let before = self.heard.get(&report.id);
        let replayed = before.is_some_and(|before| report.time <= before.report.time);
        if replayed || report.time.abs_diff(wall) > CLOCK_ERROR {
            return Err(ReportError::Stale);
        }
        self.heard.insert(report.id, Heard { at: now, report });
        Ok(())
    }

    /// Forgets servers that are not in the file any more.
    pub fn keep_only(&mut self, config: &Config) {
        self.heard.retain(|id, _| config.servers.iter().any(|server| server.ids.contains(id)));
    }

    /// What becomes of datagrams for a server, and its weight in hundredths of those of the file.
    #[must_use]
    pub fn of(&self, server: &Server, timeout: u32, now: u64) -> (Standing, u32) {
        let timeout = u64::from(timeout) * 1000;
        let heard = server.ids.iter().filter_map(|id| self.heard.get(id)).max_by_key(|one| one.at);
        let last = heard.map_or(self.since, |heard| heard.at);
        let silent = now.saturating_sub(last) > timeout;
        // What was said long ago does not hold any more.
        let report = heard.filter(|_| !silent).map(|heard| heard.report);
        let weight = u32::from(server.weight) * report.map_or(100, |said| said.percent.into());
        let standing = match server.wish {
            Wish::Down => Standing::Down,
            _ if server.must_report && silent => Standing::Down,
            Wish::Drain => Standing::Draining,
            Wish::Serve if report.is_some_and(|said| said.draining) => Standing::Draining,
            Wish::Serve => Standing::Serving,
        };
        (standing, weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: u64 = 1_700_000_000_000;

    fn config() -> Config {
        Config::parse(
            "listen 192.0.2.1:443\nreports 10.0.0.9:1\n\
             server a 10.0.0.1 id 01 weight 3 report\nserver b 10.0.0.2 id 02\n\
             server c 10.0.0.3 id 03 drain report\nserver d 10.0.0.4 id 04 down\n",
        )
        .unwrap()
    }

    fn report(id: u8, time: u64, draining: bool, percent: u8) -> Report {
        Report { id: ServerId::new(&[id]).unwrap(), time: WALL + time, draining, percent }
    }

    #[test]
    fn a_server_is_what_operator_and_reports_say_whichever_is_worse() {
        use Standing::{Down, Draining, Serving};
        let config = config();
        let mut health = Health::new(0);
        let all = |health: &Health, now: u64| {
            [0, 1, 2, 3].map(|at| health.of(&config.servers[at], 3, now))
        };
        let begin = [(Serving, 300), (Serving, 100), (Draining, 100), (Down, 100)];
        assert_eq!(all(&health, 3000), begin, "all have a while to report");
        assert_eq!(all(&health, 3001)[..3], [(Down, 300), (Serving, 100), (Down, 100)]);
        for id in [1, 3] {
            health.hear(report(id, 0, false, 50), &config, 4000, WALL).unwrap();
        }
        health.hear(report(2, 0, true, 100), &config, 4000, WALL).unwrap();
        let said = [(Serving, 150), (Draining, 100), (Draining, 50), (Down, 100)];
        assert_eq!(all(&health, 7000), said);
        // Who has to report is down in silence; what others said is forgotten.
        assert_eq!(all(&health, 7001)[..2], [(Down, 300), (Serving, 100)]);
    }

    #[test]
    fn reports_of_strangers_and_of_other_times_are_refused() {
        let config = config();
        let mut health = Health::new(0);
        let mut hear = |id, time, wall| health.hear(report(id, time, false, 100), &config, 1, wall);
        assert_eq!(hear(9, 0, WALL), Err(ReportError::Unknown));
        assert_eq!(hear(1, 0, WALL + CLOCK_ERROR + 1), Err(ReportError::Stale));
        assert_eq!(hear(1, 5, WALL), Ok(()));
        assert_eq!(hear(1, 5, WALL), Err(ReportError::Stale), "the same again");
        assert_eq!(hear(1, 4, WALL), Err(ReportError::Stale));
        assert_eq!(hear(2, 4, WALL), Ok(()));
        health.keep_only(&Config { servers: config.servers[1..].to_vec(), ..config });
        assert_eq!(health.heard.len(), 1);
    }
}
