//! A switch with the secrets of a site: they are rotated while programs are there, and found again by the next
//! switch.
#![cfg(target_os = "linux")]

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quicket_engine::crypto::CryptoProvider;
use quicket_engine::random::Random;
use quicket_handshake::{Aes128, AwsLcProvider, SystemRandom};
use quicket_steering::{BlockCipher, KeyRing, Owner, Place as SteeringPlace, SiteSecrets, Tenant};
use quicket_switch::channel::Inlet;
use quicket_switch::client::{Membership, Notice, Options, Place, status};
use quicket_switch::daemon::{Daemon, Listener, Rotations, Tools};
use quicket_switch::protocol::{Octets, Secrets, Serve};
use quicket_udp::{Arrival, Port};
use serde_json::Value;

/// How long anything may take on a machine that is busy.
const LONG: Duration = Duration::from_secs(20);
/// The host.
const ID: u8 = 0x1c;

/// Secrets of a site, as they are after so many rotations.
fn secrets(rotations: u8) -> SiteSecrets {
    let mut next = 0;
    let mut random = |out: &mut [u8]| {
        next += 1;
        out.fill(next);
    };
    let mut secrets = SiteSecrets::draw(0, &mut random);
    for _ in 0..rotations {
        secrets = secrets.rotate(0, &mut random).unwrap();
    }
    secrets
}

fn ring(rotations: u8) -> KeyRing {
    let hmac = |key: &[u8; 32], message: &[u8]| AwsLcProvider.keyed_hash(key, message);
    secrets(rotations).keys(Tenant::Site, &hmac).unwrap()
}

fn aes_128(key: &[u8; 16]) -> Arc<dyn BlockCipher> {
    Arc::new(Aes128::new(key))
}

/// A switch that ends with the test.
struct Switch {
    name: String,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<io::Result<()>>>,
    rotations: Option<Rotations>,
    forwards: bool,
}

/// How a packet came to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Kernel,
    Switch,
}

impl Switch {
    fn new(site: Option<SiteSecrets>, forwards: bool) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("quicket-site-test-{}-{count}", std::process::id());
        let name = std::env::temp_dir().join(name).to_str().unwrap().to_owned();
        Self::named(name, site, forwards)
    }

    fn named(name: String, site: Option<SiteSecrets>, forwards: bool) -> Self {
        let random = Box::new(SystemRandom::new());
        let tools = Tools { crypto: Arc::new(AwsLcProvider), aes_128, random };
        let daemon = Daemon::new(Listener::bind(&name).unwrap(), tools, None).unwrap();
        let daemon = if forwards { daemon.forwarding() } else { daemon };
        let (daemon, rotations) = match site {
            Some(site) => {
                let (daemon, rotations) = daemon.of_site(site, ID).unwrap();
                (daemon, Some(rotations))
            }
            None => (daemon, None),
        };
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || daemon.run(stopped.as_fd()));
        Self { name, stop: Some(stop), thread: Some(thread), rotations, forwards }
    }

    /// Ends without a word to anybody, as if it were killed. Returns its name.
    fn kill(mut self) -> String {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap().unwrap();
        self.name.clone()
    }

    fn join(&self, address: SocketAddr) -> Program {
        let options = Options { name: self.name.clone(), program: None, label: "program".into() };
        let place = Place { address, only_v6: false, workers: 2, steered: true };
        let bind = || UdpSocket::bind(address);
        let (member, inlets, socket) = Membership::join(&options, place, bind).unwrap();
        let (tell, notices) = channel();
        member.heed(move |notice| tell.send(notice).unwrap());
        let workers = inlets.into_iter().map(Worker::new).collect();
        let way = if self.forwards { Way::Switch } else { Way::Kernel };
        Program { address: socket.local_addr().unwrap(), member, workers, notices, way }
    }

    /// What it says of its only address.
    fn address(&self) -> Value {
        let report: Value = serde_json::from_str(&status(&self.name).unwrap()).unwrap();
        report["addresses"][0].clone()
    }

    fn rotate(&self, secrets: SiteSecrets) {
        self.rotations.as_ref().unwrap().rotate(secrets).unwrap();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            let _ = std::fs::remove_file(format!("{}.lock", self.name));
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// A worker of a program.
struct Worker {
    inlet: Inlet,
    socket: Option<UdpSocket>,
}

impl Worker {
    fn new(mut inlet: Inlet) -> Self {
        let socket = inlet.take_socket();
        Self { inlet, socket }
    }

    /// What has come: to its own socket, or else from the switch.
    fn take(&self) -> Option<(Way, Vec<u8>)> {
        let mut buffer = [0; 2000];
        if let Some(Ok(len)) = self.socket.as_ref().map(|socket| socket.recv(&mut buffer)) {
            return Some((Way::Kernel, buffer[..len].to_vec()));
        }
        let mut arrival = [Arrival::default()];
        match self.inlet.receive(&mut [IoSliceMut::new(&mut buffer)], &mut arrival) {
            Ok(_) => Some((Way::Switch, buffer[..arrival[0].len].to_vec())),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                None
            }
        }
    }
}

