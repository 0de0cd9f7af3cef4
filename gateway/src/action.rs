//! What a route does with a request.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};

use crate::directory::Directory;
use crate::origin::Origin;
use crate::{Body, BodyError};

/// What a route does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Passes it on.
    Origin(Arc<Origin>),
    /// Answers with a file.
    Files(Arc<Directory>),
    /// Tells the client to go elsewhere.
    Redirect(Redirect),
    /// Answers always the same.
    Respond(Respond),
}

impl Action {
    /// What connections may be upgraded to.
    pub(crate) fn upgrades(&self) -> &[String] {
        match self {
            Self::Origin(origin) => origin.upgrades(),
            _ => &[],
        }
    }
}

/// Where clients are told to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) to: Template,
    pub(crate) status: StatusCode,
}

/// An answer that is always the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Respond {
    pub(crate) status: StatusCode,
    pub(crate) content_type: HeaderValue,
    pub(crate) body: Bytes,
}

/// A URL with places for parts of the request's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Host,
    Path,
    Rest,
}

impl Template {
    /// Reads `https://{host}/new{rest}` and the like.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if !["https://", "http://", "/"].iter().any(|begin| text.starts_with(begin)) {
            return Err(format!("{text:?} begins neither with https:// nor with /"));
        }
        let mut pieces = Vec::new();
        let mut left = text;
        while let Some((before, after)) = left.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("a { has no }")?;
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(match name {
                "host" => Piece::Host,
                "path" => Piece::Path,
                "rest" => Piece::Rest,
                other => {
                    return Err(format!(
                        "{{{other}}} is unknown; there are {{host}}, {{path}}, {{rest}}"
                    ));
                }
            });
            left = after;
        }
        pieces.push(Piece::Text(left.to_owned()));
        let is_clean = text.bytes().all(|byte| byte.is_ascii_graphic());
        is_clean.then_some(Self(pieces)).ok_or_else(|| format!("{text:?} is no URL"))
    }

    /// `rest` is what follows the route's own path.
    fn fill(&self, host: &str, path: &str, rest: &str, query: Option<&str>) -> String {
        let mut url = String::new();
        for piece in &self.0 {
            let (text, has_query) = match piece {
                Piece::Text(text) => (text.as_str(), false),
                Piece::Host => (host, false),
                Piece::Path => (path, true),
                Piece::Rest => (rest, true),
            };
            url.push_str(text);
            if let Some(query) = query.filter(|_| has_query) {
                url.push('?');
                url.push_str(query);
            }
        }
        // Two slashes in the beginning would make the path's first segment a host (RFC 3986, Section 4.2).
        match url.starts_with("//") {
            true => format!("/{}", url.trim_start_matches('/')),
            false => url,
        }
    }
}

impl Redirect {
    /// `rest` is what follows the route's own path.
    pub(crate) fn answer(&self, request: &Parts, host: &str, rest: &str) -> Response<Body> {
        let (path, rest) = if rest == "*" { ("/", "") } else { (request.uri.path(), rest) };
        let url = self.to.fill(host, path, rest, request.uri.query());
        let mut response = answer(self.status, Bytes::new());
        match HeaderValue::from_str(&url) {
            Ok(url) => {
                response.headers_mut().insert(header::LOCATION, url);
            }
            Err(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
        }
        response
    }
}

impl Respond {
    pub(crate) fn answer(&self) -> Response<Body> {
        let mut response = answer(self.status, self.body.clone());
        if !self.body.is_empty() {
            response.headers_mut().insert(header::CONTENT_TYPE, self.content_type.clone());
        }
        response
    }
}

/// An answer of the gateway's own.
pub(crate) fn answer(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(self::body(body));
    *response.status_mut() = status;
    response
}

/// Bytes as a body.
pub(crate) fn body(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| -> BodyError { match never {} }).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn location(to: &str, uri: &str, rest: &str) -> String {
        let redirect =
            Redirect { to: Template::parse(to).unwrap(), status: StatusCode::PERMANENT_REDIRECT };
        let request = Request::get(uri).body(()).unwrap().into_parts().0;
        let answer = redirect.answer(&request, "a.example", rest);
        answer.headers()[header::LOCATION].to_str().unwrap().to_owned()
    }

    #[test]
    fn redirects_take_parts_of_the_request() {
        assert_eq!(
            location("https://b.example{path}", "/a/b?c=d", "/b"),
            "https://b.example/a/b?c=d"
        );
        assert_eq!(
            location("https://www.{host}/n{rest}", "/a/b", "/b"),
            "https://www.a.example/n/b"
        );
        assert_eq!(location("/n{rest}", "/a?q", ""), "/n?q");
        assert_eq!(location("/fixed", "/a?q", ""), "/fixed");
    }

    #[test]
    fn no_path_becomes_a_host() {
        assert_eq!(location("/{rest}", "/a//evil.example/", "//evil.example/"), "/evil.example/");
    }

    #[test]
    fn what_is_no_template_is_told() {
        for wrong in
            ["a.example", "//a.example{x}", "https://{name}", "https://{host", "https://a b/"]
        {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
