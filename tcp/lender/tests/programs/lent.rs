//! A lender in this process, and programs that it lends sockets to.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use quicket_packets::client::Opening;
use quicket_tcp::{Options, Stack, TcpStream};
use quicket_tcp_lender::Lender;
use quicket_tcp_protocol::VARIABLE;
use rustix::net::{AddressFamily, SocketType, bind, socket};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::common::{PATIENCE, Switch, until};

pub(crate) struct Lent {
    pub(crate) variable: String,
    end: Option<UnixStream>,
    thread: Option<JoinHandle<io::Result<Stack>>>,
}

impl Lent {
    /// A lender with a stack at a switch.
    pub(crate) fn new(switch: &Switch) -> Self {
        Self::with(switch, |lender| lender)
    }

    /// The same of a lender that is changed before it runs.
    pub(crate) fn with(switch: &Switch, change: impl FnOnce(Lender) -> Lender) -> Self {
        Self::over(change(Lender::new(switch.stack()).unwrap()))
    }

    /// One with a stack that has reserved addresses: so many of 127.0.0.1.
    pub(crate) fn handed(switch: &Switch, count: usize) -> (Self, Vec<SocketAddr>) {
        let mut opening = Opening::connect(&switch.path).unwrap();
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let addresses = (0..count).map(|_| {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            bind(&socket, &any).unwrap();
            let tuple = opening.reserve(&socket).unwrap();
            (tuple.address, tuple.port).into()
        });
        let addresses = addresses.collect();
        let stack = Stack::open_on(opening.confine().unwrap(), Options::default()).unwrap();
        (Self::over(Lender::new(stack).unwrap()), addresses)
    }

    fn over(lender: Lender) -> Self {
        let variable = lender.variable();
        let (end, ended) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || lender.run(ended.as_fd()));
        Self { variable, end: Some(end), thread: Some(thread) }
    }

    /// A program with sockets of the stack.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env(VARIABLE, &self.variable).stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&self, program: &str, words: &[&str]) -> Program {
        let mut command = self.command(program);
        Program::start(command.args(words))
    }

    /// What a program has printed, which ends well.
    pub(crate) fn run(&self, program: &str, words: &[&str]) -> String {
        let output = self.output(program, words);
        assert!(output.status.success(), "{program} {words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn output(&self, program: &str, words: &[&str]) -> Output {
        let mut command = self.command(program);
        command.args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    /// Ends once no program has a socket any more.
    pub(crate) fn end(mut self) {
        drop(self.end.take());
        let thread = self.thread.take().unwrap();
        until("the lender ends with the last socket", || thread.is_finished());
        drop(thread.join().unwrap().unwrap());
    }
}

/// The library, which Cargo puts beside the tests that it is built for.
fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libquicket_preload.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}

/// A program that ends with this, and with it what it has started.
pub(crate) struct Program(pub(crate) Child);

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = command.process_group(0).spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Its end, in good order.
    pub(crate) fn wait(&mut self) {
        let mut status = None;
        until("the program ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{status:?}");
    }

    /// The time of processors that it has had, with what it has started: in ticks, of which a second has a hundred.
    pub(crate) fn ticks(&self) -> u64 {
        let group = self.0.id().to_string();
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let ticks = processes.filter_map(|process| {
            let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
            // What comes after the name (proc_pid_stat(5)), from the state on.
            let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
            let times = (fields[2] == group).then(|| [fields[11], fields[12]])?;
            Some(times.iter().map(|time| time.parse::<u64>().unwrap()).sum::<u64>())
        });
        ticks.sum()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.0);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
    }
}

/// An address of this host that nobody has.
pub(crate) fn free() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Connects, as soon as somebody listens.
pub(crate) fn connect(stack: &Stack, to: SocketAddr) -> TcpStream {
    let mut stream = None;
    until("somebody listens", || {
        stream = TcpStream::connect_timeout(stack, to, Duration::from_secs(5)).ok();
        stream.is_some()
    });
    let stream = stream.unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Asks a server of HTTP for something, and for nothing after it: the answer.
pub(crate) fn fetch(stack: &Stack, to: SocketAddr, path: &str) -> Vec<u8> {
    let mut stream = connect(stack, to);
    write!(stream, "GET {path} HTTP/1.0\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// What comes after the head.
pub(crate) fn body(answer: &[u8]) -> &[u8] {
    assert!(answer.starts_with(b"HTTP/1.") && answer[8..].starts_with(b" 200"), "{answer:?}");
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    &answer[head + 4..]
}
