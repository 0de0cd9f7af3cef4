//! Flags of what is asked of servers.

use std::time::Duration;

use clap::Args;
use http::{HeaderName, HeaderValue, Method};
use quicket_h3::section;

/// What is asked of servers.
#[derive(Args, Debug)]
#[command(next_help_heading = "Request")]
pub(crate) struct Http {
    /// Follow redirects, to https only. Names, passwords and cookies given with --header go to the
    /// host of the URL only
    #[arg(long, short = 'L')]
    pub(crate) location: bool,

    /// How many redirects to follow for each URL
    #[arg(long, default_value_t = 20, value_name = "N", requires = "location",
          value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) max_redirects: u16,

    /// Ask for the headers only, and print them on standard output
    #[arg(long, short = 'I', conflicts_with_all = ["output", "resume", "sha256", "sha256sums",
          "json", "data", "paths"])]
    pub(crate) head: bool,

    /// Send this header field, such as 'Accept: text/html'; replaces what is sent by default, and
    /// 'Name:' sends none. May be given several times
    #[arg(long, short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) header: Vec<Header>,

    /// Send this method instead of GET
    #[arg(long = "request", short = 'X', value_name = "METHOD", value_parser = method,
          conflicts_with = "head")]
    pub(crate) method: Option<Method>,

    /// Send this with POST, or what is in the file after an @ (@- is standard input); several are
    /// joined by &
    #[arg(long, short = 'd', value_name = "DATA")]
    pub(crate) data: Vec<String>,
}

/// A header field of the command line; without a value it is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) name: HeaderName,
    pub(crate) value: Option<HeaderValue>,
}

/// What this program fills in itself.
const NOT_OURS: [&str; 4] = ["content-length", "host", "if-range", "range"];

fn header(text: &str) -> Result<Header, String> {
    let (name, value) = text.split_once(':').ok_or("a header field is written 'Name: value'")?;
    let name = HeaderName::try_from(name.trim())
        .map_err(|_| format!("{:?} is not the name of a header field", name.trim()))?;
    if NOT_OURS.contains(&name.as_str()) {
        return Err(format!("{name} follows from the request and cannot be set"));
    }
    let value = value.trim();
    if value.is_empty() {
        return Ok(Header { name, value: None });
    }
    // What belongs to a connection makes a request malformed (RFC 9114, Section 4.2; RFC 9113, Section 8.2.2).
    if section::is_of_a_connection(name.as_str().as_bytes(), value.as_bytes()) {
        return Err(match name.as_str() {
            "te" => "te can say nothing but 'trailers' in HTTP/3 and HTTP/2".to_owned(),
            name => format!("{name} belongs to a connection of HTTP/1.1, and cannot be sent"),
        });
    }
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| format!("the value of {name} has characters that cannot be sent"))?;
    value.set_sensitive(is_secret(&name));
    Ok(Header { name, value: Some(value) })
}

/// Fields that only the host of the URL may see.
pub(crate) fn is_secret(name: &HeaderName) -> bool {
    matches!(name.as_str(), "authorization" | "cookie" | "proxy-authorization" | "cookie2")
}

fn method(text: &str) -> Result<Method, String> {
    match Method::try_from(text) {
        Ok(Method::CONNECT) => Err("CONNECT asks for a tunnel, which this is not".to_owned()),
        Ok(method) => Ok(method),
        Err(_) => Err("a method is a word such as PUT".to_owned()),
    }
}

/// A time in seconds with a fraction, above zero.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "give a number of seconds above 0, such as 90 or 0.5".to_owned())
}

/// Bytes per second with a unit of 1000 (k, M, G): at least 1.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    let wrong = || "give bytes per second, such as 500k or 2.5M".to_owned();
    let (number, unit) = match text.char_indices().last().ok_or_else(wrong)? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'm' | 'M') => (&text[..at], 1e6),
        (at, 'g' | 'G') => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    let rate = number.parse::<f64>().map_err(|_| wrong())? * unit;
    if (1.0..=1e12).contains(&rate) { Ok(rate as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_fields_are_read_and_those_that_are_not_ones_own_refused() {
        let read = header("X-A:  b:c ").unwrap();
        assert_eq!((read.name.as_str(), read.value.unwrap().to_str().unwrap()), ("x-a", "b:c"));
        assert_eq!(header("Accept:").unwrap().value, None);
        assert!(header("Authorization: Basic x").unwrap().value.unwrap().is_sensitive());
        for wrong in ["x", "a b: c", "Host: x", "Content-Length: 1", "a: b\r\nc: d"] {
            assert!(header(wrong).is_err(), "{wrong}");
        }
    }

    /// RFC 9114, Section 4.2.
    #[test]
    fn fields_of_a_connection_are_refused() {
        for wrong in [
            "Connection: close",
            "Keep-Alive: timeout=5",
            "Proxy-Connection: close",
            "Transfer-Encoding: chunked",
            "Upgrade: h2c",
        ] {
            let said = header(wrong).unwrap_err();
            assert!(said.contains("belongs to a connection"), "{wrong}: {said}");
        }
        for wrong in ["TE: gzip", "TE: trailers, gzip"] {
            let said = header(wrong).unwrap_err();
            assert!(said.contains("trailers"), "{wrong}: {said}");
        }
        assert_eq!(header("TE: trailers").unwrap().value.unwrap(), "trailers");
        assert_eq!(header("TE:").unwrap().value, None);
    }

    #[test]
    fn rates_and_times_have_units() {
        assert_eq!(rate("1500"), Ok(1500));
        assert_eq!(rate("2.5M"), Ok(2_500_000));
        assert_eq!(rate("1k"), Ok(1000));
        for wrong in ["", "0", "k", "-1", "1T", "nan", "inf"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "nan", "inf", "1e300"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert!(method("CONNECT").is_err() && method("a b").is_err());
    }
}
