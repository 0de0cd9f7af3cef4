//! A switch for all users, in a process of its own, and what one user may try against another one. These tests need root, to be several
//! users: they say LEFT OUT without it, and fail in continuous integration.

mod common;

use std::fs::Permissions;
use std::io::{ErrorKind, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{PATIENCE, Stack};
use quicket_packets::client::{Opening, Port};
use quicket_packets::daemon::{Daemon, MAX_CONNECTIONS_PER_USER};
use quicket_packets::{Layout, compose};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, Uid, WaitOptions, kill_process, setrlimit, waitpid,
};

/// Descriptors that the switch may have.
const DESCRIPTORS: usize = 1024;
/// How long closing a connection of TCP would wait.
const LINGER: Duration = Duration::from_secs(15);
/// Nobody waits as long as that.
const SOON: Duration = Duration::from_secs(8);
/// Numbers of users that need not exist. Each attack has one of its own: the system counts descriptors that are on their way by users.
const ATTACKER: u32 = 64_201;
const LINGERER: u32 = 64_203;
const COLLECTOR: u32 = 64_204;
const SPY: u32 = 64_205;
const GLUTTON: u32 = 64_206;
const HOST: u32 = 64_207;
const RINGER: u32 = 64_208;
const CROWD: [u32; 3] = [64_209, 64_210, 64_211];
const VICTIM: u32 = 64_202;
const PATH: &str = "QUICKET_PACKETS_OF_ALL";

/// The switch, in a process of its own.
struct Of {
    path: PathBuf,
    process: Child,
}

impl Of {
    /// None where it cannot be, or in the process that is the switch, once that has ended.
    fn all(test: &str) -> Option<Self> {
        if let Some(path) = std::env::var_os(PATH) {
            be_the_switch(path.as_ref());
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "this test needs root");
            println!("LEFT OUT: being several users needs root");
            return None;
        }
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
        while Port::open(&this.path, common::layout()).is_err() {
            assert!(begun.elapsed() < PATIENCE, "there is no switch");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(this)
    }

    fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process.id());
        std::fs::read_dir(folder).unwrap().count()
    }

    /// Octets of memory that it has, without what it shares with others.
    fn memory(&self) -> usize {
        let status = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    /// Does something while the switch stands still: it has seen nothing of it before all of it is done.
    fn paused<T>(&self, what: impl FnOnce() -> T) -> T {
        let process = Pid::from_child(&self.process);
        kill_process(process, Signal::STOP).unwrap();
        waitpid(Some(process), WaitOptions::UNTRACED).unwrap();
        let made = what();
        kill_process(process, Signal::CONT).unwrap();
        made
    }

    fn stack(&self) -> Stack {
        self.try_stack().unwrap()
    }

    fn try_stack(&self) -> std::io::Result<Stack> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut port = Port::open(&self.path, common::layout())?;
        let tuple = port.register(&socket)?;
        Ok(Stack { port, address: (tuple.address, tuple.port).into() })
    }

    /// A switch that is short of descriptors for a moment refuses politely. Waits until it lets another user in.
    fn lets_in(&self) {
        as_user(VICTIM, || {
            let begun = Instant::now();
            while let Err(error) = self.try_stack() {
                assert!(begun.elapsed() < PATIENCE, "{error}");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }

    /// Another user opens ports and uses them, and waits for nobody.
    fn serves(&self) {
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
fn as_user<T: Send>(number: u32, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let user = Uid::from_raw(number);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            what()
        });
        thread.join().unwrap()
    })
}

