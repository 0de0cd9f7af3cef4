//! Programs in Rust, C and Python that share a port through `quicket switch`: real processes, of which
//! those in Python know nothing of it.
#![cfg(target_os = "linux")]

mod common;

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use quicket::message::{Errno, MessageKind, MsgFlags, Socket, StreamFlags, StreamInfo};
use quicket::{
    ClientConfig, ClientTls, ConnectError, Connection, Endpoint, Identity, ServerTls, SwitchConfig,
};
use quicket_testing::{LONG, Process};

use common::ask;
use common::switch::{QUICKET, Switch, here, libraries};

impl Switch {
    /// Python, unmodified, under `quicket run`.
    fn python(&self, name: &str, port: u16, protocols: &str, more: &[&str]) -> Program {
        self.run(&format!("--switch={name}"), name, port, protocols, more)
    }

    fn run(&self, flag: &str, name: &str, port: u16, protocols: &str, more: &[&str]) -> Program {
        let mut command = self.command(QUICKET);
        // It finds the program that it is itself.
        command.env_remove("QUICKET_SWITCH_PROGRAM");
        command.args(["run", flag, "--", "python3"]);
        command.arg(here("tests/python/share.py"));
        command.args([name, &port.to_string(), protocols]).args(more);
        Program::spawn(command)
    }

    /// C, linked to the library, with the option.
    fn c(&self, name: &str, port: u16, protocols: &str, more: &[&str]) -> Program {
        let mut command = self.command(compiled());
        command.env("PROGRAM", name).env("LD_LIBRARY_PATH", libraries());
        command.args([name, &port.to_string(), protocols]).args(more);
        Program::spawn(command)
    }

    /// Rust, with sockets of messages: see [`program`].
    fn rust(&self, name: &str, port: u16, protocols: &str) -> Program {
        let mut command = self.command(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "program", "--nocapture", "--test-threads=1"]);
        command.env("PROGRAM", format!("{name}\n{port}\n{protocols}"));
        Program::spawn(command)
    }

    /// Which programs serve what.
    fn serving(&self) -> Vec<(String, String)> {
        let status = self.status();
        let programs = status["addresses"][0]["programs"].as_array().unwrap().iter();
        let serving = programs.filter(|program| program["state"] == "serving");
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let of = |program: &serde_json::Value| {
            let protocols: Vec<_> =
                program["protocols"].as_array().unwrap().iter().map(text).collect();
            (text(&program["program"]), protocols.join(","))
        };
        let mut serving: Vec<_> = serving.map(of).collect();
        serving.sort();
        serving
    }
}

/// A process that a program has forked, which ends with the test.
struct Forked(u64);

impl Drop for Forked {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.0.to_string()]).status();
    }
}

/// The program in C.
fn compiled() -> &'static Path {
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let name = format!("share-{}", std::process::id());
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
            .arg(here("../c/include"))
            .arg("-o")
            .args([&program, &here("tests/programs/share.c")])
            .arg("-L")
            .arg(libraries())
            .args(["-lquicket_c", "-ldl"])
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        program
    })
}

/// A program in a process of its own, which ends with its input.
struct Program {
    process: Process,
    orders: Option<ChildStdin>,
    /// What it says, which a thread reads.
    lines: Receiver<String>,
}

impl Program {
    fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let output = BufReader::new(process.stdout.take().unwrap());
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let orders = process.stdin.take();
        Self { process, orders, lines }
    }

    /// The next line, whatever it is.
    fn any_line(&mut self) -> String {
        self.lines.recv_timeout(LONG).expect("it has ended, or says nothing")
    }

    /// Waits for a line with this word, and returns what follows.
    fn says(&mut self, word: &str) -> String {
        loop {
            let line = self.any_line();
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
            let refused = line.contains("REFUSED") || line.contains("READY");
            assert!(!refused, "{line} instead of {word}");
        }
    }

    /// The next line but BOUND.
    fn line(&mut self) -> String {
        let line = self.any_line();
        if line.starts_with("BOUND") { self.line() } else { line.trim().to_owned() }
    }

    /// Waits until it listens; says where.
    fn ready(&mut self) -> SocketAddr {
        self.says("READY ").parse().unwrap()
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
    }

    /// kill -9.
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Not a test: the program in Rust, started by [`Switch::rust`]. It answers each stream with its name and
/// what it was sent.
#[test]
#[ignore = "a program that tests start"]
fn program() {
    let Ok(orders) = env::var("PROGRAM") else { return };
    let orders: Vec<&str> = orders.split('\n').collect();
    let [name, port, protocols] = orders[..] else { panic!("{orders:?}") };
    let listener = Socket::new_v4();
    listener.set_switch(SwitchConfig::new(name)).unwrap();
    listener.bind(format!("127.0.0.1:{port}").parse().unwrap()).unwrap();
    listener.set_alpn(protocols.as_bytes()).unwrap();
    if let Err(error) = listener.listen(64) {
        return println!("REFUSED {error}: {}", listener.failure().unwrap_or_default());
    }
    println!("READY {}", listener.local_addr());
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let tls = ServerTls::builder(identity).alpn(protocols.split(',')).build().unwrap();
    let tls = std::sync::Arc::new(tls);
    loop {
        let (connection, tls, name) = (listener.accept().unwrap(), tls.clone(), name.to_owned());
        thread::spawn(move || {
            if connection.accept_tls(tls).is_ok() {
                while answer(&connection, &name).is_ok() {}
            }
        });
    }
}

