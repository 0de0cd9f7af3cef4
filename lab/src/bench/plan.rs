//! What is going to be measured, and how long that takes.

use std::time::{Duration, Instant};

use quicket_workload::bench::{Asked, FetchWay, Scenario, Way};

use super::{Contender, NetworkKind, Options, Point, Row, Settings};

/// A point of a row over a network, and who takes part in it.
pub(super) struct Step {
    pub(super) network: NetworkKind,
    pub(super) row: Row,
    pub(super) point: Point,
    pub(super) contenders: Vec<Contender>,
}

impl Step {
    /// How long one measurement takes, roughly, as a share of the network: where there is room for
    /// several at once, each takes a part of the time.
    fn each(&self) -> Duration {
        expected(&self.point.scenario) / self.lanes() as u32
    }

    /// How many contenders are measured at once. Not so where two flows compete: what they leave
    /// slow start with, which stays for long, is a matter of milliseconds.
    pub(super) fn lanes(&self) -> usize {
        if self.row == Row::Fairness { 1 } else { self.network.lanes() }
    }
}

/// All steps, network by network.
pub(super) fn steps(
    options: &Options,
    settings: &Settings,
    contenders: impl Iterator<Item = Contender>,
) -> Vec<Step> {
    let contenders: Vec<Contender> = contenders.collect();
    let mut steps = Vec::new();
    for &network in &options.networks {
        for &row in options.rows.iter().filter(|row| options.runs_over(**row, network)) {
            let contenders: Vec<Contender> =
                contenders.iter().copied().filter(|one| one.takes_part(row)).collect();
            for point in row.points(settings, network) {
                let contenders = contenders.iter().copied().filter(|one| point.suits(*one));
                steps.push(Step { network, row, point, contenders: contenders.collect() });
            }
        }
    }
    steps
}

/// How long a measurement takes from the start of its processes to their end, roughly: what this
/// project's own machine needs.
fn expected(scenario: &Scenario) -> Duration {
    /// Bytes moved in a millisecond.
    const MOVED: u64 = 1_000_000;
    /// For two processes to start, connect, warm up and end.
    const AROUND: u64 = 200;
    let length = match *scenario {
        Scenario::Bulk { warm_up, bytes, write, .. } => {
            let moved = (warm_up + bytes) / MOVED;
            // Small pieces take about twice as long.
            if write < 4096 { moved * 2 } else { moved }
        }
        Scenario::Verify { bytes, .. } => bytes * 2 / MOVED,
        Scenario::Exchanges { milliseconds } | Scenario::FirstBytes { milliseconds, .. } => {
            milliseconds
        }
        // The server is given time to count.
        Scenario::Handshakes { milliseconds, .. } => milliseconds + 500,
        Scenario::Flow { milliseconds } => milliseconds + 300,
        Scenario::Streams { concurrency: many, bytes, milliseconds }
        | Scenario::Connections { connections: many, bytes, milliseconds } => {
            milliseconds + many as u64 * (1 + bytes * 4 / MOVED)
        }
        Scenario::Idle { connections } => 2500 + connections as u64 * 3 / 2,
        // Written, fetched and compared.
        Scenario::Files { bytes, milliseconds } => milliseconds + bytes * 4 / MOVED,
        // For all flows to come once.
        Scenario::Forward { flows, milliseconds, .. } => {
            milliseconds + 400 + u64::from(flows) / 250
        }
        Scenario::Tunnel { milliseconds, .. } => milliseconds + 500,
        // Made one after the other, and watched for a while.
        Scenario::Gateway { asked: Asked::Idle { connections }, .. } => 4000 + connections as u64,
        // Each of the ways: up to three programs start, and warm up.
        Scenario::Switch { milliseconds, .. } => Way::ALL.len() as u64 * (milliseconds + 150),
        // Four of the ways warm up; the others fill tables, and take no time that is given.
        Scenario::SwitchDevices { milliseconds } => 4 * (milliseconds + 500) + 1500,
        Scenario::Fetches { milliseconds, .. } => FetchWay::ALL.len() as u64 * (milliseconds + 400),
        // Three programs start, and warm up.
        Scenario::Gateway { milliseconds, .. } => milliseconds * 5 / 4 + 700,
        Scenario::Refusal => 0,
    };
    Duration::from_millis(AROUND + length)
}

/// How far a run has come.
pub(super) struct Progress<F> {
    say: F,
    start: Instant,
    /// Measurements that have ended, and all.
    count: (usize, usize),
    /// The time that those were expected to take.
    expected: (Duration, Duration),
    /// What may still be spent on measurements that are made again.
    patience: Duration,
}

