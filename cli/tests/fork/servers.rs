//! Programs that fork, and the switches that they share addresses by.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use quicket::Identity;
use quicket_testing::{LONG, Process, signal};
use tempfile::TempDir;

const QUICKET: &str = env!("CARGO_BIN_EXE_quicket");
pub(crate) const PROTOCOL: &str = "prefork";

/// A switch of a test's own, which ends with it.
pub(crate) struct Switch {
    pub(crate) name: String,
    pub(crate) dir: TempDir,
}

/// A program that was compiled, in one of two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// With the library's calls in place of the system's.
    Linked,
    /// With the system's, under `quicket run`.
    Run,
}

impl Switch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::self_signed(["localhost"]).unwrap();
        fs::write(dir.path().join("certificate"), identity.chain_pem()).unwrap();
        fs::write(dir.path().join("key"), identity.key_pem()).unwrap();
        Self { name: format!("quicket-fork-{}-{count}", std::process::id()), dir }
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let report = quicket_switch::client::status(&self.name).unwrap();
        serde_json::from_str(&report).unwrap()
    }

    /// Waits until the report says so.
    pub(crate) fn wait_until(&self, is_so: impl Fn(&serde_json::Value) -> bool) {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return;
            }
            assert!(begun.elapsed() < LONG, "{status:#}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let file = |name: &str| self.dir.path().join(name);
        command.env("QUICKET_SWITCH", &self.name).env("QUICKET_SWITCH_PROGRAM", QUICKET);
        command.env("KEY", file("key")).env("CERTIFICATE", file("certificate"));
        command.env("XDG_CACHE_HOME", cache()).env("XDG_DATA_HOME", self.dir.path());
        command.env_remove("QUICKET_SWITCH_LISTENERS").env_remove("LATE").env_remove("POLLS");
        command
    }

    /// The program in C, whose parent does so after it has forked.
    pub(crate) fn c(&self, way: Way, children: usize, then: &str) -> Command {
        let [interposed, linked] = compiled();
        let mut command = match way {
            Way::Linked => {
                let mut command = self.command(linked);
                command.env("QUICKET_SWITCH_LISTENERS", "prefork");
                command.env("LD_LIBRARY_PATH", libraries());
                command
            }
            Way::Run => {
                let mut command = self.command(QUICKET);
                command.args(["run", "--switch=prefork", "--"]).arg(interposed);
                command
            }
        };
        command.args(["0", PROTOCOL, &children.to_string(), then]);
        command
    }

    /// The same of a program that does not share its address from the beginning.
    pub(crate) fn alone(&self, way: Way, children: usize, then: &str) -> Command {
        let shares = self.c(way, children, then);
        let arguments: Vec<_> = shares.get_args().map(ToOwned::to_owned).collect();
        let mut alone = self.command(shares.get_program());
        alone.args(arguments.into_iter().filter(|argument| argument != "--switch=prefork"));
        if way == Way::Linked {
            alone.env("LD_LIBRARY_PATH", libraries());
        }
        alone
    }

    pub(crate) fn python(&self, children: usize, how: &str) -> Command {
        let mut command = self.command(QUICKET);
        command.args(["run", "--switch=prefork", "--", "python3"]);
        command.arg(here("tests/python/prefork.py"));
        command.args(["0", PROTOCOL, &children.to_string(), how]);
        command
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Ok(report) = quicket_switch::client::status(&self.name) {
            let report: serde_json::Value = serde_json::from_str(&report).unwrap();
            signal(report["pid"].as_u64().unwrap(), "-9");
        }
    }
}

pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where `quicket run` unpacks its library, once for all tests.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache")
}

/// Cargo puts them beside the tests that they are built for.
pub(crate) fn libraries() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// The program in C, with the system's calls and with the library's.
fn compiled() -> &'static [PathBuf; 2] {
    static COMPILED: OnceLock<[PathBuf; 2]> = OnceLock::new();
    COMPILED.get_or_init(|| {
        ["prefork", "linked-prefork"].map(|name| {
            let program = format!("{name}-{}", std::process::id());
            let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
            let mut cc = Command::new("cc");
            cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]);
            cc.arg(here("../c/include"));
            if name.starts_with("linked") {
                cc.arg("-include").arg(here("../preload/tests/programs/system.h"));
            }
            cc.arg("-o").args([&program, &here("tests/programs/prefork.c")]);
            if name.starts_with("linked") {
                cc.arg("-L").arg(libraries()).arg("-lquicket_c");
            }
            let compiled = cc.arg("-ldl").output().unwrap();
            assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
            program
        })
    })
}

/// A server and its processes, which end with its input.
pub(crate) struct Server {
    pub(crate) process: Process,
    /// It ends with this.
    _input: ChildStdin,
    pub(crate) lines: Receiver<String>,
    pub(crate) children: Vec<u64>,
    pub(crate) at: SocketAddr,
}

impl Server {
    /// Waits until it and its children are there.
    pub(crate) fn start(command: Command, children: usize) -> Self {
        let mut server = Self::spawn(command);
        while server.children.len() < children || server.at.port() == 0 {
            let line = server.line();
            match line.split_once(' ') {
                Some(("CHILD", process)) => server.children.push(process.parse().unwrap()),
                Some(("READY", address)) => {
                    server.at = address.parse().unwrap_or_else(|_| panic!("{line:?}"));
                }
                _ => panic!("{line}"),
            }
        }
        server
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let output = BufReader::new(process.stdout.take().unwrap());
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let input = process.stdin.take().unwrap();
        let at = "127.0.0.1:0".parse().unwrap();
        Self { process, _input: input, lines, children: Vec::new(), at }
    }

    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(LONG).expect("it has ended, or says nothing")
    }

    pub(crate) fn is_child(&self, process: u64) -> bool {
        self.children.contains(&process)
    }

    /// Has a process close the listener.
    pub(crate) fn close(&self, process: u64) {
        let begun = Instant::now();
        loop {
            // One that comes the moment before it sleeps does not interrupt it.
            signal(process, "-USR1");
            match self.lines.recv_timeout(Duration::from_millis(500)) {
                Ok(line) => return assert_eq!(line, format!("CLOSED {process}")),
                Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
            }
        }
    }
}