/// Answers a question; there is one at a time.
fn answer(connection: &Socket, name: &str) -> Result<(), Errno> {
    let mut text = format!("{name}:").into_bytes();
    loop {
        let mut part = [0; 4096];
        let message = connection.recv_message(&mut part, MsgFlags::NONE)?;
        text.extend_from_slice(&part[..message.len]);
        let MessageKind::Stream(info) = message.kind else { panic!("{message:?}") };
        if info.flags.contains(StreamFlags::FIN) {
            let answer = StreamInfo::new(info.stream_id, StreamFlags::FIN);
            return connection.send_message(&text, Some(answer), MsgFlags::NONE).map(drop);
        }
    }
}

/// Connects with a protocol, or with none.
fn try_connect(address: SocketAddr, alpn: Option<&str>) -> Result<Connection, ConnectError> {
    let tls = ClientTls::builder().dangerous_no_verification();
    let tls = match alpn {
        Some(alpn) => tls.alpn([alpn]),
        None => tls.without_alpn(),
    };
    let config = ClientConfig::new(tls.build().unwrap());
    Endpoint::bind("127.0.0.1:0").unwrap().connect(address, "localhost", &config)
}

fn connect(address: SocketAddr, alpn: &str) -> Connection {
    try_connect(address, Some(alpn)).unwrap()
}

/// Who answers a new client.
fn who(address: SocketAddr, alpn: &str) -> String {
    ask(&connect(address, alpn), "who").unwrap()
}

/// `quicket serve` at an address, with one file.
fn serve(switch: &Switch, address: SocketAddr) -> Program {
    let root = switch.dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("who"), "site").unwrap();
    let mut command = switch.command(QUICKET);
    command.args(["serve", root.to_str().unwrap(), "--json", "--switch", "-l"]);
    command.arg(address.to_string()).stderr(Stdio::null());
    let mut program = Program::spawn(command);
    program.says("\"listening\"");
    program
}

fn get(connection: &Connection) -> String {
    ask(connection, "GET /who\r\n").unwrap()
}

