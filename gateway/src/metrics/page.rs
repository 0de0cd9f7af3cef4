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

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page reads under another name would be shown as zero for ever.
    #[test]
    fn the_page_reads_counters_that_there_are() {
        // The library says nothing of counters that have not counted yet.
        let sources = [
            include_str!("mod.rs"),
            include_str!("pass.rs"),
            include_str!("private.rs"),
            include_str!("quic.rs"),
        ];
        let script = include_str!("page/page.js");
        let words = script.split('"').skip(1).step_by(2);
        let is_name = |word: &&str| {
            word.contains('_') && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        };
        let names: Vec<&str> = words.filter(is_name).filter(|&word| word != "_bucket").collect();
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            let name = name.trim_end_matches("_total").trim_end_matches("_count");
            let added = format!("\"{name}\"");
            let is_known = sources.iter().any(|source| source.contains(&added));
            assert!(is_known || name.starts_with("quicket"), "{name} is not counted");
        }
    }

    #[test]
    fn its_parts_are_all_there_is_to_it() {
        let html = include_str!("page/index.html");
        for linked in ["page.css", "page.js"] {
            assert!(html.contains(&format!("\"{linked}\"")));
            let part = part(&format!("/{linked}")).unwrap();
            assert_eq!(part.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
        }
        for text in [html, include_str!("page/page.css"), include_str!("page/page.js")] {
            let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains("//www") && !elsewhere.contains("://"), "{text}");
        }
        assert!(part("/other").is_none());
    }
}
