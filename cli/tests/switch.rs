//! Programs that share an address through `quicket switch`: real processes, and what becomes of
//! connections when they, or the switch, end.
#![cfg(target_os = "linux")]

mod common;

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use quicket::message::{MsgFlags, Socket, StreamFlags};
use quicket::steering::{Codec, HashKey, Owner};
use quicket::{
    ClientConfig, ClientTls, Connection, EarlyData, Endpoint, EndpointConfig, Identity,
    MemorySessionStore, ServerConfig, ServerTls, SessionStore, SwitchConfig, Workers,
};
use quicket_bpf::{OwnerProgram, attach_reuseport};
use quicket_switch::client::{Membership, Options, Place};
use quicket_switch::options::SocketOptions;
use quicket_switch::protocol::Secrets;

use quicket_testing::{LONG, Process, signal};

use common::ask;

const QUICKET: &str = env!("CARGO_BIN_EXE_quicket");

/// A switch of a test's own, which ends with it.
struct Switch {
    name: String,
    _folder: tempfile::TempDir,
}

impl Switch {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("switch").to_str().unwrap().to_owned();
        Self { name, _folder: folder }
    }

    fn status(&self) -> serde_json::Value {
        let report = quicket_switch::client::status(&self.name).unwrap();
        serde_json::from_str(&report).unwrap()
    }

    fn kill(&self) {
        signal(&self.status()["pid"], "-9");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(QUICKET);
        command.args(arguments).env("QUICKET_SWITCH", &self.name);
        command
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if quicket_switch::client::status(&self.name).is_ok() {
            self.kill();
        }
    }
}

