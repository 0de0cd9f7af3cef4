//! Answers to datagrams that belong to no connection, for whoever receives in an endpoint's place: a
//! switch in front of several programs.
//!
//! None of them is longer than what it answers, and all are to be limited in number ([`ReplyLimits`]):
//! the sender's address may be made up.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quicket_wire::{ConnectionId, TransportErrorCode, Version};

use crate::crypto::CryptoProvider;
use crate::endpoint;
use crate::random::Random;
use crate::stateless_reset as reset;

pub use crate::reply_limit::{RateLimiter, Reply, ReplyLimits};

/// Resets the connection that a packet to `cid` in a datagram of `trigger_len` bytes belongs to, with
/// the token that an endpoint with this `key` gave its peer (RFC 9000, Section 10.3). `None` if the
/// datagram is too short to be answered.
pub fn stateless_reset(
    crypto: &dyn CryptoProvider,
    key: &[u8; 32],
    cid: &ConnectionId,
    trigger_len: usize,
    random: &mut dyn Random,
) -> Option<Vec<u8>> {
    reset::datagram(trigger_len, &reset::token(crypto, key, cid), random)
}

/// Says which versions there are (RFC 9000, Section 6), in answer to a datagram of another. `None` if
/// that is no packet with a long header, or is itself an answer of this kind.
pub fn version_negotiation(
    datagram: &[u8],
    versions: &[Version],
    random: &mut dyn Random,
) -> Option<Vec<u8>> {
    let mut reply = Vec::new();
    endpoint::version_negotiation(datagram, versions, random, &mut reply)?;
    Some(reply)
}

/// Closes the attempt of a client whose Initial packet had these connection IDs, before there is a
/// connection (RFC 9000, Section 5.2.2). `None` if the version is not known.
pub fn refusal(
    crypto: Arc<dyn CryptoProvider>,
    version: Version,
    dcid: &ConnectionId,
    scid: &ConnectionId,
    code: TransportErrorCode,
) -> Option<Vec<u8>> {
    if !version.is_supported() {
        return None;
    }
    endpoint::close(crypto, version, dcid, scid, code)
}