/// Two programs in Python, one in C and two in Rust.
#[test]
fn five_programs_in_three_languages_serve_one_port_at_the_same_time() {
    let switch = Switch::new();
    let mut mail = switch.python("mail", 0, "mail", &[]);
    let at = mail.ready();
    let mut news = switch.python("news", at.port(), "news,news/2", &[]);
    let mut chat = switch.c("chat", at.port(), "chat", &[]);
    let mut shop = switch.rust("shop", at.port(), "shop");
    let _site = serve(&switch, at);
    for program in [&mut news, &mut chat, &mut shop] {
        assert_eq!(program.ready(), at);
    }
    let pair = |(program, protocols): (&str, &str)| (program.to_owned(), protocols.to_owned());
    let expected = [("chat", "chat"), ("mail", "mail"), ("news", "news,news/2")];
    let expected: Vec<_> = expected.into_iter().chain([("shop", "shop")]).map(pair).collect();
    let serving = switch.serving();
    assert_eq!((serving.len(), &serving[..3]), (5, &expected[..3]), "{serving:?}");
    assert_eq!(serving[4], expected[3], "{serving:?}");
    assert!(serving[3].0 == "quicket-serve" && serving[3].1.contains("h3"), "{serving:?}");

    // All at the same time, each with clients that stay.
    let programs = [
        ("mail", "mail"),
        ("news", "news"),
        ("news", "news/2"),
        ("chat", "chat"),
        ("shop", "shop"),
    ];
    let kept: Vec<_> = programs.iter().map(|(name, alpn)| (*name, connect(at, alpn))).collect();
    let site = connect(at, "hq-interop");
    thread::scope(|scope| {
        for (name, connection) in &kept {
            scope.spawn(move || {
                for round in 0..20 {
                    let answer = ask(connection, &round.to_string());
                    let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert_eq!(answer, format!("{name}:{round}"));
                }
            });
        }
        for (name, alpn) in programs {
            scope.spawn(move || {
                for _ in 0..5 {
                    assert_eq!(who(at, alpn), format!("{name}:who"));
                }
            });
        }
        for _ in 0..20 {
            assert_eq!(get(&site), "site");
        }
    });
    // Nobody has that.
    let error = try_connect(at, Some("none")).unwrap_err();
    assert!(error.to_string().contains("alert 120"), "{error}");

    // Python is killed: its clients hear of it, and those of others hear nothing.
    mail.kill();
    let error = ask(&kept[0].1, "b").unwrap_err();
    assert!(kept[0].1.closed().to_string().contains("reset"), "{error}: {}", kept[0].1.closed());
    for (name, connection) in &kept[1..] {
        assert_eq!(ask(connection, "b").unwrap(), format!("{name}:b"));
    }
    assert_eq!(get(&site), "site");
    // What it had is free, for a program in another language too.
    let mut mail = switch.c("mail", at.port(), "mail", &[]);
    assert_eq!(mail.ready(), at);
    assert_eq!(who(at, "mail"), "mail:who");
    let dropped = &switch.status()["addresses"][0]["dropped"];
    for none in ["malformed", "unreadable", "not_served"] {
        assert_eq!(dropped[none], 0, "{none}: {dropped}");
    }
}

/// Each has protocols of its own, two workers, and a client that stays.
#[test]
fn sixty_four_programs_serve_one_port_and_half_of_them_are_killed() {
    const COUNT: usize = 64;
    let switch = Switch::new();
    let name = |i: usize| format!("p{i}");
    let mut first = switch.c(&name(0), 0, &name(0), &[]);
    let at = first.ready();
    let others: Vec<_> = (1..COUNT).map(|i| switch.c(&name(i), at.port(), &name(i), &[])).collect();
    let mut programs: Vec<_> = std::iter::once(first).chain(others).collect();
    for program in &mut programs[1..] {
        assert_eq!(program.ready(), at);
    }
    let kept: Vec<_> = (0..COUNT).map(|i| connect(at, &name(i))).collect();
    for (i, connection) in kept.iter().enumerate() {
        assert_eq!(ask(connection, "a").unwrap(), format!("p{i}:a"));
    }
    for program in programs.iter_mut().skip(1).step_by(2) {
        program.kill();
    }
    for (i, connection) in kept.iter().enumerate() {
        match (i % 2, ask(connection, "b")) {
            (0, answer) => assert_eq!(answer.unwrap(), format!("p{i}:b")),
            (_, answer) => assert!(answer.is_err(), "{i}"),
        }
    }
    for (i, program) in programs.iter_mut().enumerate().skip(1).step_by(2) {
        *program = switch.c(&name(i), at.port(), &name(i), &[]);
    }
    for (i, program) in programs.iter_mut().enumerate().skip(1).step_by(2) {
        assert_eq!(program.ready(), at);
        assert_eq!(who(at, &name(i)), format!("p{i}:who"));
    }
    assert_eq!(switch.serving().len(), COUNT);
}

