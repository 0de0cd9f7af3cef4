//! The process that has the TCP stack of a program, and lends it sockets.
//!
//! This process becomes the program, which keeps its number, terminal and signals. So the stack is in another one, which
//! is nobody's child: a program that waits for all of its children must not wait for that. It is started by a
//! process that ends at once.

use std::env;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use quicket_packets::client::inherited;
use quicket_switch::rendezvous;
use quicket_tcp::{Options, Stack};
use quicket_tcp_lender::Lender;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, pidfd_open, setsid};

use crate::args::Run;
use crate::exit::{Failure, Kind};
use crate::switch::packets::descriptor;

/// What comes before an error, in place of what programs are to have in their environment.
const FAILED: &str = "failed: ";
/// The most that it says, in bytes.
const MAX_SAID: u64 = 4096;
/// How long what programs have written may take to be acknowledged when they have gone.
const LINGER: Duration = Duration::from_secs(60);

/// The lowest number of the descriptor by which programs keep the process. Shells and their scripts use lower ones.
const KEPT_FROM: i32 = 1000;

/// Starts the process for this one, at a switch. Returns what the program is to have in its environment. The program, and
/// all that it starts, inherit a descriptor whose last copy keeps the process.
pub(super) fn start(switch: &str) -> Result<String, Failure> {
    if let Some(number) = descriptor(switch)? {
        // Before another descriptor gets that number.
        check(number)?;
    }
    let pid = std::process::id().to_string();
    let (kept, theirs) = UnixStream::pair().map_err(cannot)?;
    let mut command = this(switch, &pid, &[])?;
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(cannot)?;
    drop(command);
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_SAID).read_to_string(&mut said).map_err(cannot)?;
    }
    child.wait().map_err(cannot)?;
    if let Some(number) = descriptor(switch)? {
        // It is for that process, and not for the program.
        drop(inherited(number).map_err(cannot)?);
    }
    if let Some(why) = said.strip_prefix(FAILED) {
        return Err(Failure::new(Kind::Environment, why));
    }
    if said.is_empty() {
        return Err(cannot(io::Error::from(io::ErrorKind::UnexpectedEof)));
    }
    keep(kept.into()).map_err(|error| cannot(error.into()))?;
    Ok(said)
}

/// Refuses a number that cannot be a connection to a switch.
fn check(number: i32) -> Result<(), Failure> {
    let found = std::fs::read_link(format!("/proc/self/fd/{number}"));
    let why = match found {
        Ok(what) if what.as_os_str().as_encoded_bytes().starts_with(b"socket:") => return Ok(()),
        Ok(_) => "is no socket",
        // Without /proc it is found out later.
        Err(_) if !Path::new("/proc/self/fd").exists() => return Ok(()),
        Err(_) => "is closed",
    };
    let text = format!(
        "cannot have TCP by descriptor {number}: it {why}; quicket switch open starts a program with a connection there"
    );
    Err(Failure::new(Kind::Environment, text))
}

/// Has the program inherit a descriptor, which nobody closes but programs.
fn keep(kept: OwnedFd) -> rustix::io::Result<()> {
    let kept = fcntl_dupfd_cloexec(&kept, KEPT_FROM).unwrap_or(kept);
    fcntl_setfd(&kept, FdFlags::empty())?;
    let _ = kept.into_raw_fd();
    Ok(())
}

fn cannot(error: io::Error) -> Failure {
    Failure::environment("cannot start the process that has the program's TCP", error)
}

/// This program, as the process that lends.
fn this(switch: &str, pid: &str, more: &[&str]) -> Result<Command, Failure> {
    let mut command = Command::new(env::current_exe().map_err(cannot)?);
    command.args(["run", "--tcp-by", switch, "--lend-to", pid]).args(more);
    // The program is not looked at.
    command.args(["--", "-"]);
    // A program that was lent sockets itself may have started this one.
    command.env_remove(quicket_tcp_protocol::VARIABLE);
    Ok(command)
}

