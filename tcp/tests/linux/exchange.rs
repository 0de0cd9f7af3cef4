//! Connections between both kinds of TCP: data, ends, resets, windows.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::process::Command;
use std::time::Duration;

use quicket_tcp::{Stack, TcpListener, TcpStream};

use crate::common::{PATIENCE, pattern, until};
use crate::wire::{HERE, THERE, Wire};
use crate::{at, attached, is_permitted};

const LEN: usize = 8 << 20;

/// A connection in each direction, by each version of IP: our end, and that of the system.
pub(crate) fn pairs(wire: &Wire, stack: &Stack) -> Vec<(TcpStream, std::net::TcpStream)> {
    let mut pairs = Vec::new();
    for (here, there) in HERE.into_iter().zip(THERE) {
        let listener = TcpListener::bind(stack, at(here)).unwrap();
        let address = listener.local_addr().unwrap();
        let theirs =
            wire.there(|| std::net::TcpStream::connect_timeout(&address, PATIENCE)).unwrap();
        let (ours, peer) = listener.accept().unwrap();
        assert_eq!(peer, theirs.local_addr().unwrap());
        pairs.push((ours, theirs));
        let listener = wire.there(|| std::net::TcpListener::bind(at(there))).unwrap();
        let address = listener.local_addr().unwrap();
        let ours = TcpStream::connect_timeout(stack, address, PATIENCE).unwrap();
        let (theirs, peer) = listener.accept().unwrap();
        assert_eq!(peer, ours.local_addr().unwrap());
        pairs.push((ours, theirs));
    }
    for (ours, theirs) in &pairs {
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        ours.set_write_timeout(Some(PATIENCE)).unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        theirs.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    pairs
}

/// One side sends all and ends its way; the other one sends it back and ends its own.
pub(crate) fn there_and_back<A, B>(
    mut one: A,
    mut other: B,
    data: &[u8],
    end: impl Fn(&A),
    end_other: impl Fn(&B) + Send,
) where
    A: Read + Write + Clone2,
    B: Read + Write + Send,
{
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                let len = other.read(&mut buffer).unwrap();
                if len == 0 {
                    break;
                }
                other.write_all(&buffer[..len]).unwrap();
            }
            end_other(&other);
        });
        let mut back = one.another();
        let reader = scope.spawn(move || {
            let mut all = Vec::new();
            back.read_to_end(&mut all).unwrap();
            all
        });
        one.write_all(data).unwrap();
        end(&one);
        assert!(reader.join().unwrap() == data, "something else came back");
    });
}

/// What `try_clone` is called in both.
pub(crate) trait Clone2: Send {
    fn another(&self) -> Self;
}

impl Clone2 for TcpStream {
    fn another(&self) -> Self {
        self.try_clone().unwrap()
    }
}

impl Clone2 for std::net::TcpStream {
    fn another(&self) -> Self {
        self.try_clone().unwrap()
    }
}

pub(crate) fn end_ours(stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
}

pub(crate) fn end_theirs(stream: &std::net::TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
}

#[test]
fn much_goes_both_ways_and_each_way_ends_by_itself() {
    if !is_permitted() {
        return;
    }
    let (wire, _switch, stack) = attached();
    let data = pattern(LEN);
    for (ours, theirs) in pairs(&wire, &stack) {
        there_and_back(ours, theirs, &data, end_ours, end_theirs);
    }
    for (ours, theirs) in pairs(&wire, &stack) {
        there_and_back(theirs, ours, &data, end_theirs, end_ours);
    }
    assert!(stack.wait_until_over(PATIENCE));
}

/// RFC 7323, Section 2: the system says what both have agreed on.
#[test]
fn windows_are_scaled() {
    if !is_permitted() {
        return;
    }
    let (wire, _switch, stack) = attached();
    let _pairs = pairs(&wire, &stack);
    let output = wire.there(|| Command::new("ss").args(["-tinH"]).output()).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // Ours is 3 for a buffer of 256 KiB.
    let scaled = text.lines().filter(|line| line.contains("wscale:3,"));
    assert_eq!(scaled.count(), 4, "{text}");
}

/// RFC 9293, Section 3.8.6.1.
#[test]
fn a_window_that_closes_opens_again() {
    if !is_permitted() {
        return;
    }
    let (wire, _switch, stack) = attached();
    let data = pattern(LEN);
    for (mut ours, mut theirs) in pairs(&wire, &stack) {
        let mut buffer = vec![0; data.len()];
        // Theirs closes: our end has no room left for some time.
        ours.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut written = 0;
        while let Ok(len) = ours.write(&data[written..]) {
            written += len;
        }
        theirs.read_exact(&mut buffer[..written]).unwrap();
        assert!(buffer[..written] == data[..written]);
        ours.set_write_timeout(Some(PATIENCE)).unwrap();
        ours.write_all(b"open").unwrap();
        theirs.read_exact(&mut buffer[..4]).unwrap();
        assert_eq!(&buffer[..4], b"open");
        // And ours.
        theirs.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut written = 0;
        while let Ok(len) = theirs.write(&data[written..]) {
            written += len;
        }
        ours.read_exact(&mut buffer[..written]).unwrap();
        assert!(buffer[..written] == data[..written]);
        theirs.write_all(b"open").unwrap();
        ours.read_exact(&mut buffer[..4]).unwrap();
        assert_eq!(&buffer[..4], b"open");
    }
}

#[test]
fn resets_are_heard_in_both_directions() {
    if !is_permitted() {
        return;
    }
    let (wire, _switch, stack) = attached();
    for (mut ours, theirs) in pairs(&wire, &stack) {
        // Dropped with unread data, the system resets.
        ours.write_all(b"unread").unwrap();
        let mut one = [0];
        until("it has not come", || theirs.peek(&mut one).is_ok_and(|len| len == 1));
        drop(theirs);
        assert_eq!(ours.read(&mut one).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    for (ours, mut theirs) in pairs(&wire, &stack) {
        theirs.write_all(b"unread").unwrap();
        let mut one = [0];
        assert_eq!(ours.peek(&mut one).unwrap(), 1);
        drop(ours);
        assert_eq!(theirs.read(&mut one).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    for (here, there) in HERE.into_iter().zip(THERE) {
        // Nobody listens. Ours has the address, though.
        let listener = TcpListener::bind(&stack, at(here)).unwrap();
        let address = listener.local_addr().unwrap();
        let _kept = wire.there(|| std::net::TcpStream::connect(address)).unwrap();
        let (_accepted, _) = listener.accept().unwrap();
        drop(listener);
        let error = wire.there(|| std::net::TcpStream::connect(address)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        let closed = wire.there(|| std::net::TcpListener::bind(at(there)).unwrap().local_addr());
        let error = TcpStream::connect_timeout(&stack, closed.unwrap(), PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    }
}

/// A host that is not there: nobody answers.
#[test]
fn a_connection_to_nowhere_is_given_up_in_time() {
    if !is_permitted() {
        return;
    }
    let (_wire, _switch, stack) = attached();
    let nowhere = "192.0.2.99:80".parse().unwrap();
    let begun = std::time::Instant::now();
    let error =
        TcpStream::connect_timeout(&stack, nowhere, Duration::from_millis(500)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(begun.elapsed() < PATIENCE);
    assert!(stack.wait_until_over(PATIENCE));
}
