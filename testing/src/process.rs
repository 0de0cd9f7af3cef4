use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Stdio};

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub struct Process(pub Child);

impl Process {
    /// Starts a program, and gives the first line that it prints.
    ///
    /// Its standard input is a pipe, so that a program that reads it ends with this process at the latest.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[track_caller]
    pub fn start(command: &mut Command) -> (Self, String) {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}")));
        let mut line = String::new();
        let output = process.stdout.take().expect("a pipe was asked for");
        BufReader::new(output).read_line(&mut line).unwrap();
        (process, line.trim().to_owned())
    }

    /// Whether it has ended.
    ///
    /// # Panics
    ///
    /// If the system does not say so.
    #[track_caller]
    pub fn has_ended(&mut self) -> bool {
        self.try_wait().unwrap().is_some()
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal, as `kill` is told: `-9`, `-HUP`.
///
/// # Panics
///
/// If it cannot be sent.
#[track_caller]
pub fn signal(process: impl Display, signal: &str) {
    let sent = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(sent.unwrap().success(), "{signal} to {process}");
}
