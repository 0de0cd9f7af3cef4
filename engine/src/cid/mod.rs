//! Connection IDs (RFC 9000, Section 5.1): those that we issue and those that the peer gave us.

mod generator;
mod local;
mod remote;

pub use generator::{ConnectionIdGenerator, RandomConnectionIds};
pub(crate) use local::{CidEvent, LocalCids, MAX_LOCAL_CIDS};
pub(crate) use remote::{MAX_REMOTE_CIDS, RemoteCids};

#[cfg(test)]
pub(crate) mod test_support;
