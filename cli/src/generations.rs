//! The next generation of a server: the same program, perhaps a newer one, with the same flags.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use quicket::SwitchConfig;

use crate::exit::{Failure, Kind};
use crate::serve::say;
use crate::{heritage, notify};

/// What takes the place of a program of its name.
const REPLACE: &str = "--replace";
/// What the system writes behind the name of a file that is no more (proc(5)).
const DELETED: &str = " (deleted)";

/// How long the word that a generation has taken over may be behind the word that it has ended.
const NOTICE_TIME: Duration = Duration::from_secs(1);

/// What the next generation is started with.
#[derive(Debug)]
pub(crate) struct Next {
    /// The command whose flags this process has.
    pub(crate) command: &'static str,
    /// Flags that this process has not.
    pub(crate) more: Vec<OsString>,
    /// Sockets that it goes on with.
    pub(crate) sockets: Vec<OwnedFd>,
}

/// The next generation, and what it gets. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Heirs {
    command: &'static str,
    more: Vec<OsString>,
    pub(crate) successor: Successor,
    /// None where it gets none: there is no switch that starts it, or this process takes nothing new any more.
    sockets: Arc<Mutex<Option<Vec<OwnedFd>>>>,
}

impl Heirs {
    /// Of a process that runs this command; they are started with `more` flags.
    pub(crate) fn new(command: &'static str, more: Vec<OsString>) -> Self {
        Self { command, more, successor: Successor::default(), sockets: Arc::default() }
    }

    /// Has the switch start it, and tell of it.
    pub(crate) fn heed(&self, switch: SwitchConfig) -> SwitchConfig {
        self.sockets().get_or_insert_default();
        let (starter, heir) = (self.clone(), self.successor.clone());
        switch.on_upgrade(move || starter.start()).on_superseded(move || heir.has_taken_over())
    }

    /// Leaves sockets to it, beside others.
    pub(crate) fn leave(&self, sockets: impl IntoIterator<Item = OwnedFd>) {
        if let Some(left) = self.sockets().as_mut() {
            left.extend(sockets);
        }
    }

    /// Closes what was left to it, and leaves it nothing more. As long as this process has a listener of TCP, the system
    /// takes connections for it, and nobody else gets its port.
    pub(crate) fn leave_nothing(&self) {
        *self.sockets() = None;
    }

    fn start(&self) {
        let sockets: io::Result<_> =
            self.sockets().iter().flatten().map(OwnedFd::try_clone).collect();
        let (command, more) = (self.command, self.more.clone());
        match sockets {
            Ok(sockets) => self.successor.start(&Next { command, more, sockets }),
            Err(error) => say(format_args!("No next generation was started: {error}")),
        }
    }

    fn sockets(&self) -> MutexGuard<'_, Option<Vec<OwnedFd>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far the next generation is.
#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    /// There is none.
    #[default]
    None,
    /// This process has started it, and it comes up.
    Coming(u32),
    /// It has ended, in this way. That it had taken over may be heard yet.
    Ended(String),
    /// It is the service; the one that was started here is known by its process.
    Serves(Option<u32>),
    /// It was the service, and has failed: nobody is.
    Lost(String),
}

