//! Small writes wait for more to go out with them, but never for long.

mod common;

use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::pair;
use quicket::Connection;

const EXCHANGES: u64 = 200;
/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(20);

/// Answers requests of two pieces on streams of their own, one after the other.
fn serve(server: &Connection) {
    while let Ok(mut stream) = server.accept_bi() {
        let request = stream.read_to_end(100).unwrap();
        stream.write_all(&request[..request.len() / 2]).unwrap();
        stream.write_all(&request[request.len() / 2..]).unwrap();
        stream.finish().unwrap();
    }
}

/// The fewest datagrams that a client sends for a request, of a number of them.
fn fewest_datagrams_sent(nodelay: bool) -> u64 {
    let (client, server) = pair();
    client.set_nodelay(nodelay);
    thread::scope(|scope| {
        scope.spawn(|| serve(&server));
        let mut fewest = u64::MAX;
        for number in 0..EXCHANGES {
            let before = client.stats().counters.datagrams_sent;
            let mut stream = client.open_bi().unwrap();
            stream.write_all(b"request ").unwrap();
            stream.write_all(number.to_string().as_bytes()).unwrap();
            stream.finish().unwrap();
            assert_eq!(stream.read_to_end(100).unwrap(), format!("request {number}").as_bytes());
            fewest = fewest.min(client.stats().counters.datagrams_sent - before);
        }
        client.close(0, b"");
        fewest
    })
}

#[test]
fn a_request_in_pieces_and_its_end_share_a_packet_unless_told_otherwise() {
    // Not each request: the background helps out whoever is stopped by the system in between.
    assert_eq!(fewest_datagrams_sent(false), 1);
    // Two pieces and the end.
    assert_eq!(fewest_datagrams_sent(true), 3);
}

/// Writes small pieces, each once the one before has arrived, and calls nothing in between.
fn write_and_never_wait(client: &Connection, server: &Connection) {
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = server.accept_uni().unwrap();
            let mut piece = [0; 64];
            for _ in 0..20 {
                let len = stream.read_some(&mut piece).unwrap();
                sender.send(piece[..len].to_vec()).unwrap();
            }
        });
        let mut stream = client.open_uni().unwrap();
        for number in 0_u8..20 {
            stream.write_all(&[number; 8]).unwrap();
            if number % 2 == 1 {
                stream.flush().unwrap();
            }
            // Waits, but not in a call of this library.
            assert_eq!(receiver.recv_timeout(LONG).unwrap(), [number; 8]);
        }
    });
}

#[test]
fn what_was_written_arrives_though_the_writer_never_calls_again() {
    let (client, server) = pair();
    write_and_never_wait(&client, &server);
}

#[test]
fn what_was_written_arrives_though_another_thread_leads_meanwhile() {
    let (client, server) = pair();
    thread::scope(|scope| {
        scope.spawn(|| client.accept_bi().unwrap_err());
        write_and_never_wait(&client, &server);
        client.close(0, b"");
    });
}

#[test]
fn what_one_thread_wrote_goes_out_when_another_waits() {
    let (client, server) = pair();
    thread::scope(|scope| {
        scope.spawn(|| serve(&server));
        for number in 0..20 {
            let mut stream = client.open_bi().unwrap();
            let written = thread::scope(|scope| {
                let write = || {
                    stream.write_all(format!("number {number}").as_bytes()).unwrap();
                    stream.finish().unwrap();
                };
                scope.spawn(write).join()
            });
            written.unwrap();
            assert_eq!(stream.read_to_end(100).unwrap(), format!("number {number}").as_bytes());
        }
        client.close(0, b"");
    });
}
