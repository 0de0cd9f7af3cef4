//! A switch at work, in a thread of the test: programs that come and go, and who means ill.
#![cfg(target_os = "linux")]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, sendmsg,
    socket,
};
use quicket_handshake::{Aes128, AwsLcProvider, SystemRandom};
use quicket_switch::client::{Membership, Notice, Options, Place, status};
use quicket_switch::daemon::{Daemon, Tools, listen_at};
use quicket_switch::protocol::{Octets, Reply, Serve};

/// A switch that ends with the test.
struct Switch {
    name: String,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Switch {
    fn start(idle: Option<Duration>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("quicket-daemon-test-{}-{count}", std::process::id());
        let tools = Tools {
            crypto: Arc::new(AwsLcProvider),
            aes_128: |key| Arc::new(Aes128::new(key)),
            random: Box::new(SystemRandom::new()),
        };
        let daemon = Daemon::new(listen_at(&name).unwrap(), tools, idle).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || daemon.run(stopped.as_fd()));
        Self { name, stop: Some(stop), thread: Some(thread) }
    }

    fn join(&self, label: &str, address: SocketAddr) -> io::Result<(Membership, SocketAddr)> {
        let options = Options { name: self.name.clone(), program: None, label: label.into() };
        let place = Place { address, only_v6: false, workers: 1 };
        let joined = Membership::join(&options, place, || UdpSocket::bind(address));
        joined.and_then(|(member, _, socket)| Ok((member, socket.local_addr()?)))
    }

    fn programs(&self) -> usize {
        let status: serde_json::Value = serde_json::from_str(&status(&self.name).unwrap()).unwrap();
        let addresses = status["addresses"].as_array().unwrap().iter();
        addresses.map(|address| address["programs"].as_array().unwrap().len()).sum()
    }

