//! Interoperability: every case between two implementations over an impaired link, judged by the
//! files that arrive and the packets that were on the wire.

mod case;
mod check;
#[cfg(test)]
mod check_tests;
mod html;
mod progress;
mod report;
mod session;
mod site;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

pub use case::{CASES, Case, CaseName};
pub use report::{Outcome, Report, Run};

use crate::Certificates;
use crate::bench::Machine;
use crate::netns::NetnsError;
use crate::peers::{End, Implementation, Program, Workshop};
use progress::Progress;
use session::Session;
use site::Site;

/// How the reason begins why a case cannot be run, when it is for want of namespaces.
pub const THIS_MACHINE: &str = "this machine: ";

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cases.
    pub cases: Vec<&'static Case>,
    /// Client and server of each pair.
    pub pairs: Vec<(Implementation, Implementation)>,
    /// How often a case that failed is run again if it depends on chance, each time with another
    /// seed of the link.
    pub again: u64,
    /// How many runs there are at once: most of the time they wait for the link.
    pub jobs: usize,
    /// Where the logs and captures of each run go, into a folder of its name.
    pub out: PathBuf,
    /// Whether to keep those of runs that passed.
    pub keep: bool,
}

/// What all runs share.
struct Scene {
    programs: BTreeMap<Implementation, Program>,
    certificates: Certificates,
    long_chain: Certificates,
    site: Site,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A case between a client and a server.
#[derive(Debug, Clone, Copy)]
struct Cell {
    case: &'static Case,
    client: Implementation,
    server: Implementation,
}

/// Client and server of all pairs in which `one` of `all` has a part.
#[must_use]
pub fn pairs_with(
    one: Implementation,
    all: &[Implementation],
) -> Vec<(Implementation, Implementation)> {
    let others = || all.iter().copied().filter(move |&other| other != one);
    let mut pairs = vec![(one, one)];
    pairs.extend(others().map(|other| (one, other)));
    pairs.extend(others().map(|other| (other, one)));
    pairs
}

/// Builds the implementations that `options` names and runs each case between each pair.
///
/// # Errors
///
/// When a peer cannot be built or the machine denies a file; a case that fails is no error but part
/// of the report.
pub fn run(options: &Options, workshop: &Workshop) -> Result<Report, Failure> {
    let mut programs = BTreeMap::new();
    let mut versions = BTreeMap::new();
    for &(client, server) in &options.pairs {
        for implementation in [client, server] {
            if let Entry::Vacant(entry) = programs.entry(implementation) {
                entry.insert(workshop.prepare(implementation)?);
                versions.insert(implementation, workshop.version(implementation)?);
            }
        }
    }
    let scene = Scene {
        programs,
        certificates: Certificates::generate()?,
        long_chain: Certificates::long_chain()?,
        site: Site::generate(&options.cases)?,
    };
    std::fs::create_dir_all(&options.out)
        .map_err(|error| format!("cannot make {}: {error}", options.out.display()))?;
    let mut runs = run_cells(options, &scene)?;
    let place = |run: &Run| {
        let pair = options.pairs.iter().position(|&pair| pair == (run.client, run.server));
        (pair, options.cases.iter().position(|case| case.name == run.case))
    };
    runs.sort_by_key(place);
    Ok(Report { date: Machine::describe().date, versions, runs })
}

fn run_cells(options: &Options, scene: &Scene) -> Result<Vec<Run>, Failure> {
    let mut cells = VecDeque::new();
    // The slowest first, so that nobody waits for them alone in the end.
    let mut cases = options.cases.clone();
    cases.sort_by_key(|case| std::cmp::Reverse(case.patience));
    for case in cases {
        cells.extend(options.pairs.iter().map(|&(client, server)| Cell { case, client, server }));
    }
    let mut progress = Progress::new(cells.len());
    let cells = Mutex::new(cells);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            let (cells, sender) = (&cells, sender.clone());
            scope.spawn(move || {
                let next = || cells.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(cell) = next() {
                    if sender.send(run_cell(options, scene, cell)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut runs = Vec::new();
        for run in receiver {
            let run = run?;
            progress.ended(&run);
            runs.push(run);
        }
        progress.clear();
        Ok(runs)
    })
}

fn run_cell(options: &Options, scene: &Scene, cell: Cell) -> Result<Run, Failure> {
    let Cell { case, client, server } = cell;
    let lacks = client.lack(case.name, End::Client).map(|reason| (client, reason));
    let lacks = lacks.or_else(|| Some((server, server.lack(case.name, End::Server)?)));
    let start = Instant::now();
    let outcome = match lacks {
        Some((who, reason)) => Outcome::Unsupported { reason: format!("{who}: {reason}") },
        None => {
            let attempts = if case.by_chance { 1 + options.again } else { 1 };
            first_success(attempts, |seed| attempt(options, scene, cell, seed))?
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    Ok(Run { case: case.name.to_owned(), client, server, outcome, seconds })
}

/// The first outcome that is no failure, with the seeds from 1, or the last one.
fn first_success(
    attempts: u64,
    mut attempt: impl FnMut(u64) -> Result<Outcome, Failure>,
) -> Result<Outcome, Failure> {
    let mut seed = 1;
    loop {
        let outcome = attempt(seed)?;
        if seed >= attempts || !matches!(outcome, Outcome::Failed { .. }) {
            return Ok(outcome);
        }
        seed += 1;
    }
}

fn attempt(options: &Options, scene: &Scene, cell: Cell, seed: u64) -> Result<Outcome, Failure> {
    let Cell { case, client, server } = cell;
    let (Some(client_program), Some(server_program)) =
        (scene.programs.get(&client), scene.programs.get(&server))
    else {
        return Err(format!("{client} or {server} was not built").into());
    };
    let folder = options.out.join(report::folder(client, server, case.name));
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let session = Session {
        case,
        client: client_program,
        server: server_program,
        certificates: if case.long_chain { &scene.long_chain } else { &scene.certificates },
        site: &scene.site,
        alpn: server.speaks(client.speaks(case.alpn)),
        server_is_ours: server == Implementation::Quicket,
        server_binds_preferred: server.binds_preferred_address(),
        folder: &folder,
        seed,
    };
    let outcome = match session.run() {
        Ok(()) => Outcome::Passed,
        Err(failure) => match failure.downcast_ref::<NetnsError>() {
            Some(denied) => Outcome::Unsupported { reason: format!("{THIS_MACHINE}{denied}") },
            None => Outcome::Failed { reason: failure.to_string() },
        },
    };
    if outcome == Outcome::Passed && !options.keep {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_of_chance_has_another_seed_until_it_succeeds_or_has_been_run_often_enough() {
        let run = |attempts, succeeds_with| {
            let mut seeds = Vec::new();
            let outcome = first_success(attempts, |seed| {
                seeds.push(seed);
                let reason = format!("failed with {seed}");
                let failed = Outcome::Failed { reason };
                Ok(if seed == succeeds_with { Outcome::Passed } else { failed })
            });
            (outcome.unwrap(), seeds)
        };
        assert_eq!(run(3, 2), (Outcome::Passed, vec![1, 2]));
        assert_eq!(run(1, 1), (Outcome::Passed, vec![1]));
        let failed = Outcome::Failed { reason: "failed with 2".into() };
        assert_eq!(run(2, 3), (failed, vec![1, 2]));
    }
}
