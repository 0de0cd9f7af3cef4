//! A switch with the secrets of a site: they are rotated while programs are there, and found again by the next
//! switch.
#![cfg(target_os = "linux")]

mod rig;

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use quicket_engine::crypto::CryptoProvider;
use quicket_engine::random::Random;
use quicket_handshake::{Aes128, AwsLcProvider, SystemRandom};
use quicket_steering::{BlockCipher, KeyRing, Owner, Place as SteeringPlace, SiteSecrets, Tenant};
use quicket_switch::client::{Membership, Notice, Place};
use quicket_switch::daemon::Rotations;
use quicket_switch::options::SocketOptions;
use quicket_switch::protocol::{Octets, Secrets, Serve};
use quicket_udp::{Arrival, Port};
use serde_json::Value;

use rig::{LONG, Switch, Worker};

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

/// A switch of the site.
struct Site {
    switch: Switch,
    rotations: Option<Rotations>,
    forwards: bool,
}

/// How a packet came to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Kernel,
    Switch,
}

impl Site {
    fn new(site: Option<SiteSecrets>, forwards: bool) -> Self {
        Self::named(Switch::new_name(), site, forwards)
    }

    fn named(name: String, site: Option<SiteSecrets>, forwards: bool) -> Self {
        let mut rotations = None;
        let switch = Switch::start(name, |daemon| {
            let daemon = if forwards { daemon.forwarding() } else { daemon };
            let Some(site) = site else { return daemon };
            let (daemon, of_site) = daemon.of_site(site, ID).unwrap();
            rotations = Some(of_site);
            daemon
        });
        Self { switch, rotations, forwards }
    }

    fn join(&self, address: SocketAddr) -> Program {
        let options = SocketOptions::default();
        let place =
            Place { address, only_v6: false, workers: 2, steered: true, remains: false, options };
        let bind = || UdpSocket::bind(address);
        let joined = Membership::join(&self.switch.options(), place, bind);
        let (member, inlets, socket) = joined.unwrap();
        let (tell, notices) = channel();
        member.heed(move |notice| tell.send(notice).unwrap());
        let workers = inlets.into_iter().map(Worker::new).collect();
        let way = if self.forwards { Way::Switch } else { Way::Kernel };
        Program { address: socket.local_addr().unwrap(), member, workers, notices, way }
    }

    fn rotate(&self, secrets: SiteSecrets) {
        self.rotations.as_ref().unwrap().rotate(secrets).unwrap();
    }
}

impl Worker {
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
    let site = Site::new(Some(secrets(0)), forwards);
    let program = site.join(local());
    program.member.serve(serve()).unwrap();
    let helps = |address: &Value| address["kernel"]["helps"] == true;
    assert_ne!(helps(&site.switch.address()), forwards);
    let drawn = program.member.secrets();
    assert_eq!((drawn.server_id, drawn.keys[0].number), (ID, 1));
    program.gets_what_is_its_own(&ring(0), ID, "current");
    program.gets_what_is_its_own(&ring(1), ID, "next");
    for rotations in 1..=8 {
        site.rotate(secrets(rotations));
        let given = program.wait_for(u32::from(rotations) + 1);
        assert_eq!(given.ring().unwrap(), ring(rotations), "derived keys, and not the secrets");
        program.gets_what_is_its_own(&ring(rotations - 1), ID, "previous");
        program.gets_what_is_its_own(&ring(rotations), ID, "current");
        program.gets_what_is_its_own(&ring(rotations + 1), ID, "next");
        assert_ne!(helps(&site.switch.address()), forwards, "{}", site.switch.address());
    }
    // What is twice past leads nowhere.
    let unroutable = || site.switch.address()["dropped"]["unroutable"].as_u64().unwrap();
    let before = unroutable();
    let client = UdpSocket::bind(local()).unwrap();
    client.send_to(&program.packet(&ring(6), ID, 0), program.address).unwrap();
    let begun = Instant::now();
    while unroutable() == before {
        assert!(begun.elapsed() < LONG, "{}", site.switch.address());
        thread::sleep(Duration::from_millis(1));
    }
    assert!(program.workers.iter().all(|worker| worker.take().is_none()));
    // Programs that come later have the same; the status has numbers.
    let other = site.join(program.address);
    assert_eq!(other.member.secrets(), program.member.secrets());
    let said = site.switch.address();
    assert_eq!(said["secrets"]["current"], 9, "{said}");
    assert_eq!(said["secrets"]["accepted"], serde_json::json!([9, 10, 8]), "{said}");
    assert_eq!(said["secrets"]["server_id"], ID, "{said}");
    assert_eq!(said["secrets"].as_object().unwrap().len(), 3, "{said}");
    // The same once more is no news.
    site.rotate(secrets(8));
    site.rotate(secrets(9));
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
    let site = Site::new(Some(secrets(0)), true);
    let program = site.join(local());
    program.member.serve(serve()).unwrap();
    let name = site.switch.kill();
    let site = Site::named(name, Some(secrets(2)), true);
    let given = program.wait_for(3);
    // One of the three is of the same number, and two are not known to the file any more.
    assert_eq!(given.ring().unwrap(), ring(2).with_earlier(&ring(0)));
    program.gets_what_is_its_own(&ring(0), ID, "as it was");
    program.gets_what_is_its_own(&ring(2), ID, "as it is");
    site.rotate(secrets(3));
    assert_eq!(program.wait_for(4).ring().unwrap(), ring(3));
    program.gets_what_is_its_own(&ring(3), ID, "rotated again");
}

/// Programs of a switch that drew its keys meet one that is given some, and the other way round.
#[test]
fn programs_take_their_keys_along_to_the_next_switch() {
    let site = Site::new(None, true);
    let program = site.join(local());
    program.member.serve(serve()).unwrap();
    let drawn = program.member.secrets();
    assert_eq!((drawn.keys.len(), drawn.keys[0].number, drawn.server_id), (1, 0, 0));
    let site = Site::named(site.switch.kill(), Some(secrets(0)), true);
    let given = program.wait_for(1);
    assert_eq!(given.ring().unwrap(), ring(0).with_earlier(&drawn.ring().unwrap()));
    program.gets_what_is_its_own(&drawn.ring().unwrap(), 0, "drawn");
    program.gets_what_is_its_own(&ring(0), ID, "given");
    // A switch that somebody started without the file goes on with what programs have.
    let site = Site::named(site.switch.kill(), None, true);
    let begun = Instant::now();
    while site.switch.address()["secrets"]["current"] != 1 {
        assert!(begun.elapsed() < LONG, "{}", site.switch.address());
        thread::sleep(Duration::from_millis(1));
    }
    program.gets_what_is_its_own(&ring(0), ID, "of no file");
    assert_eq!(program.member.secrets(), given);
}