impl Stage {
    /// Which one is awaited, in words.
    fn awaited(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Coming(pid) => Some(format!("process {pid} is still coming up")),
            Self::Ended(_) => Some("the one before has just ended".to_owned()),
            Self::Serves(_) | Self::Lost(_) => Some("a newer one has taken over".to_owned()),
        }
    }

    /// A process that was started here has ended.
    fn end(&mut self, process: u32, well: bool, how: String) {
        match self {
            Self::Coming(pid) if *pid == process => *self = Self::Ended(how),
            // One that has been replaced ends well.
            Self::Serves(Some(pid)) if *pid == process && !well => *self = Self::Lost(how),
            _ => {}
        }
    }

    /// A newer generation has taken over. Returns the process that is the service now, if it was started
    /// here.
    fn take_over(&mut self) -> Option<u32> {
        match std::mem::take(self) {
            Self::Coming(pid) => {
                *self = Self::Serves(Some(pid));
                Some(pid)
            }
            Self::Ended(how) => {
                *self = Self::Lost(how);
                None
            }
            Self::None => {
                *self = Self::Serves(None);
                None
            }
            told @ (Self::Serves(_) | Self::Lost(_)) => {
                *self = told;
                None
            }
        }
    }

    /// Nothing more is heard of one that has ended. Returns how it did, if it had not taken over.
    fn give_up(&mut self) -> Option<String> {
        match std::mem::take(self) {
            Self::Ended(how) => Some(how),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// The next generation, as far as this process knows of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Successor(Arc<Mutex<Stage>>);

impl Successor {
    /// Starts it, one at a time. It takes over once it is ready; if it does not come so far, nothing
    /// changes.
    pub(crate) fn start(&self, next: &Next) {
        let mut stage = self.stage();
        if let Some(why) = stage.awaited() {
            drop(stage);
            let what = format!("No next generation was started: {why}");
            say(format_args!("{what}"));
            return notify::status(&what);
        }
        notify::reloading("starting the next generation");
        match next.command().and_then(|mut command| command.spawn()) {
            Ok(process) => {
                *stage = Stage::Coming(process.id());
                drop(stage);
                say(format_args!("The next generation is process {}", process.id()));
                let this = self.clone();
                // Whoever started it hears how it ends.
                let wait = move || this.wait(process);
                let spawned = thread::Builder::new().name("generation".to_owned()).spawn(wait);
                if let Err(error) = spawned {
                    log::warn!("nobody hears how the next generation ends: {error}");
                }
            }
            Err(error) => {
                drop(stage);
                let what = format!("The next generation was not started: {error}");
                say(format_args!("{what}"));
                notify::reloaded(&what);
            }
        }
    }

    fn wait(&self, mut process: Child) {
        let ended = process.wait();
        let well = ended.as_ref().is_ok_and(ExitStatus::success);
        let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        self.stage().end(process.id(), well, how);
        thread::sleep(NOTICE_TIME);
        let Some(how) = self.stage().give_up() else { return };
        let what = format!("The next generation did not come up, and all stays: {how}");
        say(format_args!("{what}"));
        notify::reloaded(&what);
    }

    /// A newer generation has taken over: if it is the one that was started here, it is the service from
    /// now on, and what becomes of it is the service manager's business.
    pub(crate) fn has_taken_over(&self) {
        let process = self.stage().take_over();
        if let Some(pid) = process {
            notify::hand_over(pid, &format!("process {pid} has taken over"));
        }
    }

    /// An error if the next generation has taken over and failed at once.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &*self.stage() {
            Stage::Lost(how) => Err(Failure::new(
                Kind::Environment,
                format!(
                    "the next generation took over and ended ({how}): nobody serves now; see what it \
                     said, and start the server again"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Next {
    fn command(&self) -> io::Result<Command> {
        let program = env::current_exe().map(newest).unwrap_or_else(|_| "quicket".into());
        let mut command = Command::new(program);
        command.args(self.flags(env::args_os().skip(1)));
        command.stdin(heritage::give(&self.sockets)?).env(notify::SUCCESSOR, "1");
        Ok(command)
    }

    /// The same flags, and that it takes the place of this one at the same address.
    fn flags(&self, given: impl Iterator<Item = OsString>) -> Vec<OsString> {
        let mut flags: Vec<_> = given.collect();
        // Behind the command: what follows `--` is no flag.
        let command = flags.iter().position(|flag| flag == self.command).map_or(0, |at| at + 1);
        if !flags.iter().any(|flag| flag == REPLACE) {
            flags.insert(command, REPLACE.into());
        }
        flags.splice(command..command, self.more.iter().cloned());
        flags
    }
}

/// The file of that name now, if the one that was started has been replaced.
fn newest(program: PathBuf) -> PathBuf {
    match program.to_str().and_then(|name| name.strip_suffix(DELETED)) {
        Some(name) => name.into(),
        None => program,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(flag: Option<&str>) -> Next {
        let more = flag.into_iter().map(OsString::from).collect();
        Next { command: "serve", more, sockets: Vec::new() }
    }

    #[test]
    fn one_next_generation_is_awaited_at_a_time() {
        let successor = Successor(Arc::new(Mutex::new(Stage::Coming(7))));
        // It would run the program of the test.
        successor.start(&next(None));
        assert_eq!(*successor.stage(), Stage::Coming(7));
        assert!(successor.stage().awaited().unwrap().contains("process 7"));
        assert_eq!(Stage::None.awaited(), None);
        for stage in [Stage::Ended("so".into()), Stage::Serves(None), Stage::Lost("so".into())] {
            assert!(stage.awaited().is_some());
        }
    }

    #[test]
    fn one_that_ends_before_it_takes_over_changes_nothing() {
        let mut stage = Stage::Coming(7);
        stage.end(6, false, "another".into());
        assert_eq!((stage.give_up(), &stage), (None, &Stage::Coming(7)));
        stage.end(7, false, "exit status: 1".into());
        assert_eq!(stage.give_up().as_deref(), Some("exit status: 1"));
        assert_eq!(stage, Stage::None);
        // Somebody starts one by hand.
        assert_eq!(stage.take_over(), None);
        assert_eq!(stage, Stage::Serves(None));
    }

    /// Whichever is heard first.
    #[test]
    fn one_that_takes_over_and_fails_leaves_nobody_and_all_does_not_stay() {
        let lost = || Stage::Lost("signal: 9".into());
        let mut stage = Stage::Coming(7);
        stage.end(7, false, "signal: 9".into());
        assert_eq!(stage.take_over(), None);
        assert_eq!((stage.give_up(), &stage), (None, &lost()));
        let mut stage = Stage::Coming(7);
        assert_eq!(stage.take_over(), Some(7));
        assert_eq!(stage.take_over(), None, "it is said once");
        stage.end(7, false, "signal: 9".into());
        assert_eq!((stage.give_up(), &stage), (None, &lost()));
        let error = Successor(Arc::new(Mutex::new(stage))).check().unwrap_err();
        assert!(error.message.contains("(signal: 9)"), "{}", error.message);
        // Replaced in its turn.
        let mut stage = Stage::Serves(Some(7));
        stage.end(7, true, "exit status: 0".into());
        assert!(Successor(Arc::new(Mutex::new(stage))).check().is_ok());
    }

    #[test]
    fn the_next_generation_has_the_same_flags_and_replaces_this_one() {
        let given = || ["serve", "--switch", "--", "."].into_iter().map(OsString::from);
        let once = next(None).flags(given());
        assert_eq!(once, ["serve", REPLACE, "--switch", "--", "."]);
        assert_eq!(next(None).flags(once.clone().into_iter()), once);
        // A socket that was handed over is not handed on.
        let handed = next(Some("--listen=[::]:443")).flags(given());
        assert_eq!(handed, ["serve", "--listen=[::]:443", REPLACE, "--switch", "--", "."]);
        assert_eq!(newest("/usr/bin/quicket (deleted)".into()), PathBuf::from("/usr/bin/quicket"));
        assert_eq!(newest("/usr/bin/quicket".into()), PathBuf::from("/usr/bin/quicket"));
    }
}
