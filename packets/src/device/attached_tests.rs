//! What becomes of segments that were to leave together, when they cannot.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::Command;

use rustix::event::epoll::{self, EventFlags};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, socket_with,
    socketpair, sockopt,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::*;
use crate::device::netlink::Vlan;
use crate::device::permitted::is_permitted;
use crate::device::rates::Wire;
use crate::device::trains::tests::{ACK, FLOW, segment};

/// Segments that leave together.
const FLIGHT: u32 = 8;
/// Octets of each.
const LEN: u32 = 1000;

const HOP: Hop = Hop { mac: [2, 0, 0, 0, 0, 2], mtu: None, vlan: None };

/// A device in a network namespace of this thread, which puts frames together.
struct Rig {
    device: Device,
    tables: Netlink,
    /// Of the next segment.
    sequence: u32,
    _wire: Wire,
}

impl Rig {
    fn new() -> Self {
        let wire = Wire::new().unwrap();
        let tuples = Arc::new(Tuples::new(16).unwrap());
        let device =
            Device::attach("va", Mode::Best, &tuples, &Arc::new(Record::nowhere())).unwrap();
        Self { device, tables: Netlink::open().unwrap(), sequence: 0, _wire: wire }
    }

    fn with_trains() -> Self {
        let mut rig = Self::new();
        rig.device.retrain().unwrap();
        assert!(rig.device.trains.is_some(), "{:?}", rig.device.link);
        rig
    }

    /// Has them leave by another socket.
    fn by(&mut self, socket: OwnedFd) {
        self.device.trains.as_mut().unwrap().send_by(socket);
    }

    /// Segments of one flow, which follow one another.
    fn put(&mut self) {
        for _ in 0..FLIGHT {
            let mut frame = segment(FLOW, self.sequence, ACK, LEN as usize);
            self.sequence += LEN;
            let put = self.device.send(&mut frame, HOP, 0);
            assert_eq!(put.unwrap(), Ok(()));
        }
    }

    /// What has left, and what was dropped.
    fn counted(&self) -> [u64; 2] {
        let counters = self.device.counters;
        assert_eq!(counters.received, 0);
        [counters.sent, counters.dropped(Reason::Full)]
    }

    /// How many frames come at the other end of what `leave` does: a long one is one.
    fn come(&mut self, leave: impl FnOnce(&mut Self)) -> u64 {
        let before = self.tables.received("vb").unwrap();
        leave(self);
        self.tables.received("vb").unwrap() - before
    }

    /// Segments leave one by one.
    fn goes_on_by_frames(&mut self) {
        assert!(self.device.trains.is_none());
        let before = self.counted();
        let came = self.come(|rig| {
            rig.put();
            assert_eq!(rig.device.flush(), Ok(false));
        });
        assert_eq!(came, FLIGHT.into());
        assert_eq!(self.counted(), [before[0] + u64::from(FLIGHT), before[1]]);
    }

    /// Segments leave together.
    fn goes_on_by_trains(&mut self) {
        let before = self.counted();
        let came = self.come(|rig| {
            rig.put();
            assert_eq!(rig.device.flush(), Ok(false));
        });
        assert_eq!(came, 1);
        assert_eq!(self.counted(), [before[0] + u64::from(FLIGHT), before[1]]);
    }
}

/// One end of a pair whose other end is not read, and whose queue is full.
fn full() -> [OwnedFd; 2] {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let (ours, other) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    while rustix::net::send(&ours, &[0], SendFlags::DONTWAIT).is_ok() {}
    [ours, other]
}

/// Reads all that is there; returns the last of it.
fn read(socket: &OwnedFd) -> Vec<u8> {
    let (mut last, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok((len, _)) = rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
        last = buffer[..len].to_vec();
    }
    last
}

/// One that takes no message as long as these (EMSGSIZE).
fn small() -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let (ours, other) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_send_buffer_size(&ours, 0).unwrap();
    let error = rustix::net::send(&ours, &[0; 5000], SendFlags::DONTWAIT).unwrap_err();
    assert_eq!(error, Errno::MSGSIZE);
    drop(other);
    ours
}

/// One that takes nothing but echo requests (EINVAL).
fn picky() -> OwnedFd {
    std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    let protocol: Option<Protocol> = Some(ipproto::ICMP);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, protocol).unwrap();
    rustix::net::connect(&socket, &std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let error = rustix::net::send(&socket, &[1; 500], SendFlags::DONTWAIT).unwrap_err();
    assert_eq!(error, Errno::INVAL);
    socket
}

#[test]
fn frames_that_follow_one_another_leave_as_one() {
    if is_permitted() {
        Rig::with_trains().goes_on_by_trains();
    }
}

#[test]
fn what_the_system_refuses_is_counted_and_what_follows_leaves_frame_by_frame() {
    if !is_permitted() {
        return;
    }
    for socket in [small as fn() -> OwnedFd, picky] {
        let mut rig = Rig::with_trains();
        rig.by(socket());
        rig.put();
        assert_eq!(rig.device.flush(), Ok(false));
        assert_eq!(rig.counted(), [0, FLIGHT.into()]);
        rig.goes_on_by_frames();
        // It stays so, whatever becomes of the device.
        rig.device.retrain().unwrap();
        rig.goes_on_by_frames();
    }
}

#[test]
fn what_there_is_no_room_for_waits_and_leaves_once_there_is() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::with_trains();
    let [ours, other] = full();
    rig.by(ours);
    rig.put();
    for _ in 0..3 {
        assert_eq!(rig.device.flush(), Ok(true), "it is to be tried again");
        assert_eq!(rig.counted(), [0, 0]);
    }
    read(&other);
    assert_eq!(rig.device.flush(), Ok(false));
    assert_eq!(rig.counted(), [FLIGHT.into(), 0]);
    assert!(read(&other).len() > (FLIGHT * LEN) as usize, "all of it has left");
}

