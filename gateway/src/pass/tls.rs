//! Connections over TCP with TLS that are not ended here. The ClientHello is peeked at: who has it then finds all of it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quicket_wire::ClientHello;
use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::Pass;
use super::record::Record;
use crate::BodyError;
use crate::carry::{self, Meter, Pace, Rules, Socket, code};
use crate::front::Shared;
use crate::pace::Payers;
use crate::protocol::proxy_header;

/// How much of a connection is looked at for its ClientHello, in bytes. The system keeps more before anybody reads.
pub(crate) const MAX_PEEKED: usize = 18 << 10;
/// How much is read at once, in bytes.
const PIECE: usize = 64 << 10;
/// The header of a record (RFC 8446, Section 5.1).
const RECORD_HEADER: usize = 5;
/// A record of the handshake.
const HANDSHAKE: u8 = 22;
/// The longest fragment of a record.
const MAX_FRAGMENT: usize = 1 << 14;

/// What a connection begins with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// A ClientHello, with the name that it asks for.
    Hello(Option<String>),
    /// Something else, or too much.
    Other,
}

/// Waits until all of the ClientHello is there, and leaves it where it is.
pub(crate) async fn beginning(stream: &TcpStream, patience: Duration) -> io::Result<Beginning> {
    let looking = tokio::time::timeout(patience, look(stream)).await;
    looking.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn look(stream: &TcpStream) -> io::Result<Beginning> {
    let mut buffer = vec![0; MAX_PEEKED];
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        // To say that it would block has the runtime wait until there is more.
        let read = stream.try_io(Interest::READABLE, || {
            let (_, len) = rustix::net::recv(stream, &mut buffer[..], RecvFlags::PEEK)?;
            let bytes = buffer.get(..len).unwrap_or_default();
            match read(bytes) {
                None if len < MAX_PEEKED && len > 0 => Err(io::ErrorKind::WouldBlock.into()),
                found => Ok(found.unwrap_or(Beginning::Other)),
            }
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if ready.is_read_closed() {
                    return Ok(Beginning::Other);
                }
            }
            read => return read,
        }
    }
}

/// Reads the beginning of a connection; `None` as long as it is too short to tell.
fn read(mut bytes: &[u8]) -> Option<Beginning> {
    // It may be in several records.
    let mut message = Vec::new();
    loop {
        let Some((header, rest)) = bytes.split_at_checked(RECORD_HEADER) else {
            let is_tls = bytes.first().is_none_or(|kind| *kind == HANDSHAKE);
            return (!is_tls).then_some(Beginning::Other);
        };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        // The version is 3.1 or 3.3, and nobody looks at it (RFC 8446, Section 5.1).
        if header[0] != HANDSHAKE || header[1] != 3 || len == 0 || len > MAX_FRAGMENT {
            return Some(Beginning::Other);
        }
        let (fragment, rest) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        message.extend_from_slice(fragment);
        match ClientHello::message_len(&message) {
            Err(_) => return Some(Beginning::Other),
            Ok(Some(len)) if message.len() >= len => break,
            Ok(Some(len)) if len > MAX_PEEKED => return Some(Beginning::Other),
            Ok(_) if fragment.len() < len => return None,
            Ok(_) => bytes = rest,
        }
    }
    Some(match ClientHello::parse(&message) {
        // The outer name, if the inner one is encrypted.
        Ok(hello) => Beginning::Hello(hello.server_name().map(ToOwned::to_owned)),
        Err(_) => Beginning::Other,
    })
}

