//! A switch at work, in a thread of the test: programs that come and go, and who means ill.
#![cfg(target_os = "linux")]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, sendmsg,
    socket, socketpair,
};
use quicket_engine::replies;
use quicket_handshake::{Aes128, AwsLcProvider, SystemRandom};
use quicket_steering::{Owner, Place as SteeringPlace, ServerId};
use quicket_switch::client::{
    Membership, NAME_VARIABLE, Notice, Options, PROGRAM_VARIABLE, Place, status,
};
use quicket_switch::daemon::{Daemon, Listener, Tools};
use quicket_switch::options::SocketOptions;
use quicket_switch::protocol::{
    Join, Message, Octets, Question, Refusal, Refused, Reply, Request, Resume, Serve, Served,
    VERSION, encode,
};

/// How long anything may take on a machine that is busy.
const LONG: Duration = Duration::from_secs(20);

/// A switch that ends with the test.
struct Switch {
    name: String,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<io::Result<()>>>,
    /// The thread, as the system knows it.
    task: i32,
}

impl Switch {
    fn start(idle: Option<Duration>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("quicket-daemon-test-{}-{count}", std::process::id());
        Self::named(std::env::temp_dir().join(name).to_str().unwrap().to_owned(), idle)
    }

    /// Ends it, and starts the next one, which finds what this one has left.
    fn next(mut self) -> Self {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap().unwrap();
        Self::named(self.name.clone(), None)
    }

    fn named(name: String, idle: Option<Duration>) -> Self {
        let tools = Tools {
            crypto: Arc::new(AwsLcProvider),
            aes_128: |key| Arc::new(Aes128::new(key)),
            random: Box::new(SystemRandom::new()),
        };
        let daemon = Daemon::new(Listener::bind(&name).unwrap(), tools, idle).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw()).unwrap();
            daemon.run(stopped.as_fd())
        });
        Self { name, stop: Some(stop), thread: Some(thread), task: told.recv().unwrap() }
    }

    fn join(&self, label: &str, address: SocketAddr) -> io::Result<(Membership, SocketAddr)> {
        let options = Options { name: self.name.clone(), program: None, label: label.into() };
        let place = Place {
            address,
            only_v6: false,
            workers: 1,
            steered: true,
            remains: false,
            options: SocketOptions::default(),
        };
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
            assert!(begun.elapsed() < LONG, "{} programs", self.programs());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The next one has the name.
        let Some(thread) = self.thread.take() else { return };
        let ended = thread.join();
        let _ = std::fs::remove_file(format!("{}.lock", self.name));
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn serve(protocol: &str) -> Serve {
    Serve { protocols: vec![Octets(protocol.as_bytes().to_vec())], ..Serve::default() }
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
            assert!(begun.elapsed() < LONG);
        }
    }
    switch.wait_for(1);
    // Other tests of this process have descriptors as long as they run.
    let begun = Instant::now();
    while std::fs::read_dir("/proc/self/fd").unwrap().count() >= 300 {
        assert!(begun.elapsed() < LONG, "descriptors leak");
        thread::sleep(Duration::from_millis(10));
    }
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
        assert!(begun.elapsed() < LONG, "it has heard nothing");
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
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(2));
    }
    while status(&switch.name).is_ok() {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(10));
    }
}

fn connected(switch: &Switch) -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
    connect(socket.as_raw_fd(), &UnixAddr::new(&*switch.name).unwrap()).unwrap();
    socket
}

/// Sends a message with descriptors; returns what the switch says, none at the end of the connection.
fn say(switch: &Switch, message: &[u8], descriptors: &[OwnedFd]) -> Option<Reply> {
    let socket = connected(switch);
    send(&socket, message, descriptors);
    heard(&socket)
}

fn send(socket: &OwnedFd, message: &[u8], descriptors: &[OwnedFd]) {
    let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let parts = [io::IoSlice::new(message)];
    sendmsg::<()>(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None).unwrap();
}

