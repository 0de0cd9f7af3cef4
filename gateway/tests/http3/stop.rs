//! The end of a connection: what is under way is answered, and clients know what is not (RFC 9114, Section 5.2).

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use super::behind::{PATIENCE, Site, content, folder};
use super::client::{
    CONTROL, Outcome, ask, closed, connect, frame, frames, open, outcome, request, run,
    unidirectional,
};

const NO_ERROR: u64 = 0x100;
const REQUEST_REJECTED: u64 = 0x10b;

#[test]
fn goaway_names_the_first_request_that_is_not_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let rest = format!(
        "[origin.app]\nservers = [\"http://{}\"]\n[[site]]\nnames = [\"*\"]\n\
         [[site.route]]\norigin = \"app\"\n[[site.route]]\npath = \"/ok\"\nrespond = {{ status = 204 }}\n\
         [limits]\ndrain_ms = 60000\n",
        listener.local_addr().unwrap()
    );
    let mut site = Site::start(folder(), &rest);
    run(async {
        let (connection, _control) = open(&site).await;
        assert_eq!(ask(&connection, &request("GET", "/ok", &[])).await.statuses(), [204]);
        let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
        send.write_all(&request("GET", "/", &[])).await.unwrap();
        send.finish().unwrap();
        // It is under way once the origin has it.
        let accepting = tokio::task::spawn_blocking(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut asked = Vec::new();
            // An answer to what was not asked yet would be none.
            while !asked.ends_with(b"\r\n\r\n") {
                let mut octet = [0];
                stream.read_exact(&mut octet).unwrap();
                asked.extend(octet);
            }
            stream
        });
        let mut stream = accepting.await.unwrap();
        let stopping = std::thread::spawn(move || site.stop());
        let goaway = tokio::time::timeout(PATIENCE, goaway(&connection)).await.unwrap();
        // Requests on 0 and 4 are answered.
        assert_eq!(goaway, 8);
        let rejected = ask(&connection, &request("GET", "/ok", &[])).await;
        assert_eq!(rejected, Outcome::Reset(REQUEST_REJECTED));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        let answer = outcome(&mut recv).await;
        assert_eq!(answer.statuses(), [200], "{answer:?}");
        // Then nothing keeps the connection, whatever time is left.
        assert_eq!(closed(&connection).await, NO_ERROR);
        let took = tokio::task::spawn_blocking(move || stopping.join()).await.unwrap().unwrap();
        assert!(took < Duration::from_secs(40), "{took:?}");
    });
}

/// The identifier of the server's GOAWAY.
pub(crate) async fn goaway(connection: &quicket::tokio::Connection) -> u64 {
    loop {
        let mut stream = connection.accept_uni().await.unwrap();
        let (mut read, mut buffer) = (Vec::new(), [0; 1000]);
        loop {
            let len = stream.read_some(&mut buffer).await.unwrap();
            read.extend_from_slice(&buffer[..len]);
            if len == 0 || read[0] != 0 {
                break;
            }
            if let Some((_, payload)) = frames(&read[1..]).iter().find(|(kind, _)| *kind == 7) {
                return u64::from(payload[0]);
            }
        }
    }
}

/// A client that leaves by GOAWAY gets its answers to the end.
#[test]
fn what_a_client_has_asked_for_arrives_though_it_says_goaway() {
    let dir = folder();
    let large = content(3 << 20);
    std::fs::create_dir(dir.path().join("files")).unwrap();
    std::fs::write(dir.path().join("files/a"), &large).unwrap();
    let rest = "[[site]]\nnames = [\"*\"]\n[[site.route]]\nfiles = \"files\"\n";
    let site = Site::start(dir, rest);
    run(async {
        let connection = connect(&site).await;
        let mut control = unidirectional(&connection, CONTROL).await;
        let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
        send.write_all(&request("GET", "/a", &[])).await.unwrap();
        send.finish().unwrap();
        control.write_all(&frame(7, &[0])).await.unwrap();
        let answer = outcome(&mut recv).await;
        assert!(answer.statuses() == [200] && answer.body() == large);
        assert_eq!(closed(&connection).await, NO_ERROR);
    });
}
