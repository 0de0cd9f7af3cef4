//! The next generation of this server: the same program, perhaps a newer one, with the same flags.

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::log::say;
use crate::notify;

/// The command whose flags these are.
const COMMAND: &str = "serve";
/// What takes the place of a program of its name.
const REPLACE: &str = "--replace";
/// What the system writes behind the name of a file that is no more (proc(5)).
const DELETED: &str = " (deleted)";

/// The next generation, as far as this process has started it.
#[derive(Clone, Debug, Default)]
pub(super) struct Successor(Arc<Mutex<Option<u32>>>);

impl Successor {
    /// Starts it. It takes over once it is ready; if it does not come so far, nothing changes. It listens
    /// at `listen`, if no flag of this process says where.
    pub(super) fn start(&self, listen: Option<SocketAddr>) {
        notify::reloading("starting the next generation");
        match next(listen).spawn() {
            Ok(process) => {
                say(format_args!("The next generation is process {}", process.id()));
                self.set(Some(process.id()));
                let this = self.clone();
                // Whoever started it hears how it ends.
                let wait = move || this.wait(process);
                let spawned = thread::Builder::new().name("generation".to_owned()).spawn(wait);
                if let Err(error) = spawned {
                    log::warn!("nobody hears how the next generation ends: {error}");
                }
            }
            Err(error) => {
                let what = format!("The next generation was not started: {error}");
                say(format_args!("{what}"));
                notify::reloaded(&what);
            }
        }
    }

    fn wait(&self, mut process: Child) {
        let pid = process.id();
        let ended = process.wait();
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Once it has taken over its end is no longer this process's business.
        if *current != Some(pid) {
            return;
        }
        *current = None;
        drop(current);
        let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        let what = format!("The next generation did not come up, and all stays: {how}");
        say(format_args!("{what}"));
        notify::reloaded(&what);
    }

    /// A newer generation has taken over: if it is the one that was started here, it is the service now.
    pub(super) fn has_taken_over(&self) {
        if let Some(pid) = self.set(None) {
            notify::hand_over(pid, &format!("process {pid} has taken over"));
        }
    }

    fn set(&self, pid: Option<u32>) -> Option<u32> {
        std::mem::replace(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), pid)
    }
}

fn next(listen: Option<SocketAddr>) -> Command {
    let program = env::current_exe().map(newest).unwrap_or_else(|_| "quicket".into());
    let mut command = Command::new(program);
    command.args(flags(env::args_os().skip(1), listen)).stdin(Stdio::null());
    command.env(notify::SUCCESSOR, "1");
    command
}

/// The file of that name now, if the one that was started has been replaced.
fn newest(program: PathBuf) -> PathBuf {
    match program.to_str().and_then(|name| name.strip_suffix(DELETED)) {
        Some(name) => name.into(),
        None => program,
    }
}

/// The same flags, and that it takes the place of this one at the same address.
fn flags(given: impl Iterator<Item = OsString>, listen: Option<SocketAddr>) -> Vec<OsString> {
    let mut flags: Vec<_> = given.collect();
    // Behind the command: what follows `--` is no flag.
    let command = flags.iter().position(|flag| flag == COMMAND).map_or(0, |at| at + 1);
    if !flags.iter().any(|flag| flag == REPLACE) {
        flags.insert(command, REPLACE.into());
    }
    if let Some(address) = listen {
        flags.insert(command, format!("--listen={address}").into());
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_generation_has_the_same_flags_and_replaces_this_one() {
        let given = || ["serve", "--switch", "--", "."].into_iter().map(OsString::from);
        let once = flags(given(), None);
        assert_eq!(once, ["serve", REPLACE, "--switch", "--", "."]);
        assert_eq!(flags(once.clone().into_iter(), None), once);
        // A socket that was handed over is not handed on.
        let handed = flags(given(), "[::]:443".parse().ok());
        assert_eq!(handed, ["serve", "--listen=[::]:443", REPLACE, "--switch", "--", "."]);
        assert_eq!(newest("/usr/bin/quicket (deleted)".into()), PathBuf::from("/usr/bin/quicket"));
        assert_eq!(newest("/usr/bin/quicket".into()), PathBuf::from("/usr/bin/quicket"));
    }
}
