//! A switch that goes on when the one who started it has ended.

use std::io::Read;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::exit::{Failure, Kind};
use crate::out::tell;

/// How long a switch may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most that is kept of what it says until then, in bytes: the last.
const MAX_SAID: usize = 64 << 10;

/// What a switch says as soon as programs find it.
pub(super) fn ready(name: &str) -> String {
    format!("quicket: switch {name} is ready")
}

/// Why it ends where there is another one.
pub(super) fn already(name: &str) -> String {
    format!("there is a switch {name} already; quicket switch status shows what it does")
}

/// Starts a switch and waits until it is ready, or is not needed as there is one of this name. What it says until then
/// comes on standard error; after that nobody hears it.
pub(super) fn start(command: &mut Command, name: &str) -> Result<(), Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let cannot = |error| Failure::environment("cannot start the switch", error);
    let mut child = command.spawn().map_err(cannot)?;
    let (sender, said) = mpsc::channel();
    if let Some(stderr) = child.stderr.take() {
        thread::spawn(move || listen(stderr, &sender));
    }
    let mut all = String::new();
    let (begun, ready) = (Instant::now(), format!("{}\n", ready(name)));
    loop {
        match said.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
            Ok(piece) => {
                if all.len() > MAX_SAID {
                    all.clear();
                }
                all.push_str(&piece);
            }
            Err(RecvTimeoutError::Disconnected) => return ended(child, &all, name),
            Err(RecvTimeoutError::Timeout) => {
                let message = format!(
                    "the switch {name} runs as process {}, and is not ready after {PATIENCE:?}: {}",
                    child.id(),
                    all.trim_end()
                );
                return Err(Failure::new(Kind::Environment, message));
            }
        }
        if let Some(before) = all.strip_suffix(&ready) {
            before.lines().for_each(|line| tell!("{line}"));
            return Ok(());
        }
    }
}

/// Passes on what is said.
fn listen(mut stderr: ChildStderr, to: &Sender<String>) {
    let mut piece = [0; 4096];
    while let Ok(n @ 1..) = stderr.read(&mut piece) {
        if to.send(String::from_utf8_lossy(&piece[..n]).into_owned()).is_err() {
            return;
        }
    }
}

/// It has ended before it was ready: its last line says why.
fn ended(mut child: Child, said: &str, name: &str) -> Result<(), Failure> {
    // Where children are not waited for (SIGCHLD), nobody knows the code.
    let code = child.wait().ok().as_ref().and_then(ExitStatus::code);
    let lines: Vec<&str> = said.lines().collect();
    let Some((last, before)) = lines.split_last() else {
        let message = "the switch ended at once, and did not say why";
        return Err(Failure::new(Kind::Environment, message));
    };
    let why = last.strip_prefix("quicket: ").unwrap_or(last);
    if why == already(name) {
        return Ok(());
    }
    before.iter().for_each(|line| tell!("{line}"));
    let kind = if code == Some(Kind::Usage as i32) { Kind::Usage } else { Kind::Environment };
    Err(Failure::new(kind, why))
}
