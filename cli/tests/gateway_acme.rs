//! Certificates that `quicket gateway` gets by itself, from Pebble, which somebody else wrote.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use common::{get, openssl, quicket};
use quicket_lab::peers::{Program, Workshop};
use quicket_testing::{LONG, Process, free_port, until};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What the site answers.
const BODY: &str = "hello";

fn programs() -> &'static [Program; 2] {
    static BUILT: OnceLock<[Program; 2]> = OnceLock::new();
    BUILT.get_or_init(|| {
        let built = Workshop::new().and_then(|workshop| workshop.prepare_pebble());
        built.unwrap_or_else(|error| panic!("{error}"))
    })
}

/// Pebble, with a DNS server by which all names lead to this machine.
struct Authority {
    port: u16,
    management: u16,
    dns: u16,
    dir: PathBuf,
    processes: Vec<Process>,
    starts: usize,
}

impl Authority {
    /// Starts it in a directory. It looks at challenges at the ports that `more` says (`tlsPort`, `httpPort`).
    fn start(dir: &Path, more: Value) -> Self {
        openssl(dir, "directory", "DNS:localhost,IP:127.0.0.1");
        let (port, management, dns) = (free_port(), free_port(), free_port());
        let mut pebble = json!({
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": "directory.pem", "privateKey": "directory.key",
            "httpPort": 1, "tlsPort": 1, "keyAlgorithm": "ecdsa",
            "retryAfter": { "authz": 0, "order": 0 },
            "profiles": { "default": { "description": "a day", "validityPeriod": 86400 } },
        });
        for (name, value) in more.as_object().unwrap() {
            pebble[name] = value.clone();
        }
        let config = json!({ "pebble": pebble }).to_string();
        fs::write(dir.join("pebble.json"), config).unwrap();
        let dir = dir.to_owned();
        let mut this = Self { port, management, dns, dir, processes: Vec::new(), starts: 0 };
        this.start_again(&[]);
        this
    }

    /// With variables that have Pebble misbehave. It has forgotten all.
    fn start_again(&mut self, variables: &[(&str, &str)]) {
        self.processes.clear();
        self.starts += 1;
        let [pebble, dns] = programs();
        let log = || {
            let log = fs::File::options().append(true).create(true).open(self.log_path());
            log.unwrap()
        };
        let server = format!("127.0.0.1:{}", self.dns);
        let mut command = Command::new(&dns.executable);
        command.args(["-dnsserver", &server, "-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]);
        command.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""]);
        command.args(["-management", &format!("127.0.0.1:{}", free_port())]);
        let dns = command.stdin(Stdio::null()).stdout(log()).stderr(log()).spawn().unwrap();
        let mut command = Command::new(&pebble.executable);
        command.args(["-config", "pebble.json", "-dnsserver", &server]).current_dir(&self.dir);
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0");
        command.env("PEBBLE_AUTHZREUSE", "0").envs(variables.iter().copied());
        let pebble = command.stdin(Stdio::null()).stdout(log()).stderr(log()).spawn().unwrap();
        self.processes = vec![Process(dns), Process(pebble)];
        let log_path = self.log_path();
        for port in [self.port, self.management] {
            until("Pebble", || {
                let has_ended = self.processes.iter_mut().any(Process::has_ended);
                assert!(!has_ended, "{}", fs::read_to_string(&log_path).unwrap_or_default());
                TcpStream::connect(("127.0.0.1", port)).is_ok()
            });
        }
        // Who trusts it trusts this root, another one after each start.
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert", "directory.pem", "-o", "root.pem"]);
        command.arg(format!("https://localhost:{}/roots/0", self.management));
        assert!(command.current_dir(&self.dir).status().unwrap().success());
    }

