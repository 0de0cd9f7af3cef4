//! The system's own stack on a device that is attached: nothing of it changes while ports are busy.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quicket_packets::control::Control;

use crate::common::{PATIENCE, Stack, Switch};
use crate::traffic::MODES;
use crate::wire::{DEVICE, HERE, THERE, Wire, receive, socket, until};

const LEN: usize = 4 << 20;

fn connect(wire: &Wire, to: SocketAddr) -> TcpStream {
    let stream = wire.there(|| TcpStream::connect(to)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Much of TCP, there and back.
fn transfer(wire: &Wire, listener: &TcpListener) {
    let mut stream = connect(wire, listener.local_addr().unwrap());
    let (mut served, _) = listener.accept().unwrap();
    served.set_read_timeout(Some(PATIENCE)).unwrap();
    let data: Vec<u8> = (0..LEN).map(|n| (n ^ n >> 8) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut all = Vec::new();
            served.read_to_end(&mut all).unwrap();
            served.write_all(&all).unwrap();
            served.shutdown(Shutdown::Write).unwrap();
        });
        stream.write_all(&data).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == data, "{} octets came back of {LEN}", back.len());
    });
}

/// Keys that are typed, and shown.
fn type_on(typed: &mut (TcpStream, TcpStream)) {
    for key in *b"exit" {
        typed.0.write_all(&[key]).unwrap();
        let mut one = [0];
        typed.1.read_exact(&mut one).unwrap();
        typed.1.write_all(&one).unwrap();
        typed.0.read_exact(&mut one).unwrap();
        assert_eq!(one, [key]);
    }
}

/// A question and an answer, of a server for names at this end.
fn ask(wire: &Wire, here: &str, there: &str) {
    let (server, client) = (socket(here), wire.socket(there));
    client.send_to(b"name?", server.local_addr().unwrap()).unwrap();
    let (from, question) = receive(&server);
    assert_eq!(question, b"name?");
    server.send_to(b"address", from).unwrap();
    assert_eq!(receive(&client).1, b"address");
}

fn ping(wire: &Wire, to: &str) {
    let words = ["-c", "3", "-i", "0.05", "-W", "5", to];
    let output = wire.there(|| Command::new("ping").args(words).output());
    match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && text.contains("3 received"), "{text}");
        }
        Err(error) => {
            quicket_testing::leave_out(format_args!("ping is missing: {error}"));
        }
    }
}

/// Ports that are busy.
const PORTS: usize = 64;

/// All of them answer until they are told to stop.
fn echo(mut stacks: Vec<Stack>, is_over: &AtomicBool, answered: &[AtomicU64]) {
    while !is_over.load(Ordering::Relaxed) {
        for (stack, answered) in stacks.iter_mut().zip(answered) {
            while stack.port.wait(Some(std::time::Duration::ZERO)).unwrap() {
                let (from, payload) = stack.receive();
                stack.send(from, &payload);
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn tcp_names_and_ping_go_on_while_ports_are_busy_and_devices_come_and_go() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    let switch = Switch::start();
    let mut control = Control::connect(&switch.path).unwrap();
    let is_over = AtomicBool::new(false);
    let answered: Vec<_> = (0..PORTS).map(|_| AtomicU64::new(0)).collect();
    let count = || answered.iter().map(|n| n.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let stacks: Vec<_> = (0..PORTS).map(|n| switch.stack(HERE[n % 2])).collect();
    let busy: Vec<_> = (0..PORTS).map(|n| (wire.socket(THERE[n % 2]), stacks[n].address)).collect();
    std::thread::scope(|scope| {
        // Told to stop also when something fails.
        let end = End(&is_over);
        scope.spawn(|| echo(stacks, &is_over, &answered));
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for (socket, to) in &busy {
                    let _ = socket.send_to(&[7; 300], to);
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let listener = TcpListener::bind((HERE[0], 0)).unwrap();
        let client = connect(&wire, listener.local_addr().unwrap());
        let (server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        server.set_nodelay(true).unwrap();
        let mut typed = (client, server);
        for mode in [MODES, MODES].concat() {
            type_on(&mut typed);
            control.attach(DEVICE, mode).unwrap();
            let before = count();
            type_on(&mut typed);
            transfer(&wire, &listener);
            for (here, there) in HERE.into_iter().zip(THERE) {
                ask(&wire, here, there);
                ping(&wire, here);
            }
            until("a stack hears nothing", || {
                count().iter().zip(&before).all(|(now, before)| now > before)
            });
            control.detach(DEVICE).unwrap();
        }
        type_on(&mut typed);
        drop(end);
    });
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