/// A program.
struct Program {
    member: Membership,
    workers: Vec<Worker>,
    address: SocketAddr,
    notices: Receiver<Notice>,
    /// How its packets come.
    way: Way,
}

impl Program {
    /// A packet with a connection ID of one of its workers, made with the current keys of a ring.
    fn packet(&self, ring: &KeyRing, server_id: u8, worker: u16) -> Vec<u8> {
        let mut random = SystemRandom::new();
        let codec = ring.current().unwrap().codec(&aes_128).unwrap();
        let owner = Some(Owner { generation: self.member.generation(), worker });
        let server_id = quicket_steering::ServerId::new(&[server_id]).unwrap();
        let place = SteeringPlace { server_id, owner };
        let id = codec.mint(&place, &mut |out| random.fill(out)).unwrap();
        let mut rest = [0; 40];
        random.fill(&mut rest);
        [&[0x40], id.as_slice(), &rest].concat()
    }

    /// Sends such packets, each of which its worker gets and no other.
    fn gets_what_is_its_own(&self, ring: &KeyRing, server_id: u8, what: &str) {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for worker in [1, 0] {
            let packet = self.packet(ring, server_id, worker);
            let begun = Instant::now();
            // A switch that has just begun reads the socket in a moment.
            client.send_to(&packet, self.address).unwrap();
            loop {
                assert_eq!(self.workers[usize::from(1 - worker)].take(), None, "{what}");
                if let Some(came) = self.workers[usize::from(worker)].take() {
                    assert_eq!(came, (self.way, packet), "{what}");
                    break;
                }
                assert!(begun.elapsed() < LONG, "{what}: nothing came to worker {worker}");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Waits until it has heard that secrets with this number are current.
    fn wait_for(&self, number: u32) -> Secrets {
        let begun = Instant::now();
        loop {
            let secrets = self.member.secrets();
            if secrets.keys[0].number == number {
                let mut notice = self.notices.recv_timeout(LONG);
                // Another switch has another register of tickets, too.
                while notice == Ok(Notice::Register) {
                    notice = self.notices.recv_timeout(LONG);
                }
                assert_eq!(notice, Ok(Notice::Secrets));
                return secrets;
            }
            assert!(begun.elapsed() < LONG, "{:?}", self.member.secrets());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn serve() -> Serve {
    Serve { protocols: vec![Octets(b"h3".to_vec())], ..Serve::default() }
}

/// ... without the kernel's help, and with it.
fn rotate_under_a_program(forwards: bool) {
    let switch = Switch::new(Some(secrets(0)), forwards);
    let program = switch.join(local());
    program.member.serve(serve()).unwrap();
    let helps = |address: &Value| address["kernel"]["helps"] == true;
    assert_ne!(helps(&switch.address()), forwards);
    let drawn = program.member.secrets();
    assert_eq!((drawn.server_id, drawn.keys[0].number), (ID, 1));
    program.gets_what_is_its_own(&ring(0), ID, "current");
    program.gets_what_is_its_own(&ring(1), ID, "next");
    for rotations in 1..=8 {
        switch.rotate(secrets(rotations));
        let given = program.wait_for(u32::from(rotations) + 1);
        assert_eq!(given.ring().unwrap(), ring(rotations), "derived keys, and not the secrets");
        program.gets_what_is_its_own(&ring(rotations - 1), ID, "previous");
        program.gets_what_is_its_own(&ring(rotations), ID, "current");
        program.gets_what_is_its_own(&ring(rotations + 1), ID, "next");
        assert_ne!(helps(&switch.address()), forwards, "{}", switch.address());
    }
    // What is twice past leads nowhere.
    let unroutable = || switch.address()["dropped"]["unroutable"].as_u64().unwrap();
    let before = unroutable();
    let client = UdpSocket::bind(local()).unwrap();
    client.send_to(&program.packet(&ring(6), ID, 0), program.address).unwrap();
    let begun = Instant::now();
    while unroutable() == before {
        assert!(begun.elapsed() < LONG, "{}", switch.address());
        thread::sleep(Duration::from_millis(1));
    }
    assert!(program.workers.iter().all(|worker| worker.take().is_none()));
    // Programs that come later have the same; the status has numbers.
    let other = switch.join(program.address);
    assert_eq!(other.member.secrets(), program.member.secrets());
    let said = switch.address();
    assert_eq!(said["secrets"]["current"], 9, "{said}");
    assert_eq!(said["secrets"]["accepted"], serde_json::json!([9, 10, 8]), "{said}");
    assert_eq!(said["secrets"]["server_id"], ID, "{said}");
    assert_eq!(said["secrets"].as_object().unwrap().len(), 3, "{said}");
    // The same once more is no news.
    switch.rotate(secrets(8));
    switch.rotate(secrets(9));
    program.wait_for(10);
    assert!(program.notices.try_recv().is_err());
}

#[test]
fn programs_live_through_rotations_where_the_switch_forwards() {
    rotate_under_a_program(true);
}

#[test]
fn programs_live_through_rotations_where_the_kernel_chooses() {
    rotate_under_a_program(false);
}

/// The file was rotated while no switch was there.
#[test]
fn programs_come_back_to_a_switch_whose_secrets_were_rotated() {
    let switch = Switch::new(Some(secrets(0)), true);
    let program = switch.join(local());
    program.member.serve(serve()).unwrap();
    let name = switch.kill();
    let switch = Switch::named(name, Some(secrets(2)), true);
    let given = program.wait_for(3);
    // One of the three is of the same number, and two are not known to the file any more.
    assert_eq!(given.ring().unwrap(), ring(2).with_earlier(&ring(0)));
    program.gets_what_is_its_own(&ring(0), ID, "as it was");
    program.gets_what_is_its_own(&ring(2), ID, "as it is");
    switch.rotate(secrets(3));
    assert_eq!(program.wait_for(4).ring().unwrap(), ring(3));
    program.gets_what_is_its_own(&ring(3), ID, "rotated again");
}

/// Programs of a switch that drew its keys meet one that is given some, and the other way round.
#[test]
fn programs_take_their_keys_along_to_the_next_switch() {
    let switch = Switch::new(None, true);
    let program = switch.join(local());
    program.member.serve(serve()).unwrap();
    let drawn = program.member.secrets();
    assert_eq!((drawn.keys.len(), drawn.keys[0].number, drawn.server_id), (1, 0, 0));
    let switch = Switch::named(switch.kill(), Some(secrets(0)), true);
    let given = program.wait_for(1);
    assert_eq!(given.ring().unwrap(), ring(0).with_earlier(&drawn.ring().unwrap()));
    program.gets_what_is_its_own(&drawn.ring().unwrap(), 0, "drawn");
    program.gets_what_is_its_own(&ring(0), ID, "given");
    // A switch that somebody started without the file goes on with what programs have.
    let switch = Switch::named(switch.kill(), None, true);
    let begun = Instant::now();
    while switch.address()["secrets"]["current"] != 1 {
        assert!(begun.elapsed() < LONG, "{}", switch.address());
        thread::sleep(Duration::from_millis(1));
    }
    program.gets_what_is_its_own(&ring(0), ID, "of no file");
    assert_eq!(program.member.secrets(), given);
}
