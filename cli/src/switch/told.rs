//! A daemon, until it is told to stop.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Failure;

/// Watches for a signal.
pub(super) fn watch(kind: SignalKind) -> Result<tokio::signal::unix::Signal, Failure> {
    signal(kind).map_err(|error| Failure::environment("cannot watch for signals", error))
}

/// Runs a daemon on a thread of its own until it ends by itself. It is told to stop, by a descriptor that becomes readable, when SIGTERM
/// or SIGINT comes, or `other` is there. `begun` says that it is ready.
pub(super) async fn until_told<T: Send + 'static>(
    run: impl FnOnce(BorrowedFd<'_>) -> io::Result<T> + Send + 'static,
    begun: impl FnOnce(),
    other: impl Future<Output = ()>,
) -> Result<io::Result<T>, Failure> {
    let pair = UnixStream::pair();
    let (stop, stopped) =
        pair.map_err(|error| Failure::environment("cannot be told to stop", error))?;
    let (mut terminate, mut interrupt) =
        (watch(SignalKind::terminate())?, watch(SignalKind::interrupt())?);
    begun();
    let mut work = tokio::task::spawn_blocking(move || run(stopped.as_fd()));
    let told = tokio::select! {
        ended = &mut work => Err(ended),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        () = other => Ok(()),
    };
    let ended = match told {
        Err(ended) => ended,
        Ok(()) => {
            crate::notify::stopping("told to stop");
            drop(stop);
            work.await
        }
    };
    Ok(ended.unwrap_or_else(|error| Err(io::Error::other(error))))
}
