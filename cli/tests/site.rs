//! What docs/site.md shows takes an operator to a cluster of three: its commands and files are run as they stand there,
//! but for addresses and folders.

mod common;

use std::collections::HashMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::quicket;
use quicket_testing::{Process, free_port, until};
use serde_json::Value;

/// Where the register's mark is (docs/site.md).
const MARK: &str = "quicket:early:mark";

/// The blocks of a language in the page, in its order.
fn blocks(language: &str) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/site.md");
    let page = fs::read_to_string(page).unwrap();
    let opening = format!("```{language}\n");
    let blocks = page.split(&opening).skip(1);
    blocks.map(|rest| rest.split_once("```").expect("an end").0.to_owned()).collect()
}

/// Runs the program's commands of a block; those of other programs are the operator's.
fn type_in(dir: &Path, block: &str, what: &str) {
    let lines = block.lines().filter_map(|line| line.strip_prefix("$ quicket "));
    let lines: Vec<String> =
        lines.map(|line| line.replace("/etc/quicket", &dir.display().to_string())).collect();
    assert!(lines.iter().any(|line| line.contains(what)), "{what} is not in {block}");
    for line in lines.iter().filter(|line| line.contains(what)) {
        let output = quicket(dir).args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }
}

/// The store of the page, and how it is asked.
struct Store {
    _process: Process,
    port: String,
    password: String,
}

impl Store {
    fn start(dir: &Path) -> Self {
        let block = blocks("redis").remove(0);
        let (port, user) = (free_port().to_string(), block.lines().last().unwrap());
        let password = user.split(' ').find_map(|word| word.strip_prefix('>')).unwrap().to_owned();
        let file = block.replace("10.0.0.5", "127.0.0.1").replace("6379", &port);
        fs::write(dir.join("early.conf"), file).unwrap();
        let mut command = Command::new("redis-server");
        let child =
            command.arg(dir.join("early.conf")).current_dir(dir).stdout(Stdio::null()).spawn();
        let process = Process(child.expect("apt-get install redis-server"));
        let store = Self { _process: process, port, password };
        until("redis", || !store.say(&["GET", MARK]).contains("refused"));
        store
    }

    fn say(&self, command: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        cli.args([
            "-p",
            &self.port,
            "--no-auth-warning",
            "--user",
            "gateway",
            "--pass",
            &self.password,
        ]);
        let output = cli.args(command).output().expect("apt-get install redis-tools");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned()
    }

    /// Has it be known for long enough, as if three minutes had passed.
    fn age(&self) {
        until("a mark", || self.say(&["GET", MARK]).split(' ').count() == 6);
        let mark = self.say(&["GET", MARK]);
        let mut words: Vec<String> = mark.split(' ').map(str::to_owned).collect();
        words[4] = (words[4].parse::<u64>().unwrap() - 200_000).to_string();
        assert_eq!(self.say(&["SET", MARK, &words.join(" ")]), "OK");
    }
}

/// A gateway of its own process, in a folder of its own, as on a host of its own.
struct Gateway {
    _process: Process,
    dir: tempfile::TempDir,
    address: SocketAddr,
}

impl Gateway {
    fn start(shared: &Path, file: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // As scp -p does it.
        for name in ["secrets", "example.org.pem", "example.org.key", "store.password"] {
            fs::copy(shared.join(name), dir.path().join(name)).unwrap();
        }
        let here = dir.path().display().to_string();
        let file = file.replace("/etc/quicket", &here).replace("/run/quicket", &here);
        fs::write(dir.path().join("site.toml"), file).unwrap();
        let start = &blocks("console")[1];
        type_in(dir.path(), start, "gateway --check");
        let (_, line) = start.split_once("$ quicket gateway /etc").unwrap();
        let path = format!("{here}{}", line.trim().strip_prefix("/quicket").unwrap());
        let log = dir.path().join("gateway.log");
        let mut command = quicket(dir.path());
        command.args(["gateway", &path]).stderr(fs::File::create(&log).unwrap());
        let process = Process(command.spawn().unwrap());
        let said = || fs::read_to_string(&log).unwrap();
        until("the gateway", || said().contains("Gateway on"));
        let said = said();
        let line = said.lines().find_map(|line| line.strip_prefix("Gateway on "));
        let address = line.and_then(|line| line.split(' ').next()?.parse().ok());
        let address = address.unwrap_or_else(|| panic!("{said}"));
        Self { _process: process, dir, address }
    }

