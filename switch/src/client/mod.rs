//! The side of programs: being at an address through the switch.
//!
//! [`Membership::join`] finds the switch or starts it, and gets a share of an address. A thread keeps the
//! membership: when the switch dies it starts the next one and hands it the address's socket and the
//! channels, so that connections go on as if nothing had happened.

mod connect;
mod family;
mod joining;
mod keeper;
mod membership;
mod minted;
mod questions;

pub use crate::rendezvous::{NAME_VARIABLE, default_name};
pub use connect::{Options, PROGRAM_VARIABLE};
pub use family::{Family, Hold};
pub use membership::{Membership, Notice, Place, Way};
pub use minted::ConnectionIds;
pub use questions::MAX_STRIKES_ASKED;

use std::io;

use crate::protocol::{Message, Refused, Reply, Request};
use connect::{Connection, kind_of};

/// The number of the only question.
pub(crate) const ONCE: u32 = 0;

/// What goes on in a switch, as JSON.
///
/// # Errors
///
/// When there is no such switch (`ConnectionRefused`), or it is not of this user.
pub fn status(name: &str) -> io::Result<String> {
    let connection = Connection::open(name)?;
    connection.send_first(ONCE, Request::Status, &[])?;
    let mut whole = String::new();
    loop {
        match connection.receive_soon()?.0 {
            Message::Answer { reply: Reply::Status { text, last }, .. } => {
                whole.push_str(&text);
                if last {
                    return Ok(whole);
                }
            }
            Message::Answer { reply, .. } => return Err(unexpected(&reply)),
            _ => {}
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
    match connection.ask(ONCE, Request::Upgrade, &[], drop)?.0 {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Whether the switch that is there is another user's, which takes no sockets that programs have bound, and binds
/// addresses for them.
///
/// # Errors
///
/// When the name makes no path.
pub fn is_of_another_user(options: &Options) -> io::Result<bool> {
    options.clone().resolved().map(|options| membership::is_anothers(&options))
}

/// An answer as an error.
fn unexpected(reply: &Reply) -> io::Error {
    match reply {
        Reply::Refused(Refused { why, text }) => io::Error::new(kind_of(*why), text.clone()),
        _ => io::Error::new(
            io::ErrorKind::InvalidData,
            "the switch gave the answer to another question",
        ),
    }
}
