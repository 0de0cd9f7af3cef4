//! `quicket gateway` where the system, the disk or the operator lets it down.

mod common;

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::site::Site;
use common::{openssl, quicket};
use quicket_testing::until;
use serde_json::Value;

impl Site {
    /// One that answers all requests itself, after these lines of a shell, which say what the system gives it.
    fn start(shell: &str) -> Self {
        let (dir, port) = Self::folder();
        fs::write(dir.path().join("site.toml"), file(port, "hello")).unwrap();
        let program = quicket(dir.path()).get_program().to_owned();
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{shell}\nexec \"$0\" gateway site.toml")).arg(program);
        command.env("HOME", dir.path()).env("NO_COLOR", "1").current_dir(dir.path());
        command.stdin(Stdio::null());
        Self::run_by(dir, port, command)
    }

    /// The body of an answer; nothing if there is none.
    fn get(&self, path: &str) -> String {
        let mut command = Command::new("curl");
        command.args(["-s", "--cacert", "cert.pem", "--max-time", "20"]);
        command.arg(format!("https://localhost:{}{path}", self.port));
        let output = command.current_dir(self.dir.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.gateway.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

fn file(port: u16, body: &str) -> String {
    format!(
        "listen = [\"127.0.0.1:{port}\"]\naccess_log = \"access.log\"\n\
         [[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{ body = \"{body}\" }}\n"
    )
}

/// A read takes as long as its page, which a pipe has; all signals that come meanwhile are one more read.
#[test]
fn fifty_reloads_while_a_file_is_read_are_one_more_and_the_last_one_wins() {
    let site = Site::start("");
    let reads = || site.text("gateway.log").matches("Read again").count();
    assert!(Command::new("mkfifo").arg(site.path("page")).status().unwrap().success());
    let slow = file(site.port, "slow")
        .replace("names = [\"*\"]\n", "names = [\"*\"]\nerror_page = { 404 = \"page\" }\n");
    fs::write(site.path("site.toml"), slow).unwrap();
    for at in 1..=50 {
        fs::write(site.path(&format!("site.{at}")), file(site.port, &format!("file {at}")))
            .unwrap();
    }
    site.signal("HUP");
    let (opened, page) = mpsc::channel();
    let pipe = site.path("page");
    // This waits until the gateway has opened it, too.
    thread::spawn(move || opened.send(fs::OpenOptions::new().write(true).open(pipe).unwrap()));
    let mut page = page.recv_timeout(Duration::from_secs(20)).expect("the page is read");
    let mut command = Command::new("sh");
    command.arg("-c").arg("for at in $(seq 50); do mv site.$at site.toml; kill -HUP $0; done");
    command.arg(site.gateway.id().to_string()).current_dir(site.dir.path());
    let mut signals = command.spawn().unwrap();
    loop {
        let is_over = signals.try_wait().unwrap().is_some();
        assert_eq!(site.get("/"), "hello", "what was read last answers");
        if is_over {
            break;
        }
    }
    assert_eq!(reads(), 0);
    page.write_all(b"<p>").unwrap();
    drop(page);
    until("the last file", || site.get("/") == "file 50");
    // Were there more reads, they would have come by now.
    assert!((0..20).all(|_| site.get("/") == "file 50"));
    assert_eq!(reads(), 2, "{}", site.text("gateway.log"));
    assert!(!site.text("gateway.log").contains("All stays as it was"));
}

#[test]
fn a_gateway_without_descriptors_says_so_and_recovers() {
    let site = Site::start("ulimit -n 64");
    assert_eq!(site.get("/"), "hello");
    // Each costs one as long as it says nothing.
    let connect = || TcpStream::connect(("127.0.0.1", site.port)).unwrap();
    let held: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    let told =
        || site.text("gateway.log").contains("cannot accept a connection: Too many open files");
    until("a word", told);
    drop(held);
    until("an answer", || site.get("/") == "hello");
}

#[test]
fn a_log_on_a_full_disk_loses_whole_lines_and_counts_them() {
    const REQUESTS: u64 = 20;
    // Files of more than 2 KiB cannot be written, as if the disk were full.
    let site = Site::start("trap '' XFSZ; ulimit -f 4");
    for at in 0..REQUESTS {
        assert_eq!(site.get(&format!("/{at}")), "hello");
    }
    until("a full log", || site.text("access.log").len() >= 2048);
    let log = site.text("access.log");
    let (whole, torn) = log.rsplit_once('\n').unwrap();
    let whole: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let whole = whole.len() as u64;
    assert!(whole > 0 && whole < REQUESTS, "{log}");
    assert!(!torn.is_empty(), "the size is no multiple of a line's: {log}");
    // There is room again behind the line that was torn.
    fs::write(site.path("access.log"), torn).unwrap();
    let after = || -> Vec<Value> {
        let log = site.text("access.log");
        let (first, rest) = log.split_once('\n').unwrap_or((&log, ""));
        assert_eq!(first, torn, "nothing is added to it: {log}");
        let whole = rest.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert_eq!(site.get("/after"), "hello");
    until("all lines, or their number", || {
        let after = after();
        let lost: u64 = after.iter().filter_map(|line| line["lines_lost"].as_u64()).sum();
        let later = after.iter().filter(|line| line["path"].is_string()).count() as u64;
        whole + lost + later == REQUESTS + 1
    });
    // A file that was moved aside leaves its part of a line behind.
    fs::rename(site.path("access.log"), site.path("access.log.1")).unwrap();
    site.signal("USR1");
    until("a new file", || site.path("access.log").exists());
    assert_eq!(site.get("/new"), "hello");
    until("its line", || site.text("access.log").ends_with('\n'));
    let line: Value =
        serde_json::from_str(site.text("access.log").lines().next().unwrap()).unwrap();
    assert_eq!(line["path"], "/new");
}

/// A piece of a file in the documentation, made a whole one: what it names is there.
fn completed(example: &str) -> String {
    let mut file = String::new();
    if !example.lines().any(|line| line.starts_with("listen = [")) {
        file += "listen = [\"127.0.0.1:1\"]\n";
    }
    file += example;
    file.push('\n');
    if !example.contains("[[certificate]]") && !example.contains("[acme]") {
        file += "[[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n";
    }
    if !example.contains("[[site]]") && !example.contains("[[protocol]]") {
        file += "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = { body = \"x\" }\n";
    }
    let named =
        example.lines().filter_map(|line| line.strip_prefix("origin = \"")?.split('"').next());
    let mut named: Vec<&str> = named.collect();
    named.sort_unstable();
    named.dedup();
    for name in named {
        if !example.contains(&format!("[origin.{name}]")) {
            file += &format!("[origin.{name}]\nservers = [\"http://127.0.0.1:1\"]\n");
        }
    }
    file
}

#[test]
fn the_examples_of_the_documentation_are_right() {
    let dir = tempfile::tempdir().unwrap();
    let certificates =
        ["cert", "example.org", "shop.example", "internal-ca", "clients-ca", "gateway", "keys-ca"];
    for name in certificates {
        let host = if name == "shop.example" { name } else { "example.org" };
        openssl(dir.path(), name, &format!("DNS:{host}"));
    }
    fs::write(dir.path().join("metrics.token"), "0123456789abcdef").unwrap();
    let key = "8f95f09245765f80256934e50c66207f";
    let ids = format!("config 0 server-id 4 nonce 12 key {key}\nreport-key {key}{key}\n");
    fs::write(dir.path().join("site"), ids).unwrap();
    let drawn = quicket(dir.path()).args(["switch", "secrets", "new", "secrets"]).output().unwrap();
    assert!(drawn.status.success(), "{drawn:?}");
    fs::create_dir(dir.path().join("www")).unwrap();
    for page in ["lost.html", "sorry.html"] {
        fs::write(dir.path().join(page), "<p>").unwrap();
    }
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/gateway.md");
    let docs = fs::read_to_string(docs).unwrap();
    let examples: Vec<&str> = docs
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split_once("```").expect("an end").0)
        .collect();
    assert!(examples.len() >= 5, "{} examples", examples.len());
    for example in examples {
        let here = |name: &str| dir.path().join(name).display().to_string();
        let file = completed(example).replace("/srv/www", &here("www"));
        let file = file.replace("/etc/quicket/site", &here("site"));
        let file = file.replace("/etc/quicket/secrets", &here("secrets"));
        let file = file.replace("/var/log/quicket/", &here(""));
        fs::write(dir.path().join("site.toml"), &file).unwrap();
        let mut command = quicket(dir.path());
        let output = command.args(["gateway", "--check", "site.toml"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Nobody is at the addresses of its key processes, which the gateway would go on without.
        let is_awaited =
            |line: &str| file.contains("keyd = ") && line.contains("the key process is away");
        let is_quiet = said.lines().all(is_awaited);
        assert!(output.status.success() && is_quiet, "{said}\n{file}");
    }
}
