//! What the origin is told of a request, and what the client is not told of an answer.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Version};

use crate::credentials::{CLIENT_CERT, CLIENT_CERT_CHAIN};

/// Fields that concern the connection they came by, besides those that Connection names (RFC 9110,
/// Section 7.6.1).
static HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
];

/// Fields by which only the gateway says who the client is: a client's own would be believed.
static ABOUT_CLIENT: [HeaderName; 9] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
    EARLY_DATA,
    // RFC 9440, Section 2.4.
    CLIENT_CERT,
    CLIENT_CERT_CHAIN,
];

/// RFC 8470, Section 5.1.
pub(crate) const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// Who asks, for the origin.
pub(crate) struct Asked<'a> {
    pub(crate) client: SocketAddr,
    pub(crate) authority: &'a str,
    pub(crate) version: Version,
    /// It came as 0-RTT data, which may have been repeated.
    pub(crate) is_early: bool,
}

/// Prepares a request's fields for the origin.
pub(crate) fn to_origin(headers: &mut HeaderMap, asked: &Asked<'_>) {
    let takes_trailers = has_option(headers, &header::TE, "trailers");
    // Where the client waits for 100 (Continue), it gets it when the body is asked for.
    remove_named(headers, |name| {
        HOP_BY_HOP.contains(name) || ABOUT_CLIENT.contains(name) || *name == header::EXPECT
    });
    if takes_trailers {
        // What a client that takes trailers gets of them is passed on; gRPC insists on it.
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    remove_look_alikes(headers, is_ours);
    join_cookies(headers);
    let ip = asked.client.ip().to_canonical();
    let address = ip.to_string();
    let (open, close) = match ip {
        IpAddr::V4(_) => ("", ""),
        // RFC 7239, Section 6.
        IpAddr::V6(_) => ("\"[", "]\""),
    };
    let forwarded =
        ["for=", open, address.as_str(), close, ";host=\"", asked.authority, "\";proto=https"]
            .concat();
    // All of it was read from an authority or an address: there are no other characters.
    let value = |text: String| HeaderValue::from_maybe_shared(Bytes::from(text)).ok();
    let authority = value(asked.authority.to_owned());
    let fields = [
        (header::FORWARDED, value(forwarded)),
        (HeaderName::from_static("x-forwarded-for"), value(address)),
        (HeaderName::from_static("x-forwarded-host"), authority.clone()),
        (HeaderName::from_static("x-forwarded-proto"), Some(HeaderValue::from_static("https"))),
        (header::HOST, authority),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
    if asked.is_early {
        headers.insert(EARLY_DATA, HeaderValue::from_static("1"));
    }
    add_via(headers, asked.version);
}

/// Fields that the gateway writes or removes: no other may stand for them.
pub(crate) fn is_ours(name: &str) -> bool {
    const MORE: [HeaderName; 5] =
        [header::HOST, header::VIA, header::CONTENT_LENGTH, header::COOKIE, header::EXPECT];
    HOP_BY_HOP.iter().chain(&ABOUT_CLIENT).chain(&MORE).any(|ours| ours == name)
}

/// Removes fields that servers take for another one, of which `is_meant` is true: CGI (RFC 3875, Section 4.1.18)
/// and what follows it (WSGI, PHP) know fields by names in which `-` is `_`, and some have all but letters and
/// digits so.
pub(crate) fn remove_look_alikes(headers: &mut HeaderMap, is_meant: impl Fn(&str) -> bool) {
    let is_odd = |name: &&HeaderName| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if name.as_str().bytes().all(is_plain) {
            return false;
        }
        let fold = |char: char| if char.is_ascii_alphanumeric() { char } else { '-' };
        is_meant(&name.as_str().chars().map(fold).collect::<String>())
    };
    let odd: Vec<HeaderName> = headers.keys().filter(is_odd).cloned().collect();
    for name in odd {
        headers.remove(name);
    }
}

/// Clients over HTTP/2 and HTTP/3 may split Cookie, which the server gets as one field (RFC 9113, Section 8.2.3;
/// RFC 9114, Section 4.2.1).
fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() < 2 {
        return;
    }
    // Each is a value: so are all of them.
    if let Ok(whole) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(header::COOKIE, whole);
    }
}

/// Prepares an answer's fields for the client.
pub(crate) fn to_client(headers: &mut HeaderMap, version: Version) {
    // What the origin offers for its own port does not stand for this one (RFC 7838).
    remove_named(headers, |name| HOP_BY_HOP.contains(name) || *name == header::ALT_SVC);
    add_via(headers, version);
}

/// True if a list of options has this one.
fn has_option(headers: &HeaderMap, name: &HeaderName, option: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(option))
}

