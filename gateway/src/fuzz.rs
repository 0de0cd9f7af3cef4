//! Bytes of strangers, for fuzzing: the file, a request, and a header of PROXY protocol. Each function panics if
//! what it finds is not as it should be.

use std::collections::HashSet;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Uri, Version};
use quicket::Identity;

use crate::headers::{self, Asked};
use crate::path::{self, Doubt, Prefix};
use crate::{config, front, request};

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod replay;

/// Where no file is that a configuration could name.
const NOWHERE: &str = "/nonexistent/directory/of/no/file";

/// A configuration is taken, or all that is wrong with it is told; each time the same.
pub fn configuration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    // Whose files are read is the operator's affair; devices have no end.
    if ["/dev", "/proc", "/sys"].iter().any(|place| text.contains(place)) {
        return;
    }
    static IDENTITY: OnceLock<Option<Identity>> = OnceLock::new();
    let Some(identity) = IDENTITY.get_or_init(|| Identity::self_signed(["a.example"]).ok()) else {
        return;
    };
    let read = || config::parse_with(text, Path::new(NOWHERE), identity.clone());
    match (read(), read()) {
        (Ok(snapshot), Ok(again)) => {
            assert!(!snapshot.listen.is_empty());
            let names = ["a.example", "b.a.example", "[::1]:1", "*", "", "."];
            let found = names.map(|name| snapshot.sites.find(name).is_ok());
            assert_eq!(found, names.map(|name| again.sites.find(name).is_ok()));
            let alpn: HashSet<_> = snapshot.alpn().into_iter().collect();
            assert_eq!(alpn.len(), again.alpn().len());
            assert_eq!(snapshot.origins().count(), again.origins().count());
            assert!(snapshot.has_sites() || !snapshot.protocols().is_empty());
        }
        (Err(problems), Err(again)) => {
            assert!(!problems.is_empty());
            assert_eq!(problems, again);
            assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
        }
        _ => panic!("it was taken once and refused once"),
    }
}

/// A request that passes can be read in one way only, and says nothing in the gateway's name.
///
/// The first line is the method, the target and the version (1, 2 or 3); each further one a field.
pub fn request(input: &[u8]) {
    let Some(mut parts) = parts(input) else { return };
    let Ok(authority) = request::check(&parts) else { return };
    assert!(authority.parse::<http::uri::Authority>().is_ok(), "{authority:?}");
    assert!(!authority.contains('@') && !authority.bytes().any(|byte| byte.is_ascii_uppercase()));
    assert_ne!(parts.method, Method::TRACE);
    let path = parts.uri.path();
    assert!(path.bytes().all(|byte| byte > b' ' && byte != 0x7f && byte != b'\\'), "{path:?}");
    for text in [path.to_owned(), decoded(path)] {
        let is_dots = |part: &str| matches!(part.split(';').next(), Some("." | ".."));
        assert!(!text.split(['/', '\\']).any(is_dots), "{path:?}");
    }
    let before = decoded(path);
    if request::normalise(&mut parts).is_ok() {
        let path = parts.uri.path();
        assert_eq!(decoded(path), before);
        assert_eq!(path::check(path), Ok(()));
        assert_eq!(path::normalised(path), None, "once is enough");
        for route in ["/", "/a", "/a/b"].map(Prefix::new) {
            // Whoever decodes all at once and leaves out empty segments is seen to.
            let plain: Vec<&str> = before.split('/').filter(|name| !name.is_empty()).collect();
            let named: Vec<&str> = route.as_str().split('/').skip(1).collect();
            let is_seen = Doubt::of(path).is_some_and(|doubt| doubt.may_begin_with(&route));
            assert!(!plain.starts_with(&named) || route.rest(path).is_some() || is_seen);
        }
    }
    let lengths: Vec<&HeaderValue> = parts.headers.get_all(header::CONTENT_LENGTH).iter().collect();
    assert!(lengths.len() < 2);
    assert!(lengths.iter().all(|value| {
        value.to_str().is_ok_and(|text| {
            text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok()
        })
    }));
    let client = SocketAddr::from(([192, 0, 2, 1], 9));
    let asked = Asked { client, authority: &authority, version: parts.version, is_early: false };
    headers::to_origin(&mut parts.headers, &asked);
    for (name, expected) in [
        ("host", authority.as_str()),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", &authority),
    ] {
        let all: Vec<_> = parts.headers.get_all(name).iter().collect();
        assert_eq!(all, [expected], "{name}");
    }
    // As CGI reads them, no two fields are the same one unless they are spelled alike.
    let ours =
        ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "forwarded"];
    let ours = [&ours[..], &["early-data", "host", "content-length", "transfer-encoding"]].concat();
    for name in parts.headers.keys() {
        let folded: String = name.as_str().replace(|char: char| !char.is_ascii_alphanumeric(), "-");
        assert!(folded == name.as_str() || !ours.contains(&folded.as_str()), "{name}");
    }
    for gone in ["connection", "keep-alive", "transfer-encoding", "upgrade", "early-data", "expect"]
    {
        assert!(!parts.headers.contains_key(gone), "{gone}");
    }
    assert!(parts.headers.get_all(header::COOKIE).iter().count() < 2);
    assert!(parts.headers.get_all(header::TE).iter().all(|te| te == "trailers"));
}

