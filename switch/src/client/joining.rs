//! Joining an address: what is said and handed over.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::connect::Connection;
use super::membership::Place;
use super::{ONCE, Options, unexpected};
use crate::channel::Handover;
use crate::keep::Keep;
use crate::ledger::Ledger;
use crate::protocol::{self, Join, Kin, Reply, Request, Resume};

/// An answer to who wants to join.
pub(super) enum Joined {
    At {
        connection: Connection,
        had: Box<protocol::Joined>,
        /// What came along.
        came: Handed,
    },
    /// Over this connection, and how long to try if it is in use.
    Bind(Connection, Duration),
}

/// What a program gets that has joined, and what it has bound for that.
pub(super) type AtAddress = (Connection, Box<protocol::Joined>, Handed, Option<UdpSocket>);

/// What who joins has and hands over.
#[derive(Clone, Copy)]
pub(super) struct Has<'a> {
    pub(super) socket: Option<&'a UdpSocket>,
    pub(super) channels: &'a [Handover],
    pub(super) keep: Option<&'a Keep>,
    /// The family in which the listener was passed on, and its lifeline.
    pub(super) kin: Option<(Kin, BorrowedFd<'a>)>,
    /// What it notes clients in.
    pub(super) ledger: Option<&'a Ledger>,
    /// The switch before forwarded every datagram.
    pub(super) forwards: bool,
}

/// Descriptors that came with an answer.
pub(super) struct Handed(Vec<OwnedFd>);

/// The same, told apart.
pub(super) struct Came {
    pub(super) socket: Option<UdpSocket>,
    pub(super) keep: Option<Keep>,
    /// For each worker, or none.
    pub(super) sockets: Vec<UdpSocket>,
}

impl Handed {
    pub(super) fn sort(self, has_socket: bool, had: &protocol::Joined) -> io::Result<Came> {
        let mut came = self.0.into_iter();
        let socket = if has_socket || had.tenancy.is_some() {
            None
        } else {
            came.next().map(UdpSocket::from)
        };
        if had.sockets.is_empty() {
            return Ok(Came { socket, keep: None, sockets: Vec::new() });
        }
        let (Some(put), Some(look)) = (came.next(), came.next()) else {
            return Err(not_handed_over());
        };
        let keep = Some(Keep::from_ends(put, look));
        let sockets: Vec<_> = came.map(UdpSocket::from).collect();
        if sockets.len() != had.sockets.len() {
            return Err(not_handed_over());
        }
        Ok(Came { socket, keep, sockets })
    }
}

pub(super) fn not_handed_over() -> io::Error {
    let text = "the switch did not hand over the sockets of the address";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Joins; binds the address, if the switch says that nobody has it.
pub(super) fn join_or_bind(
    options: &Options,
    place: Place,
    has: Has<'_>,
    bind: &mut impl FnMut() -> io::Result<UdpSocket>,
) -> io::Result<AtAddress> {
    let (connection, patience) = match join_once(options, place, has, None)? {
        Joined::At { connection, had, came } => return Ok((connection, had, came, None)),
        Joined::Bind(connection, patience) => (connection, patience),
    };
    let bound = match bind() {
        // Perhaps by a program of the switch that has yet to say so.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && !patience.is_zero() => {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        bound => bound?,
    };
    let mut place = place;
    place.address.set_port(bound.local_addr()?.port());
    // Others are kept waiting as long as this connection lasts.
    let has = Has { socket: Some(&bound), ..has };
    match join_over(connection, options, place, has, None)? {
        Joined::At { connection, had, came } => Ok((connection, had, came, Some(bound))),
        Joined::Bind(..) => Err(not_handed_over()),
    }
}

/// Asks to join, over a connection of its own.
pub(super) fn join_once(
    options: &Options,
    place: Place,
    has: Has<'_>,
    resume: Option<Resume>,
) -> io::Result<Joined> {
    join_over(Connection::open_or_start(options, has.forwards)?, options, place, has, resume)
}

/// The same over a connection that is there.
pub(super) fn join_over(
    connection: Connection,
    options: &Options,
    place: Place,
    Has { socket, channels, keep, kin, ledger, .. }: Has<'_>,
    resume: Option<Resume>,
) -> io::Result<Joined> {
    let join = Join {
        address: place.address,
        only_v6: place.only_v6,
        workers: u16::try_from(place.workers).unwrap_or(u16::MAX),
        label: options.label.clone(),
        has_socket: socket.is_some(),
        has_keep: keep.is_some(),
        has_ledger: ledger.is_some(),
        steered: place.steered,
        remains: place.remains,
        options: place.options,
        resume: resume.map(Box::new),
        kin: kin.map(|(kin, _)| kin),
    };
    let mut descriptors: Vec<BorrowedFd<'_>> = channels.iter().map(AsFd::as_fd).collect();
    descriptors.extend(socket.map(AsFd::as_fd));
    descriptors.extend(keep.iter().flat_map(|keep| keep.ends()));
    descriptors.extend(kin.map(|(_, lifeline)| lifeline));
    descriptors.extend(ledger.map(AsFd::as_fd));
    // It tells nothing to who has just come.
    match connection.ask(ONCE, Request::Join(join), &descriptors, drop)? {
        (Reply::Joined(had), came) => Ok(Joined::At { connection, had, came: Handed(came) }),
        (Reply::Bind { patience }, _) => {
            Ok(Joined::Bind(connection, Duration::from_millis(patience.into())))
        }
        (other, _) => Err(unexpected(&other)),
    }
}
