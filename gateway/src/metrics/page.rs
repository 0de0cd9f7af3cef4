//! The page where people look at the counters. It is made of three files, and of nothing from elsewhere.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;

use super::serve::said;

/// Only what is served here runs and is shown, in no frame of another page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A part of the page by its path.
pub(super) fn part(path: &str) -> Option<Response<Full<Bytes>>> {
    let (content_type, text) = match path {
        "/" => ("text/html; charset=utf-8", include_str!("page/index.html")),
        "/page.css" => ("text/css; charset=utf-8", include_str!("page/page.css")),
        "/page.js" => ("text/javascript; charset=utf-8", include_str!("page/page.js")),
        _ => return None,
    };
    let mut part = said(StatusCode::OK, content_type, text.to_owned());
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        part.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Some(part)
}