fn parts(input: &[u8]) -> Option<Parts> {
    let mut lines = input.split(|&byte| byte == b'\n');
    let mut first = lines.next()?.split(|&byte| byte == b' ');
    let (method, target, version) = (first.next()?, first.next()?, first.next()?);
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(method).ok()?;
    *request.uri_mut() = Uri::try_from(target).ok()?;
    *request.version_mut() = match version {
        b"1" => Version::HTTP_11,
        b"2" => Version::HTTP_2,
        b"3" => Version::HTTP_3,
        _ => return None,
    };
    for line in lines.filter(|line| !line.is_empty()) {
        let at = line.iter().position(|&byte| byte == b':')?;
        let name = HeaderName::from_bytes(&line[..at]).ok()?;
        let value = HeaderValue::from_bytes(line[at + 1..].trim_ascii()).ok()?;
        request.headers_mut().append(name, value);
    }
    Some(request.into_parts().0)
}

/// What percent-encoding stands for, read in another way than the gateway does.
fn decoded(path: &str) -> String {
    let mut text = String::new();
    for (at, part) in path.split('%').enumerate() {
        let hex = part.get(..2).filter(|_| at > 0);
        let hex = hex.filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                text.push(char::from(byte));
                text.push_str(&part[2..]);
            }
            None => {
                text.push_str(if at > 0 { "%" } else { "" });
                text.push_str(part);
            }
        }
    }
    text
}

/// A header of PROXY protocol says what its bytes say, and nothing behind it is read.
pub fn introduction(input: &[u8]) {
    let mut rest = input;
    let read = {
        let reading = pin!(front::introduction::read(&mut rest));
        match reading.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read,
            Poll::Pending => panic!("all is there, and it waits"),
        }
    };
    let taken = input.len() - rest.len();
    assert!(taken <= front::introduction::MAX_HEADER);
    let Ok(client) = read else { return };
    assert!(input.starts_with(b"\r\n\r\n\0\r\nQUIT\n"));
    assert_eq!(taken, 16 + usize::from(u16::from_be_bytes([input[14], input[15]])));
    let Some(client) = client else { return assert_eq!(input[12], 0x20) };
    assert_eq!(input[12], 0x21, "version 2, PROXY");
    let port = |at: usize| u16::from_be_bytes([input[at], input[at + 1]]);
    let expected: (IpAddr, u16) = match input[13] {
        0x11 => {
            let address: [u8; 4] = input[16..20].try_into().unwrap_or_default();
            (address.into(), port(24))
        }
        0x21 => {
            let address: [u8; 16] = input[16..32].try_into().unwrap_or_default();
            (address.into(), port(48))
        }
        other => panic!("family and protocol {other:#x} have no address of TCP"),
    };
    assert_eq!((client.ip(), client.port()), expected);
}

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn no_file_harms_the_gateway() {
        replay("gateway_file", super::configuration);
    }

    #[test]
    fn no_request_that_passes_can_be_read_in_two_ways() {
        replay("gateway_request", super::request);
    }

    #[test]
    fn no_header_of_proxy_protocol_harms_the_gateway() {
        replay("proxy_header", super::introduction);
    }
}
