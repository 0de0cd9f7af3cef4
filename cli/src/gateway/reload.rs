//! The file of a gateway, read again: at SIGHUP, and when it or what it names changes.

use std::path::{Path, PathBuf};

use quicket_gateway::Gateway;
use quicket_gateway::watch::{Seen, Watch};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{read, refused, summary};
use crate::exit::Failure;
use crate::notify;
use crate::serve::say;

/// The file, to be read again.
pub(super) struct Reload {
    file: Option<(PathBuf, Seen)>,
    hangup: Signal,
}

impl Reload {
    /// From now on SIGHUP does not end the process.
    pub(super) fn watch(file: Option<(PathBuf, Seen)>) -> Result<Self, Failure> {
        let hangup = signal(SignalKind::hangup());
        let hangup =
            hangup.map_err(|error| Failure::environment("cannot watch for SIGHUP", error))?;
        Ok(Self { file, hangup })
    }

    /// Reads the file again at each SIGHUP, and at each change if it says so. Those that come while it is read are one
    /// more.
    pub(super) async fn run(mut self, gateway: Gateway, state: String) {
        let Some((file, seen)) = self.file else {
            while self.hangup.recv().await.is_some() {}
            return;
        };
        let mut watch = Watch::new(seen);
        loop {
            let changed = tokio::select! {
                signal = self.hangup.recv() => match signal {
                    Some(()) => Vec::new(),
                    None => return,
                },
                changed = watch.changed() => changed,
            };
            notify::reloading("reading the file again");
            watch.read_again(take(&file, &gateway, &state, &changed).await);
        }
    }
}

/// Reads the file and has the gateway take it; which files were read.
async fn take(file: &Path, gateway: &Gateway, state: &str, changed: &[PathBuf]) -> Seen {
    let (gateway, file) = (gateway.clone(), file.to_owned());
    let take = move || {
        let (snapshot, seen) = read(&file);
        let take = || {
            let snapshot = snapshot.inspect_err(|_| gateway.refused())?;
            let (summary, mut warnings) = (summary(&file, &snapshot), snapshot.expired());
            warnings.extend(snapshot.keys_away.iter().cloned());
            gateway.replace(snapshot).map_err(|error| refused(&error))?;
            warnings.iter().for_each(|what| say(format_args!("Warning: {what}")));
            Ok::<_, Failure>(summary)
        };
        (take(), seen)
    };
    let why = match changed {
        [] => String::new(),
        [one] => format!("{} has changed. ", one.display()),
        [one, rest @ ..] => format!("{} and {} more have changed. ", one.display(), rest.len()),
    };
    let (taken, seen) = match tokio::task::spawn_blocking(take).await {
        Ok((taken, seen)) => (taken.map_err(|Failure { message, .. }| message), seen),
        Err(error) => (Err(error.to_string()), Seen::default()),
    };
    match taken {
        Ok(summary) => {
            notify::reloaded(state);
            say(format_args!("{why}Read again: {summary}"));
        }
        Err(error) => {
            notify::reloaded(&format!("{state}; nothing was read again: {error}"));
            say(format_args!("{why}All stays as it was: {error}"));
        }
    }
    seen
}
