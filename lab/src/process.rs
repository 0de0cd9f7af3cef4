//! Child processes that answer in JSON lines, within bounded time.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

/// How much of a child's standard error is kept, in bytes: its end.
const KEPT_ERRORS: usize = 8 * 1024;
/// How long a child may take to end after its standard input has.
const GRACE: Duration = Duration::from_secs(2);
/// How often a child that is waited for is looked at.
const POLL: Duration = Duration::from_millis(2);

/// A running child process.
///
/// It is told to end by the end of its standard input, which comes without fail when this process
/// ends, however that happens. On drop the child is told so and, if need be, killed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    errors: Arc<Mutex<Vec<u8>>>,
}

impl Process {
    /// Starts `command`, which `name` calls in messages.
    ///
    /// # Errors
    ///
    /// When the program cannot be started.
    pub fn start(name: impl Into<String>, command: &mut Command) -> Result<Self, ProcessError> {
        let name = name.into();
        let fail = |problem: String| ProcessError { name: name.clone(), problem };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                fail(format!("cannot start {}: {error}", command.get_program().display()))
            })?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(fail("has no pipes".into()));
        };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = Arc::<Mutex<Vec<u8>>>::default();
        let kept = errors.clone();
        std::thread::spawn(move || keep_end(stderr, &kept));
        Ok(Self { name, child, lines, errors })
    }

    /// The process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of standard output as a `T`; `None` once standard output has ended.
    ///
    /// # Errors
    ///
    /// When none comes before the deadline, or it is no `T`.
    pub fn next<T: DeserializeOwned>(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<T>, ProcessError> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => serde_json::from_str(&line)
                .map(Some)
                .map_err(|error| self.error(format!("printed {line:?}: {error}"))),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(self.error("said nothing in time")),
        }
    }

    /// Ends the child's standard input.
    pub fn end_input(&mut self) {
        self.child.stdin = None;
    }

    /// Waits for the child to end.
    ///
    /// # Errors
    ///
    /// When it does not before the deadline; it is killed then.
    pub fn wait(&mut self, deadline: Instant) -> Result<ExitStatus, ProcessError> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
                Ok(None) => {
                    self.kill();
                    return Err(self.error("did not end in time"));
                }
                Err(error) => return Err(self.error(error.to_string())),
            }
        }
    }

    /// An error of this process, with what it printed on standard error.
    #[must_use]
    pub fn error(&self, problem: impl Into<String>) -> ProcessError {
        let mut problem = problem.into();
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let errors = String::from_utf8_lossy(&errors);
        if !errors.trim().is_empty() {
            problem.push_str("; its standard error: ");
            problem.push_str(errors.trim());
        }
        ProcessError { name: self.name.clone(), problem }
    }

    /// Ends the child at once.
    pub fn kill(&mut self) {
        // Fails only for a child that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end_input();
        let _ = self.wait(Instant::now() + GRACE);
    }
}

fn keep_end(mut from: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&buffer[..length]);
        let surplus = kept.len().saturating_sub(KEPT_ERRORS);
        kept.drain(..surplus);
    }
}

/// What went wrong with a child process.
#[derive(Debug, Clone)]
pub struct ProcessError {
    name: String,
    problem: String,
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.problem)
    }
}

impl std::error::Error for ProcessError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::start("shell", Command::new("sh").args(["-c", script])).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[test]
    fn lines_come_one_by_one_until_the_end() {
        let mut process = shell("echo '[1]'; echo '[2]'");
        assert_eq!(process.next::<Vec<u32>>(soon()).unwrap(), Some(vec![1]));
        assert_eq!(process.next::<Vec<u32>>(soon()).unwrap(), Some(vec![2]));
        assert_eq!(process.next::<Vec<u32>>(soon()).unwrap(), None);
        assert!(process.wait(soon()).unwrap().success());
    }

    #[test]
    fn silence_is_an_error_that_quotes_standard_error() {
        let mut process = shell("echo the reason >&2; exec sleep 60");
        let error = process.next::<u32>(Instant::now() + Duration::from_millis(300)).unwrap_err();
        assert_eq!(error.to_string(), "shell said nothing in time; its standard error: the reason");
        process.wait(Instant::now()).unwrap_err();
    }

    #[test]
    fn the_end_of_input_ends_a_child_and_drop_sees_to_it() {
        let process = shell("read line; echo ended >&2");
        let path = format!("/proc/{}", process.id());
        let start = Instant::now();
        drop(process);
        assert!(start.elapsed() < GRACE);
        assert!(!std::path::Path::new(&path).exists());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Process::start("peer", &mut Command::new("/nowhere/peer")).unwrap_err();
        assert!(error.to_string().starts_with("peer cannot start /nowhere/peer"), "{error}");
    }
}
