//! A server as one of a site behind a balancer: connection IDs that lead to it
//! (draft-ietf-quic-load-balancers-21), and reports of how it is.
//!
//! What balancers and servers have in common is [`Site`], which `quicket-balancer` reads. This is
//! the server's half: it has sockets and a clock, and the balancer's has none.
#![forbid(unsafe_code)]

mod error;
mod keys;
mod member;
mod secrets;

pub use error::MemberError;
pub use keys::{aes, server_id, sign, verify, wall_clock};
pub use member::{Change, Member};
pub use quicket_balancer::Site;
pub use secrets::{SecretsFault, open_to_others, read_secrets};

/// The longest file of connection IDs, in bytes.
pub const MAX_FILE: u64 = 4 << 20;