    fn wait_for(&self, programs: usize) {
        let begun = Instant::now();
        while self.programs() != programs {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} programs", self.programs());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().unwrap().join();
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn serve(protocol: &str) -> Serve {
    Serve {
        protocols: vec![Octets(protocol.as_bytes().to_vec())],
        server_names: Vec::new(),
        shared: false,
        replace: false,
        upgrades: false,
    }
}

#[test]
fn sixty_four_programs_have_one_port() {
    let switch = Switch::start(None);
    let (first, address) = switch.join("first", local()).unwrap();
    first.serve(serve("0")).unwrap();
    let others: Vec<_> = (1..64)
        .map(|number| {
            let (member, at) = switch.join("other", address).unwrap();
            assert_eq!(at, address);
            member.serve(serve(&number.to_string())).unwrap();
            member
        })
        .collect();
    let generations: std::collections::BTreeSet<_> =
        others.iter().chain([&first]).map(Membership::generation).collect();
    assert_eq!((generations.len(), switch.programs()), (64, 64));
    let error = first.serve(serve("17")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    drop(others);
    switch.wait_for(1);
    first.serve(serve("17")).unwrap();
}

#[test]
fn a_program_may_come_and_go_a_thousand_times() {
    let switch = Switch::start(None);
    let (stays, address) = switch.join("stays", local()).unwrap();
    stays.serve(serve("stays")).unwrap();
    for _ in 0..1000 {
        let (member, _) = switch.join("comes", address).unwrap();
        // The one before may not have been seen to go yet.
        let begun = Instant::now();
        while let Err(error) = member.serve(serve("comes")) {
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
    }
    switch.wait_for(1);
    assert_eq!(std::fs::read_dir("/proc/self/fd").unwrap().count() / 100, 0, "nothing leaks");
}

/// Two upgrades overlap: the newest generation was ready first.
#[test]
fn a_generation_that_comes_too_late_hears_that_it_is_superseded() {
    let switch = Switch::start(None);
    let (late, address) = switch.join("app", local()).unwrap();
    let (newest, _) = switch.join("app", address).unwrap();
    let heard = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&heard);
    late.heed(move |notice| {
        assert_eq!(notice, Notice::Superseded);
        count.fetch_add(1, Ordering::SeqCst);
    });
    let replacing = || Serve { replace: true, ..serve("app") };
    newest.serve(replacing()).unwrap();
    late.serve(replacing()).unwrap();
    let begun = Instant::now();
    while heard.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it has heard nothing");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_address_ends_with_its_last_program_and_the_switch_when_there_is_none() {
    let switch = Switch::start(Some(Duration::from_millis(300)));
    let (member, address) = switch.join("only", local()).unwrap();
    assert!(UdpSocket::bind(address).is_err());
    thread::sleep(Duration::from_millis(400));
    drop(member);
    let begun = Instant::now();
    while UdpSocket::bind(address).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(2));
    }
    while status(&switch.name).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a message with descriptors; returns what the switch says, none at the end of the connection.
fn say(switch: &Switch, message: &[u8], descriptors: &[OwnedFd]) -> Option<Reply> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
    let fd = socket.as_raw_fd();
    connect(fd, &UnixAddr::new_abstract(switch.name.as_bytes()).unwrap()).unwrap();
    let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    sendmsg::<()>(fd, &[io::IoSlice::new(message)], control, MsgFlags::MSG_NOSIGNAL, None).unwrap();
    let mut answer = vec![0; 200_000];
    match recv(fd, &mut answer, MsgFlags::empty()) {
        Ok(0) | Err(_) => None,
        Ok(len) => Some(Reply::decode(&answer[..len]).unwrap()),
    }
}

#[test]
fn who_means_ill_is_told_so_and_hurts_nobody() {
    let switch = Switch::start(None);
    let (member, address) = switch.join("good", local()).unwrap();
    member.serve(serve("good")).unwrap();
    let refused = |message: &str, descriptors: &[OwnedFd], reason: &str| match say(
        &switch,
        message.as_bytes(),
        descriptors,
    ) {
        Some(Reply::Refused { text, .. }) => assert!(text.contains(reason), "{text}"),
        other => panic!("{message}: {other:?}"),
    };
    let join = |workers: u16, has_socket: bool| {
        format!(
            "{{\"join\":{{\"version\":1,\"address\":\"{address}\",\"only_v6\":false,\"workers\":\
             {workers},\"label\":\"bad\",\"has_socket\":{has_socket},\"resume\":null}}}}"
        )
    };
    let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let pair = || {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (one, _) =
            nix::sys::socket::socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
                .unwrap();
        one
    };
    refused("{}", &[], "not understood");
    refused("\u{1}", &[file(), file()], "not understood");
    refused("\"serve\"", &[], "not understood");
    refused("\"cease\"", &[], "at no address");
    refused(&join(1, false), &[], "a channel for each worker");
    refused(&join(1, false), &[pair(), pair()], "a channel for each worker");
    refused(&join(1, false), &[file()], "SOCK_SEQPACKET");
    refused(&join(1, true), &[pair(), file()], "no UDP socket");
    refused(&join(1, true), &[pair(), UdpSocket::bind(local()).unwrap().into()], "is bound to");
    refused(&join(1, false).replace(":1,", ":2,"), &[pair()], "version");
    refused(&join(0, false), &[], "number of workers");
    let long = format!("{{\"join\":\"{}\"}}", "x".repeat(140_000));
    refused(&long, &[], "longer");
    let other: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let nobody = join(1, false).replace(&address.to_string(), &other.to_string());
    assert_eq!(say(&switch, nobody.as_bytes(), &[pair()]), Some(Reply::Bind));
    // The other end of its channel is gone already: what comes for it is lost, and nothing else.
    let joined = say(&switch, join(1, false).as_bytes(), &[pair()]);
    assert!(matches!(joined, Some(Reply::Joined { .. })), "{joined:?}");
    switch.wait_for(1);
    member.serve(serve("still good")).unwrap();
}
