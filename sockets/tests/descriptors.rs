//! A process without file descriptors left. Alone in its program, as the limit is the process's.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::thread;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use quicket::message::{Errno, Socket};
use quicket::{Connection, Endpoint, Listener};

fn ask(connection: &Connection) {
    let mut stream = connection.open_bi().unwrap();
    stream.write_all(b"hello").unwrap();
    stream.finish().unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello");
}

/// Connections need no descriptors: endpoints that are there serve on, new ones say what is
/// missing.
#[test]
fn without_descriptors_endpoints_serve_on_and_new_ones_say_why_not() {
    let (server, config) = common::configs();
    let listener = Listener::bind("127.0.0.1:0", server).unwrap();
    let address = listener.local_addr();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let connection = connection.unwrap();
            thread::spawn(move || {
                while let Ok(mut stream) = connection.accept_bi() {
                    let request = stream.read_to_end(100).unwrap();
                    stream.write_all(&request).unwrap();
                    stream.finish().unwrap();
                }
            });
        }
    });
    let client = Endpoint::bind("127.0.0.1:0").unwrap();
    let old = client.connect(address, "localhost", &config).unwrap();
    ask(&old);
    let message = Socket::new_v4();

    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 128.min(hard), hard).unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    assert!(files.len() < 128);

    ask(&old);
    ask(&client.connect(address, "localhost", &config).unwrap());
    let text = Endpoint::bind("127.0.0.1:0").unwrap_err().to_string();
    assert!(text.contains("raise the limit"), "{text}");
    assert_eq!(message.bind("127.0.0.1:0".parse().unwrap()), Err(Errno::EMFILE));
    let text = client.rebind("127.0.0.1:0".parse().unwrap()).unwrap_err().to_string();
    assert!(text.contains("raise the limit"), "{text}");
    ask(&old);

    drop(files);
    message.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let other = Endpoint::bind("127.0.0.1:0").unwrap();
    ask(&other.connect(address, "localhost", &config).unwrap());
    ask(&old);
}
