//! HTTP/3 by h3.

use std::path::Path;

use bytes::{BufMut, Bytes};
use h3::quic;
use http::{Request, Response, StatusCode};
use quicket_workload::bench::Failure;

use crate::files;

/// Serves requests until the client closes; returns how many.
///
/// # Errors
///
/// When the connection ends otherwise.
pub async fn serve<C>(connection: C, folder: Option<&Path>) -> Result<u64, Failure>
where
    C: quic::Connection<Bytes>,
    C::BidiStream: Send + 'static,
{
    let mut requests = 0;
    let mut session = h3::server::Connection::new(connection).await?;
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

async fn answer<S: quic::SendStream<Bytes>>(
    request: &Request<()>,
    mut stream: h3::server::RequestStream<S, Bytes>,
    folder: Option<&Path>,
) -> Result<(), Failure> {
    let folder = folder.ok_or("no folder to serve; start with --www")?;
    let content = match files::locate(folder, request.uri().path()) {
        Ok(file) => std::fs::read(file).ok(),
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
pub struct Client<T: quic::OpenStreams<Bytes>> {
    requests: h3::client::SendRequest<T, Bytes>,
    driver: tokio::task::JoinHandle<()>,
}

impl<T: quic::OpenStreams<Bytes> + Clone> Client<T> {
    /// Begins HTTP/3 over a connection.
    ///
    /// # Errors
    ///
    /// When the connection is over.
    pub async fn new<C>(connection: C) -> Result<Self, Failure>
    where
        C: quic::Connection<Bytes, OpenStreams = T>,
        h3::client::Connection<C, Bytes>: Send + 'static,
    {
        let (mut session, requests) = h3::client::new(connection).await?;
        let driver = tokio::spawn(async move {
            session.wait_idle().await;
        });
        Ok(Self { requests, driver })
    }

    /// Fetches a file.
    pub fn get(
        &self,
        authority: &str,
        path: &str,
    ) -> impl Future<Output = Result<Vec<u8>, Failure>> + use<T> {
        let mut requests = self.requests.clone();
        let (url, path) = (format!("https://{authority}{path}"), path.to_owned());
        async move {
            let mut stream = requests.send_request(Request::get(url).body(())?).await?;
            stream.finish().await?;
            let response = stream.recv_response().await?;
            if response.status() != StatusCode::OK {
                return Err(format!("{path}: the server answered {}", response.status()).into());
            }
            let mut content = Vec::new();
            while let Some(data) = stream.recv_data().await? {
                content.put(data);
            }
            Ok(content)
        }
    }
}

impl<T: quic::OpenStreams<Bytes>> Drop for Client<T> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