/// What the switch says next, to the question with number 7; none at the end of the connection.
fn heard(socket: &OwnedFd) -> Option<Reply> {
    let mut answer = vec![0; 200_000];
    match recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()) {
        Ok(0) | Err(_) => None,
        Ok(len) => match Message::decode(&answer[..len]).unwrap() {
            Message::Answer { number: 7, reply } => Some(reply),
            Message::Refused(refused) => Some(Reply::Refused(refused)),
            other => panic!("{other:?}"),
        },
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
        Some(Reply::Refused(Refused { text, .. })) => assert!(text.contains(reason), "{text}"),
        other => panic!("{message}: {other:?}"),
    };
    let ask =
        |request: &str| format!("{{\"version\":{VERSION},\"number\":7,\"request\":{request}}}");
    let next = VERSION + 1;
    let of_next = |question: &str| question.replace(&format!(":{VERSION},"), &format!(":{next},"));
    let join = |workers: u16, has_socket: bool| {
        ask(&format!(
            "{{\"join\":{{\"address\":\"{address}\",\"only_v6\":false,\"workers\":\
             {workers},\"label\":\"bad\",\"has_socket\":{has_socket},\
             \"has_keep\":false,\"has_ledger\":false,\"steered\":false,\"remains\":false,\"options\":{{}},\
             \"resume\":null,\"kin\":null}}}}"
        ))
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
    refused(&ask("\"serve\""), &[], "not understood");
    refused(&ask("\"cease\""), &[], "at no address");
    refused("\"cease\"", &[], "and the program 1: install");
    let newer = format!("and the program {next}: install");
    refused(&of_next(&ask("{\"dance\":true}")), &[], &newer);
    refused(&join(1, false), &[], "a channel for each worker");
    refused(&join(1, false), &[pair(), pair()], "a channel for each worker");
    refused(&join(1, false), &[file()], "SOCK_SEQPACKET");
    refused(&join(1, true), &[pair(), file()], "no UDP socket");
    refused(&join(1, true), &[pair(), UdpSocket::bind(local()).unwrap().into()], "is bound to");
    refused(&of_next(&join(1, false)), &[pair()], "version");
    // More than may come: none is kept, which its own test shows.
    let many: Vec<_> = (0..200).map(|_| file()).collect();
    refused(&join(1, false), &many, "more descriptors");
    refused(&join(0, false), &[], "number of workers");
    let long = format!("{{\"join\":\"{}\"}}", "x".repeat(140_000));
    refused(&long, &[], "longer");
    let other: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let nobody = join(1, false).replace(&address.to_string(), &other.to_string());
    assert_eq!(say(&switch, nobody.as_bytes(), &[pair()]), Some(Reply::Bind { patience: 0 }));
    // The other end of its channel is gone already: what comes for it is lost, and nothing else.
    let joined = say(&switch, join(1, false).as_bytes(), &[pair()]);
    assert!(matches!(joined, Some(Reply::Joined { .. })), "{joined:?}");
    switch.wait_for(1);
    member.serve(serve("still good")).unwrap();
}

/// What a test sees of a switch.
fn report(switch: &Switch) -> serde_json::Value {
    serde_json::from_str(&status(&switch.name).unwrap()).unwrap()
}

/// So many programs with so many names that a report is longer than a socket's buffer.
#[test]
fn a_long_report_is_whole_and_others_are_served_meanwhile() {
    let switch = Switch::start(None);
    let mut address = local();
    let members: Vec<_> = (0..200)
        .map(|number| {
            let (member, at) = switch.join("long", address).unwrap();
            address = at;
            let names = (0..40).map(|name| format!("{number}-{name}.{}.example", "x".repeat(60)));
            let serve = Serve { server_names: names.collect(), ..serve("x") };
            member.serve(serve).unwrap();
            member
        })
        .collect();
    // Who asks and does not listen.
    let deaf = connected(&switch);
    let status = Question { version: VERSION, number: 7, request: Request::Status };
    for _ in 0..3 {
        let bytes = encode(&status).unwrap();
        nix::sys::socket::send(deaf.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL).unwrap();
    }
    let report = report(&switch);
    let text = report.to_string();
    assert!(text.len() > 400_000, "{}", text.len());
    let programs = report["addresses"][0]["programs"].as_array().unwrap();
    assert_eq!(programs.len(), members.len());
    assert!(programs.iter().all(|program| program["server_names"].as_array().unwrap().len() == 32));
    assert_eq!(programs[0]["more_server_names"], 8);
    members[0].serve(serve("still")).unwrap();
}

