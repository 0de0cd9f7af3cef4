//! `quicket switch packets`: programs with stacks of their own find it, and hear why it is not there.
#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::quicket;
use quicket_packets::client::Port;
use quicket_packets::{Layout, compose};

const LONG: Duration = Duration::from_secs(60);

fn open(path: &std::path::Path) -> (Port, SocketAddr) {
    let mut port = Port::open(path, Layout::new(16, 16, 2048).unwrap()).unwrap();
    let tuple = port.register(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    (port, (tuple.address, tuple.port).into())
}

#[test]
fn stacks_exchange_frames_through_it_and_hear_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets");
    let start = || {
        let mut command = quicket(folder.path());
        command.args(["switch", "packets", "--name"]).arg(&path).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut switch = start();
    let mut told = BufReader::new(switch.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.contains("is ready"), "{line}");
    let ((mut one, from), (mut other, to)) = (open(&path), open(&path));
    for port in [9, to.port()] {
        let mut frame = Some(SocketAddr::new(to.ip(), port));
        one.send(|slot| compose::udp(slot, from, frame.take()?, b"here")).unwrap();
    }
    assert!(other.wait(Some(LONG)).unwrap());
    let mut came = Vec::new();
    other.receive(1, |frame| came = frame[42..46].to_vec()).unwrap();
    assert_eq!(came, b"here");
    // Another one at that path is told so, and leaves this one alone.
    let second = start().wait_with_output().unwrap();
    let text = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success() && text.contains("choose another --name"), "{text}");
    let pid = switch.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(switch.wait().unwrap().success());
    let mut end = String::new();
    told.read_to_string(&mut end).unwrap();
    assert!(end.contains("1 frames were delivered, 1 dropped: destination"), "{end}");
    assert!(other.wait(Some(LONG)).is_err() && one.counters().is_err(), "nobody was told");
    // What a switch that was killed has left is no obstacle.
    drop((one, other));
    let mut killed = start();
    BufReader::new(killed.stderr.take().unwrap()).read_line(&mut line).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut next = start();
    let mut told = BufReader::new(next.stderr.take().unwrap());
    line.clear();
    told.read_line(&mut line).unwrap();
    assert!(line.contains("is ready"), "{line}");
    open(&path);
    next.kill().unwrap();
    next.wait().unwrap();
}
