//! What the tests share: the real program, as a server process and as client processes.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod site;
#[cfg(target_os = "linux")]
pub(crate) mod switch;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use quicket::Connection;
use serde_json::Value;
use tempfile::TempDir;

/// The program, with directories of its own to keep things in.
pub(crate) fn quicket(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quicket"));
    command.env_clear();
    command.env("HOME", home).env("NO_COLOR", "1");
    // Root's would be one of the system.
    command.env("XDG_CACHE_HOME", home.join(".cache"));
    command.current_dir(home);
    command.stdin(Stdio::null());
    command
}

/// A server process that serves a directory with a few files.
pub(crate) struct Server {
    child: Child,
    events: BufReader<ChildStdout>,
    /// Holds everything: the served directory is `root`.
    pub(crate) dir: TempDir,
    pub(crate) address: String,
    pub(crate) pin: String,
}

/// The answer to a question, on a stream of its own.
pub(crate) fn ask(connection: &Connection, question: &str) -> io::Result<String> {
    let mut stream = connection.open_bi().map_err(io::Error::other)?;
    stream.write_all(question.as_bytes())?;
    stream.finish().map_err(io::Error::other)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Something that no two megabytes of are alike.
pub(crate) fn content(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("sub dir")).unwrap();
        fs::write(root.join("hello.txt"), "hello, world\n").unwrap();
        fs::write(root.join("empty"), "").unwrap();
        fs::write(root.join("sub dir/page.html"), "<p>page").unwrap();
        fs::write(root.join("large"), content(8_000_000)).unwrap();
        fs::write(dir.path().join("private"), "private").unwrap();
        Self::start_in(dir, flags)
    }

    /// Starts in a directory that an earlier server may have used.
    pub(crate) fn start_in(dir: TempDir, flags: &[&str]) -> Self {
        let mut command = quicket(dir.path());
        command.args(["serve", "root", "--json"]).args(flags);
        if !flags.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let events = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, events, dir, address: String::new(), pin: String::new() };
        let listening = server.event("listening");
        server.address = listening["address"].as_str().unwrap().to_owned();
        server.pin = listening["pin"].as_str().unwrap_or_default().to_owned();
        server
    }

    /// The next event of this name.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        loop {
            let mut line = String::new();
            if self.events.read_line(&mut line).unwrap() == 0 {
                let mut log = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
                panic!("the server ended: {log}");
            }
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["event"] == name {
                return event;
            }
        }
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `quicket get` with these arguments, trusting this server.
    pub(crate) fn get(&self, arguments: &[&str]) -> Outcome {
        let all: Vec<&str> = ["--pin", &self.pin].iter().chain(arguments).copied().collect();
        get(self.dir.path(), &all)
    }

    /// Ends the server without a word to anybody; its directory.
    pub(crate) fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }

    /// As [`Server::interrupt`], and once more as soon as it says that it stops.
    pub(crate) fn interrupt_twice(mut self) -> (std::process::ExitStatus, String, TempDir) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let mut stderr = BufReader::new(self.child.stderr.take().unwrap());
        let mut log = String::new();
        while !log.contains("Stopping") {
            assert!(stderr.read_line(&mut log).unwrap() > 0, "{log}");
        }
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        stderr.read_to_string(&mut log).unwrap();
        let status = self.child.wait().unwrap();
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        (status, log, dir)
    }

    /// Interrupts the server and waits for its end; its exit status and log.
    pub(crate) fn interrupt(mut self) -> (std::process::ExitStatus, String, TempDir) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        let status = self.child.wait().unwrap();
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        (status, log, dir)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a client process ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The report of `--json`.
    pub(crate) fn report(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        self
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// `openssl req -x509` with these names and nothing else that it does not do by itself, to NAME.pem and
/// NAME.key.
pub(crate) fn openssl(dir: &Path, name: &str, names: &str) {
    let mut command = Command::new("openssl");
    command.current_dir(dir).args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
    command.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")]);
    command.args(["-subj", "/CN=localhost", "-addext", &format!("subjectAltName={names}")]);
    let made = command.output().expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// `quicket get` with these arguments.
pub(crate) fn get<S: AsRef<OsStr>>(home: &Path, arguments: &[S]) -> Outcome {
    quicket(home).arg("get").args(arguments).output().unwrap().into()
}
