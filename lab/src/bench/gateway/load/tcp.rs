//! HTTP/1.1 and HTTP/2 over TLS and TCP, by hyper and rustls.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quicket_workload::bench::{Failure, SERVER_NAME, WINDOW, client_config};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio_rustls::TlsConnector;

use super::ask::Way;
use super::{Assignment, Version};

/// Makes connections.
pub(super) struct Dialer {
    to: SocketAddr,
    version: Version,
    tls: TlsConnector,
}

impl Dialer {
    pub(super) fn new(assignment: &Assignment, version: Version) -> Result<Self, Failure> {
        let mut tls = client_config(assignment.conditions, &assignment.roots)?;
        tls.alpn_protocols = vec![version.alpn().to_vec()];
        Ok(Self { to: assignment.to, version, tls: Arc::new(tls).into() })
    }

    pub(super) async fn connect(&self) -> Result<Way, Failure> {
        let stream = TcpStream::connect(self.to).await?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(ServerName::try_from(SERVER_NAME)?, stream).await?;
        if stream.get_ref().1.alpn_protocol() != Some(self.version.alpn()) {
            return Err("the gateway chose another version of HTTP".into());
        }
        let stream = TokioIo::new(stream);
        if self.version == Version::One {
            let (sender, connection) = http1::handshake(stream).await?;
            spawn_local(connection);
            return Ok(Way::One(One(sender)));
        }
        // As over QUIC, windows are never what limits.
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(stream)
            .await?;
        spawn_local(connection);
        Ok(Way::Two(Two(sender)))
    }
}

/// A connection of HTTP/1.1.
pub(super) struct One(http1::SendRequest<Empty<Bytes>>);

impl One {
    pub(super) async fn get(
        &mut self,
        mut request: Request<()>,
        came: &mut dyn FnMut(&[u8]),
    ) -> Result<StatusCode, Failure> {
        // RFC 9112, Section 3.2.1: the target is the path alone.
        request.headers_mut().insert(HOST, HeaderValue::from_static(SERVER_NAME));
        let path = request.uri().path().parse()?;
        *request.uri_mut() = path;
        self.0.ready().await?;
        let response = self.0.send_request(request.map(|()| Empty::new())).await?;
        let status = response.status();
        take(response.into_body(), came).await?;
        Ok(status)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// A handle of a connection of HTTP/2.
#[derive(Clone)]
pub(super) struct Two(http2::SendRequest<Empty<Bytes>>);

impl Two {
    pub(super) async fn get(
        &mut self,
        request: Request<()>,
        came: &mut dyn FnMut(&[u8]),
    ) -> Result<StatusCode, Failure> {
        self.0.ready().await?;
        let response = self.0.send_request(request.map(|()| Empty::new())).await?;
        let status = response.status();
        take(response.into_body(), came).await?;
        Ok(status)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

async fn take(mut body: Incoming, came: &mut dyn FnMut(&[u8])) -> Result<(), Failure> {
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            came(data);
        }
    }
    Ok(())
}
