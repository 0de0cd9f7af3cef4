//! HTTP/3 by h3.

use std::path::Path;

use bytes::{Buf, Bytes};
use http::{Request, Response, StatusCode};
use quicket_workload::bench::Failure;
use quinn::Connection;

use quicket_peer_common::files;

type RequestStream = h3::server::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;
type SendRequest = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

/// Serves requests until the client closes; returns how many.
pub async fn serve(connection: Connection, folder: Option<&Path>) -> Result<u64, Failure> {
    let mut requests = 0;
    let mut session = h3::server::Connection::new(h3_quinn::Connection::new(connection)).await?;
    loop {
        match session.accept().await {
            Ok(Some(resolver)) => {
                let (request, stream) = resolver.resolve_request().await?;
                requests += 1;
                let folder = folder.map(Path::to_path_buf);
                tokio::spawn(async move { answer(&request, stream, folder.as_deref()).await });
            }
            Ok(None) => return Ok(requests),
            Err(error) if error.is_h3_no_error() => return Ok(requests),
            Err(error) => return Err(error.into()),
        }
    }
}

async fn answer(
    request: &Request<()>,
    mut stream: RequestStream,
    folder: Option<&Path>,
) -> Result<(), Failure> {
    let folder = folder.ok_or("no folder to serve; start with --www")?;
    let content = match files::locate(folder, request.uri().path()) {
        Ok(file) => tokio::fs::read(file).await.ok(),
        Err(_) => None,
    };
    let response = Response::builder();
    let Some(content) = content else {
        stream.send_response(response.status(StatusCode::NOT_FOUND).body(())?).await?;
        return Ok(stream.finish().await?);
    };
    stream.send_response(response.header("content-length", content.len()).body(())?).await?;
    stream.send_data(content.into()).await?;
    Ok(stream.finish().await?)
}

/// The client's end of an HTTP/3 connection.
///
/// It must live until the QUIC connection is closed: with it goes the control stream, whose end
/// alone is an error to the server (RFC 9114, Section 6.2.1).
pub struct Client {
    requests: SendRequest,
    driver: tokio::task::JoinHandle<()>,
}

impl Client {
    pub async fn new(connection: Connection) -> Result<Self, Failure> {
        let (mut session, requests) =
            h3::client::new(h3_quinn::Connection::new(connection)).await?;
        let driver = tokio::spawn(async move {
            session.wait_idle().await;
        });
        Ok(Self { requests, driver })
    }

    pub async fn get(&self, authority: &str, path: &str) -> Result<Vec<u8>, Failure> {
        let request = Request::get(format!("https://{authority}{path}")).body(())?;
        let mut stream = self.requests.clone().send_request(request).await?;
        stream.finish().await?;
        let response = stream.recv_response().await?;
        if response.status() != StatusCode::OK {
            return Err(format!("{path}: the server answered {}", response.status()).into());
        }
        let mut content = Vec::new();
        while let Some(mut data) = stream.recv_data().await? {
            while data.has_remaining() {
                let chunk = data.chunk();
                content.extend_from_slice(chunk);
                let length = chunk.len();
                data.advance(length);
            }
        }
        Ok(content)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
