//! Thousands of short connections.

use std::io::{Read, Write};
use std::net::Shutdown;

use quicket_tcp::{TcpListener, TcpStream};

use crate::common::PATIENCE;
use crate::wire::{HERE, THERE};
use crate::{at, attached, is_permitted};

const CONNECTIONS: u32 = 10_000;
const THREADS: u32 = 4;

/// Reads four octets, sends them back, ends, and waits for the other one's end.
fn echo(mut stream: impl Read + Write, end: impl FnOnce()) {
    let mut question = [0; 4];
    stream.read_exact(&mut question).unwrap();
    stream.write_all(&question).unwrap();
    end();
    let _ = stream.read(&mut question);
}

fn ask(mut stream: impl Read + Write, number: u32) {
    stream.write_all(&number.to_be_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, number.to_be_bytes());
}

#[test]
fn ten_thousand_from_the_system() {
    if !is_permitted() {
        return;
    }
    let (wire, _switch, stack) = attached();
    let listener = TcpListener::bind(&stack, at(HERE[0])).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for stream in listener.incoming().take((CONNECTIONS / THREADS) as usize) {
                    let stream = stream.unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let end = stream.try_clone().unwrap();
                    echo(stream, || end.shutdown(Shutdown::Write).unwrap());
                }
            });
            scope.spawn(|| {
                wire.there(|| {
                    for number in 0..CONNECTIONS / THREADS {
                        let stream =
                            std::net::TcpStream::connect_timeout(&address, PATIENCE).unwrap();
                        stream.set_read_timeout(Some(PATIENCE)).unwrap();
                        ask(stream, number);
                    }
                });
            });
        }
    });
    assert!(stack.wait_until_over(PATIENCE));
}

#[test]
fn ten_thousand_to_the_system() {
    if !is_permitted() {
        return;
    }
    let (wire, _switch, stack) = attached();
    let listener = wire.there(|| std::net::TcpListener::bind(at(THERE[0]))).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for stream in listener.incoming().take((CONNECTIONS / THREADS) as usize) {
                    let stream = stream.unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let end = stream.try_clone().unwrap();
                    echo(stream, || end.shutdown(Shutdown::Write).unwrap());
                }
            });
            scope.spawn(|| {
                for number in 0..CONNECTIONS / THREADS {
                    let stream = TcpStream::connect_timeout(&stack, address, PATIENCE).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    ask(stream, number);
                }
            });
        }
    });
    assert!(stack.wait_until_over(PATIENCE));
}
