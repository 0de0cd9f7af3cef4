//! `quicket switch open`: a port at the switch for packets for a program that has nothing but the descriptor.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::path::Path;

use quicket_packets::client::{Opening, VARIABLE};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, ipproto};
use rustix::process::Uid;

use super::packets::unanswered;
use crate::args::{SwitchOpen, WantedTuple};
use crate::exit::Failure;
use crate::out::tell;

/// The number of the descriptor that the program gets: the first one behind standard input, output and error, as service managers do,
/// and where container engines look for what they are to hand on.
const NUMBER: i32 = 3;

/// Becomes the program; returns only if that fails.
pub(super) fn run(args: &SwitchOpen) -> Result<(), Failure> {
    let path = super::packets::path(&args.name.name)?;
    let mut opening = connect(&path, args.user)?;
    for wanted in &args.tuples {
        let what = || format!("cannot reserve {wanted}");
        let socket = bind(wanted).map_err(|error| Failure::address(what(), &error))?;
        let tuple = opening.reserve(&socket);
        let tuple = tuple.map_err(|error| Failure::environment(what(), error))?;
        tell!("quicket: {tuple} is reserved");
    }
    let cannot = |error: io::Error| Failure::environment("cannot hand the connection on", error);
    place(opening.confine().map_err(cannot)?).map_err(cannot)?;
    args.program.exec(|command| {
        command.env(VARIABLE, NUMBER.to_string());
        Ok(())
    })
}

/// Connects, as another user if there is to be one: a thread may be one of its own.
fn connect(path: &Path, user: Option<u32>) -> Result<Opening, Failure> {
    let Some(user) = user.map(Uid::from_raw) else {
        return Opening::connect(path).map_err(|error| unanswered(path, &error));
    };
    let cannot = |error: io::Error| {
        Failure::environment(
            format!("cannot act for user {}, which takes root", user.as_raw()),
            error,
        )
    };
    std::thread::scope(|scope| {
        let connected = scope.spawn(|| {
            let became = rustix::thread::set_thread_res_uid(user, user, user);
            became.map_err(|error| cannot(error.into()))?;
            Opening::connect(path).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => Failure::environment(
                    format!("user {} may not have a port at {}", user.as_raw(), path.display()),
                    format!("{error}; --user takes a switch of all users (quicket switch packets --all-users)"),
                ),
                _ => unanswered(path, &error),
            })
        });
        let ended = |_| Err(cannot(io::Error::other("a thread has ended")));
        connected.join().unwrap_or_else(ended)
    })
}

/// A socket of the system, which proves a tuple.
fn bind(wanted: &WantedTuple) -> io::Result<OwnedFd> {
    let of = |number: u8| NonZero::new(u32::from(number)).map(Protocol::from_raw);
    let (kind, protocol) = match wanted.protocol {
        6 => (SocketType::STREAM, Some(ipproto::TCP)),
        17 => (SocketType::DGRAM, Some(ipproto::UDP)),
        number => (SocketType::RAW, of(number)),
    };
    let family = match wanted.address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
    rustix::net::bind(&socket, &SocketAddr::new(wanted.address, wanted.port))?;
    Ok(socket)
}

/// Gives a descriptor its number, by which programs inherit it.
fn place(connection: OwnedFd) -> io::Result<()> {
    let placed = if connection.as_raw_fd() == NUMBER {
        connection
    } else {
        // What this process has there is of who started it, and of no use to it; it may be nothing.
        let _ = nix::unistd::close(NUMBER);
        rustix::io::fcntl_dupfd_cloexec(&connection, NUMBER)?
    };
    if placed.as_raw_fd() != NUMBER {
        return Err(io::Error::other(format!("descriptor {NUMBER} is in use")));
    }
    fcntl_setfd(&placed, FdFlags::empty())?;
    // The program's.
    let _ = placed.into_raw_fd();
    Ok(())
}
