//! Private keys of TLS servers in another process: under another user, on another machine, on a token.
//!
//! Who terminates TLS asks for the signature of a handshake ([`Client`]), and who has the keys makes it
//! ([`Server`]). Nothing else is ever signed: the client gives the hash of the handshake's transcript, and the server
//! puts the content together itself (RFC 8446, Section 4.4.3). A key is named by the SHA-256 of its
//! SubjectPublicKeyInfo ([`KeyId`]), as it stands in the certificate.
//!
//! * [`protocol`]: what both say to each other; pure.
//! * [`Keys`]: keys of files, and of tokens by PKCS#11.
//! * [`Server`]: threads that answer, one for each connection.
//! * [`Client`]: connections, and the threads that wait for answers.
#![forbid(unsafe_code)]
// They panic where nothing can be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod address;
mod client;
mod counters;
mod keys;
mod names;
#[cfg(feature = "pkcs11")]
mod pkcs11;
mod pool;
pub mod protocol;
mod rate;
mod seats;
mod server;
mod spki;
mod stream;
mod tls;
mod told;

pub use address::Address;
pub use client::{Client, ClientOptions, SignError, Stats};
pub use counters::Counters;
pub use keys::{Key, KeyError, Keys};
#[cfg(feature = "pkcs11")]
pub use pkcs11::Token;
pub use protocol::KeyId;
pub use server::{Allowed, Server, ServerOptions};
pub use spki::{KeyKind, key_id, spki_of_certificate};
pub use tls::{MutualTls, ServerTls};