/// Copies a connection to its origin and back until both directions have ended.
pub(crate) async fn carry(
    stream: TcpStream,
    client: SocketAddr,
    name: Option<String>,
    pass: Arc<Pass>,
    shared: Arc<Shared>,
) -> Result<(), BodyError> {
    let Some(place) = &pass.tls else { return Ok(()) };
    let (metrics, begun) = (shared.metrics.pass(&pass.name, "tls"), Instant::now());
    let _open = shared.metrics.passed(&pass.name, "tls");
    let header = match pass.proxy_protocol {
        true => {
            proxy_header::header(client, stream.local_addr().ok(), None, name.as_deref(), None)?
        }
        false => Vec::new(),
    };
    let near = Socket::from(stream);
    let far = match place.connect(pass.connect).await {
        Ok(far) => far,
        Err(error) => {
            log::debug!("{client}: {place}: {error}");
            shared.metrics.refused("no connection to the origin of a connection to pass on");
            carry::Sink::reset(&mut near.ends(PIECE).writer, code::UNREACHABLE);
            return Err(error.into());
        }
    };
    let (snapshot, log) = shared.current();
    let rate = snapshot.limits.client.bytes_per_second;
    let payer = rate.map(|rate| (Arc::clone(&shared.clients), client.ip(), rate));
    drop(snapshot);
    let pace = Pace::of_client(Payers { service: None, client: payer });
    let (mut near, mut far, meter) = (near.ends(PIECE), far.ends(PIECE), Meter::new());
    let rules = Rules { idle: pass.idle, coupled: true };
    let ended = match carry::begin_with(&mut far.writer, &header).await {
        true => carry::carry(&mut near, &mut far, rules, (&meter, &pace)).await,
        false => {
            near.give_up(code::RESET);
            Err(code::RESET)
        }
    };
    let (received, sent) = meter.counts();
    metrics.received.inc_by(received);
    metrics.sent.inc_by(sent);
    log.note(&Record {
        host: name,
        received,
        sent,
        error: ended.err().map(words),
        ..Record::new(client, place.to_string(), begun)
    });
    Ok(())
}

/// What is logged of an error.
fn words(code: u64) -> String {
    match code {
        code::RESET => "it was reset",
        code => code::meaning(code).unwrap_or("it broke off"),
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A ClientHello that asks for `name`, in records of `each` bytes.
    fn records(name: &str, each: usize) -> Vec<u8> {
        let name = name.as_bytes();
        let len = |more: usize| ((name.len() + more) as u16).to_be_bytes();
        let extension = [&[0, 0][..], &len(5), &len(3), &[0], &len(0), name].concat();
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend((extension.len() as u16).to_be_bytes());
        body.extend(extension);
        let mut message = vec![1, 0];
        message.extend((body.len() as u16).to_be_bytes());
        message.extend(body);
        let record = |part: &[u8]| {
            [&[HANDSHAKE, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat()
        };
        message.chunks(each).flat_map(record).collect()
    }

    #[test]
    fn the_name_is_read_from_whole_and_split_records() {
        for each in [1, 3, 50, 1000] {
            let all = records("a.example", each);
            let found = Some(Beginning::Hello(Some("a.example".to_owned())));
            assert_eq!(read(&all), found, "{each}");
            for len in 0..all.len() {
                assert_eq!(read(&all[..len]), None, "{each}: {len}");
            }
        }
    }

    #[test]
    fn what_is_no_client_hello_is_told_at_once() {
        for other in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"S",
            &[HANDSHAKE, 2, 1, 0, 5],
            &[HANDSHAKE, 3, 1, 0, 0],
            &[HANDSHAKE, 3, 1, 0xff, 0xff],
            &[HANDSHAKE, 3, 1, 0, 4, 2, 0, 0, 0],
            &[HANDSHAKE, 3, 1, 0, 4, 1, 0xff, 0, 0],
            &[23, 3, 3, 0, 1, 0],
        ] {
            assert_eq!(read(other), Some(Beginning::Other), "{other:?}");
        }
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_hello_in_pieces_is_awaited_and_left_where_it_is() {
        let (mut client, mut stream) = pair().await;
        let all = records("a.example", 40);
        let sent = all.clone();
        let sending = tokio::spawn(async move {
            for piece in sent.chunks(7) {
                client.write_all(piece).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            client
        });
        let found = beginning(&stream, Duration::from_secs(20)).await.unwrap();
        assert_eq!(found, Beginning::Hello(Some("a.example".to_owned())));
        let mut read = vec![0; all.len()];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(read, all);
        sending.await.unwrap();
    }

    #[tokio::test]
    async fn half_a_hello_ends_with_its_client_or_in_time() {
        let half = &records("a.example", 1000)[..30];
        let (mut client, stream) = pair().await;
        client.write_all(half).await.unwrap();
        let error = beginning(&stream, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(client);
        let found = beginning(&stream, Duration::from_secs(20)).await.unwrap();
        assert_eq!(found, Beginning::Other);
    }
}
