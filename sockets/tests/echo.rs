//! The blocking API end to end.

mod common;

use std::io::{Read, Write};
use std::thread;

use common::pair;

#[test]
fn a_request_is_answered() {
    let (client, server) = pair();
    let echo = thread::spawn(move || {
        let mut stream = server.accept_bi().unwrap();
        let request = stream.read_to_end(1000).unwrap();
        stream.write_all(&request).unwrap();
        stream.finish().unwrap();
        server.closed()
    });
    let mut stream = client.open_bi().unwrap();
    stream.write_all(b"hello").unwrap();
    stream.finish().unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello");
    client.close(7, b"done");
    let error = echo.join().unwrap();
    assert_eq!(error.to_string(), "closed by the peer's application with code 0x7: done");
}