fn connect(path: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// Sends a message with descriptors. That may fail: who does so is thrown out.
fn send(to: impl AsFd, message: &[u8], with: &[BorrowedFd<'_>]) -> bool {
    send_with(to, message, with, SendFlags::empty())
}

fn send_with(to: impl AsFd, message: &[u8], with: &[BorrowedFd<'_>], how: SendFlags) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    assert!(rights.push(SendAncillaryMessage::ScmRights(with)));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | how;
    rustix::net::sendmsg(to, &[IoSlice::new(message)], &mut rights, flags).is_ok()
}

/// A connection whose last descriptor waits when it is closed, and its other end.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    one.set_nonblocking(true).unwrap();
    while one.write(&[7; 65536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&one, Some(LINGER)).unwrap();
    (one, other)
}

#[test]
fn who_hands_over_descriptors_without_end_leaves_room_for_others() {
    let Some(switch) = Of::all("who_hands_over_descriptors_without_end_leaves_room_for_others")
    else {
        return;
    };
    let before = switch.memory();
    let is_over = AtomicBool::new(false);
    let (kept, most) = std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                // While it reads, some are closed and others come: one reading may have both.
                let readings = [(); 3].map(|()| switch.descriptors());
                most = most.max(readings.into_iter().min().unwrap_or_default());
            }
            most
        });
        let kept = attack(&switch);
        is_over.store(true, Ordering::Relaxed);
        (kept, counting.join().unwrap())
    });
    assert!(most < DESCRIPTORS - 100, "others have no room: {most}");
    switch.lets_in();
    switch.serves();
    drop(kept);
    switch.serves();
    let begun = Instant::now();
    while switch.descriptors() > 64 {
        assert!(begun.elapsed() < PATIENCE, "{} are not closed", switch.descriptors());
        std::thread::sleep(Duration::from_millis(5));
    }
    let after = switch.memory();
    assert!(after < before + (16 << 20), "{before} octets before, and {after} now");
}