/// Starts it apart, and ends.
pub(super) fn step_aside(args: &Run) -> Result<(), Failure> {
    let (Some(switch), Some(pid)) = (&args.tcp_by, args.lend_to) else { return Ok(()) };
    let mut command = this(switch, &pid.to_string(), &["--lend-apart"])?;
    command.spawn().map_err(cannot).map(drop)
}

/// Lends until the program has ended, what it has started has ended or closed its copy of the descriptor, and nobody has a
/// socket any more.
pub(super) fn lend(switch: &str, pid: i32) -> Result<(), Failure> {
    let (lender, program) = match prepare(switch, pid) {
        Ok(prepared) => prepared,
        Err(failure) => return say(&format!("{FAILED}{}", failure.message)),
    };
    say(&lender.variable())?;
    let (end, ended) = UnixStream::pair().map_err(cannot)?;
    std::thread::Builder::new().spawn(move || wait(&program, end)).map_err(cannot)?;
    let ended = lender.run(ended.as_fd());
    let stack = ended.map_err(|error| Failure::environment("the program's TCP is over", error))?;
    let _ = stack.wait_until_over(LINGER);
    Ok(())
}

/// Waits for the end of the program and of what keeps this process, and says it by closing `end`.
fn wait(program: &OwnedFd, end: UnixStream) {
    while let Err(Errno::INTR) = poll(&mut [PollFd::new(program, PollFlags::IN)], None) {}
    // Who reads what the program says waits for its end, and not for this.
    let _ = null().map(rustix::stdio::dup2_stderr);
    // A program may write to each descriptor that it finds.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    drop(end);
}

fn null() -> Result<std::fs::File, Failure> {
    std::fs::OpenOptions::new().write(true).open("/dev/null").map_err(cannot)
}

/// Closes all descriptors but the first three, and perhaps another one.
fn close_others(but: Option<i32>) -> io::Result<()> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        numbers.extend(number.filter(|number| *number > 2 && Some(*number) != but));
    }
    for number in numbers {
        // The folder's own is closed already.
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

fn prepare(switch: &str, pid: i32) -> Result<(Lender, std::os::fd::OwnedFd), Failure> {
    // A pipe of the caller's must end with the program.
    let descriptor = descriptor(switch)?;
    close_others(descriptor).map_err(cannot)?;
    // What ends programs, ends this one by their end: what they have written still leaves.
    let _ = setsid();
    let signals: SigSet = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
    signals.thread_block().map_err(|error| cannot(error.into()))?;
    crate::serve::raise_limit();
    let program = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput);
    let program = program.map_err(|kind| cannot(kind.into()))?;
    let program = pidfd_open(program, PidfdFlags::empty()).map_err(|error| cannot(error.into()))?;
    let stack = match descriptor {
        Some(number) => {
            let control = inherited(number);
            let stack = control.and_then(|control| Stack::open_on(control, Options::default()));
            stack.map_err(|error| {
                // Another program has had it.
                let is_over = error.kind() == io::ErrorKind::ConnectionReset;
                let advice = if is_over { ", by quicket switch open" } else { "" };
                let what = format!("cannot have TCP by descriptor {number}");
                Failure::environment(what, format!("{error}{advice}"))
            })?
        }
        None => {
            let stack = Stack::open(rendezvous::path(switch).map_err(cannot)?);
            stack.map_err(|error| Failure::new(Kind::Environment, error.to_string()))?
        }
    };
    Ok((Lender::new(stack).map_err(cannot)?, program))
}

/// Tells the process that becomes the program, which waits for the end of this.
fn say(what: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout();
    stdout.write_all(what.as_bytes()).and_then(|()| stdout.flush()).map_err(cannot)?;
    rustix::stdio::dup2_stdout(null()?).map_err(|error| cannot(error.into()))
}
