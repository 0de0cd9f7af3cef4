//! TLS 1.3 (rustls) and packet protection (AWS-LC) behind the traits of `quicket-engine`.
//!
//! * [`AwsLcProvider`] and [`SystemRandom`] are the engine's cryptography and randomness.
//! * [`ClientTls`] and [`ServerTls`] start handshakes; their builders say whom to trust, what to
//!   present and what to offer.
//!
//! TLS knows nothing of QUIC's versions here: the engine gets traffic secrets and derives its own
//! keys from them.

mod block_cipher;
mod certificates;
mod client;
pub mod elsewhere;
mod environment;
mod error;
mod key_log;
mod messages;
mod offer;
mod provider;
mod psk;
mod random;
mod server;
mod session;
mod unused;
mod validity;
mod words;

pub use block_cipher::Aes128;
pub use certificates::{Fingerprint, Identity, KeyType, Roots};
pub use client::{ClientTls, ClientTlsBuilder};
pub use error::ConfigError;
pub use key_log::{KeyLog, KeyLogFile, LinesTaker};
pub use offer::KeyExchange;
pub use provider::AwsLcProvider;
pub use random::SystemRandom;
pub use server::{
    APPLICATION_LIMITS, Beginning, ChooseClientPolicy, ClientAuth, ClientPolicy, ProcessRegister,
    STRIKE_WINDOW, ServerTls, ServerTlsBuilder, SharedBeginning, StrikeAnswer, StrikeRegister,
    TicketId, TicketKey, TicketKeys, Unasked,
};
