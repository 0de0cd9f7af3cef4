//! What is fetched when: by server, so many at a time, and again where that is of use.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::connect::Linker;
use super::download::{Answered, Fetched, Job};
use super::progress::Progress;
use super::report::{ConnectionReport, FileReport, Report};
use super::target::Authority;
use super::transport::Link;
use super::{Run, retry, summed_up};
use crate::args::Get;
use crate::exit::Failure;

/// A job with its place in the report.
type Numbered = (usize, Job);

/// What came of a job for now.
enum Outcome {
    /// It is over.
    Over(Result<Fetched, Failure>),
    /// There is more to do, not before this time: another server, or another try.
    More(Box<Job>, Instant),
}

type Outcomes = Vec<(usize, Outcome)>;

/// Fetches everything. The failure is the worst of what befell single files.
pub(super) async fn fetch_all(
    args: &Get,
    jobs: Vec<Job>,
) -> Result<(Report, Option<Failure>), Failure> {
    let begun = Instant::now();
    let linker = Arc::new(Linker::new(args)?);
    let quiet = args.quiet || args.json && !args.progress;
    let run = Arc::new(Run {
        progress: Progress::new(jobs.len(), quiet, args.verbose),
        files: jobs.len(),
        ended: AtomicUsize::new(0),
        parallel: usize::from(args.parallel),
        quiet: args.quiet,
    });
    let mut report =
        Report { files: jobs.iter().map(FileReport::of).collect(), ..Report::default() };
    let hashes: Vec<_> = jobs.iter().map(|job| job.expected.is_some()).collect();
    let mut failures = Vec::new();
    let mut took = Duration::ZERO;
    let mut round: Vec<Numbered> = jobs.into_iter().enumerate().collect();
    while !round.is_empty() {
        let mut next = Vec::new();
        let mut not_before = Instant::now();
        for (connection, outcomes, at) in from_servers(&linker, round, &run).await? {
            took = took.max(at - begun);
            report.connections.extend(connection);
            for (number, outcome) in outcomes {
                match outcome {
                    Outcome::Over(outcome) => {
                        report.files[number].complete(&outcome, hashes[number]);
                        failures.extend(outcome.err());
                    }
                    Outcome::More(job, at) => {
                        not_before = not_before.max(at);
                        next.push((number, *job));
                    }
                }
            }
        }
        if !next.is_empty() {
            tokio::time::sleep_until(not_before.into()).await;
        }
        round = next;
    }
    linker.flush();
    run.progress.clear();
    report.finish(took);
    let failure = summed_up(failures, run.files);
    Ok((report, failure))
}

/// What one server brought: on which connection, what, and until when.
type Brought = (Option<ConnectionReport>, Outcomes, Instant);

/// One round: each server is asked for what it has.
async fn from_servers(
    linker: &Arc<Linker>,
    jobs: Vec<Numbered>,
    run: &Arc<Run>,
) -> Result<Vec<Brought>, Failure> {
    let mut by_server: HashMap<Authority, Vec<Numbered>> = HashMap::new();
    for (number, job) in jobs {
        by_server.entry(job.target.authority.clone()).or_default().push((number, job));
    }
    let mut servers = JoinSet::new();
    for (authority, jobs) in by_server {
        servers.spawn(from_server(linker.clone(), authority, jobs, run.clone()));
    }
    let mut brought = Vec::new();
    while let Some(ended) = servers.join_next().await {
        brought.push(ended.map_err(|error| Failure::environment("a bug in this program", error))?);
    }
    Ok(brought)
}

/// Fetches what one server has, on one connection; also says when the last of it was there.
async fn from_server(
    linker: Arc<Linker>,
    authority: Authority,
    jobs: Vec<Numbered>,
    run: Arc<Run>,
) -> Brought {
    let link = match linker.connect(&authority, &run.progress).await {
        Ok(link) => link,
        Err(failure) => {
            let failed = |(number, job)| (number, ended(Err(failure.clone()), job, &run));
            return (None, jobs.into_iter().map(failed).collect(), Instant::now());
        }
    };
    let outcomes = in_parallel(&linker, &link, jobs, &run).await;
    let ended = Instant::now();
    (Some(link.close().await), outcomes, ended)
}

/// Fetches so many files at a time.
async fn in_parallel(
    linker: &Linker,
    link: &Link,
    jobs: Vec<Numbered>,
    run: &Arc<Run>,
) -> Outcomes {
    let mut waiting = jobs.into_iter();
    let mut running: JoinSet<(usize, Job, Result<Answered, Failure>)> = JoinSet::new();
    let mut outcomes = Vec::new();
    let start = |running: &mut JoinSet<_>, number: usize, job: Job| {
        let fetch = link.fetch(job.clone(), run.clone());
        running.spawn(async move { (number, job, fetch.await) });
    };
    loop {
        while running.len() < run.parallel
            && let Some((number, job)) = waiting.next()
        {
            start(&mut running, number, job);
        }
        match running.join_next().await {
            // The server points to something else that it has.
            Some(Ok((number, job, Ok(Answered::Moved(next)))))
                if next.target.authority == job.target.authority =>
            {
                start(&mut running, number, *next);
            }
            Some(Ok((number, _, Ok(Answered::Moved(next))))) => {
                outcomes.push((number, Outcome::More(next, Instant::now())));
            }
            Some(Ok((number, job, Ok(Answered::Fetched(fetched))))) => {
                outcomes.push((number, ended(Ok(fetched), job, run)));
            }
            // Sent as 0-RTT data into a void: TCP may get through.
            Some(Ok((number, job, Err(failure))))
                if link.was_never_there(&failure) && linker.falls_back(&job.target.authority) =>
            {
                outcomes.push((number, Outcome::More(Box::new(job), Instant::now())));
            }
            Some(Ok((number, job, Err(failure)))) => {
                outcomes.push((number, ended(Err(failure), job, run)));
            }
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            None => return outcomes,
        }
    }
}

/// A job has come to an end, or is tried again.
fn ended(outcome: Result<Fetched, Failure>, mut job: Job, run: &Run) -> Outcome {
    if let Err(failure) = &outcome {
        if let Some(wait) = retry::wait(failure, &job) {
            run.tell_again(failure, wait, &job);
            job.tries += 1;
            // What has come is on the disk, with what tells whether it belongs to the same file.
            job.resume = true;
            return Outcome::More(Box::new(job), Instant::now() + wait);
        }
        run.tell(failure);
    }
    run.progress.ended(run.ended.fetch_add(1, Ordering::Relaxed) + 1);
    Outcome::Over(outcome)
}
