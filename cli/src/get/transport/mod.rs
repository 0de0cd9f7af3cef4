//! What carries requests and answers.

pub(crate) mod quic;
