//! `quicket switch packets`: ports for stacks of several programs.

use std::io;
use std::path::{Path, PathBuf};

use quicket_packets::daemon::Daemon;
use quicket_packets::{Counters, REASONS};
use quicket_switch::rendezvous;
use rustix::thread::CapabilitySet;

use super::told::until_told;
use super::traffic::some;
use crate::args::SwitchPackets;
use crate::exit::{Failure, Kind};
use crate::out::tell;

/// Forwards until it is told to stop.
pub(super) fn run(args: &SwitchPackets) -> Result<(), Failure> {
    let cannot = |error| Failure::environment("the switch for packets cannot go on", error);
    let path = path(&args.name)?;
    if args.all_users && !may_give_away() {
        tell!(
            "quicket: without root or CAP_CHOWN, programs of other users than this one get no tuples: start it by root, \
             or leave out --all-users"
        );
    }
    crate::serve::raise_limit();
    let daemon = Daemon::bind(&path, args.all_users).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::new(
            Kind::Environment,
            format!("a switch runs at {} already: choose another --name", path.display()),
        ),
        io::ErrorKind::AlreadyExists => Failure::new(
            Kind::Environment,
            format!("there is something at {} already: choose another --name", path.display()),
        ),
        io::ErrorKind::NotFound => Failure::environment(
            format!("cannot listen at {}", path.display()),
            format!("{error}; make the folder, or choose another --name"),
        ),
        _ => Failure::environment(format!("cannot listen at {}", path.display()), error),
    })?;
    let begun = || {
        let state = format!("switch for packets {}", path.display());
        tell!("quicket: {state} is ready");
        crate::notify::ready(&state);
    };
    let work = until_told(move |stopped| daemon.run(stopped), begun, std::future::pending());
    let counters = crate::one_thread()?.block_on(work)?.map_err(cannot)?;
    tell!("quicket: {}", told(&counters));
    Ok(())
}

/// What became of frames, and why those were dropped that were.
fn told(counters: &Counters) -> String {
    let frames = some(counters.received, "frame was", "frames were");
    let mut text = format!("{frames} delivered");
    for reason in REASONS {
        let n = counters.dropped(reason);
        if n > 0 {
            text.push_str(&format!(", {n} dropped: {}", reason.name()));
        }
    }
    text
}

/// Whether this process may give files to other users, as a switch for all of them does with sockets.
fn may_give_away() -> bool {
    let sets = rustix::thread::capabilities(None);
    // Who cannot be asked is not warned of anything.
    sets.map_or(true, |sets| sets.effective.contains(CapabilitySet::CHOWN))
}

/// Where a switch for packets is, by its name or path.
pub(crate) fn path(name: &str) -> Result<PathBuf, Failure> {
    if name.starts_with("fd:") {
        let why = format!(
            "{name} is the connection of a program that quicket switch open has started: only sink, generate and run \
             --tcp-by take one; name the switch, or its path"
        );
        return Err(Failure::new(Kind::Usage, why));
    }
    let path = rendezvous::path(name);
    path.map_err(|error| Failure::environment("cannot find the switch for packets", error))
}

/// The number of a descriptor that names a switch in place of a name or path: `fd:3`, a connection that was handed to this program.
pub(crate) fn descriptor(name: &str) -> Result<Option<i32>, Failure> {
    let Some(number) = name.strip_prefix("fd:") else { return Ok(None) };
    match number.parse() {
        // Those of standard input, output and error have a use.
        Ok(number) if number > 2 => Ok(Some(number)),
        _ => {
            let why = format!("{name}: give a descriptor from 3 on, such as fd:3");
            Err(Failure::new(Kind::Usage, why))
        }
    }
}

/// Why no switch is reached at a path, and what to do.
pub(super) fn unanswered(path: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::InvalidData => "; --name says which",
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "; quicket switch packets starts one, and --name says which"
        }
        io::ErrorKind::PermissionDenied => {
            "; it is another user's: only he and root may, without --all-users"
        }
        _ => "",
    };
    let what = format!("no switch for packets answers at {}", path.display());
    Failure::environment(what, format!("{error}{advice}"))
}
