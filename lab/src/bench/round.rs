//! The measurements of one point of a row: who takes part takes turns, round by round.

use std::time::{Duration, Instant};

use quicket_workload::bench::{Failure, Measurement};

use super::driver::{Driver, Said};
use super::load::{Disturbance, Load};
use super::plan::{Progress, Step};
use super::report::{Place, Report};
use super::{Contender, Point};

/// How often a measurement is made again that was disturbed.
const RETRIES: usize = 3;

/// Measures a point. Where there are several drivers, so many implementations are measured at a
/// time, unless they should be alone.
pub(super) fn measure(
    drivers: &[Driver<'_>],
    step: &Step,
    report: &mut Report,
    progress: &mut Progress<impl FnMut(&str)>,
) {
    let runs = report.settings.runs;
    let mut contenders = step.contenders.clone();
    for round in 1..=runs {
        let mut unable = Vec::new();
        for group in contenders.chunks(drivers.len().clamp(1, step.lanes())) {
            unable.extend(turn(drivers, step, round, group, report, progress));
        }
        contenders.retain(|one| !unable.contains(one));
        for _ in unable {
            // Nor will it be in the rounds to come.
            (round..runs).for_each(|_| progress.done(step));
        }
    }
}

/// Measures some at once, again if they were disturbed; returns those that are unable.
fn turn(
    drivers: &[Driver<'_>],
    step: &Step,
    round: usize,
    group: &[Contender],
    report: &mut Report,
    progress: &mut Progress<impl FnMut(&str)>,
) -> Vec<Contender> {
    let mut unable = Vec::new();
    let mut missing = group.to_vec();
    let mut tries = 0;
    while !missing.is_empty() {
        tries += 1;
        progress.next(&title(step, round, &missing));
        let (start, before) = (Instant::now(), Load::now());
        let said = at_once(drivers, &missing, &step.point, round);
        let tolerated = step.network.tolerated();
        let disturbance = before.disturbance_until(&Load::now(), tolerated);
        let repeat = may_repeat(disturbance, tries, start.elapsed(), report, progress);
        let mut again = Vec::new();
        for (contender, said) in missing.into_iter().zip(said) {
            let place = place(step, contender);
            match said {
                Ok(Said::Measured(_)) if repeat == Repeat::Yes => {
                    report.discard(place);
                    again.push(contender);
                    continue;
                }
                Ok(Said::Measured(measurement)) => add(report, place, measurement, repeat),
                Ok(Said::Unsupported(reason)) => {
                    report.unsupported(&place, &reason);
                    unable.push(contender);
                }
                Err(failure) => {
                    progress.say(&failure.to_string());
                    report.failed(&place, &failure.to_string());
                    unable.push(contender);
                }
            }
            progress.done(step);
        }
        missing = again;
    }
    unable
}

/// What is done about a disturbance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// There was none.
    No,
    /// It is measured again.
    Yes,
    /// That was done often enough.
    NoMore,
}

fn may_repeat(
    disturbance: Option<Disturbance>,
    tries: usize,
    took: Duration,
    report: &Report,
    progress: &mut Progress<impl FnMut(&str)>,
) -> Repeat {
    let Some(Disturbance { percent, who }) = disturbance else { return Repeat::No };
    if report.settings.quick {
        return Repeat::No;
    }
    if report.settings.keep_disturbed || tries > RETRIES || !progress.again(took) {
        return Repeat::NoMore;
    }
    progress.say(&format!("again: {who} had {percent:.0} % of a core"));
    Repeat::Yes
}

fn add(report: &mut Report, place: Place, measurement: Measurement, repeat: Repeat) {
    if repeat == Repeat::No {
        report.add(place, measurement);
    } else {
        report.add_disturbed(place, measurement);
    }
}

/// One measurement with each driver, all at the same time.
fn at_once(
    drivers: &[Driver<'_>],
    contenders: &[Contender],
    point: &Point,
    round: usize,
) -> Vec<Result<Said, Failure>> {
    std::thread::scope(|scope| {
        let mut all = Vec::with_capacity(contenders.len());
        for (driver, &contender) in drivers.iter().zip(contenders) {
            all.push(scope.spawn(move || driver.measure(contender, point, round)));
        }
        all.into_iter()
            .map(|one| one.join().unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect()
    })
}

fn place(step: &Step, contender: Contender) -> Place {
    let Step { network, row, point, .. } = step;
    Place { network: *network, row: *row, point: point.name.into(), contender }
}

fn title(step: &Step, round: usize, contenders: &[Contender]) -> String {
    let Step { network, row, point, .. } = step;
    let what = format!("{network}: {row} {}", point.name);
    let who: Vec<&str> = contenders.iter().map(|one| one.name()).collect();
    format!("{}, run {round}, {}", what.trim_end(), who.join(" and "))
}
