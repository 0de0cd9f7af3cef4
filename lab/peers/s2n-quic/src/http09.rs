//! HTTP/0.9 over QUIC: `GET /path`, then the body until FIN.

use std::path::Path;

use quicket_peer_common::files;
use quicket_workload::bench::Failure;
use s2n_quic::connection::Handle;
use s2n_quic::stream::BidirectionalStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MAX_REQUEST: u64 = 4096;
/// The code of a stream whose file is not there.
const NOT_FOUND: u32 = 1;

pub async fn serve(folder: Option<&Path>, mut stream: BidirectionalStream) -> Result<(), Failure> {
    let mut request = String::new();
    (&mut stream).take(MAX_REQUEST).read_to_string(&mut request).await?;
    let path = request.trim_end().strip_prefix("GET ").ok_or("the request is no GET")?;
    let folder = folder.ok_or("no folder to serve; start with --www")?;
    match tokio::fs::read(files::locate(folder, path)?).await {
        Ok(content) => {
            stream.send(content.into()).await?;
            stream.finish()?;
        }
        Err(error) => {
            stream.reset(NOT_FOUND.into())?;
            return Err(format!("{path}: {error}").into());
        }
    }
    Ok(())
}

pub async fn get(mut connection: Handle, path: &str) -> Result<Vec<u8>, Failure> {
    let mut stream = connection.open_bidirectional_stream().await?;
    stream.write_all(format!("GET {path}\r\n").as_bytes()).await?;
    stream.finish()?;
    let mut content = Vec::new();
    stream.read_to_end(&mut content).await?;
    Ok(content)
}
