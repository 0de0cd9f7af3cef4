//! Upgrades: a connection of HTTP/1.1 (RFC 9110, Section 7.8), a stream of HTTP/2 (RFC 8441) or of HTTP/3
//! (RFC 9220) becomes another protocol's. Servers are asked as in HTTP/1.1, whatever the client came by; `origin` has
//! it as what they speak.

use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use quicket_front::Counted;

use crate::Body;
use crate::request::Refusal;
use crate::tunnel::{self, Link, Tunnel};

const WEBSOCKET: &str = "websocket";
/// RFC 6455, Section 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A stream of HTTP/3: in a request's extensions its client asks for WebSocket on it, and in those of an answer the server
/// has taken that up.
#[derive(Clone)]
pub(crate) struct Stream(Arc<Mutex<Option<Link>>>);

impl Stream {
    pub(crate) fn new(stream: impl tunnel::Stream + 'static) -> Self {
        let link: Link = Box::new(stream);
        Self(Arc::new(Mutex::new(Some(link))))
    }

    fn take(&self) -> Option<Link> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// In the extensions of an answer: the client's connection or stream is upgraded to this.
#[derive(Clone)]
struct Upgraded(HeaderValue);

/// What a client wishes its connection or stream to become.
pub(crate) struct Wish {
    token: String,
    client: Side,
    /// It was an extended CONNECT, which cannot be answered as an ordinary request.
    is_connect: bool,
    /// The client's connection is not idle, as long as this is kept.
    counted: Option<Counted>,
    /// What the server has to prove that it read the request by (RFC 6455, Section 4.2.2).
    accept: Option<HeaderValue>,
}

/// What becomes one end of a tunnel.
enum Side {
    Later(OnUpgrade),
    Stream(Link),
}

/// True for a CONNECT that names a protocol (RFC 8441, Section 4).
pub(crate) fn is_extended(parts: &Parts) -> bool {
    parts.method == Method::CONNECT
        && (parts.extensions.get::<Protocol>().is_some()
            || parts.extensions.get::<Stream>().is_some())
}

/// True for a request that names a protocol, and is no CONNECT (RFC 8441, Section 4).
pub(crate) fn is_misused(parts: &Parts) -> bool {
    let is_named =
        parts.extensions.get::<Protocol>().is_some() || parts.extensions.get::<Stream>().is_some();
    is_named && parts.method != Method::CONNECT
}

impl Wish {
    /// What a request asks for, if it asks for an upgrade. From then on it is a GET.
    pub(crate) fn take(parts: &mut Parts, is_empty: bool) -> Option<Self> {
        let stream = parts.extensions.remove::<Stream>().and_then(|stream| stream.take());
        let later = parts.extensions.remove::<OnUpgrade>();
        let counted = parts.extensions.remove();
        let protocol = parts.extensions.remove::<Protocol>();
        let is_connect = parts.method == Method::CONNECT;
        let (token, client) = match (is_connect, stream, protocol, later) {
            (true, Some(stream), _, _) => (WEBSOCKET.to_owned(), Side::Stream(stream)),
            (true, None, Some(protocol), Some(later)) => {
                (protocol.as_str().to_owned(), Side::Later(later))
            }
            (false, _, _, Some(later)) if is_empty => (token(parts)?, Side::Later(later)),
            _ => return None,
        };
        parts.method = Method::GET;
        let token = token.to_ascii_lowercase();
        Some(Self { token, client, is_connect, counted, accept: None })
    }

    /// What it is to become, in lower case.
    pub(crate) fn protocol(&self) -> &str {
        &self.token
    }

    /// Whether it may come true here. What cannot is an ordinary request in HTTP/1.1, and none in others.
    pub(crate) fn allow(self, allowed: &[String]) -> Result<Option<Self>, Refusal> {
        // Only for WebSocket it is said how an extended CONNECT becomes an upgrade.
        let is_known = !self.is_connect || self.token == WEBSOCKET;
        match is_known && allowed.contains(&self.token) {
            true => Ok(Some(self)),
            false if self.is_connect => Err(Refusal::new(
                StatusCode::NOT_IMPLEMENTED,
                "this protocol is not passed on here",
            )),
            false => Ok(None),
        }
    }