/// The rules of the kernel's sockets, across processes and languages.
#[test]
fn who_may_have_which_protocols_is_the_same_in_every_language() {
    let switch = Switch::new();
    let mut mail = switch.python("mail", 0, "mail,post", &[]);
    let at = mail.ready();
    // A part of the list is taken. Binding is no claim.
    let mut python = switch.python("other", at.port(), "x,post", &[]);
    python.says("BOUND");
    assert_eq!(python.says("REFUSED "), "EADDRINUSE");
    let mut c = switch.c("other", at.port(), "mail", &[]);
    let text = c.says("REFUSED ");
    assert!(text.starts_with("EADDRINUSE listen: ") && text.contains("\"mail\""), "{text}");
    let text = switch.rust("other", at.port(), "post").says("REFUSED ");
    assert!(text.contains("EADDRINUSE") && text.contains("\"mail\""), "{text}");
    // The same list is shared by those who all say so, and not by others.
    let mut python = switch.python("other", at.port(), "post,mail", &["reuse"]);
    assert_eq!(python.says("REFUSED "), "EADDRINUSE");
    drop(mail);
    let begun = Instant::now();
    let mut one = loop {
        let mut one = switch.python("one", at.port(), "mail,post", &["reuse"]);
        one.says("BOUND");
        let line = one.any_line();
        if line.contains("READY") {
            break one;
        }
        assert!(begun.elapsed() < LONG, "{line}");
    };
    let mut two = switch.python("two", at.port(), "post,mail", &["reuse"]);
    assert_eq!(two.ready(), at);
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 2 {
        assert!(begun.elapsed() < LONG, "only {seen:?} is reached");
        seen.insert(who(at, "mail"));
    }
    one.order("close");
    one.says("CLOSED");
    for _ in 0..8 {
        assert_eq!(who(at, "post"), "two:who");
    }
    // Whoever names no protocol has the clients that name none, and no others.
    let mut any = switch.c("any", at.port(), "-", &[]);
    assert_eq!(any.ready(), at);
    let none = try_connect(at, None).unwrap();
    assert_eq!(ask(&none, "x").unwrap(), "any:x");
    assert!(try_connect(at, Some("other")).unwrap_err().to_string().contains("alert 120"));
    let mut another = switch.python("another", at.port(), "-", &[]);
    assert_eq!(another.says("REFUSED "), "EADDRINUSE");
    // A program that does not share does not get the address.
    let alone = Socket::new_v4();
    assert_eq!(alone.bind(at), Err(Errno::EADDRINUSE));
}

#[test]
fn a_listener_that_is_closed_leaves_its_protocols_at_once_and_its_connections_go_on() {
    let switch = Switch::new();
    let mut mail = switch.python("mail", 0, "mail", &[]);
    let at = mail.ready();
    let kept = connect(at, "mail");
    assert_eq!(ask(&kept, "a").unwrap(), "mail:a");
    for _ in 0..5 {
        mail.order("close");
        mail.says("CLOSED");
        let listener = Socket::new_v4();
        let config = SwitchConfig::new("test").named(&switch.name).started_by(None);
        listener.set_switch(config).unwrap();
        listener.bind(at).unwrap();
        listener.set_alpn(b"mail").unwrap();
        listener.listen(1).unwrap();
        assert_eq!(ask(&kept, "b").unwrap(), "mail:b");
        drop(listener);
        mail.order("listen");
        assert_eq!(mail.ready(), at);
        assert_eq!(who(at, "mail"), "mail:who");
    }
    // A program that takes protocols and gives them up disturbs nobody.
    let mut goes = switch.c("goes", at.port(), "goes", &["1000"]);
    goes.says("GONE");
    assert_eq!(ask(&kept, "c").unwrap(), "mail:c");
}

#[test]
fn listeners_of_one_process_with_different_protocols_are_different_programs_to_the_switch() {
    let switch = Switch::new();
    let config = || SwitchConfig::new("both").named(&switch.name).started_by(Some(QUICKET.into()));
    let listener = |port, alpn: &str| {
        let listener = Socket::new_v4();
        listener.set_switch(config()).unwrap();
        listener.bind(format!("127.0.0.1:{port}").parse().unwrap()).unwrap();
        assert_eq!(listener.set_switch(config()), Err(Errno::EINVAL), "it is bound");
        listener.set_alpn(alpn.as_bytes()).unwrap();
        listener.listen(4).map(|()| listener)
    };
    let one = listener(0, "one").unwrap();
    let at = one.local_addr();
    let two = listener(at.port(), "two").unwrap();
    assert_eq!(listener(at.port(), "three,two").unwrap_err(), Errno::EADDRINUSE);
    assert_eq!(switch.serving().len(), 2);
    assert_eq!(two.program().as_deref(), Some("both"));
    // Other processes have the rest.
    let mut c = switch.c("three", at.port(), "three", &[]);
    assert_eq!(c.ready(), at);
    assert_eq!(who(at, "three"), "three:who");
    for (socket, alpn) in [(&one, "one"), (&two, "two")] {
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let tls = ServerTls::builder(identity).alpn([alpn]).build().unwrap();
        let client = thread::spawn(move || who(at, alpn));
        let connection = socket.accept().unwrap();
        connection.accept_tls(tls).unwrap();
        answer(&connection, alpn).unwrap();
        assert_eq!(client.join().unwrap(), format!("{alpn}:who"));
    }
    // Without a name it is that of the program's file.
    let mut python = switch.run("--switch", "four", at.port(), "four", &[]);
    assert_eq!(python.ready(), at);
    let serving = switch.serving();
    let python3 = |(program, _): &(String, String)| program.starts_with("python3");
    assert_eq!(serving.iter().filter(|each| python3(each)).count(), 1, "{serving:?}");
    drop(python);
    one.listen(0).unwrap();
    let serving = |alpn: &str| switch.serving().iter().any(|(_, protocols)| protocols == alpn);
    assert!(!serving("one") && serving("two"), "its protocol is free when the call returns");
    let again = listener(at.port(), "one").unwrap();
    // A socket that only connects has an address of its own.
    let client = Socket::new_v4();
    client.set_switch(config()).unwrap();
    client.connect(again.local_addr()).unwrap();
    assert_ne!(client.local_addr().port(), at.port());
    assert_eq!(switch.status()["addresses"].as_array().unwrap().len(), 1);
}

