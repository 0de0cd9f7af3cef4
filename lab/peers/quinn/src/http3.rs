//! HTTP/3 by h3.

use std::path::Path;

use quicket_peer_common::tasks::http3;
use quicket_workload::bench::Failure;
use quinn::Connection;

pub type Client = http3::Client<h3_quinn::OpenStreams>;

pub async fn connect(connection: Connection) -> Result<Client, Failure> {
    Client::new(h3_quinn::Connection::new(connection)).await
}

pub async fn serve(connection: Connection, folder: Option<&Path>) -> Result<u64, Failure> {
    http3::serve(h3_quinn::Connection::new(connection), folder).await
}