impl<F: FnMut(&str)> Progress<F> {
    pub(super) fn new(steps: &[Step], settings: &Settings, say: F) -> Self {
        let measurements = |step: &Step| step.contenders.len() * settings.runs;
        let count = steps.iter().map(measurements).sum();
        let time = |step: &Step| step.each() * measurements(step) as u32;
        let expected = steps.iter().map(time).sum();
        Self {
            say,
            start: Instant::now(),
            count: (0, count),
            expected: (Duration::ZERO, expected),
            patience: expected / 4,
        }
    }

    /// Says how long all of it takes.
    pub(super) fn announce(&mut self) {
        let (count, expected) = (self.count.1, self.expected.1);
        (self.say)(&format!(
            "{count} measurements, about {}, and up to a quarter more if others disturb them",
            minutes(expected)
        ));
    }

    /// Says what comes next, and how much is left.
    pub(super) fn next(&mut self, what: &str) {
        let ((done, count), left) = (self.count, minutes(self.left()));
        (self.say)(&format!("{} of {count}, {left} left: {what}", done + 1));
    }

    pub(super) fn say(&mut self, sentence: &str) {
        (self.say)(sentence);
    }

    /// Counts a measurement of `step` that has ended or will not take place.
    pub(super) fn done(&mut self, step: &Step) {
        self.count.0 += 1;
        self.expected.0 += step.each();
    }

    /// Whether a measurement that took so long may be made again.
    pub(super) fn again(&mut self, took: Duration) -> bool {
        let left = self.patience.checked_sub(took);
        self.patience = left.unwrap_or(self.patience);
        left.is_some()
    }

    /// The time that is left, if the rest takes as much longer than expected as what is done.
    fn left(&self) -> Duration {
        /// Before, one that is slow says nothing of the others.
        const KNOWN: Duration = Duration::from_secs(30);
        let (done, all) = self.expected;
        let rest = all.saturating_sub(done);
        if done < KNOWN {
            return rest;
        }
        rest.mul_f64(self.start.elapsed().as_secs_f64() / done.as_secs_f64())
    }
}

fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..100 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything(runs: usize) -> (Vec<Step>, Settings) {
        let options = Options { runs, ..Options::everything("lab".into()) };
        let settings = Settings::of(&options);
        (steps(&options, &settings, Contender::ALL.into_iter()), settings)
    }

    #[test]
    fn each_row_is_measured_over_each_of_its_networks() {
        let (steps, _) = everything(1);
        for row in Row::ALL {
            for &network in row.networks() {
                let here = steps.iter().filter(|step| (step.row, step.network) == (row, network));
                assert!(here.count() > 0, "{row} over {network}");
            }
        }
        assert!(steps.iter().all(|step| step.contenders.iter().all(|it| it.takes_part(step.row))));
    }

    #[test]
    fn a_complete_run_takes_less_than_28_minutes() {
        let (_, settings) = everything(1);
        let options = Options { runs: 1, ..Options::everything("lab".into()) };
        // The others are asked for by name.
        let all = Contender::ALL.into_iter().filter(|contender| !contender.shares());
        let steps = steps(&options, &settings, all);
        let progress = Progress::new(&steps, &settings, |_: &str| ());
        assert!(progress.expected.1 < Duration::from_secs(28 * 60), "{:?}", progress.expected.1);
    }

    #[test]
    fn nothing_is_left_when_all_steps_are_done() {
        let (steps, settings) = everything(2);
        let mut said = Vec::new();
        let mut progress =
            Progress::new(&steps, &settings, |line: &str| said.push(line.to_owned()));
        for step in &steps {
            for _ in 0..step.contenders.len() * 2 {
                progress.done(step);
            }
        }
        let left = progress.left();
        assert_eq!((left, progress.count.0), (Duration::ZERO, progress.count.1));
        progress.announce();
        assert!(said[0].contains("measurements, about") && said[0].contains(" min"), "{said:?}");
    }

    #[test]
    fn measurements_are_made_again_for_a_quarter_of_the_time() {
        let (steps, settings) = everything(1);
        let mut progress = Progress::new(&steps, &settings, |_: &str| ());
        let eighth = progress.expected.1 / 8;
        assert!(progress.again(eighth) && progress.again(eighth) && !progress.again(eighth));
        assert_eq!([minutes(Duration::from_secs(99)), minutes(Duration::ZERO)], ["99 s", "0 s"]);
        assert_eq!(minutes(Duration::from_secs(121)), "3 min");
    }
}