#[test]
fn the_status_has_the_connections_that_programs_count_and_waits_for_nobody() {
    let switch = Switch::start(None);
    let (counts, address) = switch.join("counts", local()).unwrap();
    counts.count_with(|| 41);
    let (silent, _) = switch.join("silent", address).unwrap();
    let (slow, _) = switch.join("slow", address).unwrap();
    slow.count_with(|| {
        thread::sleep(Duration::from_secs(2));
        1
    });
    let begun = Instant::now();
    let report = report(&switch);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let programs = report["addresses"][0]["programs"].as_array().unwrap();
    let of =
        |name: &str| &programs.iter().find(|each| each["program"] == name).unwrap()["connections"];
    assert_eq!((of("counts").as_u64(), of("silent").as_u64()), (Some(41), None), "{report}");
    assert_eq!(of("slow").as_u64(), None, "it has not said so in time");
    drop((counts, silent, slow));
}

/// The thread that hears the switch goes on.
#[test]
fn a_panic_of_the_application_does_not_end_the_membership() {
    let switch = Switch::start(None);
    let (old, address) = switch.join("app", local()).unwrap();
    let (new, _) = switch.join("app", address).unwrap();
    let (said, heard) = std::sync::mpsc::channel();
    old.heed(move |notice| {
        said.send(notice).unwrap();
        panic!("a test's");
    });
    let counted = AtomicU32::new(0);
    old.count_with(move || match counted.fetch_add(1, Ordering::SeqCst) {
        0 => panic!("a test's"),
        _ => 7,
    });
    old.serve(serve("app")).unwrap();
    new.serve(Serve { replace: true, ..serve("app") }).unwrap();
    assert_eq!(heard.recv_timeout(LONG), Ok(Notice::Superseded));
    let count = || {
        let report = report(&switch);
        let mut programs = report["addresses"][0]["programs"].as_array().unwrap().iter();
        let old = programs.find(|each| each["generation"] == old.generation()).unwrap();
        old["connections"].as_u64()
    };
    assert_eq!(count(), None);
    let begun = Instant::now();
    while count() != Some(7) {
        assert!(begun.elapsed() < LONG, "it is not heard any more");
    }
}