/// Returns what keeps descriptors from being closed.
fn attack(switch: &Of) -> Vec<Box<dyn Send>> {
    as_user(ATTACKER, || {
        let mut kept: Vec<Box<dyn Send>> = Vec::new();
        // Each is closed by the clerk, or with what it waits behind.
        for _ in 0..4 {
            let (one, other) = lingering();
            let control = connect(&switch.path);
            send(&control, &[2], &[one.as_fd()]);
            kept.push(Box::new((control, other)));
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        let many = [file.as_fd(); 250];
        for _ in 0..120 {
            let control = connect(&switch.path);
            for _ in 0..4 {
                send(&control, &[4], &many);
            }
            kept.push(Box::new(control));
        }
        kept
    })
}

/// In messages that nobody has read when the connection ends, and by a bell.
#[test]
fn what_waits_when_it_is_closed_has_the_switch_wait_nowhere() {
    let Some(switch) = Of::all("what_waits_when_it_is_closed_has_the_switch_wait_nowhere") else {
        return;
    };
    let ends = as_user(LINGERER, || {
        let mut ends = Vec::new();
        for n in 0..6 {
            let (one, other) = lingering();
            let control = connect(&switch.path);
            // The first one is looked into meanwhile, so that the others are not read.
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            send(&control, &[2], &[socket.as_fd()]);
            for _ in 0..=n {
                send(&control, &[4], &[one.as_fd()]);
            }
            ends.push(other);
        }
        ends
    });
    switch.serves();
    let more = as_user(LINGERER, || {
        let liar = common::Liar::open(&switch.path);
        let (one, other) = lingering();
        assert!(send(&liar.bell, &[1], &[one.as_fd()]));
        drop(one);
        assert!(liar.is_expelled(), "who hands over descriptors by a bell");
        let (one, third) = lingering();
        let liar = common::Liar::open(&switch.path);
        assert!(send(&liar.bell, &[1], &[one.as_fd()]));
        drop((one, liar));
        // Out of band: reading what comes behind it would free it.
        let (one, fourth) = lingering();
        let liar = common::Liar::open(&switch.path);
        assert!(send_with(&liar.bell, &[1], &[one.as_fd()], SendFlags::OOB));
        drop(one);
        assert!(liar.is_expelled(), "who hands over descriptors out of band");
        (other, third, fourth)
    });
    switch.serves();
    drop((ends, more));
}

/// As many descriptors as come with a message, of which the last one waits when it is closed, and its other end.
fn many_and_lingering(to: impl AsFd, message: &[u8]) -> TcpStream {
    let file = std::fs::File::open("/dev/null").unwrap();
    let (one, other) = lingering();
    let mut many = [file.as_fd(); 253];
    many[252] = one.as_fd();
    if !send(to, message, &many) {
        // Nobody else has it: it is closed here.
        rustix::net::sockopt::set_socket_linger(&one, None).unwrap();
    }
    other
}

/// More than the switch has room for, in one look: what has no room is closed by the kernel when it is read.
#[test]
fn descriptors_by_many_bells_at_once_are_not_taken() {
    let Some(switch) = Of::all("descriptors_by_many_bells_at_once_are_not_taken") else {
        return;
    };
    let liars = as_user(RINGER, || [(); 6].map(|()| common::Liar::open(&switch.path)));
    let ring = || liars.each_ref().map(|liar| many_and_lingering(&liar.bell, &[1]));
    let kept = switch.paused(|| as_user(RINGER, ring));
    switch.serves();
    assert!(liars.iter().all(common::Liar::is_expelled));
    drop(kept);
}

/// Whose clerks get nothing done.
#[test]
fn descriptors_for_which_there_is_no_room_have_the_switch_wait_nowhere() {
    let Some(switch) =
        Of::all("descriptors_for_which_there_is_no_room_have_the_switch_wait_nowhere")
    else {
        return;
    };
    let (mut one, mut other) = as_user(VICTIM, || (switch.stack(), switch.stack()));
    let mut kept: Vec<Box<dyn Send>> = Vec::new();
    // Standing still for a moment waits for a call that closes something, too.
    let begun = Instant::now();
    let crowd = CROWD.map(|user| as_user(user, || [(); 5].map(|()| connect(&switch.path))));
    // Whoever closes them last waits: the switch.
    switch.paused(|| {
        for (user, [first, ..]) in CROWD.into_iter().zip(&crowd) {
            let (to, holder) = std::os::unix::net::UnixStream::pair().unwrap();
            let (lingers, end) = lingering();
            assert!(send(&to, &[0], &[lingers.as_fd()]));
            as_user(user, || send(first, &[4], &[holder.as_fd()]));
            kept.push(Box::new(end));
        }
    });
    // From now on it does not stand still: that would wake who waits.
    for (user, [_, more @ ..]) in CROWD.into_iter().zip(&crowd) {
        let hand_over = || more.each_ref().map(|control| many_and_lingering(control, &[4]));
        kept.push(Box::new(as_user(user, hand_over)));
    }
    while switch.descriptors() < DESCRIPTORS - 300 {
        assert!(begun.elapsed() < SOON, "there is room: {}", switch.descriptors());
    }
    for _ in 0..100 {
        one.send(other.address, b"there");
        assert_eq!(other.receive(), (one.address, b"there".to_vec()));
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    drop(kept);
}

#[test]
fn who_takes_all_tuples_that_he_gets_leaves_room_for_others() {
    let Some(switch) = Of::all("who_takes_all_tuples_that_he_gets_leaves_room_for_others") else {
        return;
    };
    let _ports = as_user(COLLECTOR, || {
        let mut port = Port::open(&switch.path, common::layout()).unwrap();
        let error = loop {
            if let Err(error) = port.register(UdpSocket::bind("127.0.0.1:0").unwrap()) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
        let error = Port::open(&switch.path, common::layout()).unwrap_err();
        assert!(error.kind() != ErrorKind::TimedOut, "{error}");
        port
    });
    assert!(switch.descriptors() < DESCRIPTORS / 2, "{}", switch.descriptors());
    switch.serves();
}

/// Each has his own part of connections with queues, and of memory; and turns, while others send without end.
#[test]
fn what_a_user_takes_is_no_other_ones_share() {
    let Some(switch) = Of::all("what_a_user_takes_is_no_other_ones_share") else {
        return;
    };
    let small = Layout::new(16, 16, 128).unwrap();
    // Two of these are nearly all that a user may have.
    let large = Layout::new(2048, 4096, 16384).unwrap();
    let kept = as_user(GLUTTON, || {
        let memory = [large; 2].map(|layout| Port::open(&switch.path, layout).unwrap());
        let error = Port::open(&switch.path, large).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        memory
    });
    as_user(VICTIM, || drop(Port::open(&switch.path, large).unwrap()));
    drop(kept);
    let all = || {
        let mut first = Port::open(&switch.path, small).unwrap();
        let queues: Vec<_> = (0..20).map(|_| first.add_queue(small).unwrap()).collect();
        let begun = Instant::now();
        let mut ports: Vec<Port> = Vec::new();
        // What was his before is given back some time.
        while ports.len() + queues.len() + 1 < MAX_CONNECTIONS_PER_USER {
            ports.extend(Port::open(&switch.path, small).ok());
            assert!(begun.elapsed() < PATIENCE, "{} ports, {} queues", ports.len(), queues.len());
        }
        assert!(Port::open(&switch.path, small).is_err(), "he has more than he may");
        let error = first.add_queue(small).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
        (first, queues, ports)
    };
    let kept = as_user(GLUTTON, all);
    drop(as_user(VICTIM, all));
    drop(kept);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ports = as_user(GLUTTON, || [(); 16].map(|()| switch.stack()));
        scope.spawn(|| {
            let mut ports = ports;
            let addresses = ports.each_ref().map(|stack| stack.address);
            while !is_over.load(Ordering::Relaxed) {
                for (n, stack) in ports.iter_mut().enumerate() {
                    let (from, to) = (stack.address, addresses[(n + 1) % addresses.len()]);
                    stack.port.receive(u32::MAX, |_| ()).unwrap();
                    stack.port.send(|slot| compose::udp(slot, from, to, b"more")).unwrap();
                }
            }
        });
        switch.serves();
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_connection_that_was_handed_on_is_charged_to_who_has_opened_it() {
    let Some(switch) = Of::all("a_connection_that_was_handed_on_is_charged_to_who_has_opened_it")
    else {
        return;
    };
    // Root binds the addresses, and another user has the port.
    let open = |socket: &UdpSocket| {
        let mut opening = as_user(HOST, || Opening::connect(&switch.path).unwrap());
        opening.reserve(socket).unwrap();
        opening.confine().unwrap()
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let large = Layout::new(2048, 4096, 16384).unwrap();
    let mut port = Port::open_on(open(&socket), large).unwrap();
    port.claim(common::tuple(address)).unwrap();
    let _second = as_user(HOST, || Port::open(&switch.path, large).unwrap());
    let third = UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = Port::open_on(open(&third), large).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    switch.serves();
}

/// A connection that was handed on is that of a program which he has no hold of.
#[test]
fn what_comes_by_a_connection_that_was_handed_on_keeps_nobody_else_of_the_account_waiting() {
    let Some(switch) = Of::all(
        "what_comes_by_a_connection_that_was_handed_on_keeps_nobody_else_of_the_account_waiting",
    ) else {
        return;
    };
    // Closing the socket closes what is in it, which waits.
    let nested = || {
        let (to, holder) = std::os::unix::net::UnixStream::pair().unwrap();
        let (one, other) = lingering();
        assert!(send(&to, &[0], &[one.as_fd()]));
        (holder, other)
    };
    let (mut kept, mut controls) = (Vec::new(), Vec::new());
    for requests in [&[2][..], &[4], &[2, 4, 4]] {
        let opening = as_user(HOST, || Opening::connect(&switch.path).unwrap());
        let control = opening.confine().unwrap();
        // Whoever closes it last waits: the switch.
        switch.paused(|| {
            as_user(HOST, || {
                for request in requests {
                    let (holder, other) = nested();
                    assert!(send(&control, &[*request], &[holder.as_fd()]));
                    kept.push(other);
                }
            });
        });
        controls.push(control);
    }
    as_user(HOST, || {
        let begun = Instant::now();
        drop(switch.stack());
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    });
    switch.serves();
}

#[test]
fn a_user_has_nothing_of_another_ones() {
    let Some(switch) = Of::all("a_user_has_nothing_of_another_ones") else {
        return;
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut victims = as_user(VICTIM, || {
        let mut port = Port::open(&switch.path, common::layout()).unwrap();
        // The socket is root's; who has it has its address.
        port.register(&socket).unwrap();
        Stack { port, address }
    });
    drop(socket);
    as_user(SPY, || {
        let mut port = Port::open(&switch.path, common::layout()).unwrap();
        let error = port.watch(common::tuple(address)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let error = port.remove(common::tuple(address)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        for (reuse_address, reuse_port) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            let thief = new(socket2::Type::DGRAM);
            thief.set_reuse_address(reuse_address).unwrap();
            thief.set_reuse_port(reuse_port).unwrap();
            let error = thief.bind(&address.into()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        }
    });
    let mut other = switch.stack();
    other.send(address, b"his");
    assert_eq!(victims.receive(), (other.address, b"his".to_vec()));
}

fn new(kind: socket2::Type) -> socket2::Socket {
    socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap()
}

/// By SO_REUSEADDR, which the one who registers it has taken back, whatever the other one has beside it.
#[test]
fn an_address_that_two_users_have_is_no_tuple() {
    let Some(switch) = Of::all("an_address_that_two_users_have_is_no_tuple") else {
        return;
    };
    let of = |user: u32, kind| {
        let socket = new(kind);
        rustix::fs::fchown(&socket, Some(Uid::from_raw(user)), None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket
    };
    let mut port = Port::open(&switch.path, common::layout()).unwrap();
    for kind in [socket2::Type::DGRAM, socket2::Type::STREAM] {
        for has_reuse_port in [false, true] {
            let (mine, theirs) = (of(ATTACKER, kind), of(VICTIM, kind));
            mine.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
            theirs.set_reuse_port(has_reuse_port).unwrap();
            theirs.bind(&mine.local_addr().unwrap()).unwrap();
            mine.set_reuse_address(false).unwrap();
            let error = port.register(&mine).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
            drop(theirs);
            // A process that another test is just starting may have it for a moment.
            let begun = Instant::now();
            while let Err(error) = port.register(&mine) {
                assert!(begun.elapsed() < PATIENCE, "{error}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A switch of a user was killed, and another user may write in that folder.
#[test]
fn what_another_user_has_to_set_back_is_not_removed_with_his_lock() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "this test needs root");
        println!("LEFT OUT: being several users needs root");
        return;
    }
    let folder = std::env::temp_dir().join(format!("quicket-left-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let (path, lock) = (folder.join("packets"), folder.join("packets.lock"));
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let notes = format!("quicket-packets-altered 1 {} 7\n7 eth0 vlan - - -\nend\n", boot.trim());
    as_user(VICTIM, || {
        std::fs::write(&lock, &notes).unwrap();
        std::fs::set_permissions(&lock, Permissions::from_mode(0o600)).unwrap();
    });
    let error = as_user(HOST, || Daemon::bind(&path, false).err().unwrap());
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains(&format!("as user {VICTIM}")), "{error}");
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), notes);
    // Where there is nothing in it, he may.
    std::fs::write(&lock, "").unwrap();
    as_user(HOST, || {
        let daemon = Daemon::bind(&path, false).unwrap();
        assert_eq!(std::fs::metadata(&lock).unwrap().uid(), HOST);
        drop(daemon);
    });
    assert!(!lock.exists());
    std::fs::remove_dir_all(folder).unwrap();
}
