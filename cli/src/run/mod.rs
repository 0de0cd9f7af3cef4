//! `quicket run`: a program with QUIC sockets, and perhaps with those of a TCP stack in user space.

mod embedded;
mod gains;
#[cfg(target_os = "linux")]
mod lend;
mod program;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::Run;
use crate::exit::{Failure, Kind};

/// The library's file.
const LIBRARY: &str = "libquicket_preload.so";
/// Where it may be, seen from the directory of this program.
const PLACES: [&str; 3] = [".", "../lib/quicket", "../lib"];
/// What the dynamic loader reads.
const VARIABLE: &str = "LD_PRELOAD";

/// Becomes the program; returns only if that fails.
pub(crate) fn run(args: &Run) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    if let (Some(pid), Some(switch)) = (args.lend_to, &args.tcp_by) {
        return match args.lend_apart {
            true => lend::lend(switch, pid),
            false => lend::step_aside(args),
        };
    }
    let name = args.program.name()?;
    let library = library(args.library.as_deref())?;
    program::check(&program::find(name)?)?;
    let preload = with(&library, env::var_os(VARIABLE).as_deref())?;
    args.program.exec(|command| {
        command.env(VARIABLE, preload);
        #[cfg(target_os = "linux")]
        {
            share(command, args.switch.as_deref());
            if let Some(switch) = &args.tcp_by {
                command.env(quicket_tcp_protocol::VARIABLE, lend::start(switch)?);
            }
        }
        Ok(())
    })
}

/// Has the program share the addresses that it listens on, from the beginning if it is `called` something.
#[cfg(target_os = "linux")]
fn share(command: &mut Command, called: Option<&str>) {
    use quicket_switch::client::PROGRAM_VARIABLE;

    if let Some(called) = called {
        command.env(quicket::SwitchConfig::LISTENERS_VARIABLE, called);
    }
    // The program cannot know where this one is, which it starts as the switch: also if its children accept.
    if let (None, Ok(this)) = (env::var_os(PROGRAM_VARIABLE), env::current_exe()) {
        command.env(PROGRAM_VARIABLE, this);
    }
}

/// Finds the library.
fn library(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        let path = given.canonicalize().map_err(|error| {
            Failure::environment(format!("cannot use {}", given.display()), error)
        })?;
        program::check_library(&path)?;
        return Ok(path);
    }
    if let Some(unpacked) = embedded::library() {
        return unpacked;
    }
    let this = env::current_exe()
        .map_err(|error| Failure::environment("cannot tell where this program is", error))?;
    let beside = this.parent().unwrap_or(Path::new("/"));
    let places = PLACES.map(|place| beside.join(place).join(LIBRARY));
    places.iter().find_map(|place| place.canonicalize().ok()).ok_or_else(|| {
        let message = format!(
            "this program was built without {LIBRARY} (from a checkout, `cargo install --path cli` \
             and `./install` build one with it), and it is neither in {} nor in ../lib: build it \
             with `cargo build --release -p quicket-preload` and put it there, or name it with \
             --library",
            beside.display()
        );
        Failure::new(Kind::Environment, message)
    })
}

/// The variable with the library before what is there.
fn with(library: &Path, before: Option<&OsStr>) -> Result<OsString, Failure> {
    let path = library.as_os_str();
    // The loader takes these for the end of a name.
    if path.as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        let message = format!(
            "the loader cannot preload {}: put it where no name has a space or a colon",
            library.display()
        );
        return Err(Failure::new(Kind::Environment, message));
    }
    let mut value = path.to_owned();
    let others = before.map(OsStr::as_bytes).unwrap_or_default();
    let is_there =
        others.split(|byte| matches!(byte, b' ' | b':')).any(|one| one == path.as_bytes());
    if let (false, Some(before)) = (is_there || others.is_empty(), before) {
        value.push(":");
        value.push(before);
    } else if let (true, Some(before)) = (is_there, before) {
        value = before.to_owned();
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_libraries_stay_and_ours_comes_once() {
        let library = Path::new("/lib/ours.so");
        let with = |before: Option<&str>| with(library, before.map(OsStr::new)).unwrap();
        assert_eq!(with(None), "/lib/ours.so");
        assert_eq!(with(Some("")), "/lib/ours.so");
        assert_eq!(with(Some("a.so:b.so")), "/lib/ours.so:a.so:b.so");
        assert_eq!(with(Some("a.so /lib/ours.so")), "a.so /lib/ours.so");
    }

    #[test]
    fn a_name_that_the_loader_would_split_is_refused() {
        assert!(with(Path::new("/my lib/ours.so"), None).is_err());
        assert!(with(Path::new("/a:b/ours.so"), None).is_err());
    }
}
