//! Connection IDs (RFC 9000, Section 5.1): those that we issue and those that the peer gave us.

mod connection_ids;
mod generator;
mod local;
mod remote;

pub(crate) use connection_ids::ConnectionIds;
pub use generator::{ConnectionIdGenerator, RandomConnectionIds};
pub(crate) use local::{CidEvent, LocalCids};
pub(crate) use remote::RemoteCids;

/// Sequence numbers of one side's connection IDs (RFC 9000, Section 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CidNumbers {
    /// The lowest that is not retired.
    pub first: u64,
    /// The highest.
    pub last: u64,
    /// The one that packets are addressed to; known only of the peer's.
    pub active: Option<u64>,
}

#[cfg(test)]
pub(crate) mod test_support;