/// Each report that a program asks for waits for it until it listens.
#[test]
fn the_status_is_asked_for_once_at_a_time() {
    let switch = Switch::start(None);
    let (slow, _) = switch.join("slow", local()).unwrap();
    let (go, wait) = std::sync::mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    slow.count_with(move || wait.lock().unwrap().recv().unwrap_or(0));
    let asks = connected(&switch);
    let question = encode(&Question { version: VERSION, number: 7, request: Request::Status });
    let question = question.unwrap();
    let begun = Instant::now();
    let mut refused = 0;
    // Both are there before the first one is answered, unless the machine is too busy.
    while refused == 0 {
        assert!(begun.elapsed() < LONG, "it may ask as often as it likes");
        send(&asks, &question, &[]);
        send(&asks, &question, &[]);
        for _ in 0..2 {
            match heard(&asks).unwrap() {
                Reply::Refused(Refused { why, text }) => {
                    assert!(why == Refusal::Later && text.contains("at a time"), "{text}");
                    refused += 1;
                }
                Reply::Status { last, .. } => assert!(last),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(refused, 1);
    go.send(1).unwrap();
    assert!(matches!(ask(&asks, Request::Status, &[]), Reply::Status { .. }));
}

#[test]
fn a_generation_that_is_replaced_hears_when_its_time_is_over_and_loses_its_number_then() {
    let switch = Switch::start(None);
    let (old, address) = switch.join("app", local()).unwrap();
    let (new, _) = switch.join("app", address).unwrap();
    let (said, heard) = std::sync::mpsc::channel();
    old.heed(move |notice| said.send((notice, Instant::now())).unwrap());
    old.serve(Serve { drain_seconds: Some(1), ..serve("app") }).unwrap();
    new.serve(Serve { replace: true, ..serve("app") }).unwrap();
    let (notice, begun) = heard.recv_timeout(LONG).unwrap();
    assert_eq!(notice, Notice::Superseded);
    let state = |report: &serde_json::Value| {
        let programs = report["addresses"][0]["programs"].as_array().unwrap().clone();
        programs.into_iter().find(|each| each["generation"] == old.generation())
    };
    let draining = state(&report(&switch)).unwrap();
    assert_eq!(draining["state"], "draining");
    assert!(draining["drain_seconds_left"].as_u64().unwrap() <= 1, "{draining}");
    let (notice, at) = heard.recv_timeout(LONG).unwrap();
    assert_eq!(notice, Notice::DrainOver);
    let waited = at.duration_since(begun);
    assert!(waited >= Duration::from_millis(900), "{waited:?}");
    while state(&report(&switch)).is_some() {
        assert!(at.elapsed() < LONG, "it still has its number");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(at.elapsed() > Duration::from_secs(4), "{:?}", at.elapsed());
}

/// A ticket is new to all programs and generations of a switch, or to none.
#[test]
fn a_ticket_is_used_once_whichever_program_asks() {
    let switch = Switch::start(None);
    let (one, address) = switch.join("one", local()).unwrap();
    let (two, _) = switch.join("two", address).unwrap();
    assert_eq!(one.register(), two.register());
    let strike = |member: &Membership, ticket: u8| {
        let (said, heard) = std::sync::mpsc::channel();
        member.strike([ticket; 12], move |first| said.send(first).unwrap());
        heard.recv_timeout(LONG).unwrap()
    };
    assert!(strike(&one, 1) && strike(&two, 2));
    assert!(!strike(&two, 1) && !strike(&one, 2) && !strike(&one, 1));
    let other = Switch::start(None);
    let (three, _) = other.join("three", local()).unwrap();
    assert_ne!(three.register().name, one.register().name);
    assert_eq!(one.secrets(), two.secrets());
}

/// The last program is killed: its peers get resets from the switch alone, new clients a refusal, and the
/// next program has the same keys.
#[test]
fn the_dead_are_mourned_for_a_while_and_their_keys_kept() {
    let switch = Switch::start(None);
    let socket = UdpSocket::bind(local()).unwrap();
    let address = socket.local_addr().unwrap();
    // A program by hand, as it can be killed.
    let program = connected(&switch);
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    let label = "app".to_owned();
    let join = by_hand(address, label);
    let joined = match ask(&program, Request::Join(join), &[theirs, socket.into()]) {
        Reply::Joined(joined) => joined,
        other => panic!("{other:?}"),
    };
    let served = ask(&program, Request::Serve(serve("app")), &[]);
    assert!(matches!(served, Reply::Served(_)), "{served:?}");
    let client = UdpSocket::bind(local()).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.connect(address).unwrap();
    let initial = |dcid: u8| {
        let mut packet = vec![0xc0, 0, 0, 0, 1, 8];
        packet.extend([dcid; 8]);
        packet.extend([8, 7, 7, 7, 7, 7, 7, 7, 7, 0]);
        packet.resize(1200, 0x44);
        packet
    };
    client.send(&initial(5)).unwrap();
    let mut datagram = [0; 2000];
    assert!(recv(ours.as_raw_fd(), &mut datagram, MsgFlags::empty()).unwrap() > 1200);
    drop(program);
    let begun = Instant::now();
    while switch.programs() != 0 {
        assert!(begun.elapsed() < LONG);
    }
    // A packet of one of its connections.
    let secrets = &joined.secrets;
    let keys = secrets.ring().unwrap();
    let keys = keys.current().unwrap();
    let codec = keys.codec(&|key: &[u8; 16]| Arc::new(Aes128::new(key))).unwrap();
    let owner = Owner { generation: joined.generation, worker: 0 };
    let place = SteeringPlace { server_id: ServerId::new(&[0]).unwrap(), owner: Some(owner) };
    let id = codec.mint(&place, &mut |out| out.fill(9)).unwrap();
    let mut packet = [&[0x40][..], id.as_slice()].concat();
    packet.resize(60, 0x33);
    client.send(&packet).unwrap();
    let len = client.recv(&mut datagram).unwrap();
    let expected =
        replies::stateless_reset(&AwsLcProvider, &keys.reset, &id, 60, &mut SystemRandom::new());
    assert!(len < 60 && datagram[..len].ends_with(expected.unwrap().last_chunk::<16>().unwrap()));
    // A new client: a close, sealed with the keys of its first packet.
    client.send(&initial(6)).unwrap();
    let len = client.recv(&mut datagram).unwrap();
    assert!(len > 40 && datagram[0] & 0xf0 == 0xc0, "{:?}", &datagram[..len]);
    assert_eq!(report(&switch)["addresses"][0]["datagrams"]["refusals"], 1);
    let (again, _) = switch.join("app", address).unwrap();
    assert_eq!(again.secrets(), *secrets);
    // One that says good-bye has nobody to be reset but those of before.
    again.serve(serve("app")).unwrap();
}

/// What a program says that has bound an address, and reads all from its channel.
fn by_hand(address: SocketAddr, label: String) -> Join {
    Join {
        address,
        only_v6: false,
        workers: 1,
        label,
        has_socket: true,
        has_keep: false,
        has_ledger: false,
        steered: false,
        remains: false,
        options: SocketOptions::default(),
        resume: None,
        kin: None,
    }
}

/// The switch stays for the peers of the dead, longer than it would without programs, and sleeps meanwhile.
#[test]
fn a_switch_that_stays_for_the_dead_sleeps() {
    let idle = Duration::from_millis(100);
    let switch = Switch::start(Some(idle));
    let program = connected(&switch);
    let (ours, address) = join_by_hand(&program);
    assert!(matches!(ask(&program, Request::Serve(serve("app")), &[]), Reply::Served(_)));
    let mut initial = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0];
    initial.resize(1200, 0x44);
    UdpSocket::bind(local()).unwrap().send_to(&initial, address).unwrap();
    let mut datagram = [0; 2000];
    assert!(recv(ours.as_raw_fd(), &mut datagram, MsgFlags::empty()).unwrap() > 1200);
    drop(program);
    switch.wait_for(0);
    let busy = || {
        let times = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", switch.task));
        Duration::from_nanos(times.unwrap().split(' ').next().unwrap().parse().unwrap())
    };
    thread::sleep(2 * idle);
    let before = busy();
    thread::sleep(Duration::from_secs(1));
    let busy = busy() - before;
    assert!(busy < Duration::from_millis(100), "it was busy for {busy:?}");
}

/// Joins by hand, with a socket of its own; returns the connection, the channel and the address.
fn join_by_hand(program: &OwnedFd) -> (OwnedFd, SocketAddr) {
    let socket = UdpSocket::bind(local()).unwrap();
    let address = socket.local_addr().unwrap();
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
    let join = by_hand(address, "app".to_owned());
    let joined = ask(program, Request::Join(join), &[theirs, socket.into()]);
    assert!(matches!(joined, Reply::Joined(_)), "{joined:?}");
    (ours, address)
}

/// A child that a program has forked has its connection, too.
#[test]
fn who_says_that_he_leaves_has_left_whoever_keeps_his_connection() {
    let switch = Switch::start(None);
    let program = connected(&switch);
    let (_channel, address) = join_by_hand(&program);
    let of_a_child = program.try_clone().unwrap();
    let leave = Question { version: VERSION, number: 7, request: Request::Leave };
    send(&program, &encode(&leave).unwrap(), &[]);
    drop(program);
    switch.wait_for(0);
    assert!(UdpSocket::bind(address).is_ok(), "nobody needs it to be reset");
    assert_eq!(heard(&of_a_child), None);
}

/// Who has joined, and served nothing, is back before who served: it waits with its question.
#[test]
fn what_was_served_comes_back_with_its_program_and_nobody_takes_it_meanwhile() {
    let switch = Switch::start(None);
    let program = connected(&switch);
    let socket = UdpSocket::bind(local()).unwrap();
    let address = socket.local_addr().unwrap();
    let pair =
        || socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
    let join = |resume| Join { resume, ..by_hand(address, "web".into()) };
    let come = |program: &OwnedFd, resume| {
        let (ours, theirs) = pair().unwrap();
        let came = [theirs, socket.try_clone().unwrap().into()];
        match ask(program, Request::Join(join(resume)), &came) {
            Reply::Joined(joined) => (ours, joined),
            other => panic!("{other:?}"),
        }
    };
    let (_channel, joined) = come(&program, None);
    assert_eq!(joined.served, None);
    let proof = match ask(&program, Request::Serve(serve("web")), &[]) {
        Reply::Served(proof) => proof,
        other => panic!("{other:?}"),
    };
    let (late, _) = switch.join("late", address).unwrap();
    let switch = switch.next();
    drop(program);
    let (said, heard) = std::sync::mpsc::channel();
    let robber = thread::spawn(move || {
        said.send(late.serve(serve("web")).map_err(|error| error.kind())).unwrap();
        late
    });
    switch.wait_for(1);
    let early = heard.recv_timeout(Duration::from_millis(300));
    assert!(early.is_err(), "it was not the first to have these names: {early:?}");
    let resume = Box::new(Resume {
        generation: joined.generation,
        receipt: joined.receipt,
        served: Some(Served { serve: serve("web"), proof }),
        draining: false,
        drain_seconds_left: None,
        secrets: joined.secrets.clone(),
        sockets: Vec::new(),
    });
    let program = connected(&switch);
    let (_channel, back) = come(&program, Some(resume));
    assert_eq!((back.generation, back.served), (joined.generation, Some(proof)));
    assert_eq!(heard.recv_timeout(LONG).unwrap(), Err(io::ErrorKind::AddrInUse));
    let late = robber.join().unwrap();
    late.serve(serve("other")).unwrap();
}

/// Where the switch is that another process is to connect to.
const CONNECT_TO: &str = "CONNECT_TO";

/// Not a test: connects its standard input, and ends.
#[test]
#[ignore = "a program that a test starts"]
fn connects_and_ends() {
    if let Some(path) = std::env::var_os(CONNECT_TO) {
        connect(0, &UnixAddr::new(&*path).unwrap()).unwrap();
    }
}

/// This file's tests as a program that runs one of those that are none.
fn this_as(program: impl AsRef<std::ffi::OsStr>, test: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--ignored", "--exact", test, "--nocapture", "--test-threads=1"]);
    command
}

#[test]
fn a_program_that_has_ended_before_it_could_be_watched_is_not_there() {
    let switch = Switch::start(None);
    let flags = SockFlag::SOCK_CLOEXEC;
    let program = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
    let mut command = this_as(std::env::current_exe().unwrap(), "connects_and_ends");
    command.env(CONNECT_TO, &switch.name).stdin(program.try_clone().unwrap());
    let ended = command.stdout(Stdio::null()).status().unwrap();
    drop(command);
    assert!(ended.success());
    // The process has gone; its connection is here.
    let (_channel, _) = join_by_hand(&program);
    switch.wait_for(0);
    assert_eq!(heard(&program), None);
}

/// Not a test: says which switch it would use and start.
#[test]
#[ignore = "a program that a test starts"]
fn says_which_switch_it_uses() {
    let Ok(name) = std::env::var(CONNECT_TO) else { return };
    let options = Options::default();
    println!("USES {} {:?}", options.name, options.program);
    let place = Place {
        address: local(),
        only_v6: false,
        workers: 1,
        steered: true,
        remains: false,
        options: SocketOptions::default(),
    };
    let joined = Membership::join(&Options { name, ..options }, place, || UdpSocket::bind(local()));
    println!("JOINED {}", joined.unwrap_err());
}

/// Why no program of a folder gets the rights of its owner, if that is so.
fn without_set_user_id(folder: &std::path::Path) -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("only root can make such a program");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    if status.lines().any(|line| line.starts_with("NoNewPrivs:") && line.ends_with('1')) {
        return Some("this process gives no rights away (no_new_privs)");
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let of_folder = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, options) = (words.next()?, words.nth(1)?);
        folder.starts_with(place).then_some((place.len(), options))
    });
    let (_, options) = of_folder.max_by_key(|(len, _)| *len)?;
    options.split(',').any(|option| option == "nosuid").then_some("the folder is mounted nosuid")
}

