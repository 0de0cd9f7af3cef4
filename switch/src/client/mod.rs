//! The side of programs: being at an address through the switch.
//!
//! [`Membership::join`] finds the switch or starts it, and gets a share of an address. A thread keeps the
//! membership: when the switch dies it starts the next one and hands it the address's socket and the
//! channels, so that connections go on as if nothing had happened.

mod connect;
mod membership;

pub use connect::{NAME_VARIABLE, Options, PROGRAM_VARIABLE, default_name};
pub use membership::{Membership, Notice, Place};

use std::io;

use crate::protocol::{Reply, Request};
use connect::Connection;

/// What goes on in a switch, as JSON.
///
/// # Errors
///
/// When there is no such switch (`ConnectionRefused`), or it is not of this user.
pub fn status(name: &str) -> io::Result<String> {
    let connection = Connection::open(name)?;
    connection.send(&Request::Status, &[])?;
    let mut whole = String::new();
    loop {
        match connection.receive_soon()?.0 {
            Reply::Status { text, last } => {
                whole.push_str(&text);
                if last {
                    return Ok(whole);
                }
            }
            other => return Err(unexpected(&other)),
        }
    }
}

/// Has the programs of a switch start their next generation.
///
/// # Errors
///
/// When there is no such switch (`ConnectionRefused`), or none of its programs can.
pub fn upgrade(name: &str) -> io::Result<()> {
    let connection = Connection::open(name)?;
    match connection.ask(&Request::Upgrade, &[])?.0 {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// An answer as an error.
fn unexpected(reply: &Reply) -> io::Error {
    use crate::protocol::Refusal;
    let Reply::Refused { why, text } = reply else {
        return io::Error::new(
            io::ErrorKind::InvalidData,
            "the switch gave the answer to another question",
        );
    };
    let kind = match why {
        Refusal::InUse => io::ErrorKind::AddrInUse,
        Refusal::Invalid => io::ErrorKind::InvalidInput,
        Refusal::Full => io::ErrorKind::StorageFull,
        Refusal::Denied => io::ErrorKind::PermissionDenied,
        Refusal::Later => io::ErrorKind::WouldBlock,
        Refusal::Version => io::ErrorKind::Unsupported,
    };
    io::Error::new(kind, text.clone())
}
