//! redis-server, which we did not write.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use quicket_testing::{Process, until};

/// How old a mark is made: older than what gateways wait for.
const OLD: u64 = 200_000;
/// Where a register's mark is.
const MARK: &str = "quicket:early:mark";

/// A store, in a directory of its own.
pub(crate) struct Store {
    process: Option<Process>,
    dir: PathBuf,
    name: &'static str,
    /// What it is told more.
    options: Vec<String>,
}

impl Store {
    /// Starts one that listens on a Unix socket.
    pub(crate) fn start(dir: &Path, name: &'static str) -> Self {
        Self::start_with(dir, name, Vec::new())
    }

    /// The same, told more.
    pub(crate) fn start_with(dir: &Path, name: &'static str, options: Vec<String>) -> Self {
        let mut store = Self { process: None, dir: dir.to_owned(), name, options };
        store.run();
        store
    }

    fn run(&mut self) {
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"]).arg(&self.dir);
        command
            .args(["--dbfilename", &format!("{}.rdb", self.name), "--unixsocket"])
            .arg(self.socket())
            .args(&self.options);
        let child = command.stdout(Stdio::null()).spawn();
        self.process = Some(Process(child.expect("apt-get install redis-server")));
        until("redis", || self.say(&["PING"]) == "PONG");
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join(format!("{}.sock", self.name))
    }

    /// Kills it, and starts another one, with what was saved.
    pub(crate) fn restart(&mut self) {
        self.process = None;
        self.run();
    }

    /// What it answers to a command.
    pub(crate) fn say(&self, command: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        let output = cli.arg("-s").arg(self.socket()).args(command).output();
        let output = output.expect("apt-get install redis-tools");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Has it be known for long enough, as if the time had passed.
    pub(crate) fn age(&self) {
        until("a mark", || self.mark().is_some());
        let mark = self.mark().unwrap();
        let mut words: Vec<String> = mark.split(' ').map(str::to_owned).collect();
        let began: u64 = words[4].parse().unwrap();
        words[4] = (began - OLD).to_string();
        assert_eq!(self.say(&["SET", MARK, &words.join(" ")]), "OK");
    }

    fn mark(&self) -> Option<String> {
        let info = self.say(&["INFO"]);
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let own = [field("run_id:"), field("master_replid:"), field("evicted_keys:")].join(" ");
        Some(self.say(&["GET", MARK])).filter(|mark| mark.contains(&own))
    }
}
