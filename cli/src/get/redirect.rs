//! Where an answer points, and whether to go there (RFC 9110, Section 15.4).

use http::header::{self, HeaderMap};

use super::download::Job;
use super::target::Target;
use crate::args::Protocol;
use crate::exit::{Failure, Kind};

/// What to ask next; `None` where the answer points nowhere.
pub(crate) fn follow(status: u16, headers: &HeaderMap, job: &Job) -> Result<Option<Job>, Failure> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = headers.get(header::LOCATION) else { return Ok(None) };
    let from = &job.target.url;
    let shown = location.as_bytes().escape_ascii();
    let refused = |why: &str| {
        Failure::new(Kind::Refused, format!("{from}: the server points to {shown}, {why}"))
    };
    let text = location.to_str().map_err(|_| refused("which is not a URL"))?;
    let mut url = from.join(text).map_err(|_| refused("which is not a URL"))?;
    match url.scheme() {
        "https" => {}
        "http" => return Err(refused("which is not encrypted; it is not followed there")),
        _ => return Err(refused("where only https:// is followed")),
    }
    // RFC 9110, Section 10.2.2: the fragment goes along unless there is another.
    if url.fragment().is_none() {
        url.set_fragment(from.fragment());
    }
    let target = Target::new(&url, Protocol::H3).map_err(|failure| refused(&failure.message))?;
    let Some(order) = job.order.redirected(status, &job.target, &target) else {
        let most = job.order.max_redirects();
        let message = format!(
            "{from}: there were {most} redirects already, and the server points on to {shown}; is \
             it a circle? (--max-redirects allows for more)"
        );
        return Err(Failure::new(Kind::Refused, message));
    };
    Ok(Some(Job { target, order, ..job.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::get::download::tests::job;

    fn to(from: &str, location: &str) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::LOCATION, location.parse().unwrap());
        let job = job(from, &["-L"]);
        match follow(302, &headers, &job) {
            Ok(job) => Ok(job.unwrap().target.url.to_string()),
            Err(failure) => Err(failure.message),
        }
    }

    #[test]
    fn places_are_relative_to_where_they_are_named() {
        assert_eq!(to("https://a.test/b/c#d", "e").unwrap(), "https://a.test/b/e#d");
        assert_eq!(to("https://a.test/b/c", "/e?f#g").unwrap(), "https://a.test/e?f#g");
        assert_eq!(to("https://a.test/", "//b.test:44/").unwrap(), "https://b.test:44/");
    }

    #[test]
    fn nothing_leads_out_of_encryption_or_to_other_schemes() {
        assert!(to("https://a.test/", "http://a.test/").unwrap_err().contains("not encrypted"));
        for place in ["ftp://a.test/", "file:///etc/passwd", "hq://a.test/", "https://u@b.test/"] {
            assert!(to("https://a.test/", place).is_err(), "{place}");
        }
        assert!(
            follow(302, &HeaderMap::new(), &job("https://a.test/", &["-L"])).unwrap().is_none()
        );
    }
}