#[test]
fn what_there_is_no_room_for_in_time_is_counted_once() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::with_trains();
    let [ours, _other] = full();
    rig.by(ours);
    rig.put();
    let mut turns = 0;
    while rig.device.flush().unwrap() {
        assert_eq!(rig.counted(), [0, 0]);
        turns += 1;
        assert!(turns < 1000, "it waits for ever");
    }
    assert!(turns > 0);
    assert_eq!(rig.counted(), [0, FLIGHT.into()]);
    // Those behind them do not wait longer, and none is lost without a word.
    rig.put();
    assert_eq!(rig.device.flush(), Ok(true));
    rig.put();
    assert_eq!(rig.counted(), [0, 2 * u64::from(FLIGHT)]);
}

#[test]
fn what_is_for_a_device_that_is_down_is_counted_and_what_comes_later_leaves() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::with_trains();
    ip("link set va down");
    let came = rig.come(|rig| {
        rig.put();
        assert_eq!(rig.device.flush(), Ok(false));
    });
    assert_eq!((came, rig.counted()), (0, [0, FLIGHT.into()]));
    ip("link set va up");
    let link = rig.tables.link("va").unwrap();
    rig.device.update(link).unwrap();
    rig.goes_on_by_trains();
}

#[test]
fn without_a_packet_socket_frames_leave_one_by_one() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new();
    let all = capabilities(None).unwrap();
    let effective = all.effective - CapabilitySet::NET_RAW;
    set_capabilities(None, CapabilitySets { effective, ..all }).unwrap();
    rig.device.retrain().unwrap();
    rig.goes_on_by_frames();
    set_capabilities(None, all).unwrap();
}

fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

#[test]
fn queues_that_send_are_not_watched_until_the_device_is_idle() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new();
    let events = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let data = EventData::new_u64(1);
    for socket in rig.device.descriptors() {
        epoll::add(&events, socket, data, EventFlags::IN).unwrap();
    }
    // Lines of fdinfo (proc(5)).
    let watched = || {
        let path = format!("/proc/self/fdinfo/{}", events.as_raw_fd());
        std::fs::read_to_string(path).unwrap().matches("tfd:").count()
    };
    assert!(rig.device.watch(events.as_fd(), data, true));
    assert_eq!(watched(), 1, "it has sent nothing");
    for _ in 0..2 {
        rig.put();
        rig.device.flush().unwrap();
        for _ in 0..2 {
            assert!(rig.device.watch(events.as_fd(), data, true));
            assert_eq!(watched(), 0);
        }
        for is_active in [false, false, true] {
            assert!(rig.device.watch(events.as_fd(), data, is_active));
            assert_eq!(watched(), 1);
        }
    }
}

#[test]
fn tags_stay_in_frames_whoever_switches_their_offload_on() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new();
    let is_on = || Offloads::of("va").unwrap().vlan;
    assert!(!is_on());
    Offloads { vlan: true, ..Offloads::of("va").unwrap() }.set("va").unwrap();
    assert!(is_on(), "the device has that");
    let link = rig.tables.link("va").unwrap();
    rig.device.update(link).unwrap();
    assert!(!is_on() && rig.device.describe().changed.vlan);
    drop(rig.device);
    assert!(is_on(), "as somebody has wanted it");
}

#[test]
fn a_frame_with_a_tag_of_its_own_does_not_leave_by_the_device_of_a_vlan() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new();
    for is_in_vlan in [false, true] {
        rig.device.set_in_vlan(is_in_vlan);
        let mut frame = segment(FLOW, 0, ACK, 100);
        assert_eq!(rig.device.send(&mut frame, HOP, 0).unwrap(), Ok(()));
        for tag in [[0x81, 0, 0xe0, 0], [0x88, 0xa8, 0, 0]] {
            let mut frame = frame.clone();
            drop(frame.splice(12..12, tag));
            let expected = if is_in_vlan { Err(Reason::Vlan) } else { Ok(()) };
            assert_eq!(rig.device.send(&mut frame, HOP, 0).unwrap(), expected, "{tag:x?}");
        }
    }
}

#[test]
fn errors_come_by_each_device_once_and_what_is_refused_may_be_tried_again() {
    if !is_permitted() {
        return;
    }
    let mut rig = Rig::new();
    let own = rig.device.index();
    let member = |device, number| Member {
        device,
        vlan: Vlan { below: own, number },
        mac: [2, 0, 0, 0, 0, 9],
        mtu: 1500,
    };
    let all = vec![member(50, 100), member(51, 200)];
    rig.device.serve(all.clone(), &[own]).unwrap();
    assert_eq!(rig.device.heard, [own, 50, 51]);
    // One of them is attached itself, and is no more.
    rig.device.serve(all.clone(), &[own, 51]).unwrap();
    assert_eq!(rig.device.heard, [own, 50]);
    rig.device.serve(all.clone(), &[own]).unwrap();
    assert_eq!(rig.device.heard, [own, 50, 51]);
    // So many devices are not heard, when the program has their VLANs already.
    let many: Vec<_> = (1..=600).map(|n| member(1000 + n, 300 + n as u16)).collect();
    for refusals in 1..=2 {
        assert!(rig.device.serve(many.clone(), &[own]).is_err());
        assert_eq!(rig.device.refusals(), refusals);
        assert!(many.iter().all(|member| rig.device.vlans.contains(member)), "it may be there");
    }
    rig.device.serve(vec![all[0]], &[own]).unwrap();
    assert_eq!((rig.device.refusals(), &rig.device.vlans), (0, &vec![all[0]]));
    assert_eq!(rig.device.heard, [own, 50]);
}