/// A program that answers with its name, in a process of its own: see [`program`].
struct Program {
    process: Process,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Program {
    fn try_start(
        switch: &Switch,
        name: &str,
        alpn: &str,
        address: &str,
        more: &str,
    ) -> Result<Self, String> {
        let process = Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--exact", "program", "--nocapture", "--test-threads=1"])
            .env("PROGRAM", format!("{}\n{name}\n{alpn}\n{address}\n{more}", switch.name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut process = Process(process.unwrap());
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut this = Self { process, lines, address: ([0, 0, 0, 0], 0).into() };
        loop {
            let mut line = String::new();
            assert_ne!(this.lines.read_line(&mut line).unwrap(), 0, "{name} said nothing");
            // The test's name stands before the first line.
            if let Some((_, error)) = line.split_once("REFUSED ") {
                return Err(error.trim().to_owned());
            }
            if let Some((_, address)) = line.split_once("READY ") {
                this.address = address.trim().parse().unwrap();
                return Ok(this);
            }
        }
    }

    fn start(switch: &Switch, name: &str, alpn: &str, address: &str, more: &str) -> Self {
        Self::try_start(switch, name, alpn, address, more).unwrap()
    }

    /// Waits for a line.
    fn says(&mut self, what: &str) {
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it did not say {what}");
        }
    }
}

/// Not a test: the program of the tests, started by [`Program::try_start`]. It answers each stream with
/// its name and what it was sent.
#[test]
#[ignore = "a program that tests start"]
fn program() {
    let Ok(orders) = env::var("PROGRAM") else { return };
    let orders: Vec<&str> = orders.split('\n').collect();
    let [switch, name, alpn, address, more] = orders[..] else { panic!("{orders:?}") };
    // A generation of another name is the same program.
    let called = name.split('.').next().unwrap();
    let mut switched = SwitchConfig::new(called).named(switch).started_by(Some(QUICKET.into()));
    switched = switched.replace(more.contains("replace"));
    if more.contains("messages") {
        return messages(switched, name, alpn, address);
    }
    if more.contains("drain") {
        switched = switched.drain(Some(Duration::from_secs(1)));
    }
    let mut config = EndpointConfig::default().switch(switched);
    config.udp.route_by_connection_id = !more.contains("forwarded");
    if more.contains("workers") {
        config = config.workers(Workers::Count(2));
    }
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let alpn = alpn.split(',').filter(|name| !name.is_empty());
    let early = more.contains("early");
    let tls = ServerTls::builder(identity).alpn(alpn).early_data(early).build().unwrap();
    let server = ServerConfig::new(tls).early_data(early);
    let endpoint = match Endpoint::bind_with(address, config) {
        Ok(endpoint) => endpoint,
        Err(error) => return println!("REFUSED {error}"),
    };
    let listening = if early { endpoint.listen_early(server) } else { endpoint.listen(server) };
    let listener = match listening {
        Ok(listener) => listener,
        Err(error) => return println!("REFUSED {error}"),
    };
    println!("READY {}", endpoint.local_addr());
    thread::spawn(end_with_the_test);
    for connection in listener.incoming() {
        let (connection, name) = (connection.unwrap(), name.to_owned());
        thread::spawn(move || answer(&connection, &name, early));
    }
    println!("SUPERSEDED");
    endpoint.wait_idle();
    println!("DRAINED");
}

fn end_with_the_test() {
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// The same with sockets of messages.
fn messages(switched: SwitchConfig, name: &str, alpn: &str, address: &str) {
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let tls = Arc::new(ServerTls::builder(identity).alpn([alpn]).build().unwrap());
    let listener = Socket::new_v4();
    listener.set_switch(switched).unwrap();
    listener.bind(address.parse().unwrap()).unwrap();
    listener.set_alpn(alpn.as_bytes()).unwrap();
    listener.listen(16).unwrap();
    println!("READY {}", listener.local_addr());
    thread::spawn(end_with_the_test);
    while let Ok(socket) = listener.accept() {
        let (tls, name) = (Arc::clone(&tls), name.to_owned());
        thread::spawn(move || {
            socket.accept_tls(tls).unwrap();
            let mut buffer = [0; 1024];
            while let Ok(message) = socket.recv_message(&mut buffer, MsgFlags::NONE) {
                let answer = [name.as_bytes(), b":", &buffer[..message.len]].concat();
                socket.send_message(&answer, None, StreamFlags::FIN.into()).unwrap();
            }
        });
    }
}

fn answer(connection: &Connection, name: &str, tells_early: bool) {
    while let Ok(mut stream) = connection.accept_bi() {
        let early = if tells_early && stream.is_early_data() { ":early" } else { "" };
        let mut question = String::new();
        if stream.read_to_string(&mut question).is_ok() {
            let _ = write!(stream, "{name}:{question}{early}");
            let _ = stream.finish();
        }
    }
}

fn client(alpn: &str) -> ClientConfig {
    let tls = ClientTls::builder().dangerous_no_verification().alpn([alpn]).build().unwrap();
    ClientConfig::new(tls)
}

fn endpoint() -> Endpoint {
    Endpoint::bind("127.0.0.1:0").unwrap()
}

/// The same for those that wait for an answer no longer than a test.
fn ask_in_time(connection: &Connection, question: &str) -> String {
    let (tell, told) = std::sync::mpsc::channel();
    let (connection, question) = (connection.clone(), question.to_owned());
    thread::spawn(move || tell.send(ask(&connection, &question)));
    told.recv_timeout(LONG).expect("an answer in time").unwrap()
}

fn connect_with(program: &Program, config: &ClientConfig) -> Connection {
    endpoint().connect(program.address, "localhost", config).unwrap()
}

fn connect(program: &Program, alpn: &str) -> Connection {
    endpoint().connect(program.address, "localhost", &client(alpn)).unwrap()
}

#[test]
fn two_programs_with_different_protocols_serve_one_port_at_the_same_time() {
    let switch = Switch::new();
    let chat = Program::start(&switch, "chat", "chat/1", "127.0.0.1:0", "workers");
    let at = chat.address.to_string();
    let shop = Program::start(&switch, "shop", "shop/1,shop/2", &at, "");
    assert_eq!(shop.address, chat.address);
    let (one, two) = (connect(&chat, "chat/1"), connect(&chat, "shop/2"));
    for round in 0..20 {
        assert_eq!(ask(&one, &round.to_string()).unwrap(), format!("chat:{round}"));
        assert_eq!(ask(&two, &round.to_string()).unwrap(), format!("shop:{round}"));
    }
    let more: Vec<_> = (0..8).map(|_| connect(&chat, "chat/1")).collect();
    let bulk = "x".repeat(300_000);
    for connection in &more {
        assert_eq!(ask(connection, &bulk).unwrap().len(), bulk.len() + 5);
    }
    // Nobody has that.
    let error = endpoint().connect(chat.address, "localhost", &client("mail")).unwrap_err();
    assert!(error.to_string().contains("alert 120"), "{error}");
    // Somebody has that.
    let error = Program::try_start(&switch, "other", "x,shop/1", &at, "").err().unwrap();
    assert!(error.contains("shop") && error.contains("choose other protocols"), "{error}");
    assert_eq!(ask(&two, "still").unwrap(), "shop:still");
    // Another endpoint, which does not share, does not get the address.
    let error = Endpoint::bind(chat.address).unwrap_err();
    assert_eq!(error.io_error().kind(), std::io::ErrorKind::AddrInUse);

    let status = switch.command(&["switch", "status"]).output().unwrap();
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(
        text.contains("chat/1: 9 connections, 9 clients")
            && text.contains("shop/1 shop/2: 1 connections, 1 clients"),
        "{text}"
    );
    let json = switch.status();
    let datagrams = &json["addresses"][0]["datagrams"];
    assert_eq!(json["addresses"][0]["kernel"]["helps"], true, "{json}");
    assert_eq!(json["addresses"][0]["kernel"]["owners"], 3, "{json}");
    // The first packets of ten clients; of 2.4 MB nothing.
    assert!((10..100).contains(&datagrams["forwarded"].as_u64().unwrap()), "{json}");
    assert!(datagrams["refusals"].as_u64().unwrap() > 0, "{json}");
    assert_eq!(datagrams["lost"], 0, "{json}");
    for none in ["dead", "malformed", "unroutable", "unreadable", "not_served"] {
        assert_eq!(json["addresses"][0]["dropped"][none], 0, "{none}: {json}");
    }
}

/// A switch that a test has started itself, and what it says on standard error.
struct Started {
    process: Process,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Started {
    /// Starts `quicket switch` with these flags, and waits until it is ready.
    fn new(switch: &Switch, flags: &[&str]) -> Self {
        let mut command = switch.command(&["switch", "--stay"]);
        let process = command.args(flags).stderr(Stdio::piped()).spawn();
        let mut process = Process(process.unwrap());
        let said = BufReader::new(process.stderr.take().unwrap());
        let (tell, lines) = std::sync::mpsc::channel();
        thread::spawn(move || {
            said.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let this = Self { process, lines };
        this.says("is ready");
        this
    }

    /// Waits for a line.
    fn says(&self, what: &str) {
        let until = Instant::now() + LONG;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            if line.unwrap_or_else(|error| panic!("it did not say {what}: {error}")).contains(what)
            {
                return;
            }
        }
    }
}

/// Who reloads all services must not take the front away from all programs.
#[test]
fn a_switch_without_secrets_says_at_sighup_that_there_is_nothing_to_read() {
    let switch = Switch::new();
    let started = Started::new(&switch, &[]);
    let chat = Program::start(&switch, "chat", "chat/1", "127.0.0.1:0", "");
    let pid = started.process.id();
    for round in ["first", "second"] {
        assert!(Command::new("kill").args(["-HUP", &pid.to_string()]).status().unwrap().success());
        started.says("nothing to read again: neither --secrets nor --users");
        assert_eq!(ask_in_time(&connect(&chat, "chat/1"), round), format!("chat:{round}"));
        assert_eq!(switch.status()["pid"], pid);
    }
}

/// Programs start the next switch as the one was that was killed.
#[test]
fn a_switch_that_forwards_everything_is_replaced_by_one_that_does() {
    let switch = Switch::new();
    let started = Started::new(&switch, &["--forward"]);
    let chat = Program::start(&switch, "chat", "chat/1", "127.0.0.1:0", "");
    let why = || switch.status()["addresses"][0]["kernel"].clone();
    let told = why();
    assert_eq!(told["helps"], false, "{told}");
    drop(started);
    let until = Instant::now() + LONG;
    while quicket_switch::client::status(&switch.name).is_err() {
        assert!(Instant::now() < until, "no switch came back");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(ask_in_time(&connect(&chat, "chat/1"), "again"), "chat:again");
    assert_eq!(why(), told);
}

/// Another user, with a program and a home that he can use.
struct Another(tempfile::TempDir);

impl Another {
    const USER: u32 = 65534;

    /// None where the tests cannot become another user.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can start a program of another user");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        open_to_all(folder.path());
        fs::copy(QUICKET, folder.path().join("quicket")).unwrap();
        let home = folder.path().join("home");
        fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(Self::USER), Some(Self::USER)).unwrap();
        Some(Self(folder))
    }

    /// What a command that fails says.
    fn fails(&self, switch: &Switch, arguments: &[&str]) -> String {
        use std::os::unix::process::CommandExt;
        let home = self.0.path().join("home");
        let mut command = Command::new(self.0.path().join("quicket"));
        command.args(arguments).env("QUICKET_SWITCH", &switch.name).current_dir("/");
        command.env("HOME", &home).env("XDG_DATA_HOME", &home).env_remove("XDG_RUNTIME_DIR");
        let done = command.uid(Self::USER).gid(Self::USER).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(!done.status.success(), "{arguments:?}: {said}");
        said
    }
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

/// Whether the system keeps him out, or the switch, and whatever he has said by then.
#[test]
fn another_user_hears_whose_the_switch_is() {
    let Some(another) = Another::new() else { return };
    let switch = Switch::new();
    let _started = Started::new(&switch, &[]);
    open_to_all(Path::new(&switch.name).parent().unwrap());
    let is_told = |arguments: &[&str]| {
        let said = another.fails(&switch, arguments);
        let whose =
            format!("this switch is that of user {}: ", rustix::process::geteuid().as_raw());
        assert!(said.contains(&whose) && said.contains("one of your own"), "{arguments:?}: {said}");
        assert!(!said.contains("1024"), "{arguments:?}: {said}");
    };
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let serve = ["serve", "/", "--listen", &free, "--quiet", "--switch"];
    // By the mode of the socket.
    is_told(&["switch", "status"]);
    is_told(&serve);
    open_to_all(Path::new(&switch.name));
    for _ in 0..50 {
        is_told(&["switch", "status"]);
        is_told(&["switch", "upgrade"]);
    }
    is_told(&serve);
}

/// The switch is stopped, and then killed without another one: established connections have nothing to do
/// with it, wherever their clients go.
#[test]
fn connections_go_on_while_no_switch_does() {
    let switch = Switch::new();
    let chat = Program::start(&switch, "chat", "chat/1", "127.0.0.1:0", "workers");
    let shop = Program::start(&switch, "shop", "shop/1", &chat.address.to_string(), "");
    let clients: Vec<_> = ["chat", "shop", "chat", "chat", "chat"]
        .into_iter()
        .map(|name| {
            let endpoint = endpoint();
            let config = client(&format!("{name}/1"));
            let connection = endpoint.connect(chat.address, "localhost", &config).unwrap();
            assert_eq!(ask_in_time(&connection, "a"), format!("{name}:a"));
            (name, endpoint, connection)
        })
        .collect();
    let said = switch.status();
    let pid = said["pid"].as_u64().unwrap().to_string();
    let signal = |which: &str| {
        assert!(Command::new("kill").args([which, &pid]).status().unwrap().success());
    };
    signal("-STOP");
    let bulk = "x".repeat(200_000);
    for (name, endpoint, connection) in &clients {
        assert_eq!(ask_in_time(connection, "b"), format!("{name}:b"));
        endpoint.rebind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(ask_in_time(connection, &bulk).len(), bulk.len() + name.len() + 1);
    }
    signal("-CONT");
    let before = &said["addresses"][0]["datagrams"];
    let now = &switch.status()["addresses"][0]["datagrams"];
    assert_eq!((&now["received"], &now["forwarded"]), (&before["received"], &before["forwarded"]));
    drop(shop);
}

/// Somebody among them has the kernel bring each program's datagrams to another one, as an older program of
/// the switch's might for a moment: what is not theirs they hand back.
#[test]
fn what_the_kernel_brings_to_the_wrong_program_reaches_the_right_one() {
    let switch = Switch::new();
    let chat = Program::start(&switch, "chat", "chat/1", "127.0.0.1:0", "workers");
    let shop = Program::start(&switch, "shop", "shop/1", &chat.address.to_string(), "");
    let clients: Vec<_> = (0..8)
        .map(|i| match i % 2 {
            0 => ("chat", connect(&chat, "chat/1")),
            _ => ("shop", connect(&chat, "shop/1")),
        })
        .collect();
    let options = Options { name: switch.name.clone(), program: None, label: "wrong".into() };
    let place = Place {
        address: chat.address,
        only_v6: false,
        workers: 1,
        steered: true,
        remains: false,
        options: SocketOptions::default(),
    };
    let joined = Membership::join(&options, place, || unreachable!("somebody has it"));
    let (member, mut inlets, _) = joined.unwrap();
    let own = inlets[0].take_socket().unwrap();
    let ring = member.secrets().ring().unwrap();
    let keys = ring.current().unwrap();
    let mask = HashKey::new(keys.mask);
    let codec = Codec::new(keys.configuration, Secrets::format().unwrap(), None, mask);
    // The sockets of workers follow each other in the order in which programs came.
    let owner = |generation, worker| Owner { generation, worker };
    let wrong = [(owner(0, 0), 3), (owner(0, 1), 1), (owner(1, 0), 2)];
    let handed_back = || {
        let said = switch.status();
        assert_eq!(said["addresses"][0]["datagrams"]["stateless_resets"], 0, "{said}");
        said["addresses"][0]["datagrams"]["handed_back"].as_u64().unwrap()
    };
    assert_eq!(handed_back(), 0);
    attach_reuseport(&own, &OwnerProgram::among([&codec], &wrong, None).unwrap()).unwrap();
    let bulk = "x".repeat(100_000);
    for (name, connection) in &clients {
        assert_eq!(ask_in_time(connection, &bulk).len(), bulk.len() + name.len() + 1);
        assert_eq!(ask_in_time(connection, "on"), format!("{name}:on"));
    }
    // Two questions on each of four connections at least: the others' may have come to the right program.
    assert!(handed_back() >= 8, "{}", handed_back());
    drop(shop);
}

/// The one test twice: with the kernel's help, and where the switch forwards every datagram.
macro_rules! with_help_and_without {
    ($($name:ident, $without:ident, $test:ident;)*) => {$(
        #[test]
        fn $name() {
            $test("");
        }

        #[test]
        fn $without() {
            $test("forwarded");
        }
    )*};
}

with_help_and_without! {
    a_program_that_is_killed_takes_nothing_with_it_but_its_own,
    a_program_that_is_killed_takes_nothing_with_it_without_the_kernels_help,
    a_program_is_killed;
    a_switch_that_is_killed_comes_back_by_itself_and_nobody_loses_a_connection,
    a_switch_that_is_killed_comes_back_without_the_kernels_help,
    a_switch_is_killed;
    an_upgrade_under_load_fails_no_request,
    an_upgrade_under_load_fails_no_request_without_the_kernels_help,
    an_upgrade_under_load;
}

fn a_program_is_killed(how: &str) {
    let switch = Switch::new();
    let mut chat = Program::start(&switch, "chat", "chat/1", "127.0.0.1:0", how);
    let at = chat.address.to_string();
    let shop = Program::start(&switch, "shop", "shop/1", &at, how);
    let (lost, kept) = (connect(&chat, "chat/1"), connect(&chat, "shop/1"));
    assert_eq!(ask(&lost, "a").unwrap(), "chat:a");
    assert_eq!(ask(&kept, "a").unwrap(), "shop:a");
    chat.process.kill().unwrap();
    chat.process.wait().unwrap();
    let begun = Instant::now();
    // Its client hears of it at its next packet: a stateless reset.
    let error = ask(&lost, "b").unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "{error} after {:?}", begun.elapsed());
    assert!(lost.closed().to_string().contains("reset"), "{}", lost.closed());
    assert_eq!(ask(&kept, "b").unwrap(), "shop:b");
    // What it had is free.
    let again = Program::start(&switch, "chat", "chat/1", &at, "");
    assert_eq!(ask(&connect(&again, "chat/1"), "c").unwrap(), "chat:c");
    assert_eq!(ask(&kept, "c").unwrap(), "shop:c");
    drop(shop);
}

fn a_switch_is_killed(how: &str) {
    let switch = Switch::new();
    let workers = format!("workers {how}");
    let chat = Program::start(&switch, "chat", "chat/1", "127.0.0.1:0", &workers);
    let shop = Program::start(&switch, "shop", "shop/1", &chat.address.to_string(), how);
    let connections: Vec<_> = (0..6)
        .map(|i| match i % 2 {
            0 => ("chat", connect(&chat, "chat/1")),
            _ => ("shop", connect(&chat, "shop/1")),
        })
        .collect();
    for round in 0..3 {
        let before = switch.status()["pid"].clone();
        switch.kill();
        let begun = Instant::now();
        for (name, connection) in &connections {
            assert_eq!(ask(connection, "on").unwrap(), format!("{name}:on"), "round {round}");
        }
        let (one, two) = (connect(&chat, "chat/1"), connect(&chat, "shop/1"));
        assert_eq!(ask(&one, "new").unwrap(), "chat:new");
        assert_eq!(ask(&two, "new").unwrap(), "shop:new");
        println!("round {round}: {:?}", begun.elapsed());
        assert!(begun.elapsed() < LONG);
        assert_ne!(switch.status()["pid"], before);
    }
    drop(shop);
}

/// Nobody else is at the address: the switch itself resets clients, and tells new ones that nobody is there.
#[test]
fn the_only_program_of_an_address_is_killed_and_its_clients_are_reset() {
    let switch = Switch::new();
    let mut chat = Program::start(&switch, "chat", "chat/1", "127.0.0.1:0", "");
    let at = chat.address.to_string();
    let lost = connect(&chat, "chat/1");
    assert_eq!(ask(&lost, "a").unwrap(), "chat:a");
    chat.process.kill().unwrap();
    chat.process.wait().unwrap();
    let begun = Instant::now();
    let error = ask(&lost, "b").unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "{error} after {:?}", begun.elapsed());
    assert!(lost.closed().to_string().contains("reset"), "{}", lost.closed());
    let error = endpoint().connect(chat.address, "localhost", &client("chat/1")).unwrap_err();
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
    let again = Program::start(&switch, "chat", "chat/1", &at, "");
    assert_eq!(ask(&connect(&again, "chat/1"), "c").unwrap(), "chat:c");
}

/// Listeners, locks and pipes of the program that starts it would stay open as long as the switch.
#[test]
fn a_switch_has_no_descriptor_of_the_program_that_starts_it() {
    let switch = Switch::new();
    // A pipe that the switch is given as descriptor 9.
    let script = "exec 9>&1 && exec \"$0\" switch --detach --stay";
    let mut command = Command::new("sh");
    command.args(["-c", script, QUICKET]).env("QUICKET_SWITCH", &switch.name);
    let mut started = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = started.stdout.take().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || tell.send(output.read_to_end(&mut Vec::new())));
    assert!(started.wait().unwrap().success());
    let begun = Instant::now();
    while quicket_switch::client::status(&switch.name).is_err() {
        assert!(begun.elapsed() < LONG, "it has not started");
        thread::sleep(Duration::from_millis(5));
    }
    let ended = told.recv_timeout(LONG).expect("the pipe is open");
    assert_eq!(ended.unwrap(), 0);
}

/// A generation has a deadline; how many connections it has is to be seen meanwhile.
#[test]
fn a_generation_that_was_replaced_ends_its_connections_at_its_deadline() {
    let switch = Switch::new();
    let mut old = Program::start(&switch, "site.0", "site", "127.0.0.1:0", "drain");
    let held: Vec<_> = (0..3).map(|_| connect(&old, "site")).collect();
    assert_eq!(ask(&held[0], "").unwrap(), "site.0:");
    let new = Program::start(&switch, "site.1", "site", &old.address.to_string(), "replace");
    let begun = Instant::now();
    assert_eq!(ask(&held[0], "").unwrap(), "site.0:");
    let programs = switch.status()["addresses"][0]["programs"].clone();
    let of = |state: &str| {
        let mut all = programs.as_array().unwrap().iter();
        all.find(|program| program["state"] == state).unwrap()["connections"].as_u64()
    };
    assert_eq!((of("draining"), of("serving")), (Some(3), Some(0)), "{programs}");
    for connection in &held {
        let end = connection.closed().to_string();
        assert!(end.contains("the time of this generation is over"), "{end}");
    }
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    old.says("DRAINED");
    drop(new);
}

/// A ticket of the generation before resumes with the next one, early data included, and once only,
/// whichever of them a copy comes to. A request that is on its way stays where it was.
#[test]
fn early_data_goes_on_over_an_upgrade_and_is_taken_once() {
    let switch = Switch::new();
    let first = Program::start(&switch, "site.0", "site", "127.0.0.1:0", "early");
    let store = Arc::new(MemorySessionStore::new());
    let config = client("site").sessions(store.clone());
    let key = format!("localhost:{}", first.address.port());
    let tickets = {
        let connection = connect_with(&first, &config);
        assert_eq!(ask(&connection, "").unwrap(), "site.0:");
        let begun = Instant::now();
        let mut tickets = Vec::new();
        while tickets.len() < 2 {
            tickets.extend(store.take_session(&key));
            assert!(begun.elapsed() < LONG, "no tickets came");
            thread::sleep(Duration::from_millis(5));
        }
        tickets
    };
    let resumed = |ticket: &[u8]| {
        // New tickets go elsewhere.
        let store = Arc::new(MemorySessionStore::new());
        store.save_session(&key, ticket);
        let config = client("site").sessions(store);
        let connection = endpoint().connect_early(first.address, "localhost", &config).unwrap();
        let answer = ask(&connection, "q").unwrap();
        connection.wait_established().unwrap();
        assert!(connection.handshake().unwrap().resumed);
        let early_data = connection.early_data();
        // It is early where it was written before the handshake was over, which a busy machine prevents.
        let early = answer.strip_suffix(":early");
        assert!(early.is_none() || early_data == EarlyData::Accepted, "{answer}");
        (early.unwrap_or(&answer).to_owned(), early_data)
    };
    let held = connect_with(&first, &config);
    let mut request = held.open_bi().unwrap();
    request.write_all(b"begun").unwrap();
    let taken = |name: &str| (format!("{name}:q"), EarlyData::Accepted);
    let refused = |name: &str| (format!("{name}:q"), EarlyData::Rejected);
    assert_eq!(resumed(&tickets[0]), taken("site.0"));
    let address = first.address.to_string();
    let _next = Program::start(&switch, "site.1", "site", &address, "early,replace");
    assert_eq!(resumed(&tickets[0]), refused("site.1"), "a copy");
    assert_eq!(resumed(&tickets[1]), taken("site.1"));
    assert_eq!(resumed(&tickets[1]), refused("site.1"), "a copy");
    request.finish().unwrap();
    let mut answer = String::new();
    request.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "site.0:begun");
    // The next switch knows nothing of what this one knew: nothing made before it is early.
    let fresh = {
        let connection = connect_with(&first, &config);
        assert_eq!(ask(&connection, "").unwrap(), "site.1:");
        let begun = Instant::now();
        loop {
            if let Some(ticket) = store.take_session(&key) {
                break ticket;
            }
            assert!(begun.elapsed() < LONG);
            thread::sleep(Duration::from_millis(5));
        }
    };
    let before = switch.status()["pid"].clone();
    switch.kill();
    let begun = Instant::now();
    loop {
        let status = quicket_switch::client::status(&switch.name).unwrap_or_default();
        let status = serde_json::from_str::<serde_json::Value>(&status).unwrap_or_default();
        let back = status["addresses"][0]["programs"].as_array().map_or(0, Vec::len);
        if status["pid"] != before && back == 2 {
            break;
        }
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(resumed(&fresh), refused("site.1"));
}

/// Sockets of messages have one key of tickets for all processes of a program, too.
#[test]
fn clients_of_sockets_of_messages_resume_with_the_next_process() {
    let switch = Switch::new();
    let mut first = Program::start(&switch, "box.0", "box", "127.0.0.1:0", "messages");
    let at = first.address.to_string();
    let store = Arc::new(MemorySessionStore::new());
    let config = client("box").sessions(store.clone());
    let connection = connect_with(&first, &config);
    assert_eq!(ask(&connection, "a").unwrap(), "box.0:a");
    assert!(!connection.handshake().unwrap().resumed);
    let key = format!("localhost:{}", first.address.port());
    let begun = Instant::now();
    let ticket = loop {
        if let Some(ticket) = store.take_session(&key) {
            break ticket;
        }
        assert!(begun.elapsed() < LONG, "no ticket came");
        thread::sleep(Duration::from_millis(5));
    };
    store.save_session(&key, &ticket);
    first.process.kill().unwrap();
    first.process.wait().unwrap();
    let second = Program::start(&switch, "box.1", "box", &at, "messages");
    let connection = connect_with(&second, &config);
    assert_eq!(ask(&connection, "b").unwrap(), "box.1:b");
    assert!(connection.handshake().unwrap().resumed);
}

/// Clients that connect and ask all the time, and a program that is replaced again and again.
fn an_upgrade_under_load(how: &str) {
    let replaces = format!("replace {how}");
    let switch = Switch::new();
    let mut current = Program::start(&switch, "site.0", "site", "127.0.0.1:0", how);
    let address = current.address;
    let done = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let clients: Vec<_> = (0..4)
        .map(|i| {
            let (done, asked, seen) = (done.clone(), asked.clone(), seen.clone());
            thread::spawn(move || {
                // A connection that stays, where the first generation is, and many that do not.
                let endpoint = endpoint();
                let first = endpoint.connect(address, "localhost", &client("site")).unwrap();
                let home = ask(&first, "").unwrap();
                while !done.load(Ordering::SeqCst) {
                    let next = endpoint.connect(address, "localhost", &client("site")).unwrap();
                    for connection in [&next, &first, &next] {
                        let answer = ask(connection, "").unwrap();
                        if std::ptr::eq(connection, &first) {
                            assert_eq!(answer, home);
                        }
                        seen.lock().unwrap().insert(answer);
                        asked.fetch_add(1, Ordering::SeqCst);
                    }
                    next.close(0, b"");
                    if i == 0 {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            })
        })
        .collect();
    let mut earlier = Vec::new();
    for generation in 1..=4 {
        let name = format!("site.{generation}");
        let count = asked.load(Ordering::SeqCst);
        // One that does not come up changes nothing.
        let refused = Program::try_start(&switch, "site.x", "site", &address.to_string(), how);
        assert!(refused.is_err());
        let next = Program::start(&switch, &name, "site", &address.to_string(), &replaces);
        earlier.push(std::mem::replace(&mut current, next));
        let begun = Instant::now();
        while asked.load(Ordering::SeqCst) < count + 50
            || !seen.lock().unwrap().contains(&format!("{name}:"))
        {
            assert!(begun.elapsed() < LONG, "nothing goes on in generation {generation}");
            thread::sleep(Duration::from_millis(5));
        }
    }
    done.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    // Now nothing holds the earlier ones.
    for generation in &mut earlier {
        generation.says("DRAINED");
    }
    assert_eq!(seen.lock().unwrap().len(), 5);
    println!("{} requests", asked.load(Ordering::SeqCst));
}

/// `quicket serve`, a process of the test's own that ends with it.
struct Serve(Child);

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two sites at one address, told apart by name; one of them is upgraded while it is asked.
#[test]
fn quicket_serve_shares_an_address_by_name_and_starts_its_next_generation_when_told_to() {
    let switch = Switch::new();
    let site = tempfile::tempdir().unwrap();
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let at = format!("127.0.0.1:{port}");
    let _servers: Vec<_> = ["a.example", "b.example"]
        .into_iter()
        .map(|name| {
            let dir = site.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("who"), name).unwrap();
            let dir = dir.to_str().unwrap();
            let mut command = switch.command(&["serve", dir, "-q", "-l", &at, "--switch"]);
            command.args(["--server-name", name]);
            command.env("XDG_DATA_HOME", site.path()).stderr(Stdio::null());
            Serve(command.spawn().unwrap())
        })
        .collect();
    let programs = || {
        let status = quicket_switch::client::status(&switch.name).ok()?;
        let status: serde_json::Value = serde_json::from_str(&status).ok()?;
        let programs = status["addresses"][0]["programs"].as_array()?.iter();
        let serving = programs.filter(|program| program["state"] == "serving");
        let of = |program: &serde_json::Value| {
            let name = program["program"].as_str().unwrap().to_owned();
            (name, program["pid"].as_u64().unwrap())
        };
        Some(serving.map(of).collect::<std::collections::BTreeMap<_, _>>())
    };
    let wait_for = |what: &dyn Fn(&std::collections::BTreeMap<String, u64>) -> bool| {
        let begun = Instant::now();
        loop {
            match programs() {
                Some(programs) if what(&programs) => return programs,
                _ => assert!(begun.elapsed() < LONG),
            }
            thread::sleep(Duration::from_millis(10));
        }
    };
    let before = wait_for(&|programs| programs.len() == 2);
    // A request for each name: the client asks for the name and goes to this address.
    let get = |name: &str| {
        let tls = ClientTls::builder().dangerous_no_verification().alpn(["hq-interop"]);
        let config = ClientConfig::new(tls.build().unwrap());
        let address = at.parse().unwrap();
        let connection = endpoint().connect(address, name, &config).unwrap();
        let mut stream = connection.open_bi().unwrap();
        stream.write_all(b"GET /who\r\n").unwrap();
        stream.finish().unwrap();
        let mut body = String::new();
        stream.read_to_string(&mut body).unwrap();
        body
    };
    assert_eq!([get("a.example"), get("b.example")], ["a.example", "b.example"]);
    assert!(switch.command(&["switch", "upgrade"]).status().unwrap().success());
    let after = wait_for(&|programs| {
        assert_eq!([get("a.example"), get("b.example")], ["a.example", "b.example"]);
        programs.len() == 2 && programs.iter().all(|(name, pid)| before[name] != *pid)
    });
    assert_eq!([get("a.example"), get("b.example")], ["a.example", "b.example"]);
    let text = switch.command(&["switch", "status", "--prometheus"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("program=\"a.example\"") && text.contains("state=\"draining\""),
        "{text}"
    );
    // Nobody else ends those that were started by others.
    for pid in after.values() {
        assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
    }
    // Of a process that has ended and that nobody has asked for yet, there is no command line.
    let command_line = |pid: &u64| std::fs::read(format!("/proc/{pid}/cmdline"));
    let is_there = |pid: &u64| command_line(pid).is_ok_and(|line| !line.is_empty());
    let deadline = Instant::now() + Duration::from_secs(30);
    while after.values().any(is_there) {
        assert!(Instant::now() < deadline, "a generation that was started does not end");
        thread::sleep(Duration::from_millis(10));
    }
}
