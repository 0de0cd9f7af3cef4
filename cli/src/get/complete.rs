//! A file that is here already and as long as that of the server.

use std::fs::File;
use std::time::Instant;

use tokio::task::spawn_blocking;

use super::download::{Answered, Fetched, Job};
use super::place::Place;
use super::reply::Kept;
use super::sink;
use crate::digest::Hasher;
use crate::exit::Failure;

/// What is here of the job's file, if it is to be gone on with.
pub(crate) fn kept(job: &Job) -> Option<Kept> {
    let Place::File(path) = &job.place else { return None };
    if !job.resume || !job.order.takes_ranges() {
        return None;
    }
    if Place::partial(path).exists() {
        return sink::partial(path).map(Kept::Part);
    }
    let found = path.metadata().ok().filter(|found| found.is_file() && found.len() > 0)?;
    Some(Kept::Whole(found.len()))
}

/// The file is as long as the server's: it is taken for the same, unless it has another hash than
/// it must have.
pub(crate) async fn settle(job: &Job, status: u16, begun: Instant) -> Result<Answered, Failure> {
    let Place::File(path) = job.place.clone() else {
        return Ok(Answered::Moved(Box::new(job.anew())));
    };
    let shown = path.display().to_string();
    let hashed = spawn_blocking(move || {
        let mut hasher = Hasher::new();
        let len = hasher.update_from(&mut File::open(&path)?)?;
        std::io::Result::Ok((len, hasher.finish()))
    });
    let hashed = hashed.await.map_err(std::io::Error::other).and_then(|hashed| hashed);
    let (kept, sha256) =
        hashed.map_err(|error| Failure::environment(format!("cannot read {shown}"), error))?;
    if job.expected.is_some_and(|expected| expected != sha256) {
        return Ok(Answered::Moved(Box::new(job.anew())));
    }
    let took = begun.elapsed();
    let (status, sha256) = (Some(status), Some(sha256));
    Ok(Answered::Fetched(Fetched { status, received: 0, kept, sha256, took }))
}
