//! Two network namespaces that a pair of virtual devices joins: `here` has the switch, `there` somebody else.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::mpsc::channel;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::common::PATIENCE;

/// This end's device, and the addresses of both.
pub(crate) const DEVICE: &str = "va";
pub(crate) const HERE: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
pub(crate) const THERE: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

/// Both ends. They end with the threads and sockets that are in them.
pub(crate) struct Wire {
    there: OwnedFd,
}

impl Wire {
    /// Moves this thread into a namespace of its own, and makes another one. `device` is what else ip(8) is told of the
    /// devices.
    pub(crate) fn new(device: &str) -> Self {
        unshare();
        let (sender, receiver) = channel();
        let (stay, stop) = channel::<()>();
        // A device is moved to a thread, which has to be there until then.
        let thread = std::thread::spawn(move || {
            unshare();
            let id = rustix::thread::gettid().as_raw_nonzero();
            sender.send((id, namespace())).unwrap();
            let _ = stop.recv();
        });
        let (id, there) = receiver.recv().unwrap();
        ip(&format!("link add {DEVICE} {device} type veth peer name vb {device}"));
        ip(&format!("link set vb netns {id}"));
        drop(stay);
        thread.join().unwrap();
        let wire = Self { there };
        set_up(DEVICE, HERE);
        wire.there(|| set_up("vb", THERE));
        wire
    }

    /// Both namespaces without devices.
    #[allow(dead_code, reason = "tests of TCP have other devices")]
    pub(crate) fn bare() -> Self {
        unshare();
        let there = std::thread::spawn(|| {
            unshare();
            namespace()
        });
        Self { there: there.join().unwrap() }
    }

    /// Does something there: sockets and programs remain there.
    pub(crate) fn there<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let moved = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(std::os::fd::AsFd::as_fd(&self.there), kind).unwrap();
                what()
            });
            moved.join().unwrap()
        })
    }

    /// A socket of the system there.
    pub(crate) fn socket(&self, address: &str) -> UdpSocket {
        self.there(|| socket(address))
    }
}

pub(crate) fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address.parse::<IpAddr>().unwrap(), 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The next datagram, and from where it is.
pub(crate) fn receive(socket: &UdpSocket) -> (SocketAddr, Vec<u8>) {
    let mut buffer = vec![0; 65536];
    let (len, from) = socket.recv_from(&mut buffer).expect("no datagram has come");
    buffer.truncate(len);
    (from, buffer)
}

/// Gives a device its addresses.
pub(crate) fn set_up(device: &str, [v4, v6]: [&str; 2]) {
    ip("link set lo up");
    ip(&format!("addr add {v4}/24 dev {device}"));
    ip(&format!("addr add {v6}/64 dev {device} nodad"));
    ip(&format!("link set {device} up"));
}

/// Has ip(8) do what it should; returns what it prints.
pub(crate) fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a program is attached to the device.
pub(crate) fn has_program() -> bool {
    ip(&format!("-d link show dev {DEVICE}")).contains("prog/xdp")
}

fn namespace() -> OwnedFd {
    std::fs::File::open("/proc/thread-self/ns/net").unwrap().into()
}

fn unshare() {
    // SAFETY: only the network namespace of this thread.
    #[allow(unsafe_code, reason = "unshare is unsafe for other flags than this")]
    unsafe {
        rustix::thread::unshare_unsafe(UnshareFlags::NEWNET).unwrap();
    }
}

/// Waits until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