#[test]
fn programs_in_python_and_c_outlive_their_switch() {
    let switch = Switch::new();
    let mut mail = switch.python("mail", 0, "mail", &[]);
    let at = mail.ready();
    let mut chat = switch.c("chat", at.port(), "chat", &[]);
    chat.ready();
    let kept = [("mail", connect(at, "mail")), ("chat", connect(at, "chat"))];
    for round in 0..3 {
        switch.kill();
        for (name, connection) in &kept {
            assert_eq!(ask(connection, "on").unwrap(), format!("{name}:on"), "round {round}");
            assert_eq!(who(at, name), format!("{name}:who"), "round {round}");
        }
    }
}

/// The child has closed the listener, and has nothing of what the switch knows the program by. (One that has it goes
/// on with it: `fork.rs`.)
#[test]
fn a_child_without_the_listener_does_not_keep_the_protocols_of_a_program_that_is_killed() {
    let switch = Switch::new();
    let mut witness = switch.rust("witness", 0, "witness");
    let at = witness.ready();
    let forking = ["fork"];
    let programs = [
        switch.python("mail", at.port(), "mail", &forking),
        switch.c("chat", at.port(), "chat", &forking),
    ];
    for (mut program, name) in programs.into_iter().zip(["mail", "chat"]) {
        let mut lines = [program.line(), program.line()];
        lines.sort();
        let child = lines[0].strip_prefix("CHILD ").unwrap();
        let (child, error) = child.split_once(' ').unwrap();
        let _child = Forked(child.parse().unwrap());
        assert_eq!(error, "EBADF", "{name}");
        assert_eq!(who(at, name), format!("{name}:who"));
        let kept = connect(at, name);
        program.kill();
        let mut again = switch.rust("again", at.port(), name);
        assert_eq!(again.ready(), at);
        assert_eq!(who(at, name), "again:who");
        ask(&kept, "b").unwrap_err();
    }
}

/// A socket for a listener that shares a port.
fn sharing(switch: &Switch, program: &str, port: u16, alpn: &str) -> Socket {
    let config = SwitchConfig::new(program).named(&switch.name).started_by(Some(QUICKET.into()));
    let socket = Socket::new_v4();
    socket.set_switch(config).unwrap();
    socket.bind(format!("127.0.0.1:{port}").parse().unwrap()).unwrap();
    socket.set_alpn(alpn.as_bytes()).unwrap();
    socket
}

#[test]
fn threads_that_listen_and_stop_at_once_leave_the_socket_and_the_switch_of_one_mind() {
    let switch = Switch::new();
    let socket = sharing(&switch, "race", 0, "race");
    socket.set_nonblocking(true);
    let (start, mut listened) = (Barrier::new(3), 0);
    for round in 0..60 {
        thread::scope(|scope| {
            for backlog in [5, 0, 7] {
                let (socket, start) = (&socket, &start);
                scope.spawn(move || {
                    start.wait();
                    let done = socket.listen(backlog);
                    assert!(matches!(done, Ok(()) | Err(Errno::EINVAL)), "{backlog}: {done:?}");
                });
            }
        });
        let listens = match socket.accept().unwrap_err() {
            Errno::EAGAIN => true,
            Errno::EINVAL => false,
            error => panic!("{error}"),
        };
        assert_eq!(!switch.serving().is_empty(), listens, "round {round}");
        listened += u32::from(listens);
    }
    assert_ne!(listened, 0);
}

