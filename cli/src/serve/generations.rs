//! The next generation of this server: the same program, perhaps a newer one, with the same flags.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use super::log::say;

/// The command whose flags these are.
const COMMAND: &str = "serve";
/// What takes the place of a program of its name.
const REPLACE: &str = "--replace";
/// What the system writes behind the name of a file that is no more (proc(5)).
const DELETED: &str = " (deleted)";

/// Starts it. It takes over once it is ready; if it does not come so far, nothing changes.
pub(super) fn start_next() {
    match next().spawn() {
        Ok(mut process) => {
            say(format_args!("The next generation is process {}", process.id()));
            // Whoever started it hears how it ends.
            let wait = move || match process.wait() {
                Ok(status) if !status.success() => {
                    say(format_args!(
                        "The next generation did not come up, and all stays: {status}"
                    ));
                }
                _ => {}
            };
            if let Err(error) = thread::Builder::new().name("generation".to_owned()).spawn(wait) {
                log::warn!("nobody hears how the next generation ends: {error}");
            }
        }
        Err(error) => say(format_args!("The next generation was not started: {error}")),
    }
}

fn next() -> Command {
    let program = env::current_exe().map(newest).unwrap_or_else(|_| "quicket".into());
    let mut command = Command::new(program);
    command.args(flags(env::args_os().skip(1))).stdin(Stdio::null());
    command
}

/// The file of that name now, if the one that was started has been replaced.
fn newest(program: PathBuf) -> PathBuf {
    match program.to_str().and_then(|name| name.strip_suffix(DELETED)) {
        Some(name) => name.into(),
        None => program,
    }
}

/// The same flags, and that it takes the place of this one.
fn flags(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut flags: Vec<_> = given.collect();
    if !flags.iter().any(|flag| flag == REPLACE) {
        // Behind the command: what follows `--` is no flag.
        let command = flags.iter().position(|flag| flag == COMMAND).map_or(0, |at| at + 1);
        flags.insert(command, REPLACE.into());
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_generation_has_the_same_flags_and_replaces_this_one() {
        let given = || ["serve", "--switch", "--", "."].into_iter().map(OsString::from);
        let once = flags(given());
        assert_eq!(once, ["serve", REPLACE, "--switch", "--", "."]);
        assert_eq!(flags(once.clone().into_iter()), once);
        assert_eq!(newest("/usr/bin/quicket (deleted)".into()), PathBuf::from("/usr/bin/quicket"));
        assert_eq!(newest("/usr/bin/quicket".into()), PathBuf::from("/usr/bin/quicket"));
    }
}
