//! Connection IDs (RFC 9000, Section 5.1): those that we issue and those that the peer gave us.

mod generator;
mod local;
mod remote;

pub use generator::{ConnectionIdGenerator, RandomConnectionIds};
pub(crate) use local::{CidEvent, LocalCids};
pub(crate) use remote::RemoteCids;

#[cfg(test)]
pub(crate) mod test_support;
