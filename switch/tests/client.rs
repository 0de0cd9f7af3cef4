//! A program whose switch dies, and comes back in ways that a good one does not: the test is the switch.
#![cfg(target_os = "linux")]

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, listen, recv, send,
    socket,
};
use quicket_switch::client::{Membership, Notice, Options, Place};
use quicket_switch::options::SocketOptions;
use quicket_switch::protocol::{
    Hex, Joined, Message, Octets, Question, Receipt, Refusal, Refused, Register, Reply, Request,
    Secrets, Serve, encode,
};

/// How long anything may take on a machine that is busy.
const LONG: Duration = Duration::from_secs(20);
const GENERATION: u8 = 3;
const REGISTER: Register = Register { name: Hex([2; 8]), began: 0 };

/// What programs take for the switch. The types are those of streams; the sockets are not.
struct Switch {
    socket: UnixListener,
    path: PathBuf,
}

impl Switch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quicket-{name}-{}", std::process::id()));
        let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let socket = socket(AddressFamily::Unix, kind, flags, None).unwrap();
        bind(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&socket, Backlog::new(8).unwrap()).unwrap();
        Self { socket: socket.into(), path }
    }

    /// The next program that connects, and what it asks first.
    fn next(&self) -> (Program, Question) {
        let program = Program(self.socket.accept().unwrap().0);
        program.0.set_read_timeout(Some(LONG)).unwrap();
        let question = program.asks().unwrap();
        (program, question)
    }

    /// A program that has joined, and serves.
    fn member(&self) -> (Membership, Program) {
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let name = self.path.to_str().unwrap().to_owned();
        let options = Options { name, program: None, label: "app".into() };
        let joining = thread::spawn(move || {
            let place = Place {
                address,
                only_v6: false,
                workers: 1,
                steered: true,
                remains: false,
                options: SocketOptions::default(),
            };
            let joined = Membership::join(&options, place, || UdpSocket::bind(address));
            let member = joined.unwrap().0;
            member.serve(serve()).unwrap();
            member
        });
        let (program, join) = self.next();
        assert!(matches!(join.request, Request::Join(_)), "{join:?}");
        program.joined(&join);
        program.done();
        (joining.join().unwrap(), program)
    }

    /// The program that comes back.
    fn resumed(&self) -> (Program, Question) {
        let (program, question) = self.next();
        let Request::Join(join) = &question.request else { panic!("{question:?}") };
        let resume = join.resume.as_ref().unwrap();
        assert_eq!((resume.generation, resume.draining), (GENERATION, false));
        (program, question)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A program's connection.
struct Program(UnixStream);

impl Program {
    /// The next question; none at the end of the connection.
    fn asks(&self) -> Option<Question> {
        let mut bytes = vec![0; 200_000];
        let len = recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty()).unwrap();
        (len > 0).then(|| Question::decode(&bytes[..len]).unwrap())
    }

    fn answer(&self, question: &Question, reply: Reply) {
        let message = encode(&Message::Answer { number: question.number, reply }).unwrap();
        send(self.0.as_raw_fd(), &message, MsgFlags::MSG_NOSIGNAL).unwrap();
    }

    fn joined(&self, join: &Question) {
        self.joined_with(join, REGISTER);
    }

    fn joined_with(&self, join: &Question, register: Register) {
        let receipt = Receipt { incarnation: 1, proof: Hex([1; 16]) };
        let secrets = Secrets::draw(&mut |out| out.fill(7));
        let (served, sockets) = (None, Vec::new());
        let joined = Joined {
            generation: GENERATION,
            receipt,
            served,
            register,
            secrets,
            sockets,
            tenancy: None,
            forwards: false,
        };
        self.answer(join, Reply::Joined(Box::new(joined)));
    }

    /// It asks to serve something.
    fn serves(&self) -> Question {
        let question = self.asks().unwrap();
        assert_eq!(question.request, Request::Serve(serve()));
        question
    }

    fn done(&self) {
        self.answer(&self.serves(), Reply::Served(Hex([9; 16])));
    }

    fn leaves(&self) {
        assert_eq!(self.asks().map(|question| question.request), Some(Request::Leave));
    }
}

fn serve() -> Serve {
    Serve { protocols: vec![Octets(b"app".to_vec())], ..Serve::default() }
}

/// A switch that loses the connection of a program takes it for dead, and resets its peers.
#[test]
fn who_has_come_back_keeps_the_connection_though_the_switch_refuses_for_now() {
    let switch = Switch::new("refuses");
    let (member, program) = switch.member();
    drop(program);
    let (program, join) = switch.resumed();
    program.joined(&join);
    for _ in 0..3 {
        let text = "not now".to_owned();
        let refused = Refused { why: Refusal::Full, text };
        program.answer(&program.serves(), Reply::Refused(refused));
    }
    program.done();
    // It is the connection of the program from now on.
    drop(member);
    program.leaves();
}

#[test]
fn a_program_that_leaves_while_it_comes_back_says_so() {
    let switch = Switch::new("leaves");
    let (member, program) = switch.member();
    drop(program);
    let (program, join) = switch.resumed();
    // The answer to who comes back is still to come.
    drop(member);
    program.joined(&join);
    program.leaves();
    assert!(program.asks().is_none());
}

/// Its answers are taken for those of the register that the program knows.
#[test]
fn another_register_is_told_before_it_is_asked() {
    let switch = Switch::new("register");
    let (member, program) = switch.member();
    let (said, told) = std::sync::mpsc::channel();
    let (go_on, wait) = std::sync::mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    member.heed(move |notice| {
        said.send(notice).unwrap();
        wait.lock().unwrap().recv_timeout(LONG).unwrap();
    });
    let strike = || {
        let (said, first) = std::sync::mpsc::channel();
        member.strike([1; 12], move |first| said.send(first).unwrap());
        first
    };
    // The same one: there is nothing to tell.
    drop(program);
    let (program, join) = switch.resumed();
    program.joined(&join);
    program.done();
    let begun = Instant::now();
    let first = loop {
        // Nobody is asked until the connection is in use, which the answer says at once.
        let first = strike();
        if first.try_recv().is_err() {
            break first;
        }
        assert!(begun.elapsed() < LONG);
        thread::yield_now();
    };
    program.answer(&program.asks().unwrap(), Reply::Struck(true));
    assert!(first.recv_timeout(LONG).unwrap());
    assert!(told.try_recv().is_err());

    drop(program);
    let (program, join) = switch.resumed();
    let other = Register { name: Hex([3; 8]), began: 7 };
    program.joined_with(&join, other);
    assert_eq!(told.recv_timeout(LONG), Ok(Notice::Register));
    assert_eq!(member.register(), other);
    // Nothing is asked of it, nor of anybody else, until that has been heard.
    assert!(!strike().recv_timeout(LONG).unwrap());
    go_on.send(()).unwrap();
    program.done();
    assert!(told.try_recv().is_err());
    drop(member);
    program.leaves();
}
