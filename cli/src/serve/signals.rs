//! Signals: to stop, and to read files again.

use std::future::Future;
use std::io::{self, IsTerminal};
use std::sync::Arc;

use quicket::ServerTls;

use super::announce::Announcement;
use super::log::say;
use super::{Files, Site};
use crate::exit::Failure;

/// Ctrl-C, or the wish of a service manager, from the call on: what comes before the future is awaited is not lost.
pub(crate) fn stop() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let heard = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::interrupt()).and_then(|interrupt| {
            signal(SignalKind::terminate()).map(|terminate| (interrupt, terminate))
        })
    };
    async move {
        #[cfg(unix)]
        if let Ok((mut interrupt, mut terminate)) = heard {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// Waits for SIGHUP: the terminal is closed, or the program that has started this one is gone, as ssh is whose `ProxyCommand` this
/// is. Never where the signal is ignored, as by nohup.
pub(crate) fn hung_up() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let hangup = {
        use tokio::signal::unix::{SignalKind, signal};
        (!is_hangup_ignored()).then(|| signal(SignalKind::hangup()).ok()).flatten()
    };
    async move {
        #[cfg(unix)]
        if let Some(mut hangup) = hangup {
            hangup.recv().await;
            return;
        }
        std::future::pending().await
    }
}

/// As the system tells (proc_pid_status(5)): the lowest bit of a mask in hexadecimal is signal 1.
#[cfg(unix)]
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 != 0)
}

/// SIGHUP as a wish to read files again.
pub(super) struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
    /// Started by somebody at a terminal, which sends this signal when it is closed.
    has_terminal: bool,
}

/// What SIGHUP stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Files are to be read again.
    ReadAgain,
    /// The terminal from which the server was started is closed: it ends with it, as ever.
    TerminalGone,
}

impl Hangup {
    /// From now on the signal does not end the process.
    pub(super) fn watch() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let signal = signal(SignalKind::hangup())
                .inspect_err(|error| log::warn!("SIGHUP will end this server: {error}"))
                .ok();
            Self { signal, has_terminal: io::stdin().is_terminal() }
        }
        #[cfg(not(unix))]
        Self { has_terminal: io::stdin().is_terminal() }
    }

    /// Waits for the next one.
    async fn next(&mut self) -> Meaning {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            // A terminal that is closed is none any more.
            return match self.has_terminal && !io::stdin().is_terminal() {
                true => Meaning::TerminalGone,
                false => Meaning::ReadAgain,
            };
        }
        std::future::pending().await
    }
}

/// Certificates and keys while the server runs.
pub(super) struct Keys {
    files: Files,
    tls: ServerTls,
    hangup: Hangup,
    announcement: Arc<Announcement>,
}

impl Keys {
    pub(super) const fn new(
        files: Files,
        tls: ServerTls,
        hangup: Hangup,
        announcement: Arc<Announcement>,
    ) -> Self {
        Self { files, tls, hangup, announcement }
    }

    /// Reads all files again at each SIGHUP, until the terminal is gone.
    pub(super) async fn watch(mut self, site: Arc<Site>) {
        while self.hangup.next().await == Meaning::ReadAgain {
            let (files, tls, member) = (self.files.clone(), self.tls.clone(), site.member.clone());
            let read = move || {
                // Nothing changes unless all can be read.
                let read = member.as_ref().map(|member| member.read()).transpose()?;
                let summary = files.read_again(&tls)?;
                match member.zip(read) {
                    Some((member, read)) => Ok(format!("{summary}, {}", member.take_up(read)?)),
                    None => Ok(summary),
                }
            };
            #[cfg(target_os = "linux")]
            crate::notify::reloading("reading files again");
            let read = tokio::task::spawn_blocking(read).await;
            let outcome = match read {
                Ok(outcome) => outcome.map_err(|failure: Failure| failure.to_string()),
                Err(error) => Err(error.to_string()),
            };
            site.events.read_again(&outcome);
            #[cfg(target_os = "linux")]
            crate::notify::reloaded(&match &outcome {
                Ok(_) => self.announcement.state(),
                Err(error) => {
                    format!("{}; files were not read again: {error}", self.announcement.state())
                }
            });
            match outcome {
                Ok(files) => {
                    say(format_args!(
                        "Read again: {files}. New connections get them, others go on"
                    ));
                }
                Err(error) => say(format_args!(
                    "All stays as it was, as not all could be read again: {error}"
                )),
            }
        }
    }
}
