//! Whom a request is for.

use http::header;
use http::request::Parts;

/// The authority, in lower case: of the target, of Host, or of both if they agree (RFC 9112, Section 3.2;
/// RFC 9114, Section 4.3.1).
///
/// # Errors
///
/// Why it is none, in words.
pub fn of(request: &Parts) -> Result<String, &'static str> {
    let mut hosts = request.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err("several Host");
    }
    let host = host.map(|host| host.to_str().map_err(|_| "Host with other characters"));
    let host = host.transpose()?;
    let target = request.uri.authority().map(http::uri::Authority::as_str);
    let authority = match (target, host) {
        (Some(target), Some(host)) if !target.eq_ignore_ascii_case(host) => {
            return Err("Host that is not the target's");
        }
        (Some(authority), _) | (None, Some(authority)) => authority,
        (None, None) => return Err("no Host"),
    };
    let parsed: http::uri::Authority = authority.parse().map_err(|_| "Host that is none")?;
    // RFC 3986, Section 3.2.3. What is no number would be part of the links that a server writes.
    let port = authority.strip_prefix(parsed.host()).unwrap_or_default();
    let is_number =
        port.strip_prefix(':').unwrap_or(port).bytes().all(|byte| byte.is_ascii_digit());
    if authority.contains('@') || parsed.host().is_empty() || !is_number {
        return Err("Host that is none");
    }
    Ok(authority.to_ascii_lowercase())
}

/// The host of an authority.
#[must_use]
pub fn host(authority: &str) -> &str {
    let end = match authority.starts_with('[') {
        true => authority.find(']').map(|at| at + 1),
        false => authority.find(':'),
    };
    let host = end.and_then(|end| authority.get(..end)).unwrap_or(authority);
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_number() {
        let of = |host: &str| {
            let request = http::Request::builder().uri("/").header(header::HOST, host);
            of(&request.body(()).unwrap().into_parts().0)
        };
        for good in ["a", "a:", "a:443", "[::1]", "[::1]:443"] {
            assert_eq!(of(good).unwrap(), good);
        }
        for wrong in ["a:x", "a:1x", "a:'(1)", "[::1]:x", "[::1]x"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hosts_have_no_ports() {
        assert_eq!(host("[::1]:443"), "[::1]");
        assert_eq!(host("[::1]"), "[::1]");
        assert_eq!(host("a:1"), "a");
    }
}
