//! `quicket get`: fetches files.

mod complete;
mod connect;
mod download;
mod fallback;
mod http09;
mod http3;
mod order;
mod place;
mod progress;
mod race;
mod rate;
mod redirect;
mod reply;
mod report;
mod retry;
mod schedule;
mod sink;
mod sums;
mod target;
mod trace;
mod transport;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use self::download::Job;
use self::order::Order;
use self::place::Place;
use self::progress::Progress;
use self::rate::Limit;
use crate::args::Get;
use crate::exit::{Failure, Kind};
use crate::out::tell;
use crate::units::Time;

pub(crate) use self::report::Lost;

/// How long connections have to be closed when this program is interrupted.
const LEAVE: Duration = Duration::from_millis(100);

/// Runs the command.
pub(crate) fn run(args: &Get) -> Result<(), Failure> {
    let jobs = plan(args)?;
    let runtime = crate::one_thread()?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            done = schedule::fetch_all(args, jobs) => done,
            failure = too_late(args.max_time) => Err(failure),
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
        crate::print(&json)?;
    } else if !args.quiet && !args.http.head && !report.is_empty() {
        tell!("{report}");
    }
    failure.map_or(Ok(()), Err)
}

/// What to fetch, and where to.
fn plan(args: &Get) -> Result<Vec<Job>, Failure> {
    let targets = target::all(args)?;
    order::check(args, &targets)?;
    let places = place::decide(args, &targets)?;
    let hashes = sums::expected(args, &targets)?;
    let order = Order::new(args)?;
    let limit = args.limit_rate.map(|rate| Arc::new(Limit::new(rate)));
    let job = |((target, place), expected): ((target::Target, Place), _)| Job {
        target,
        place,
        expected,
        hashed: args.json,
        resume: args.resume,
        order: order.clone(),
        tries: 0,
        max_tries: args.retry,
        limit: limit.clone(),
    };
    Ok(targets.into_iter().zip(places).zip(hashes).map(job).collect())
}

/// Comes to an end when the time is over that everything may take.
async fn too_late(max: Option<Duration>) -> Failure {
    let Some(max) = max else { return pending().await };
    tokio::time::sleep(max).await;
    let message =
        format!("not done after {}, as --max-time says; go on with --continue", Time(max));
    Failure::new(Kind::Connection, message)
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
    quiet: bool,
}

impl Run {
    /// Tells of something that is tried again.
    fn tell_again(&self, failure: &Failure, wait: Duration, job: &Job) {
        if !self.quiet {
            let (next, max) = (job.tries + 1, job.max_tries);
            let wait = Time(wait);
            self.progress.say(&format!("{failure}; trying again in {wait} ({next} of {max})"));
        }
    }

    /// Tells of a failure, if it will not be what the command ends with.
    fn tell(&self, failure: &Failure) {
        if self.files > 1 {
            self.progress.say(&failure.message);
        }
    }
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
