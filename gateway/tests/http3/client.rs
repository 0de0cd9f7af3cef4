//! A client that writes frames as bytes.

use std::future::Future;
use std::time::Duration;

use quicket::tokio::{Connection, RecvStream, SendStream};
use quicket::{ClientConfig, ClientTls, ConnectionError, ReadError};

use super::behind::{PATIENCE, Site};

/// An empty SETTINGS frame behind the type of a control stream (RFC 9114, Section 6.2.1).
pub(crate) const CONTROL: &[u8] = &[0, 4, 0];

/// What comes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All bytes of the answer.
    Answer(Vec<u8>),
    /// The stream was reset.
    Reset(u64),
    /// The connection was closed.
    Closed(u64),
}

impl Outcome {
    /// The status of each header section, as far as it is in the static table.
    pub(crate) fn statuses(&self) -> Vec<u16> {
        let Self::Answer(bytes) = self else { panic!("{self:?}") };
        frames(bytes).iter().filter(|(kind, _)| *kind == 1).map(|(_, head)| status(head)).collect()
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let Self::Answer(bytes) = self else { panic!("{self:?}") };
        frames(bytes)
            .into_iter()
            .filter(|(kind, _)| *kind == 0)
            .flat_map(|(_, data)| data)
            .collect()
    }
}

/// Runs a test, which must come to its end.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE * 2, test).await.expect("an end") })
}

pub(crate) fn config(site: &Site) -> ClientConfig {
    let tls = ClientTls::builder().ca_file(site.path("cert.pem")).alpn(["h3"]);
    ClientConfig::new(tls.build().unwrap())
}

/// A connection with nothing on it.
pub(crate) async fn connect(site: &Site) -> Connection {
    Connection::connect(site.address, "localhost", &config(site)).await.unwrap()
}

/// A connection with a control stream, which lasts as long as what is returned with it.
pub(crate) async fn open(site: &Site) -> (Connection, SendStream) {
    let connection = connect(site).await;
    let control = unidirectional(&connection, CONTROL).await;
    (connection, control)
}

pub(crate) async fn unidirectional(connection: &Connection, bytes: &[u8]) -> SendStream {
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Sends a request, and takes the answer.
pub(crate) async fn ask(connection: &Connection, bytes: &[u8]) -> Outcome {
    let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
    // The server may stop to read before all is said.
    if send.write_all(bytes).await.is_ok() {
        let _ = send.finish();
    }
    outcome(&mut recv).await
}

pub(crate) async fn outcome(recv: &mut RecvStream) -> Outcome {
    let mut answer = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match recv.read_some(&mut buffer).await {
            Ok(0) => return Outcome::Answer(answer),
            Ok(len) => answer.extend_from_slice(&buffer[..len]),
            Err(ReadError::Reset(code)) => return Outcome::Reset(code),
            Err(ReadError::Lost(error)) => return Outcome::Closed(code(error)),
            Err(other) => panic!("{other}"),
        }
    }
}

fn code(error: ConnectionError) -> u64 {
    match error {
        ConnectionError::PeerApplication { code, .. } => code,
        other => panic!("{other}"),
    }
}

/// The code by which the connection ends.
pub(crate) async fn closed(connection: &Connection) -> u64 {
    let closed = tokio::time::timeout(Duration::from_secs(10), connection.closed());
    code(closed.await.expect("it is closed"))
}

/// A variable-length integer of 4 bytes.
pub(crate) fn integer(value: usize) -> [u8; 4] {
    (u32::try_from(value).unwrap() | 0x8000_0000).to_be_bytes()
}

pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind][..], &integer(payload.len()), payload].concat()
}

/// A field line that is spelled out.
pub(crate) fn line(name: &str, value: &str) -> Vec<u8> {
    let mut line = Vec::new();
    let lengths = [(0x20, 7, name), (0, 127, value)];
    for (bits, mask, text) in lengths {
        match text.len().checked_sub(mask) {
            None => line.push(bits | text.len() as u8),
            Some(rest) => {
                assert!(rest < 128);
                line.extend([bits | mask as u8, rest as u8]);
            }
        }
        line.extend(text.as_bytes());
    }
    line
}

/// A field section in its frame.
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let lines: Vec<u8> = fields.iter().flat_map(|(name, value)| line(name, value)).collect();
    frame(1, &[&[0, 0][..], &lines].concat())
}

/// The header section of a request to localhost.
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo =
        [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
    headers(&[&pseudo[..], fields].concat())
}

/// The frames of an answer. Those that are not whole are left out.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let next = |bytes: &mut &[u8]| -> Option<u64> {
        let first = *bytes.first()?;
        let (whole, rest) = bytes.split_at_checked(1 << (first >> 6))?;
        *bytes = rest;
        let value = whole[1..]
            .iter()
            .fold(u64::from(first & 0x3f), |all, &byte| all << 8 | u64::from(byte));
        Some(value)
    };
    let mut frames = Vec::new();
    while let (Some(kind), Some(length)) = (next(&mut bytes), next(&mut bytes)) {
        let Some((payload, rest)) = bytes.split_at_checked(length as usize) else { break };
        frames.push((kind, payload.to_vec()));
        bytes = rest;
    }
    frames
}

/// RFC 9204, Appendix A; 0 for others.
fn status(head: &[u8]) -> u16 {
    let index = match head[2..] {
        [0xff, rest, ..] => 63 + rest,
        [first @ 0xc0..=0xff, ..] => first & 0x3f,
        _ => 0,
    };
    match index {
        24..=28 => [103, 200, 304, 404, 503][usize::from(index) - 24],
        63..=71 => [100, 204, 206, 302, 400, 403, 421, 425, 500][usize::from(index) - 63],
        _ => 0,
    }
}