    fn stop(&mut self) {
        self.processes.clear();
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join(format!("pebble.{}.log", self.starts))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// How many certificates it has given since it was started.
    fn issued(&self) -> usize {
        self.log().matches("Issued certificate serial").count()
    }

    /// The lines of `[acme]` that lead to it.
    fn table(&self, names: &str) -> String {
        format!(
            "[acme]\ndirectory = \"https://localhost:{}/dir\"\nca = \"directory.pem\"\nstate = \"state\"\n\
             agree_to_terms = true\nnames = {names}\n",
            self.port
        )
    }
}

/// What stands where the authority looks: it holds connections until it is told to pass them on.
struct Gate {
    port: u16,
    open: Arc<AtomicBool>,
    waiting: Arc<AtomicUsize>,
}

impl Gate {
    fn before(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (open, waiting) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (is_open, count) = (Arc::clone(&open), Arc::clone(&waiting));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (is_open, count) = (Arc::clone(&is_open), Arc::clone(&count));
                thread::spawn(move || {
                    let _ = pass(client.unwrap(), target, &is_open, &count);
                });
            }
        });
        Self { port, open, waiting }
    }

    fn is_waited_at(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn open(&self) {
        self.open.store(true, Ordering::Relaxed);
    }
}

fn pass(client: TcpStream, target: u16, open: &AtomicBool, count: &AtomicUsize) -> io::Result<()> {
    count.fetch_add(1, Ordering::Relaxed);
    let begun = Instant::now();
    while !open.load(Ordering::Relaxed) && begun.elapsed() < LONG {
        thread::sleep(Duration::from_millis(10));
    }
    count.fetch_sub(1, Ordering::Relaxed);
    let server = TcpStream::connect(("127.0.0.1", target))?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let (mut from, mut to) = (server, client);
    io::copy(&mut from, &mut to)?;
    to.shutdown(std::net::Shutdown::Write)
}

/// A gateway in a process of its own.
struct Gateway {
    dir: PathBuf,
    port: u16,
    name: String,
    process: Process,
}

/// A file with a site that answers by itself.
fn write(dir: &Path, name: &str, port: u16, top: &str, table: &str) {
    let file = format!(
        "listen = [\"127.0.0.1:{port}\"]\naccess_log = \"{name}.access\"\n{top}{table}\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{ body = \"{BODY}\" }}\n\
         [metrics]\nlisten = \"unix:{}\"\n",
        dir.join(format!("{name}.sock")).display()
    );
    fs::write(dir.join(format!("{name}.toml")), file).unwrap();
}

impl Gateway {
    fn start(dir: &Path, name: &str, port: u16) -> Self {
        Self::start_with(dir, name, port, &[])
    }

