//! HTTP/0.9 over QUIC: `GET /path`, then the body until FIN.

use std::path::Path;

use quicket_workload::bench::Failure;
use quinn::{Connection, RecvStream, SendStream};

use quicket_peer_common::files;

const MAX_REQUEST: usize = 4096;

pub async fn serve(
    folder: Option<&Path>,
    mut send: SendStream,
    mut recv: RecvStream,
) -> Result<(), Failure> {
    let request = recv.read_to_end(MAX_REQUEST).await?;
    let request = std::str::from_utf8(&request)?;
    let path = request.trim_end().strip_prefix("GET ").ok_or("the request is no GET")?;
    let folder = folder.ok_or("no folder to serve; start with --www")?;
    match tokio::fs::read(files::locate(folder, path)?).await {
        Ok(content) => {
            send.write_all(&content).await?;
            send.finish()?;
        }
        Err(error) => {
            send.reset(1_u32.into())?;
            return Err(format!("{path}: {error}").into());
        }
    }
    Ok(())
}

pub async fn get(connection: &Connection, path: &str) -> Result<Vec<u8>, Failure> {
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(format!("GET {path}\r\n").as_bytes()).await?;
    send.finish()?;
    Ok(recv.read_to_end(usize::MAX).await?)
}
