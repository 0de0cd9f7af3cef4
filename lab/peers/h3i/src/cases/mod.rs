//! The corpus.

mod control;
mod frames;
mod good;
mod messages;
mod qpack;

use crate::case::{Case, Server};

/// All cases for a server.
pub fn all(server: Server) -> Vec<Case> {
    let of = [
        good::cases(server),
        frames::cases(server),
        messages::cases(server),
        qpack::cases(server),
        control::cases(),
    ];
    of.into_iter().flatten().collect()
}
