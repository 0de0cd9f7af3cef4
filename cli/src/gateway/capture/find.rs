//! The gateway that has a file.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::UCred;
use rustix::process::geteuid;

use super::bounded::Bounded;
use super::{Identity, MAX_QUESTION, PREFIX, Question};
use crate::args::Capture;
use crate::control;
use crate::exit::{Failure, Kind};

/// The most gateways of one user that are asked which file they have.
const MAX_GATEWAYS: usize = 64;
/// How long one may take to say so.
const PATIENCE: Duration = Duration::from_secs(10);

/// A gateway that runs.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Of its socket.
    name: String,
    pub(super) pid: u32,
    pub(super) user: u32,
}

/// The gateway with the file that takes new connections, or the one of the process.
pub(super) fn find(args: &Capture) -> Result<Found, Failure> {
    let cannot = |error| Failure::file(format!("cannot find {}", args.file.display()), &error);
    let file = args.file.canonicalize().map_err(cannot)?;
    let mut all = Vec::new();
    // A user who takes many names, or says nothing, delays root alone, and once.
    let (mut numbers, mut silent) = (HashMap::<u32, usize>::new(), HashSet::new());
    for name in control::names(PREFIX)? {
        let Ok((stream, peer)) = control::connect(&name) else { continue };
        let (pid, user) = process_and_user(&peer);
        let number = numbers.entry(user).or_default();
        *number += 1;
        if *number > MAX_GATEWAYS || silent.contains(&user) {
            continue;
        }
        match who(&stream) {
            Ok(identity) => all.push((Found { name, pid, user }, identity)),
            Err(_) if user == 0 || user == geteuid().as_raw() => {}
            Err(_) => drop(silent.insert(user)),
        }
    }
    choose(all, &file, args.pid).map_err(|why| Failure::new(Kind::Environment, why))
}

/// Connects to it again.
pub(super) fn connect(found: &Found) -> io::Result<UnixStream> {
    let (stream, peer) = control::connect(&found.name)?;
    // Another may have the name by now.
    match process_and_user(&peer) == (found.pid, found.user) {
        true => Ok(stream),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// As the system tells: what a gateway says about itself proves nothing.
fn process_and_user(peer: &UCred) -> (u32, u32) {
    (peer.pid.as_raw_nonzero().get().unsigned_abs(), peer.uid.as_raw())
}

fn who(stream: &UnixStream) -> io::Result<Identity> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let question = serde_json::to_string(&Question::Who)?;
    let mut answer = Bounded::new(stream, PATIENCE, MAX_QUESTION);
    answer.write_all(format!("{question}\n").as_bytes())?;
    let mut text = Vec::new();
    BufReader::new(answer).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::from)
}

fn choose(all: Vec<(Found, Identity)>, file: &Path, pid: Option<u32>) -> Result<Found, String> {
    let those = all.into_iter().filter(|(found, identity)| match pid {
        Some(pid) => found.pid == pid,
        None => identity.file == file && identity.serves,
    });
    let mut those: Vec<Found> = those.map(|(found, _)| found).collect();
    match (those.pop(), those.len()) {
        (Some(one), 0) => Ok(one),
        (None, _) => Err(format!(
            "no gateway of yours with {} runs in this network namespace, or it did not answer; its user or root may ask it",
            file.display()
        )),
        (Some(one), _) => {
            those.push(one);
            let each = those.iter().map(|it| format!("{} (user {})", it.pid, it.user));
            let each = each.collect::<Vec<_>>().join(", ");
            Err(format!("several gateways have {}: choose by --pid, of {each}", file.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_chosen_by_file_and_generation_or_by_process() {
        let gateway = |pid: u32, file: &str, serves| {
            let found = Found { name: pid.to_string(), pid, user: 7 };
            (found, Identity { file: file.into(), serves })
        };
        let all = || {
            vec![
                gateway(1, "/a", false),
                gateway(2, "/a", true),
                gateway(3, "/b", true),
                gateway(4, "/b", true),
            ]
        };
        let choose = |file: &str, pid| choose(all(), Path::new(file), pid).map(|found| found.pid);
        assert_eq!(choose("/a", None), Ok(2));
        assert_eq!(choose("/a", Some(1)), Ok(1));
        assert!(choose("/b", None).unwrap_err().contains("--pid, of 3 (user 7), 4 (user 7)"));
        assert!(choose("/c", None).unwrap_err().contains("no gateway of yours with /c"));
        assert!(choose("/a", Some(9)).is_err());
    }
}
