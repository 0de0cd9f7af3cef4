//! The client role.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use aws_lc_rs::rand;
use quiche::{Connection, ConnectionId, RecvInfo};
use quicket_peer_common::socket;
use quicket_peer_common::streams::DATAGRAM;
use quicket_peer_common::streams::client::{self, Attempt};
use quicket_workload::bench::Failure;
use quicket_workload::peer::ClientArguments;

use crate::config;
use crate::over::Over;

/// Bytes of our connection IDs.
const CID: usize = 16;

pub fn run(arguments: &ClientArguments) -> Result<(), Failure> {
    client::run(arguments, &|attempt| connect(arguments, attempt))
}

/// Connects, does the work and closes; returns a session for the next connection.
fn connect(
    arguments: &ClientArguments,
    mut attempt: Attempt<'_>,
) -> Result<Option<Vec<u8>>, Failure> {
    let local = if arguments.connect.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(local)?;
    let local = socket.local_addr()?;
    let mut config = config::client(arguments)?;
    let cid = random_cid()?;
    let name = Some(arguments.server_name.as_str());
    let conn = quiche::connect(name, &cid, local, arguments.connect, &mut config)?;
    let mut over = Over::new(conn)?;
    if let Some(session) = &attempt.session {
        over.conn.set_session(session)?;
    }
    let mut told = false;
    while !over.conn.is_closed() {
        let established = over.conn.is_established();
        if established && !told {
            told = true;
            attempt.report();
        }
        if (established || over.conn.is_in_early_data()) && !over.conn.is_draining() {
            work(&mut over, &mut attempt)?;
        }
        flush(&socket, &mut over.conn)?;
        receive(&socket, local, &mut over.conn)?;
    }
    if attempt.is_done() {
        return Ok(over.conn.session().map(<[u8]>::to_vec));
    }
    let error = over.conn.peer_error().or(over.conn.local_error());
    Err(match error {
        Some(error) => format!("the connection has ended: {error:?}").into(),
        None if over.conn.is_timed_out() => "the server has fallen silent".into(),
        None => "the connection has ended".into(),
    })
}

fn work(over: &mut Over, attempt: &mut Attempt<'_>) -> Result<(), Failure> {
    // More connection IDs than the first, for a server whose path to us changes.
    while over.conn.scids_left() > 0 {
        let token = u128::from_be_bytes(random()?);
        over.conn.new_scid(&random_cid()?, token, false)?;
    }
    let has_ticket = over.conn.session().is_some();
    if attempt.go_on(over, has_ticket)? && over.conn.is_established() {
        match over.conn.close(true, attempt.code, b"done") {
            Ok(()) | Err(quiche::Error::Done) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn receive(socket: &UdpSocket, to: SocketAddr, conn: &mut Connection) -> Result<(), Failure> {
    let mut buffer = [0; DATAGRAM];
    if let Some((datagram, from)) = socket::receive(socket, conn.timeout(), &mut buffer)? {
        // What is wrong with a packet is no concern of the others; what ends the connection shows
        // there.
        let _ = conn.recv(datagram, RecvInfo { from, to });
    }
    if conn.timeout() == Some(Duration::ZERO) {
        conn.on_timeout();
    }
    Ok(())
}

/// Packets of a connection that is closed: if a probe is due at that moment, quiche writes others
/// without end.
pub const GOODBYES: usize = 4;

/// Sends all that may be sent now.
pub fn flush(socket: &UdpSocket, conn: &mut Connection) -> Result<(), Failure> {
    let mut buffer = [0; DATAGRAM];
    let most = if conn.local_error().is_some() { GOODBYES } else { usize::MAX };
    for _ in 0..most {
        match conn.send(&mut buffer) {
            Ok((len, info)) => socket::send(socket, &buffer[..len], info.to)?,
            Err(quiche::Error::Done) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| "there are no random numbers")?;
    Ok(bytes)
}

pub fn random_cid() -> Result<ConnectionId<'static>, Failure> {
    Ok(ConnectionId::from_vec(random::<CID>()?.to_vec()))
}