    /// Puts it into the request for a server.
    pub(crate) fn ask(&mut self, headers: &mut HeaderMap) -> Result<(), Refusal> {
        let wrong = || Refusal::new(StatusCode::BAD_REQUEST, "an upgrade to what is no protocol");
        headers.insert(header::UPGRADE, HeaderValue::from_str(&self.token).map_err(|_| wrong())?);
        if self.token != WEBSOCKET {
            return Ok(());
        }
        if self.is_connect {
            // RFC 8441, Section 5: the client has no key, which the server needs.
            let mut nonce = [0; 16];
            let failed = |_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no randomness");
            aws_lc_rs::rand::fill(&mut nonce).map_err(failed)?;
            let key = HeaderValue::from_str(&BASE64_STANDARD.encode(nonce)).map_err(|_| wrong())?;
            headers.insert(header::SEC_WEBSOCKET_KEY, key);
            let version = headers.entry(header::SEC_WEBSOCKET_VERSION);
            version.or_insert(HeaderValue::from_static("13"));
        }
        let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY).iter();
        match (keys.next(), keys.next()) {
            (Some(key), None) => self.accept = Some(accept(key)),
            _ => {
                return Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    "no key of WebSocket, or several",
                ));
            }
        }
        Ok(())
    }

    /// The answer for the client, where a server has answered; an upgrade goes on by itself.
    pub(crate) fn settle(
        self,
        mut answer: Response<Body>,
        tunnel: Tunnel,
    ) -> Result<Response<Body>, Refusal> {
        let bad = |reason| Refusal::new(StatusCode::BAD_GATEWAY, reason);
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return match self.is_connect && answer.status().is_success() {
                true => Err(bad("the origin answered, and did not upgrade")),
                false => Ok(answer),
            };
        }
        let stream = answer.extensions_mut().remove::<Stream>().and_then(|stream| stream.take());
        let later = answer.extensions_mut().remove::<OnUpgrade>();
        let abort = answer.extensions_mut().remove().unwrap_or_default();
        let tunnel = tunnel.aborted_by(abort);
        let server = match (stream, later) {
            (Some(stream), _) => Side::Stream(stream),
            (None, Some(later)) => {
                if answer.version() != Version::HTTP_2 {
                    self.check(answer.headers())?;
                }
                Side::Later(later)
            }
            (None, None) => return Err(bad("the origin upgraded nothing")),
        };
        let fields = answer.headers_mut();
        fields.remove(header::SEC_WEBSOCKET_ACCEPT);
        let status = match self.is_connect {
            true => StatusCode::OK,
            false => {
                fields.extend(self.accept.map(|accept| (header::SEC_WEBSOCKET_ACCEPT, accept)));
                StatusCode::SWITCHING_PROTOCOLS
            }
        };
        let (mut parts, body) = answer.into_parts();
        parts.status = status;
        if let Ok(token) = HeaderValue::from_str(&self.token) {
            parts.extensions.insert(Upgraded(token));
        }
        tokio::spawn(async move {
            // The request is under way as long as its body is.
            let _under_way = (body, self.counted);
            tunnel.carry(self.client.open(), server.open()).await;
        });
        Ok(Response::from_parts(parts, Empty::new().map_err(|never| match never {}).boxed_unsync()))
    }

    /// A server that did not understand the request is no end of a tunnel.
    fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let is_same =
            |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(self.token.as_bytes());
        let accepted = headers.get(header::SEC_WEBSOCKET_ACCEPT);
        let is_right = headers.get(header::UPGRADE).is_some_and(is_same)
            && self.accept.as_ref().is_none_or(|accept| accepted == Some(accept));
        match is_right {
            true => Ok(()),
            false => Err(Refusal::new(
                StatusCode::BAD_GATEWAY,
                "the origin upgraded to something else than asked for",
            )),
        }
    }
}

impl Side {
    async fn open(self) -> Result<Link, hyper::Error> {
        match self {
            Self::Later(later) => Ok(Box::new(TokioIo::new(later.await?))),
            Self::Stream(stream) => Ok(stream),
        }
    }
}

/// True for an answer after which a connection or stream is another protocol's.
pub(crate) fn is_upgraded<B>(response: &Response<B>) -> bool {
    response.extensions().get::<Upgraded>().is_some()
}

/// The fields of the client's connection that an upgrade needs (RFC 9110, Section 7.8).
pub(crate) fn finish<B>(response: &mut Response<B>) {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(Upgraded(token)) = response.extensions().get().cloned()
    {
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, token);
    }
}

/// The one protocol that a request of HTTP/1.1 asks for. Several are not passed on: the server could take
/// one that is not allowed.
fn token(parts: &Parts) -> Option<String> {
    if parts.version != Version::HTTP_11 || parts.method != Method::GET {
        return None;
    }
    let mut options = parts.headers.get_all(header::CONNECTION).iter().flat_map(|value| {
        value.to_str().unwrap_or_default().split(',').map(|option| option.trim().to_owned())
    });
    let mut tokens = parts.headers.get_all(header::UPGRADE).iter();
    let token = tokens.next()?.to_str().ok()?;
    let is_one = tokens.next().is_none() && !token.contains(',');
    (is_one && options.any(|option| option.eq_ignore_ascii_case("upgrade")))
        .then(|| token.to_owned())
}

/// RFC 6455, Section 4.2.2.
fn accept(key: &HeaderValue) -> HeaderValue {
    let text = [key.as_bytes(), GUID.as_bytes()].concat();
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &text);
    // Base64 has no other characters than a value may have.
    HeaderValue::from_str(&BASE64_STANDARD.encode(hash)).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[test]
    fn a_key_is_answered_as_in_the_rfc() {
        // RFC 6455, Section 1.3.
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept(&key), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn only_a_request_that_asks_for_one_protocol_asks_for_an_upgrade() {
        let token = |fields: &[(&str, &str)]| {
            let mut request = Request::get("/");
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            super::token(&request.body(()).unwrap().into_parts().0)
        };
        let upgrade = ("upgrade", "websocket");
        assert_eq!(token(&[("connection", "keep-alive, Upgrade"), upgrade]).unwrap(), "websocket");
        assert_eq!(token(&[upgrade]), None);
        assert_eq!(token(&[("connection", "upgrade")]), None);
        assert_eq!(token(&[("connection", "upgrade"), upgrade, ("upgrade", "h2c")]), None);
        assert_eq!(token(&[("connection", "upgrade"), ("upgrade", "h2c, websocket")]), None);
    }
}
