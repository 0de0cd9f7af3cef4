//! `quicket get`: fetches files.

mod connect;
mod download;
mod http09;
mod http3;
mod place;
mod progress;
mod report;
mod sink;
mod sums;
mod target;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use self::connect::{Link, Linker};
use self::download::{Fetched, Job};
use self::place::Place;
use self::progress::Progress;
use self::report::{FileReport, Report};
use self::target::Authority;
use crate::args::Get;
use crate::exit::{Failure, Kind};

pub(crate) use self::report::Lost;

/// How long connections have to be closed when this program is interrupted.
const LEAVE: Duration = Duration::from_millis(100);

/// Runs the command.
pub(crate) fn run(args: &Get) -> Result<(), Failure> {
    let jobs = plan(args)?;
    let runtime = crate::runtime()?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            done = fetch_all(args, jobs) => done,
            _ = tokio::signal::ctrl_c() => Err(Failure::new(
                Kind::Interrupted,
                "interrupted; go on with --continue",
            )),
        }
    });
    // Threads that write to a terminal or pipe nobody reads are not waited for.
    runtime.shutdown_timeout(LEAVE);
    let (report, failure) = outcome?;
    if args.json {
        let json = serde_json::to_string(&report)
            .map_err(|error| Failure::environment("cannot print the summary", error))?;
        println!("{json}");
    } else if !args.quiet && !report.is_empty() {
        eprintln!("{report}");
    }
    failure.map_or(Ok(()), Err)
}

/// What to fetch, and where to.
fn plan(args: &Get) -> Result<Vec<Job>, Failure> {
    let targets = target::all(args)?;
    let places = place::decide(args, &targets)?;
    let hashes = sums::expected(args, &targets)?;
    let job = |((target, place), expected): ((target::Target, Place), _)| Job {
        target,
        place,
        expected,
        resume: args.resume,
    };
    Ok(targets.into_iter().zip(places).zip(hashes).map(job).collect())
}

/// A job with its place in the report.
type Numbered = (usize, Job);

/// Fetches everything. The failure is the worst of what befell single files.
async fn fetch_all(args: &Get, jobs: Vec<Job>) -> Result<(Report, Option<Failure>), Failure> {
    let begun = Instant::now();
    let linker = Arc::new(Linker::new(args)?);
    let run = Arc::new(Run {
        progress: Progress::new(jobs.len(), args.quiet || args.json && !args.progress),
        files: jobs.len(),
        ended: AtomicUsize::new(0),
        parallel: usize::from(args.parallel),
    });
    let mut report =
        Report { files: jobs.iter().map(FileReport::of).collect(), ..Report::default() };
    let hashes: Vec<_> = jobs.iter().map(|job| job.expected.is_some()).collect();
    let mut by_server: HashMap<Authority, Vec<Numbered>> = HashMap::new();
    for (number, job) in jobs.into_iter().enumerate() {
        by_server.entry(job.target.authority.clone()).or_default().push((number, job));
    }
    let mut servers = JoinSet::new();
    for (authority, jobs) in by_server {
        servers.spawn(from_server(linker.clone(), authority, jobs, run.clone()));
    }
    let mut failures = Vec::new();
    let mut took = Duration::ZERO;
    while let Some(ended) = servers.join_next().await {
        let (connection, outcomes, at) =
            ended.map_err(|error| Failure::environment("a bug in this program", error))?;
        took = took.max(at - begun);
        report.connections.extend(connection);
        for (number, outcome) in outcomes {
            report.files[number].complete(&outcome, hashes[number]);
            failures.extend(outcome.err());
        }
    }
    linker.flush();
    run.progress.clear();
    report.finish(took);
    let failure = summed_up(failures, run.files);
    Ok((report, failure))
}

/// What to end with. The exit code is that of the failure least like a mere refusal.
fn summed_up(failures: Vec<Failure>, files: usize) -> Option<Failure> {
    let count = failures.len();
    let worst = failures.into_iter().max_by_key(|failure| failure.kind)?;
    Some(match files {
        // Of several, each was told of when it came.
        2.. => Failure::new(worst.kind, format!("{count} of {files} files were not fetched")),
        _ => worst,
    })
}

/// What all downloads share.
struct Run {
    progress: Progress,
    files: usize,
    /// How many of them have ended.
    ended: AtomicUsize,
    /// How many to fetch at once from each server.
    parallel: usize,
}

impl Run {
    /// Tells of a failure, if it will not be what the command ends with.
    fn tell(&self, failure: &Failure) {
        if self.files > 1 {
            self.progress.say(&failure.message);
        }
    }
}

type Outcomes = Vec<(usize, Result<Fetched, Failure>)>;

/// Fetches what one server has, on one connection; also says when the last of it was there.
async fn from_server(
    linker: Arc<Linker>,
    authority: Authority,
    jobs: Vec<Numbered>,
    run: Arc<Run>,
) -> (Option<report::ConnectionReport>, Outcomes, Instant) {
    let link = match linker.connect(&authority).await {
        Ok(link) => link,
        Err(failure) => {
            run.tell(&failure);
            let failed = jobs.into_iter().map(|(number, _)| (number, Err(failure.clone())));
            return (None, failed.collect(), Instant::now());
        }
    };
    let outcomes = in_parallel(&link, jobs, &run).await;
    let ended = Instant::now();
    (Some(link.close().await), outcomes, ended)
}

/// Fetches so many files at a time.
async fn in_parallel(link: &Link, jobs: Vec<Numbered>, run: &Arc<Run>) -> Outcomes {
    let mut waiting = jobs.into_iter();
    let mut running = JoinSet::new();
    let mut outcomes = Vec::new();
    loop {
        while running.len() < run.parallel
            && let Some((number, job)) = waiting.next()
        {
            running.spawn(one(link.fetch(job, run.clone()), number, run.clone()));
        }
        match running.join_next().await {
            Some(Ok(outcome)) => outcomes.push(outcome),
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            None => return outcomes,
        }
    }
}

async fn one(
    fetch: impl Future<Output = Result<Fetched, Failure>>,
    number: usize,
    run: Arc<Run>,
) -> (usize, Result<Fetched, Failure>) {
    let outcome = fetch.await;
    if let Err(failure) = &outcome {
        run.tell(failure);
    }
    run.progress.ended(run.ended.fetch_add(1, Ordering::Relaxed) + 1);
    (number, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_worst_failure() {
        let refused = Failure::new(Kind::Refused, "404");
        let content = Failure::new(Kind::Content, "hash");
        let all = || vec![refused.clone(), content.clone(), refused.clone()];
        let several = summed_up(all(), 5).unwrap();
        assert_eq!(several, Failure::new(Kind::Content, "3 of 5 files were not fetched"));
        assert_eq!(summed_up(vec![refused.clone()], 1), Some(refused));
        assert_eq!(summed_up(Vec::new(), 1), None);
    }
}
