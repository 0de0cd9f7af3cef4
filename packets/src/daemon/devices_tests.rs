//! Devices that go while others come, and cannot be taken in.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quicket_bpf::TupleProgram;
use rustix::event::Timespec;

use super::super::{EVENTS, Pace};
use super::*;
use crate::control::Control;
use crate::device::permitted::is_permitted;
use crate::device::rates::Wire;
use crate::device::{Attached, Loopback, MAX_VLANS};

/// What a test waits for at most.
const PATIENCE: Duration = Duration::from_secs(20);

/// A switch in a network namespace of this thread, which does nothing by itself.
struct Rig {
    daemon: Daemon,
    tuples: Arc<Tuples>,
    path: PathBuf,
    _wire: Wire,
}

impl Rig {
    fn new(name: &str) -> Self {
        let wire = Wire::new().unwrap();
        let name = format!("quicket-devices-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut daemon = Daemon::bind(&path, false).unwrap();
        let tuples = daemon.prepare().unwrap();
        Self { daemon, tuples, path, _wire: wire }
    }

    fn attach(&self, name: &str) -> Device {
        Device::attach(name, Mode::Generic, &self.tuples, &self.daemon.works.record).unwrap()
    }

    fn take_in(&mut self, name: &str) {
        let device = self.attach(name);
        assert!(matches!(self.daemon.take_in(device), Answer::Attached(_)));
    }

    /// What the next switch finds if this one is killed.
    fn notes(&self) -> String {
        let name = format!("{}.lock", self.path.file_name().unwrap().display());
        std::fs::read_to_string(self.path.with_file_name(name)).unwrap()
    }

    fn devices(&mut self) -> Vec<String> {
        self.daemon.forwarder.network().all().map(|device| device.name).collect()
    }

    /// What who asks for it hears of all devices.
    fn list(&mut self) -> Vec<Attached> {
        let path = self.path.clone();
        let asking = thread::spawn(move || Control::connect(&path).unwrap().devices().unwrap());
        let (mut events, mut pace) = (Vec::with_capacity(EVENTS), Pace::new());
        let begun = Instant::now();
        let time = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        while !asking.is_finished() {
            self.daemon.turn(&mut events, &mut pace, Some(&time)).unwrap();
            assert!(begun.elapsed() < PATIENCE, "no answer");
        }
        asking.join().unwrap()
    }

    /// What is given to the thread comes here from now on.
    fn be_the_thread(&mut self) -> Receiver<Job> {
        let (jobs, work) = channel();
        self.daemon.works.thread = Some(Worker { jobs, thread: thread::spawn(|| ()) });
        work
    }
}

fn ip(words: &str) {
    run("ip", words);
}

fn run(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{program} {words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn accepts_local() -> bool {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/conf/lo/accept_local");
    text.unwrap().trim() == "1"
}

fn has_vlan_offload(device: &str) -> bool {
    run("ethtool", &format!("-k {device}")).contains("rx-vlan-offload: on")
}

#[test]
fn a_device_that_cannot_be_watched_is_detached_by_the_thread() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new("unwatched");
    let jobs = rig.be_the_thread();
    let device = rig.attach("va");
    let watched = device.error_sockets().next().unwrap();
    epoll::add(&rig.daemon.events, watched, token(ERRORS, 0), EventFlags::IN).unwrap();
    assert!(matches!(rig.daemon.take_in(device), Answer::Refused { .. }));
    assert_eq!(rig.devices(), [""; 0]);
    let job = jobs.try_recv();
    assert!(matches!(job, Ok(Job::Detach { asker: None, .. })), "it is detached already");
    assert!(rig.path.exists());
}

#[test]
fn a_device_that_broke_is_as_it_was_before_it_is_attached_again() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new("again");
    let bell = Arc::clone(&rig.daemon.desk.bell);
    rig.daemon.works.start(&bell).unwrap();
    assert!(!accepts_local());
    rig.take_in("lo");
    for _ in 0..3 {
        rig.daemon.let_go(1);
        assert_eq!(rig.devices(), [""; 0]);
        let (name, tuples) = ("lo".to_owned(), Arc::clone(&rig.tuples));
        rig.daemon.works.give(Job::Attach { asker: (0, 0), name, mode: Mode::Generic, tuples });
        let Work { result, .. } = rig.daemon.works.done.recv_timeout(PATIENCE).unwrap();
        let device = result.unwrap().unwrap();
        let all = Loopback { segments: true, accept_local: true, route_localnet: true };
        assert_eq!(device.describe().loopback, all, "it is altered, and will be set back");
        assert!(accepts_local());
        assert!(matches!(rig.daemon.take_in(device), Answer::Attached(_)));
    }
    let path = rig.path.clone();
    drop(rig);
    assert!(!accepts_local() && !path.exists());
}

/// There are more than a message has room for, and more than are served.
#[test]
fn a_device_is_listed_with_all_vlans_that_are_served() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new("vlans");
    // Addresses of IPv6 come when they will. There may be none.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    rig.take_in("lo");
    assert_eq!(rig.list()[0].vlans, []);
    rig.daemon.let_go(1);
    rig.take_in("va");
    rig.daemon.forwarder.network().pretend(300);
    let all = rig.list();
    let [va] = &all[..] else { panic!("{all:?}") };
    let heard: Vec<_> = va.vlans.iter().map(|vlan| (vlan.number, &*vlan.device)).collect();
    let names: Vec<_> = (1..=300).map(|number| (number, format!("va.{number}"))).collect();
    // Those whose devices came first, in the order of their numbers.
    let served: Vec<_> = names.iter().map(|(number, name)| (*number, &**name)).collect();
    assert_eq!(heard, served[300 - MAX_VLANS..]);
}

