//! HTTP/0.9 over QUIC: `GET /path`, then the body until FIN.

use std::path::Path;

use quicket_workload::bench::Failure;

use super::{Connection, Stream, receive_all};
use crate::files;

const MAX_REQUEST: usize = 4096;
/// The code of a stream whose file is not there.
const NOT_FOUND: u64 = 1;

pub(super) async fn serve(folder: Option<&Path>, stream: &mut impl Stream) -> Result<(), Failure> {
    let request = receive_all(stream, MAX_REQUEST).await?;
    let request = std::str::from_utf8(&request)?;
    let path = request.trim_end().strip_prefix("GET ").ok_or("the request is no GET")?;
    let folder = folder.ok_or("no folder to serve; start with --www")?;
    match std::fs::read(files::locate(folder, path)?) {
        Ok(content) => {
            stream.send(&content).await?;
            stream.finish()
        }
        Err(error) => {
            stream.reset(NOT_FOUND)?;
            Err(format!("{path}: {error}").into())
        }
    }
}

/// Fetches a file.
pub fn get<C: Connection>(
    connection: &C,
    path: &str,
) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send + use<C> {
    let (connection, request) = (connection.clone(), format!("GET {path}\r\n"));
    async move {
        let mut stream = connection.open().await?;
        stream.send(request.as_bytes()).await?;
        stream.finish()?;
        receive_all(&mut stream, usize::MAX).await
    }
}