#[test]
fn a_listener_that_was_replaced_listens_again_once_it_has_stopped() {
    let switch = Switch::new();
    let first = sharing(&switch, "app", 0, "app");
    first.listen(4).unwrap();
    let next = Socket::new_v4();
    next.set_switch(SwitchConfig::new("app").named(&switch.name).replace(true)).unwrap();
    next.bind(first.local_addr()).unwrap();
    next.set_alpn(b"app").unwrap();
    next.listen(4).unwrap();
    assert_eq!(first.accept().unwrap_err(), Errno::EINVAL);
    assert_eq!(first.listen(4), Err(Errno::EINVAL), "it would wait for clients in vain");
    first.listen(0).unwrap();
    assert_eq!(first.listen(4), Err(Errno::EADDRINUSE));
    drop(next);
    first.listen(4).unwrap();
    assert_eq!(switch.serving(), [("app".to_owned(), "app".to_owned())]);
}

#[test]
fn a_listener_has_as_many_protocols_as_the_option_takes() {
    let switch = Switch::new();
    let names: Vec<_> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '-']).collect();
    let names: Vec<_> = names.into_iter().map(String::from).collect();
    assert_eq!(names.len(), 64);
    let listener = sharing(&switch, "many", 0, &names.join(","));
    listener.listen(4).unwrap();
    assert_eq!(switch.serving()[0].1.len(), 127);
}

/// The switch would keep the address for a minute, to reset the peers of a program that was killed.
#[test]
fn a_program_that_exits_with_a_listener_gives_its_address_up() {
    let switch = Switch::new();
    let mut chat = switch.c("chat", 0, "chat", &["exit"]);
    let at = chat.ready();
    let client = connect(at, "chat");
    assert_eq!(ask(&client, "a").unwrap(), "chat:a");
    drop(chat.orders.take());
    let begun = Instant::now();
    while let Err(error) = UdpSocket::bind(at) {
        assert!(begun.elapsed() < LONG, "{error}");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(client.closed().to_string().contains("closed"), "{}", client.closed());
}

/// As an upgrade does: the newer one has the same name, and says that it takes the place.
#[test]
fn a_program_in_python_that_is_replaced_hears_that_its_listener_has_ended() {
    let switch = Switch::new();
    let mut mail = switch.python("mail", 0, "mail", &[]);
    let at = mail.ready();
    let kept = connect(at, "mail");
    assert_eq!(ask(&kept, "a").unwrap(), "mail:a");
    let next = Socket::new_v4();
    next.set_switch(SwitchConfig::new("mail").named(&switch.name).replace(true)).unwrap();
    next.bind(at).unwrap();
    next.set_alpn(b"mail").unwrap();
    next.listen(4).unwrap();
    assert_eq!(mail.says("ENDED "), "EINVAL");
    let tls = ServerTls::builder(Identity::self_signed(["localhost"]).unwrap()).alpn(["mail"]);
    let client = thread::spawn(move || who(at, "mail"));
    let connection = next.accept().unwrap();
    connection.accept_tls(tls.build().unwrap()).unwrap();
    answer(&connection, "next").unwrap();
    assert_eq!(client.join().unwrap(), "next:who");
    assert_eq!(ask(&kept, "b").unwrap(), "mail:b");
}

/// Without a switch, and without a program to start as one, the words say so.
#[test]
fn a_switch_that_cannot_be_started_is_an_error_with_words() {
    let switch = Switch::new();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = switch.command(compiled());
    command.env("PROGRAM", "chat").env("LD_LIBRARY_PATH", libraries());
    command.env("QUICKET_SWITCH_PROGRAM", "/nonexistent/quicket");
    command.args(["chat", &port.to_string(), "chat"]);
    let text = Program::spawn(command).says("REFUSED ");
    assert!(text.starts_with("ENOENT bind: ") && text.contains("install quicket"), "{text}");
    let long = "x".repeat(65);
    let text = switch.c(&long, port, "chat", &[]).says("REFUSED ");
    assert!(text.starts_with("EINVAL setsockopt"), "{text}");
    let mut command = switch.command(QUICKET);
    command.args(["run", &format!("--switch={long}"), "--", "true"]).stderr(Stdio::piped());
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("64 bytes"));
}
