//! HTTP/3, for which there is no adapter to noq: whoever asks for it is refused.

use std::path::Path;

use quicket_workload::bench::Failure;
use quinn::Connection;

const REFUSAL: &str = "noq has no HTTP/3, and the crate h3 has no adapter for it";

pub async fn serve(_: Connection, _: Option<&Path>) -> Result<u64, Failure> {
    Err(REFUSAL.into())
}

/// There is none.
pub enum Client {}

pub async fn connect(_: Connection) -> Result<Client, Failure> {
    Err(REFUSAL.into())
}

impl Client {
    pub async fn get(&self, _: &str, _: &str) -> Result<Vec<u8>, Failure> {
        match *self {}
    }
}