/// Numbers of devices are given again where somebody asks for it, and messages about them may come late.
#[test]
fn what_is_said_of_a_device_that_has_gone_is_not_said_of_the_next_one_of_its_number() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new("number");
    let jobs = rig.be_the_thread();
    rig.take_in("va");
    let index = rig.daemon.forwarder.network().all().next().unwrap().index;
    ip("link del va");
    ip(&format!("link add name vc index {index} type veth peer name vd"));
    ip("link set vc up");
    rig.take_in("vc");
    assert_eq!(rig.devices(), ["vc"]);
    let job = jobs.try_recv();
    assert!(matches!(job, Ok(Job::Detach { asker: None, .. })), "the other one goes");
    drop(job);
    assert!(!has_vlan_offload("vc") && rig.notes().contains(" vc vlan "), "{}", rig.notes());
    rig.daemon.forwarder.network().hear();
    rig.daemon.remove_broken_devices();
    assert_eq!(rig.devices(), ["vc"], "that the other one has gone is heard late");
    ip("link del vc");
    rig.daemon.forwarder.network().hear();
    rig.daemon.remove_broken_devices();
    assert_eq!(rig.devices(), [""; 0]);
}

#[test]
fn a_device_is_set_back_whatever_it_is_called_and_no_other_one() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new("name");
    let jobs = rig.be_the_thread();
    assert!(has_vlan_offload("va"));
    rig.take_in("va");
    ip("link set va down");
    ip("link set va name vx");
    // Somebody else has its name.
    ip("link add va type veth peer name vy");
    rig.daemon.forwarder.network().hear();
    assert!(has_vlan_offload("va"), "messages of before are about the other one");
    // ... and wants it so.
    run("ethtool", "-K va rxvlan off");
    rig.daemon.forwarder.network().hear();
    rig.daemon.remove_broken_devices();
    assert_eq!(rig.devices(), ["vx"]);
    assert!(rig.notes().contains(" vx vlan ") && !rig.notes().contains(" va "), "for a kill");
    let index = rig.daemon.forwarder.network().all().next().unwrap().index;
    rig.daemon.let_go(index);
    assert!(!has_vlan_offload("vx"));
    drop(jobs.try_recv().unwrap());
    assert!(has_vlan_offload("vx") && !has_vlan_offload("va"));
    // One that has gone.
    rig.take_in("vx");
    ip("link del vx");
    ip("link add vx type veth peer name vz");
    run("ethtool", "-K vx rxvlan off");
    rig.daemon.forwarder.network().hear();
    rig.daemon.remove_broken_devices();
    drop(jobs.try_recv().unwrap());
    assert!(!has_vlan_offload("vx"));
}

#[test]
fn a_device_is_attached_by_whatever_name_it_has() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new("names");
    let _jobs = rig.be_the_thread();
    ip("link property add dev va altname another");
    rig.take_in("va");
    let mut attached = |name| rig.daemon.forwarder.network().is_attached(name);
    assert!(attached("va") && attached("another") && !attached("vb") && !attached("vc"));
    let index = rig.daemon.forwarder.network().find("va").unwrap();
    assert_eq!(rig.daemon.forwarder.network().find("another"), Some(index));
    ip("link del va");
    ip(&format!("link add name va index {index} type veth peer name vb"));
    assert!(!rig.daemon.forwarder.network().is_attached("va"), "it is another one");
}

#[test]
fn a_device_with_a_program_of_somebody_else_is_not_altered() {
    if !is_permitted() {
        return;
    }
    let rig = Rig::new("busy");
    let shown = run("ip", "-o link show va");
    let index = shown.split(':').next().unwrap().parse().unwrap();
    let theirs = TupleProgram::new([2; 6], &rig.tuples).unwrap();
    let _hook = theirs.program().attach(index, quicket_bpf::Mode::Generic).unwrap();
    let error =
        Device::attach("va", Mode::Generic, &rig.tuples, &rig.daemon.works.record).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    assert!(has_vlan_offload("va"));
}

/// The sockets of its queues do not come back with it.
#[test]
fn a_device_that_was_in_another_network_namespace_meanwhile_is_detached() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new("elsewhere");
    let jobs = rig.be_the_thread();
    rig.take_in("va");
    let mut elsewhere = Command::new("unshare")
        .args(["--net", "sh", "-c", "echo; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    elsewhere.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    ip(&format!("link set va netns {}", elsewhere.id()));
    let here = rustix::thread::gettid();
    run("nsenter", &format!("--net=/proc/{}/ns/net ip link set va netns {here}", elsewhere.id()));
    ip("link set va up");
    rig.daemon.forwarder.network().hear();
    rig.daemon.remove_broken_devices();
    assert_eq!(rig.devices(), [""; 0]);
    assert!(matches!(jobs.try_recv(), Ok(Job::Detach { asker: None, .. })));
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
}
