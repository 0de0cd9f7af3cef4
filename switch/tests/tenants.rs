//! A switch for the system, in a thread of the test, and a program of another user that says what the library
//! does not say.
#![cfg(target_os = "linux")]

use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recvmsg,
    sendmsg, socket, socketpair,
};
use quicket_handshake::{Aes128, AwsLcProvider, SystemRandom};
use quicket_switch::client::{Membership, Options, Place};
use quicket_switch::daemon::{
    Daemon, Listener, MAX_CONNECTIONS_OF_TENANT, MAX_MINTED_A_SECOND, Tools,
};
use quicket_switch::options::SocketOptions;
use quicket_switch::protocol::{
    Hex, Join, MAX_MESSAGE, Message, Minted, Notice, Octets, Question, Receipt, Refused, Reply,
    Request, Resume, Secrets, Serve, VERSION, encode,
};
use quicket_switch::rule::Rule;

const NOBODY: u32 = 65_534;
/// Tells [`stranger`] what it is to ask.
const ORDERS: &str = "QUICKET_TEST_TENANT";

#[test]
fn a_program_of_another_user_gets_no_descriptor_and_nothing_by_what_it_says() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can start a program of another user");
    }
    let folder = std::env::temp_dir().join(format!("quicket-tenants-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    let name = folder.join("switch").to_str().unwrap().to_owned();
    let tools = Tools {
        crypto: Arc::new(AwsLcProvider),
        aes_128: |key| Arc::new(Aes128::new(key)),
        random: Box::new(SystemRandom::new()),
    };
    let daemon = Daemon::new(Listener::bind_for_all(&name).unwrap(), tools, None).unwrap();
    let (daemon, _rules) = daemon.for_system(Rule::default()).unwrap();
    let (stop, stopped) = UnixStream::pair().unwrap();
    let switch = thread::spawn(move || daemon.run(stopped.as_fd()));
    let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let options = Options { name: name.clone(), program: None, label: "own".into() };
    let place = Place {
        address: local,
        only_v6: false,
        workers: 1,
        steered: false,
        remains: false,
        options: SocketOptions::default(),
    };
    let joined = Membership::join(&options, place, || UdpSocket::bind(local));
    let (member, _inlets, socket) = joined.unwrap();
    let serve = Serve { protocols: vec![Octets(b"own".to_vec())], ..Serve::default() };
    member.serve(Serve { upgrades: true, ..serve.clone() }).unwrap();
    let address = socket.local_addr().unwrap();
    let mut command = Command::new("/proc/self/exe");
    command.args(["--ignored", "--exact", "stranger", "--nocapture"]).uid(NOBODY).gid(NOBODY);
    command.env(ORDERS, format!("{name} {address}")).current_dir("/").stdin(Stdio::null());
    let said = command.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("WELL BEHAVED"), "{said:?}");
    // Nothing has become of it for others.
    member.serve(serve).unwrap();
    drop((member, stop));
    switch.join().unwrap().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A connection, and what is said over it.
struct Talk(OwnedFd);

impl Talk {
    fn new(name: &str) -> Self {
        let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let socket = socket(AddressFamily::Unix, kind, flags, None).unwrap();
        connect(socket.as_raw_fd(), &UnixAddr::new(name).unwrap()).unwrap();
        Self(socket)
    }

    fn say(&self, request: Request, descriptors: &[OwnedFd]) {
        let question = encode(&Question { version: VERSION, number: 7, request }).unwrap();
        let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control = if raw.is_empty() { &[][..] } else { &rights[..] };
        let parts = [IoSlice::new(&question)];
        sendmsg::<()>(self.0.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None).unwrap();
    }

    /// What comes next; nothing ever comes along.
    fn hear(&self) -> Message {
        let mut bytes = vec![0; MAX_MESSAGE];
        let mut control = nix::cmsg_space!([i32; 8]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let came =
            recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty());
        let came = came.unwrap();
        assert_eq!(came.cmsgs().unwrap().count(), 0, "a descriptor came along");
        let len = came.bytes;
        Message::decode(&bytes[..len]).unwrap()
    }

    fn ask(&self, request: Request, descriptors: &[OwnedFd]) -> Reply {
        self.say(request, descriptors);
        match self.hear() {
            Message::Answer { number: 7, reply } => reply,
            other => panic!("{other:?}"),
        }
    }
}

fn refused(reply: &Reply, reason: &str) {
    let Reply::Refused(Refused { text, .. }) = reply else { panic!("{reply:?}") };
    assert!(text.contains(reason), "{text}");
}

fn pair() -> OwnedFd {
    let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
    let (one, other) = socketpair(AddressFamily::Unix, kind, None, flags).unwrap();
    // As a program keeps it that is not there to read.
    std::mem::forget(other);
    one
}

#[test]
#[ignore = "a program that a test starts"]
fn stranger() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let (name, address) = orders.split_once(' ').unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let join = Join {
        address,
        only_v6: false,
        workers: 1,
        label: "stranger".into(),
        has_socket: false,
        has_keep: false,
        has_ledger: false,
        steered: true,
        remains: false,
        options: SocketOptions::default(),
        resume: None,
        kin: None,
    };
    let talk = Talk::new(name);
    // A socket of its own, of which it would keep a copy.
    let own = UdpSocket::bind("127.0.0.1:0").unwrap();
    let with_socket = Join { address: own.local_addr().unwrap(), has_socket: true, ..join.clone() };
    let reply = talk.ask(Request::Join(with_socket), &[pair(), own.into()]);
    refused(&reply, "leave the socket to it");
    let with_keep = Join { has_keep: true, ..join.clone() };
    let reply = talk.ask(Request::Join(with_keep), &[pair(), pair(), pair()]);
    refused(&reply, "leave the socket to it");
    // A number and keys that it never had, at an address that is there and at one that is not.
    let receipt = Receipt { incarnation: u64::MAX, proof: Hex([0; 16]) };
    let secrets = Secrets::draw(&mut |out| out.fill(5));
    let resume = |generation, sockets| {
        let (served, draining, drain_seconds_left) = (None, false, None);
        let secrets = secrets.clone();
        let resume =
            Resume { generation, receipt, served, draining, drain_seconds_left, secrets, sockets };
        Some(Box::new(resume))
    };
    let elsewhere = "127.0.0.1:28443".parse().unwrap();
    for (at, generation, sockets) in
        [(address, 0, vec![]), (address, 9, vec![1]), (elsewhere, 0, vec![])]
    {
        let join = Join { address: at, resume: resume(generation, sockets), ..join.clone() };
        let reply = talk.ask(Request::Join(join), &[pair()]);
        refused(&reply, "another program has the connection IDs");
    }
    let low = Join { address: "127.0.0.1:80".parse().unwrap(), ..join.clone() };
    refused(&talk.ask(Request::Join(low), &[pair()]), "does not let user 65534 have");
    let many = Join { workers: 65, ..join.clone() };
    let pairs: Vec<_> = (0..65).map(|_| pair()).collect();
    refused(&talk.ask(Request::Join(many), &pairs), "fewer workers");
    // What it may have: keys without those of connection IDs, which are made for it.
    let Reply::Joined(joined) = talk.ask(Request::Join(join.clone()), &[pair()]) else { panic!() };
    assert_eq!((joined.tenancy.unwrap().address, joined.sockets), (address, vec![]));
    assert!(joined.secrets.keys.iter().all(|keys| keys.key.0 == [0; 16] && keys.mask.0 == [0; 8]));
    refused(&talk.ask(Request::Upgrade, &[]), "no program that serves");
    let own = Serve { protocols: vec![Octets(b"own".to_vec())], replace: true, ..Serve::default() };
    refused(&talk.ask(Request::Serve(own), &[]), "another user serves");
    // Connection IDs for a worker that is not its own, and without end.
    talk.say(Request::Mint(1), &[]);
    let mut most = 0;
    for _ in 0..100 {
        talk.say(Request::Mint(0), &[]);
        let Message::Notice(Notice::Minted(minted)) = talk.hear() else { panic!() };
        let Minted { worker, anew, ids } = minted;
        assert_eq!((worker, anew), (0, false));
        most += ids.len();
    }
    // A second may end meanwhile.
    assert!(most <= 2 * MAX_MINTED_A_SECOND as usize, "{most}");
    let others: Vec<_> = (1..MAX_CONNECTIONS_OF_TENANT).map(|_| Talk::new(name)).collect();
    let Message::Refused(Refused { text, .. }) = Talk::new(name).hear() else { panic!() };
    assert!(text.contains("has 64 programs here"), "{text}");
    assert!(matches!(others[0].ask(Request::Status, &[]), Reply::Status { .. }));
    println!("WELL BEHAVED");
}