    fn start_with(dir: &Path, name: &str, port: u16, flags: &[&str]) -> Self {
        let log_path = dir.join(format!("{name}.log"));
        let _ = fs::remove_file(&log_path);
        let log = fs::File::options().append(true).create(true).open(log_path).unwrap();
        let mut command = quicket(dir);
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("QUICKET_SWITCH", dir.join("switch"));
        command.args(["gateway", &format!("{name}.toml"), "--workers", "1"]).args(flags);
        let process = Process(command.stderr(log).spawn().unwrap());
        let this = Self { dir: dir.to_owned(), port, name: name.to_owned(), process };
        until("the gateway", || this.log().contains("Gateway on"));
        this
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join(format!("{}.log", self.name))).unwrap_or_default()
    }

    fn says(&self, what: &str) {
        let begun = Instant::now();
        while !self.log().contains(what) {
            assert!(begun.elapsed() < LONG, "{what:?} is not in\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Stops it, and waits for its end.
    fn stop(mut self) {
        self.signal("TERM");
        assert!(self.process.0.wait().unwrap().success(), "{}", self.log());
    }

    /// An answer over TCP, by the authority's root, with curl's word for the version of HTTP.
    fn curl(&self, host: &str, version: &str) -> String {
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert", "root.pem", "--max-time", "10", version]);
        command.args(["--resolve", &format!("{host}:{}:127.0.0.1", self.port)]);
        command.args(["-w", " %{http_version}"]);
        command.arg(format!("https://{host}:{}/", self.port)).current_dir(&self.dir);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// An answer over HTTP/3, by the authority's root.
    fn get(&self) -> String {
        let url = format!("https://localhost:{}/", self.port);
        let got = get(&self.dir, &["--http3-only", "--ca", "root.pem", "-o", "-", &url]);
        got.assert_code(0);
        String::from_utf8(got.stdout).unwrap()
    }

    /// The certificate that clients get, in words of openssl.
    fn certificate(&self, host: &str) -> String {
        let shown = s_client(&self.dir, self.port, &["-servername", host]);
        let mut command = Command::new("openssl");
        command.args(["x509", "-noout", "-serial", "-issuer", "-ext", "subjectAltName"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let _ = child.stdin.take().unwrap().write_all(shown.as_bytes());
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    fn counters(&self) -> String {
        let mut command = Command::new("curl");
        command.args(["-sS", "--unix-socket", &format!("{}.sock", self.name)]);
        let output = command.arg("http://localhost/metrics").current_dir(&self.dir).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    fn counts(&self, line: &str) -> bool {
        self.counters().lines().any(|found| found.starts_with(&format!("quicket_gateway_{line}")))
    }
}

/// What openssl says of a handshake.
fn s_client(dir: &Path, port: u16, arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &format!("127.0.0.1:{port}")]).args(arguments);
    let output = command.stdin(Stdio::null()).current_dir(dir).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Whether a handshake with the protocol of the challenge comes about.
fn is_challenged(dir: &Path, port: u16, name: &str) -> bool {
    s_client(dir, port, &["-alpn", "acme-tls/1", "-servername", name])
        .contains("ALPN protocol: acme-tls/1")
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_certificate_comes_by_tls_alpn_01_and_serves_all_versions_of_http() {
    let dir = directory();
    let path = dir.path();
    let port = free_port();
    let gate = Gate::before(port);
    let mut authority = Authority::start(path, json!({ "tlsPort": gate.port }));
    write(path, "one", port, "", &authority.table("[\"localhost\"]"));
    let gateway = Gateway::start(path, "one", port);
    gateway.says("until it comes, clients get a self-signed one");
    assert!(
        gateway.counts("certificate_not_after_seconds{certificate=\"localhost\",key=\"ecdsa\"} 0")
    );

    // While the authority looks, others are served as ever, and strangers with its protocol get nothing of theirs.
    until("the challenge", || gate.is_waited_at());
    assert!(gateway.curl("localhost", "-k").starts_with(BODY));
    assert!(!is_challenged(path, port, "other.example"));
    let challenge = s_client(path, port, &["-alpn", "acme-tls/1", "-servername", "localhost"]);
    assert!(challenge.contains("ALPN protocol: acme-tls/1"), "{challenge}");
    let both = s_client(path, port, &["-alpn", "http/1.1,acme-tls/1", "-servername", "localhost"]);
    assert!(both.contains("ALPN protocol: http/1.1"), "{both}");
    gate.open();
    gateway.says("there is a new certificate for localhost");
    assert!(!is_challenged(path, port, "localhost"));

    assert_eq!(gateway.curl("localhost", "--http2"), format!("{BODY} 2"));
    assert_eq!(gateway.curl("localhost", "--http1.1"), format!("{BODY} 1.1"));
    assert_eq!(gateway.get(), BODY);
    assert!(gateway.counts("acme_orders_total{outcome=\"succeeded\"} 1"));
    let ends = "certificate_not_after_seconds{certificate=\"localhost\",key=\"ecdsa\"} 1";
    assert!(gateway.counts(ends), "{}", gateway.counters());

    // Another name, by a reload.
    write(path, "one", port, "", &authority.table("[\"localhost\", [\"a.test\", \"b.test\"]]"));
    gateway.signal("HUP");
    gateway.says("there is a new certificate for a.test, b.test");
    assert_eq!(gateway.curl("b.test", "--http2"), format!("{BODY} 2"));
    assert_eq!(authority.issued(), 2);

    // Keys are for nobody else, and nothing of them is told.
    let state = path.join("state");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    for file in fs::read_dir(&state).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
    assert!(!gateway.log().contains("PRIVATE"));
    let before = gateway.certificate("localhost");
    gateway.stop();

    // After a restart it is there at once, whether the authority is or not.
    authority.stop();
    let gateway = Gateway::start(path, "one", port);
    assert_eq!(gateway.certificate("localhost"), before);
    assert_eq!(gateway.curl("a.test", "--http2"), format!("{BODY} 2"));
    assert!(!gateway.log().contains("ACME"), "{}", gateway.log());
}

#[test]
fn a_certificate_comes_by_http_01_with_an_account_from_beforehand() {
    let dir = directory();
    let path = dir.path();
    let (port, plain) = (free_port(), free_port());
    let mac = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let mut authority = Authority::start(
        path,
        json!({
            "httpPort": plain, "externalAccountBindingRequired": true,
            "externalAccountMACKeys": { "kid-1": mac },
        }),
    );
    // What clients have to put up with (RFC 8555, Section 6.5).
    authority.start_again(&[("PEBBLE_WFE_NONCEREJECT", "20")]);
    fs::write(path.join("mac"), mac).unwrap();
    let table = authority.table("[\"localhost\"]")
        + "challenge = \"http-01\"\nkey_type = \"rsa-2048\"\ncontact = [\"admin@example.org\"]\n\
           external_account = { key_id = \"kid-1\", key_file = \"mac\" }\nprofile = \"default\"\n";
    write(path, "one", port, &format!("redirect = [\"127.0.0.1:{plain}\"]\n"), &table);
    let gateway = Gateway::start(path, "one", port);
    gateway.says("there is a new certificate for localhost");
    assert_eq!(gateway.curl("localhost", "--http2"), format!("{BODY} 2"));
    assert_eq!(gateway.get(), BODY);
    assert!(
        gateway.counts("certificate_not_after_seconds{certificate=\"localhost\",key=\"rsa\"} 1")
    );
    assert!(authority.log().contains("Successful newAccount Binding"), "{}", authority.log());
    assert!(!gateway.log().contains(mac), "{}", gateway.log());
}

/// One connection of HTTP/1.1 that stays.
struct Held {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _process: Process,
}

impl Held {
    fn connect(dir: &Path, port: u16) -> Self {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-alpn", "http/1.1", "-servername", "localhost"]);
        command.args(["-CAfile", "root.pem", "-connect", &format!("127.0.0.1:{port}")]);
        command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { input, output: BufReader::new(output), _process: Process(child) }
    }

    fn ask(&mut self) -> String {
        self.input.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the connection has ended");
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; BODY.len()];
        self.output.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }
}

#[test]
fn certificates_are_renewed_under_connections_and_the_old_one_stays_without_the_authority() {
    let dir = directory();
    let path = dir.path();
    let port = free_port();
    let short = json!({ "default": { "description": "short", "validityPeriod": 9 } });
    let mut authority = Authority::start(path, json!({ "tlsPort": port, "profiles": short }));
    write(path, "one", port, "", &authority.table("[\"localhost\"]"));
    let gateway = Gateway::start(path, "one", port);
    gateway.says("there is a new certificate for localhost");
    let first = gateway.certificate("localhost");
    assert!(first.to_lowercase().contains("pebble"), "{first}");
    let mut held = Held::connect(path, port);
    assert_eq!(held.ask(), BODY);
    until("another certificate", || gateway.certificate("localhost") != first);
    assert_eq!(held.ask(), BODY);
    assert_eq!(
        (gateway.get(), gateway.curl("localhost", "--http2")),
        (BODY.into(), format!("{BODY} 2"))
    );
    assert_eq!(authority.issued(), 2);
    let second = gateway.certificate("localhost");

    authority.stop();
    gateway.says("no new certificate for localhost: reaching the directory: ");
    gateway.says("; the one that is here stays, and the next attempt is in ");
    assert_eq!(gateway.certificate("localhost"), second);
    assert!(gateway.counts("acme_orders_total{outcome=\"failed\"} 1"), "{}", gateway.counters());
    assert_eq!(held.ask(), BODY);

    // It comes back, and has forgotten the account.
    authority.start_again(&[]);
    gateway.says("the authority does not know the account");
    until("a third certificate", || gateway.certificate("localhost") != second);
    assert_eq!(gateway.get(), BODY);
    assert_eq!(held.ask(), BODY);
}

#[test]
fn a_challenge_that_fails_is_told_in_the_authoritys_words() {
    let dir = directory();
    let path = dir.path();
    let (port, closed) = (free_port(), free_port());
    let authority = Authority::start(path, json!({ "tlsPort": closed }));
    write(path, "one", port, "", &authority.table("[\"localhost\"]"));
    let gateway = Gateway::start(path, "one", port);
    gateway.says("no new certificate for localhost: the challenge for localhost has failed: ");
    let log = gateway.log();
    let words = format!("127.0.0.1:{closed} for the tls-alpn-01 challenge (unauthorized)");
    assert!(log.contains(&words), "{log}");
    assert!(log.contains("port 443 (tls-alpn-01)"), "{log}");
    assert!(gateway.counts("acme_orders_total{outcome=\"failed\"} 1"));
    // What stands in its place is of no use, but all else goes on.
    assert!(gateway.curl("localhost", "-k").starts_with(BODY));
    // A file that is damaged is no certificate, and no reason not to start.
    gateway.stop();
    let state = fs::read_dir(path.join("state")).unwrap().map(|file| file.unwrap().path());
    let tried = state.into_iter().find(|file| {
        file.extension().is_some_and(|extension| extension == "json")
            && !file.to_string_lossy().contains("account")
    });
    fs::write(tried.unwrap().with_extension("pem"), "damaged").unwrap();
    let gateway = Gateway::start(path, "one", port);
    gateway.says(".pem is damaged: ");
    // Who starts again and again does not order each time.
    assert_eq!(authority.log().matches("Added order").count(), 1);
}

#[test]
fn two_processes_with_one_state_order_once() {
    let dir = directory();
    let path = dir.path();
    let (port, other) = (free_port(), free_port());
    let gate = Gate::before(port);
    let authority = Authority::start(path, json!({ "tlsPort": gate.port }));
    let table = authority.table("[\"localhost\"]");
    write(path, "one", port, "", &table);
    write(path, "two", other, "", &table);
    let one = Gateway::start(path, "one", port);
    until("the challenge", || gate.is_waited_at());
    let two = Gateway::start(path, "two", other);
    gate.open();
    one.says("there is a new certificate for localhost");
    let certificate = one.certificate("localhost");
    until("the same certificate", || two.certificate("localhost") == certificate);
    assert_eq!((one.get(), two.get()), (BODY.to_owned(), BODY.to_owned()));
    assert_eq!(authority.log().matches("Added order").count(), 1);
}

/// What the switch has started ends with the test, too.
struct Switched(PathBuf);

impl Switched {
    fn report(&self) -> Option<Value> {
        let report = quicket_switch::client::status(self.0.to_str().unwrap()).ok()?;
        serde_json::from_str(&report).ok()
    }

    /// The process that takes new clients.
    fn serving(&self) -> Option<u64> {
        let report = self.report()?;
        let programs = report["addresses"][0]["programs"].as_array()?;
        programs.iter().find(|program| program["state"] == "serving")?["pid"].as_u64()
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let Some(report) = self.report() else { return };
        let mut processes = vec![report["pid"].as_u64()];
        let programs = report["addresses"].as_array().into_iter().flatten();
        for address in programs {
            let programs = address["programs"].as_array().into_iter().flatten();
            processes.extend(programs.map(|program| program["pid"].as_u64()));
        }
        for process in processes.into_iter().flatten() {
            let _ = Command::new("kill").args(["-9", &process.to_string()]).status();
        }
    }
}

#[test]
fn an_upgrade_in_the_middle_of_an_order_has_the_next_generation_order() {
    let dir = directory();
    let path = dir.path();
    let port = free_port();
    let gate = Gate::before(port);
    let authority = Authority::start(path, json!({ "tlsPort": gate.port }));
    write(path, "one", port, "", &authority.table("[\"localhost\"]"));
    let switched = Switched(path.join("switch"));
    let mut gateway = Gateway::start_with(path, "one", port, &["--switch"]);
    until("the challenge", || gate.is_waited_at());
    let before = switched.serving().unwrap();
    let mut upgrade = quicket(path);
    upgrade.env("PATH", std::env::var_os("PATH").unwrap());
    upgrade.env("QUICKET_SWITCH", path.join("switch")).args(["switch", "upgrade"]);
    assert!(upgrade.status().unwrap().success());
    until("the next generation", || switched.serving().is_some_and(|pid| pid != before));
    // The first one ends well, with an order under way.
    until("the end of the first", || gateway.process.0.try_wait().unwrap().is_some());
    assert!(gateway.process.0.wait().unwrap().success(), "{}", gateway.log());
    gate.open();
    gateway.says("there is a new certificate for localhost");
    assert_eq!(gateway.get(), BODY);
    assert_eq!(authority.issued(), 1);
    assert_eq!(gateway.log().matches("there is a new certificate").count(), 1);
}