    fn counter(&self, name: &str, outcome: &str) -> u64 {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--unix-socket", "metrics.sock", "http://localhost/metrics.json"]);
        let output = curl.current_dir(self.dir.path()).output().unwrap();
        let counters: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let all = counters[format!("quicket_gateway_{name}")].as_array().cloned();
        let all = all.unwrap_or_default().into_iter();
        let is_it = |entry: &Value| outcome.is_empty() || entry["labels"]["outcome"] == outcome;
        all.filter(is_it).map(|entry| entry["value"].as_u64().unwrap()).sum()
    }
}

/// Passes packets to one gateway at a time, each client's to the one to which its first went.
fn spread(front: UdpSocket, to: Arc<Mutex<SocketAddr>>) {
    let front = Arc::new(front);
    thread::spawn(move || {
        let mut ways: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
        let mut packet = vec![0; 65_536];
        while let Ok((len, client)) = front.recv_from(&mut packet) {
            let way = ways.entry(client).or_insert_with(|| {
                let way = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
                way.connect(*to.lock().unwrap()).unwrap();
                way.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                let (front, back) = (Arc::clone(&front), Arc::clone(&way));
                thread::spawn(move || {
                    let mut packet = vec![0; 65_536];
                    while let Ok(len) = back.recv(&mut packet) {
                        let _ = front.send_to(&packet[..len], client);
                    }
                });
                way
            });
            let _ = way.send(&packet[..len]);
        }
    });
}

#[test]
fn the_page_takes_an_operator_to_a_cluster_of_three() {
    let shared = tempfile::tempdir().unwrap();
    let dir = shared.path();
    let identity = quicket::Identity::self_signed(["example.org", "localhost"]).unwrap();
    fs::write(dir.join("example.org.pem"), identity.chain_pem()).unwrap();
    fs::write(dir.join("example.org.key"), identity.key_pem()).unwrap();
    type_in(dir, &blocks("console")[0], "secrets new");
    let store = Store::start(dir);
    fs::write(dir.join("store.password"), format!("{}\n", store.password)).unwrap();
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(dir.join("store.password"), mode).unwrap();
    let file = blocks("toml").remove(0);
    let file = file.replace("[::]:443", "127.0.0.1:0");
    let file = file.replace("10.0.0.5:6379", &format!("127.0.0.1:{}", store.port));
    // This machine may be busy.
    let file = file.replace("[early_data]\n", "[early_data]\ndeadline_ms = 200\n");
    // In place of an origin, which is not what this is about.
    let file = file.replace("origin = \"app\"", "respond = { body = \"here\" }");
    let file = file.replace("names = [\"example.org\"]", "names = [\"*\"]");
    let gateways: Vec<Gateway> = (0..3).map(|_| Gateway::start(dir, &file)).collect();
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = front.local_addr().unwrap().port();
    let to = Arc::new(Mutex::new(gateways[0].address));
    spread(front, Arc::clone(&to));
    let pin = identity.fingerprint().to_string();
    let url = format!("https://localhost:{port}/");
    let get = |gateway: usize| {
        *to.lock().unwrap() = gateways[gateway].address;
        let mut command = quicket(dir);
        let output =
            command.args(["get", "--pin", &pin, "--json", "-o", "answer", &url]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(dir.join("answer")).unwrap(), "here");
        fs::remove_file(dir.join("answer")).unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let connection = &report["connections"][0];
        (connection["resumed"] == true, connection["early_data"].as_str().unwrap_or("").to_owned())
    };
    let early = |what: &str| (true, what.to_owned());
    assert!(!get(0).0);
    assert_eq!(get(1), early("rejected"), "the store is young");
    assert_eq!(gateways[1].counter("register_takes", ""), 0);
    store.age();
    for gateway in &gateways {
        until("early data", || gateway.counter("register_takes", "") == 1);
    }
    for gateway in [2, 0, 1] {
        assert_eq!(get(gateway), early("accepted"), "{gateway}");
        assert_eq!(gateways[gateway].counter("early_data_total", "first"), 1);
    }
    // watch = true: the rotated file is taken up by itself, by one after the other.
    type_in(dir, &blocks("console")[2], "secrets rotate");
    for (at, gateway) in gateways.iter().enumerate() {
        assert_eq!(get(at), early("accepted"), "{at}");
        fs::copy(dir.join("secrets"), gateway.dir.path().join("new")).unwrap();
        fs::rename(gateway.dir.path().join("new"), gateway.dir.path().join("secrets")).unwrap();
        until("the new secrets", || gateway.counter("reloads_total", "taken") == 1);
        assert_eq!(get(at), early("accepted"), "{at}");
    }
}
