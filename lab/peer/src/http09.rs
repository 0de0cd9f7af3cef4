//! HTTP/0.9 over QUIC: `GET /path`, then the body until FIN.

use std::path::Path;

use quicket::tokio::{Connection, Stream};
use quicket_workload::bench::Failure;

use crate::files;

const MAX_REQUEST: usize = 4096;

pub(crate) async fn serve(folder: Option<&Path>, mut stream: Stream) -> Result<(), Failure> {
    let request = stream.read_to_end(MAX_REQUEST).await?;
    let request = std::str::from_utf8(&request)?;
    let path = request.trim_end().strip_prefix("GET ").ok_or("the request is no GET")?;
    let folder = folder.ok_or("no folder to serve; start with --www")?;
    match std::fs::read(files::locate(folder, path)?) {
        Ok(content) => {
            stream.send().write_all(&content).await?;
            stream.finish()?;
        }
        Err(error) => {
            stream.send().reset(1)?;
            return Err(format!("{path}: {error}").into());
        }
    }
    Ok(())
}

pub(crate) async fn get(connection: &Connection, path: &str) -> Result<Vec<u8>, Failure> {
    let mut stream = connection.open_bi().await?;
    stream.send().write_all(format!("GET {path}\r\n").as_bytes()).await?;
    stream.finish()?;
    Ok(stream.read_to_end(usize::MAX).await?)
}
