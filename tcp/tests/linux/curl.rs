//! curl fetches from the server of the example.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;

use quicket_packets::control::Control;
use quicket_packets::device::Mode;
use quicket_tcp::TcpListener;

use crate::common::Switch;
use crate::serve::{octet, serve};
use crate::wire::{DEVICE, HERE, THERE, Wire, ip};
use crate::{at, is_permitted};

/// What curl gets, with more words.
fn curl(words: &[&str]) -> Vec<u8> {
    let output = Command::new("curl")
        .args(["-sS", "--globoff", "--fail", "--max-time", "30"])
        .args(words)
        .output();
    let output = output.expect("curl is missing");
    assert!(output.status.success(), "curl {words:?}: {output:?}");
    output.stdout
}

#[test]
fn curl_fetches_what_a_program_serves() {
    if !is_permitted() {
        return;
    }
    let wire = Wire::new("");
    for mode in [Mode::Native, Mode::Generic] {
        if mode == Mode::Generic {
            // Otherwise the system leaves it to its device to cut segments, which no device does on the way to a program.
            let words = ["-K", "vb", "tso", "off", "gso", "off"];
            let output = wire.there(|| Command::new("ethtool").args(words).output()).unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        let switch = Switch::start();
        Control::connect(&switch.path).unwrap().attach(DEVICE, mode).unwrap();
        let stack = switch.stack();
        let servers: Vec<_> = HERE
            .into_iter()
            .map(|here| {
                let listener = TcpListener::bind(&stack, at(here)).unwrap();
                let address = listener.local_addr().unwrap();
                (address, std::thread::spawn(move || serve(&listener, 8)))
            })
            .collect();
        for (address, _) in &servers {
            wire.there(|| fetch(*address));
        }
        // Servers end with the switch.
        switch.end();
        servers.into_iter().for_each(|(_, server)| server.join().unwrap());
    }
}

fn fetch(address: SocketAddr) {
    for size in [0, 1, 1000, 1460, 65_536, 5_000_000] {
        let url = format!("http://{address}/{size}");
        let body = curl(&[&url]);
        assert!(body.into_iter().eq((0..size).map(octet)), "{url}");
    }
    // Many at once.
    let words = ["--parallel", "--parallel-max", "16", "-w", "%{size_download}\n"];
    let urls: Vec<String> = (1..=64).map(|n| format!("http://{address}/100000?{n}")).collect();
    let urls = urls.iter().flat_map(|url| ["-o", "/dev/null", url]);
    let sizes = curl(&words.into_iter().chain(urls).collect::<Vec<_>>());
    let sizes = String::from_utf8(sizes).unwrap();
    let wanted = sizes.lines().filter(|line| *line == "100000").count();
    assert_eq!(wanted, 64, "{sizes}");
    let none = format!("http://{address}/none");
    let words = ["-sg", "-o", "/dev/null", "-w", "%{http_code}", &none];
    let output = Command::new("curl").args(words).output();
    assert_eq!(output.unwrap().stdout, b"404");
}

/// Programs of this host reach the server by the loopback device, and the system's servers are reached by it.
#[test]
fn curl_of_this_host_fetches_by_the_loopback_device() {
    if !is_permitted() {
        return;
    }
    let _wire = Wire::new("");
    let switch = Switch::start();
    let mut control = Control::connect(&switch.path).unwrap();
    control.attach("lo", Mode::Best).unwrap();
    let stack = switch.stack();
    let mut servers = Vec::new();
    for here in HERE.into_iter().chain(["127.0.0.1", "::1"]) {
        let listener = TcpListener::bind(&stack, at(here)).unwrap();
        let address = listener.local_addr().unwrap();
        servers.push(std::thread::spawn(move || serve(&listener, 8)));
        fetch(address);
        // The other way round, from each of this host's addresses that has a way there.
        let listener = std::net::TcpListener::bind(at(here)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut ours = quicket_tcp::TcpStream::connect(&stack, address).unwrap();
        let (mut theirs, peer) = listener.accept().unwrap();
        assert_eq!(peer, ours.local_addr().unwrap());
        let wait = Some(std::time::Duration::from_secs(30));
        theirs.set_read_timeout(wait).unwrap();
        ours.set_read_timeout(wait).unwrap();
        let data: Vec<u8> = (0..3_000_000).map(octet).collect();
        let (mut all, mut back) = (vec![0; data.len()], vec![0; data.len()]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                theirs.read_exact(&mut all).unwrap();
                theirs.write_all(&all).unwrap();
            });
            ours.write_all(&data).unwrap();
            ours.read_exact(&mut back).unwrap();
        });
        assert!(back == data);
    }
    let attached = control.devices().unwrap().remove(0);
    assert!(attached.counters.sent > 10_000 && attached.counters.received > 10_000);
    drop(stack);
    switch.end();
    servers.into_iter().for_each(|server| server.join().unwrap());
}

/// Both of the device and of a route: what is longer would be dropped, and sent again without end.
#[test]
fn segments_are_as_long_as_the_way_takes() {
    if !is_permitted() {
        return;
    }
    for (device, route) in [(1400, None), (1500, Some(1300))] {
        let wire = Wire::new("");
        ip(&format!("link set {DEVICE} mtu {device}"));
        if let Some(mtu) = route {
            ip(&format!("route add {}/32 dev {DEVICE} mtu {mtu}", THERE[0]));
            ip(&format!("-6 route add {}/128 dev {DEVICE} mtu {mtu}", THERE[1]));
        }
        let switch = Switch::start();
        Control::connect(&switch.path).unwrap().attach(DEVICE, Mode::Native).unwrap();
        let stack = switch.stack();
        let mut servers = Vec::new();
        for here in HERE {
            let listener = TcpListener::bind(&stack, at(here)).unwrap();
            let address = listener.local_addr().unwrap();
            servers.push(std::thread::spawn(move || serve(&listener, 2)));
            let url = format!("http://{address}/200000");
            let body = wire.there(|| curl(&[&url]));
            assert!(body.into_iter().eq((0..200_000).map(octet)), "{device} {route:?} {url}");
        }
        for there in THERE {
            let listener = wire.there(|| std::net::TcpListener::bind(at(there)).unwrap());
            let address = listener.local_addr().unwrap();
            let mut ours = quicket_tcp::TcpStream::connect(&stack, address).unwrap();
            let (mut theirs, _) = listener.accept().unwrap();
            theirs.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
            ours.write_all(&[7; 100_000]).unwrap();
            let mut all = vec![0; 100_000];
            theirs.read_exact(&mut all).unwrap();
        }
        drop(stack);
        switch.end();
        servers.into_iter().for_each(|server| server.join().unwrap());
    }
}
