//! What endpoints of both roles are made with.

use std::convert::Infallible;
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use quicket_workload::bench::Failure;
use s2n_quic::provider::datagram::default::Endpoint;
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::stateless_reset_token::{Generator, Provider};
use s2n_quic_core::stateless_reset::Token;

/// Bytes of a stateless reset token.
const LEN: usize = 16;
/// Where 30 % of the packets are lost, ten seconds are not enough.
const HANDSHAKE: Duration = Duration::from_secs(60);
/// Datagrams that wait in each direction.
const DATAGRAMS: usize = 256;

/// Limits of connections.
pub fn limits() -> Result<Limits, Failure> {
    Ok(Limits::new()
        .with_max_handshake_duration(HANDSHAKE)?
        .with_max_open_local_bidirectional_streams(100)?
        .with_max_open_remote_bidirectional_streams(100)?)
}

/// Queues for datagrams.
pub fn datagrams() -> Result<Endpoint, Failure> {
    Ok(Endpoint::builder().with_send_capacity(DATAGRAMS)?.with_recv_capacity(DATAGRAMS)?.build()?)
}

/// Makes the token of a connection ID with a key.
pub struct ResetTokens(hmac::Key);

impl ResetTokens {
    /// With the key that the text stands for, or a random one.
    pub fn new(key: Option<&str>) -> Result<Self, Failure> {
        let algorithm = hmac::HMAC_SHA256;
        Ok(Self(match key {
            Some(key) => hmac::Key::new(algorithm, key.as_bytes()),
            None => hmac::Key::generate(algorithm, &SystemRandom::new())
                .map_err(|_| "there is no random key")?,
        }))
    }
}

impl Generator for ResetTokens {
    fn generate(&mut self, local_connection_id: &[u8]) -> Token {
        let tag = hmac::sign(&self.0, local_connection_id);
        let mut token = [0; LEN];
        token.copy_from_slice(&tag.as_ref()[..LEN]);
        token.into()
    }
}

impl Provider for ResetTokens {
    type Generator = Self;
    type Error = Infallible;

    fn start(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}