#[test]
fn a_program_with_more_rights_than_its_caller_uses_no_switch_that_the_caller_names() {
    let folder = std::env::temp_dir().join(format!("quicket-set-user-id-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    if let Some(why) = without_set_user_id(&folder) {
        std::fs::remove_dir(&folder).unwrap();
        return eprintln!("SKIPPED: {why}");
    }
    let program = folder.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let set = |path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    set(&folder, 0o755);
    let said = |mode| {
        set(&program, mode);
        assert_eq!(std::fs::metadata(&program).unwrap().mode() & 0o7777, mode);
        let mut command = this_as(&program, "says_which_switch_it_uses");
        command.env(NAME_VARIABLE, "/given/name").env(PROGRAM_VARIABLE, "/given/program");
        command.env(CONNECT_TO, folder.join("switch")).uid(65534).current_dir("/");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let (ordinary, privileged) = (said(0o755), said(0o4755));
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(ordinary.contains("USES /given/name Some(\"/given/program\")"), "{ordinary}");
    assert!(ordinary.contains("cannot start the switch, /given/program"), "{ordinary}");
    assert!(privileged.contains("USES switch Some(\"quicket\")"), "{privileged}");
    assert!(privileged.contains("JOINED a program with more rights"), "{privileged}");
}

/// Asks as a program does, and waits for the answer.
fn ask(program: &OwnedFd, request: Request, descriptors: &[OwnedFd]) -> Reply {
    let question = encode(&Question { version: VERSION, number: 7, request }).unwrap();
    send(program, &question, descriptors);
    heard(program).unwrap()
}
