//! A switch for all users, in a process of its own, and several users.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quicket_packets::client::Port;
use quicket_packets::daemon::Daemon;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, Uid, WaitOptions, kill_process, setrlimit, waitpid,
};

use super::{PATIENCE, Stack, layout};

/// Descriptors that the switch may have.
pub const DESCRIPTORS: usize = 1024;
/// How long closing a connection of TCP would wait.
const LINGER: Duration = Duration::from_secs(15);
/// Nobody waits as long as that.
pub const SOON: Duration = Duration::from_secs(8);
/// Numbers of users that need not exist. Each attack has one of its own: the system counts descriptors that are on their way by users.
pub const ATTACKER: u32 = 64_201;
pub const VICTIM: u32 = 64_202;
pub const LINGERER: u32 = 64_203;
pub const COLLECTOR: u32 = 64_204;
pub const SPY: u32 = 64_205;
pub const GLUTTON: u32 = 64_206;
pub const HOST: u32 = 64_207;
pub const RINGER: u32 = 64_208;
pub const CROWD: [u32; 3] = [64_209, 64_210, 64_211];
const PATH: &str = "QUICKET_PACKETS_OF_ALL";

/// The switch, in a process of its own.
pub struct Of {
    pub path: PathBuf,
    process: Child,
}

impl Of {
    /// None where it cannot be, or in the process that is the switch, once that has ended.
    pub fn all(test: &str) -> Option<Self> {
        if let Some(path) = std::env::var_os(PATH) {
            be_the_switch(path.as_ref());
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            quicket_testing::leave_out("being several users needs root");
            return None;
        }
        Some(Self::begin(test))
    }

    /// One of which this test needs no other users. None in the process that is the switch, as above.
    pub fn one(test: &str) -> Option<Self> {
        if let Some(path) = std::env::var_os(PATH) {
            be_the_switch(path.as_ref());
            return None;
        }
        Some(Self::begin(test))
    }

    fn begin(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quicket-{test}-{}", std::process::id()));
        let process = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(PATH, &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let this = Self { path, process };
        let begun = Instant::now();
        while Port::open(&this.path, layout()).is_err() {
            assert!(begun.elapsed() < PATIENCE, "there is no switch");
            std::thread::sleep(Duration::from_millis(5));
        }
        this
    }

    pub fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process.id());
        std::fs::read_dir(folder).unwrap().count()
    }

    /// Octets of memory that it has, without what it shares with others.
    pub fn memory(&self) -> usize {
        let status = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    /// Does something while the switch stands still: it has seen nothing of it before all of it is done.
    pub fn paused<T>(&self, what: impl FnOnce() -> T) -> T {
        let process = Pid::from_child(&self.process);
        kill_process(process, Signal::STOP).unwrap();
        waitpid(Some(process), WaitOptions::UNTRACED).unwrap();
        let made = what();
        kill_process(process, Signal::CONT).unwrap();
        made
    }

    pub fn stack(&self) -> Stack {
        self.try_stack().unwrap()
    }

    pub fn try_stack(&self) -> std::io::Result<Stack> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut port = Port::open(&self.path, layout())?;
        let tuple = port.register(&socket)?;
        Ok(Stack { port, address: (tuple.address, tuple.port).into() })
    }

    /// A switch that is short of descriptors for a moment refuses politely. Waits until it lets another user in.
    pub fn lets_in(&self) {
        as_user(VICTIM, || {
            let begun = Instant::now();
            while let Err(error) = self.try_stack() {
                assert!(begun.elapsed() < PATIENCE, "{error}");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }

    /// Another user opens ports and uses them, and waits for nobody.
    pub fn serves(&self) {
        as_user(VICTIM, || {
            let begun = Instant::now();
            let (mut one, mut other) = (self.stack(), self.stack());
            for _ in 0..100 {
                one.send(other.address, b"there");
                assert_eq!(other.receive(), (one.address, b"there".to_vec()));
            }
            assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        });
    }
}

impl Drop for Of {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn be_the_switch(path: &Path) {
    let limit = Some(DESCRIPTORS as u64);
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
    let daemon = Daemon::bind(path, true).unwrap();
    daemon.run(std::io::stdin().as_fd()).unwrap();
}

/// Does something as another user: only this thread is one.
pub fn as_user<T: Send>(number: u32, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let user = Uid::from_raw(number);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            what()
        });
        thread.join().unwrap()
    })
}

pub fn connect(path: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// Sends a message with descriptors. That may fail: who does so is thrown out.
pub fn send(to: impl AsFd, message: &[u8], with: &[BorrowedFd<'_>]) -> bool {
    send_with(to, message, with, SendFlags::empty())
}

pub fn send_with(to: impl AsFd, message: &[u8], with: &[BorrowedFd<'_>], how: SendFlags) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    assert!(rights.push(SendAncillaryMessage::ScmRights(with)));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | how;
    rustix::net::sendmsg(to, &[IoSlice::new(message)], &mut rights, flags).is_ok()
}

/// A connection whose last descriptor waits when it is closed, and its other end.
pub fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    one.set_nonblocking(true).unwrap();
    while one.write(&[7; 65536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&one, Some(LINGER)).unwrap();
    (one, other)
}