/// RFC 9110, Section 7.6.3.
fn add_via(headers: &mut HeaderMap, version: Version) {
    let via = match version {
        Version::HTTP_10 => "1.0 quicket",
        Version::HTTP_2 => "2 quicket",
        Version::HTTP_3 => "3 quicket",
        _ => "1.1 quicket",
    };
    headers.append(header::VIA, HeaderValue::from_static(via));
}

/// The fields that Connection names (RFC 9110, Section 7.6.1).
pub(crate) fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let mut named = Vec::new();
    for value in headers.get_all(header::CONNECTION) {
        let names = value.to_str().unwrap_or_default().split(',');
        named.extend(names.filter_map(|name| name.trim().parse::<HeaderName>().ok()));
    }
    named
}

/// Removes the fields that Connection names, and others. Few messages have any of them: one look at the names there
/// are costs less than one for each that there may be.
fn remove_named(headers: &mut HeaderMap, is_named: impl Fn(&HeaderName) -> bool) {
    let mut named = named_by_connection(headers);
    // A client must not have fields removed that the gateway or the origin relies upon.
    named.retain(|name| ![header::HOST, header::CONTENT_LENGTH].contains(name));
    named.extend(headers.keys().filter(|name| is_named(name)).cloned());
    for name in &named {
        headers.remove(name);
    }
}

/// True if a request has come by this gateway before: it would go round for ever.
pub(crate) fn goes_round(headers: &HeaderMap) -> bool {
    /// How often a request may pass gateways of this kind, one behind the other.
    const MAX_HOPS: usize = 8;
    let via = headers.get_all(header::VIA).iter().filter_map(|via| via.to_str().ok());
    via.flat_map(|via| via.split(',')).filter(|hop| hop.trim_end().ends_with(" quicket")).count()
        >= MAX_HOPS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for &(name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn asked(is_early: bool) -> Asked<'static> {
        let client = "[::ffff:192.0.2.1]:9".parse().unwrap();
        Asked { client, authority: "a.example", version: Version::HTTP_3, is_early }
    }

    #[test]
    fn what_belongs_to_a_connection_stays_there() {
        let mut headers = map(&[
            ("connection", "x-secret, Host, close"),
            ("x-secret", "1"),
            ("te", "gzip, trailers"),
            ("keep-alive", "9"),
            ("accept", "*/*"),
        ]);
        to_origin(&mut headers, &asked(false));
        for name in ["connection", "x-secret", "keep-alive", "early-data"] {
            assert!(!headers.contains_key(name), "{name}");
        }
        assert_eq!(headers["te"], "trailers", "of the codings none");
        assert_eq!(
            (&headers["accept"], &headers["host"]),
            (&"*/*".parse().unwrap(), &"a.example".parse().unwrap())
        );
    }

    #[test]
    fn nobody_but_the_gateway_says_who_the_client_is() {
        let mut headers = map(&[
            ("forwarded", "for=203.0.113.9"),
            ("x-forwarded-for", "203.0.113.9"),
            ("early-data", "1"),
            ("via", "1.1 proxy"),
        ]);
        to_origin(&mut headers, &asked(false));
        let all = |name: &str| -> Vec<_> {
            headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
        };
        assert_eq!(all("forwarded"), ["for=192.0.2.1;host=\"a.example\";proto=https"]);
        assert_eq!(all("x-forwarded-for"), ["192.0.2.1"]);
        assert_eq!(all("via"), ["1.1 proxy", "3 quicket"]);
        assert!(all("early-data").is_empty());
        to_origin(&mut headers, &asked(true));
        assert_eq!(headers["early-data"], "1");
    }

    #[test]
    fn what_is_like_a_field_of_the_gateways_is_removed_in_any_spelling() {
        let wrong = [
            "x_forwarded_for",
            "x-forwarded_for",
            "x.forwarded.for",
            "early_data",
            "transfer_encoding",
            "content_length",
        ];
        let mut headers = map(&wrong.map(|name| (name, "1")));
        headers.extend(map(&[("x_other", "1"), ("x-kept", "1")]));
        to_origin(&mut headers, &asked(false));
        for name in wrong {
            assert!(!headers.contains_key(name), "{name}");
        }
        assert!(headers.contains_key("x_other") && headers.contains_key("x-kept"));
    }

    #[test]
    fn a_cookie_in_crumbs_is_made_whole() {
        let mut headers = map(&[("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3; d=4")]);
        to_origin(&mut headers, &asked(false));
        let all: Vec<_> = headers.get_all("cookie").iter().collect();
        assert_eq!(all, ["a=1; b=2; c=3; d=4"]);
    }

    #[test]
    fn a_request_that_goes_round_is_noticed() {
        assert!(!goes_round(&map(&[("via", "1.1 quicket, 2 other, 3 quicket")])));
        assert!(goes_round(&map(&[
            ("via", "3 quicket, 3 quicket, 3 quicket, 3 quicket"),
            ("via", "3 quicket, 3 quicket, 3 quicket, 3 quicket")
        ])));
    }
}
