//! Is a field section well-formed (RFC 9114, Sections 4.2 and 4.3)?

use std::borrow::Cow;
use std::ops::Range;

use h3::error::Code;

use super::reader::{Line, Name, Reader, Text};
use crate::Violation;

/// The `:protocol` of an extended CONNECT (RFC 9220; RFC 8441, Section 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// It is `websocket`.
    pub is_websocket: bool,
    /// Where in the section its line is.
    pub place: Range<usize>,
}

/// RFC 9204, Section 2.2: h3 takes it for an error of the connection, too.
const UNDECODABLE: Violation = Violation::connection(
    Code::QPACK_DECOMPRESSION_FAILED,
    "a field section that cannot be decoded",
);

/// Fields that belong to a connection of HTTP/1.1 (RFC 9114, Section 4.2).
const OF_A_CONNECTION: [&[u8]; 5] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];

/// Whether a field belongs to a connection of HTTP/1.1, and makes a message of HTTP/3 malformed (RFC 9114, Section 4.2).
/// Its name is in lower case.
#[must_use]
pub fn is_of_a_connection(name: &[u8], value: &[u8]) -> bool {
    OF_A_CONNECTION.contains(&name) || (name == b"te" && value != b"trailers")
}

/// Goes over the header section of a request.
///
/// # Errors
///
/// If it is malformed, or cannot be decoded.
pub fn request(section: &[u8]) -> Result<Option<Protocol>, Violation> {
    let mut found = Pseudo::default();
    let mut has_fields = false;
    for_each(section, |line| {
        if !found.take(&line)? {
            has_fields = true;
            return field(&line);
        }
        // RFC 9114, Section 4.3: all of them come first.
        match has_fields {
            true => Err(Violation::malformed("a pseudo-header behind other fields")),
            false => Ok(()),
        }
    })?;
    found.check()
}

/// Goes over the header section of a response; its status.
///
/// # Errors
///
/// If it is malformed, or cannot be decoded.
pub fn response(section: &[u8]) -> Result<u16, Violation> {
    let (mut status, mut has_fields) = (None, false);
    for_each(section, |line| {
        if !is_pseudo(&line.name) {
            has_fields = true;
            return field(&line);
        }
        let is_status = match &line.name {
            Name::Status => true,
            Name::Literal(name) => **name == *b":status",
            _ => false,
        };
        // RFC 9114, Sections 4.3 and 4.3.2.
        if !is_status || has_fields || status.is_some() {
            return Err(Violation::malformed("pseudo-headers that are none of a response"));
        }
        status = Some(read_status(&line.value.decode().ok_or(UNDECODABLE)?)?);
        Ok(())
    })?;
    status.ok_or(Violation::malformed("a response without a status"))
}

/// Three digits (RFC 9110, Section 15); 101 is not for HTTP/3 (RFC 9114, Section 4.5).
fn read_status(text: &[u8]) -> Result<u16, Violation> {
    let is_right = text.len() == 3 && text.iter().all(u8::is_ascii_digit);
    let status = text.iter().fold(0, |all, &digit| all * 10 + u16::from(digit.wrapping_sub(b'0')));
    match status {
        100 | 102..600 if is_right => Ok(status),
        _ => Err(Violation::malformed("a status that is none")),
    }
}

/// Goes over a trailer section.
///
/// # Errors
///
/// If it is malformed, or cannot be decoded.
pub fn trailers(section: &[u8]) -> Result<(), Violation> {
    for_each(section, |line| match is_pseudo(&line.name) {
        true => Err(Violation::malformed("a pseudo-header in trailers")),
        false => field(&line),
    })
}

/// Where the line is in which a request of this side, an extended CONNECT, asks for the protocol `token`.
pub(crate) fn asks_for(section: &[u8], token: &[u8]) -> Option<Range<usize>> {
    let mut reader = Reader::new(section)?;
    let first = reader.next()??;
    // h3 writes the method first: most requests are none of these, and no more of them is read.
    if first.name != Name::Method || *first.value.decode()? != *b"CONNECT" {
        return None;
    }
    while let Some(line) = reader.next()? {
        if matches!(&line.name, Name::Literal(name) if **name == *b":protocol") {
            return (*line.value.decode()? == *token).then_some(line.place);
        }
    }
    None
}

/// The path of a request.
pub(crate) struct Path<'a> {
    place: Range<usize>,
    text: Text<'a>,
}

impl<'a> Path<'a> {
    /// What of its section is in front of its line, and behind.
    pub(crate) fn around(&self, section: &'a [u8]) -> [&'a [u8]; 2] {
        let (before, rest) = section.split_at(self.place.start);
        [before, rest.split_at(self.place.len()).1]
    }

    /// What it says, if its code is right.
    pub(crate) fn decode(&self) -> Option<Cow<'a, [u8]>> {
        self.text.decode()
    }
}

/// Finds the path in the header section of a request, which may be malformed. None where its name is spelled out.
pub(crate) fn path(section: &[u8]) -> Option<Path<'_>> {
    let (place, text) = Reader::new(section)?.path()?;
    Some(Path { place, text })
}

/// True if a line is never to be indexed: its value is a secret that should be in no table (RFC 9204, Section 7.1.3). A section that
/// cannot be decoded has one, too.
pub(crate) fn has_secrets(section: &[u8]) -> bool {
    let Some(mut reader) = Reader::new(section) else { return true };
    loop {
        match reader.next() {
            Some(Some(line)) if !line.is_secret => {}
            Some(None) => return false,
            _ => return true,
        }
    }
}

fn for_each<'a>(
    section: &'a [u8],
    mut look: impl FnMut(Line<'a>) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let mut reader = Reader::new(section).ok_or(UNDECODABLE)?;
    while let Some(line) = reader.next().ok_or(UNDECODABLE)? {
        look(line)?;
    }
    Ok(())
}

fn is_pseudo(name: &Name<'_>) -> bool {
    match name {
        Name::Listed => false,
        Name::Literal(name) => name.starts_with(b":"),
        _ => true,
    }
}

/// A field that is no pseudo-header.
fn field(line: &Line<'_>) -> Result<(), Violation> {
    let Name::Literal(name) = &line.name else { return Ok(()) };
    // RFC 9114, Sections 4.2 and 10.3.
    if name.is_empty() || !name.iter().all(|&byte| is_of_a_name(byte)) {
        return Err(Violation::malformed("a field name with characters that are not for names"));
    }
    if OF_A_CONNECTION.contains(&&**name) {
        return Err(Violation::malformed("a field that belongs to a connection of HTTP/1.1"));
    }
    if **name == *b"te" && *line.value.decode().ok_or(UNDECODABLE)? != *b"trailers" {
        return Err(Violation::malformed("TE that is not trailers"));
    }
    Ok(())
}

/// Of a token (RFC 9110, Section 5.6.2), and not upper case.
const fn is_of_a_name(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*')
        || matches!(byte, b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
}

/// What pseudo-headers a request has.
#[derive(Default)]
struct Pseudo {
    method: Option<Method>,
    has_scheme: bool,
    has_authority: bool,
    has_path: bool,
    protocol: Option<Protocol>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Connect,
    Other,
}

impl Pseudo {
    /// Takes note of a pseudo-header; false for other fields.
    fn take(&mut self, line: &Line<'_>) -> Result<bool, Violation> {
        if !is_pseudo(&line.name) {
            return Ok(false);
        }
        let name = match &line.name {
            Name::Literal(name) => match &**name {
                b":authority" => Name::Authority,
                b":method" => Name::Method,
                b":path" => Name::Path,
                b":scheme" => Name::Scheme,
                other => Name::Literal(other.into()),
            },
            name => name.clone(),
        };
        let is_new = match name {
            Name::Method => {
                let is_connect = *line.value.decode().ok_or(UNDECODABLE)? == *b"CONNECT";
                let method = if is_connect { Method::Connect } else { Method::Other };
                self.method.replace(method).is_none()
            }
            Name::Scheme => {
                let scheme = line.value.decode().ok_or(UNDECODABLE)?;
                if ![&b"https"[..], b"http"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
                {
                    return Err(Violation::malformed("a scheme that is not HTTP's"));
                }
                !std::mem::replace(&mut self.has_scheme, true)
            }
            Name::Authority => !std::mem::replace(&mut self.has_authority, true),
            Name::Path => {
                let path = line.value.decode().ok_or(UNDECODABLE)?;
                if path.is_empty() {
                    return Err(Violation::malformed("an empty path"));
                }
                // RFC 3986, Section 3.5. Who makes a target of it would cut that off.
                if path.contains(&b'#') {
                    return Err(Violation::malformed("a path with a fragment"));
                }
                !std::mem::replace(&mut self.has_path, true)
            }
            Name::Literal(name) if *name == *b":protocol" => {
                let value = line.value.decode().ok_or(UNDECODABLE)?;
                let protocol =
                    Protocol { is_websocket: *value == *b"websocket", place: line.place.clone() };
                self.protocol.replace(protocol).is_none()
            }
            // RFC 9114, Section 4.3: those of answers and unknown ones.
            _ => return Err(Violation::malformed("a pseudo-header that is none of requests")),
        };
        match is_new {
            true => Ok(true),
            false => Err(Violation::malformed("a pseudo-header twice")),
        }
    }

    /// RFC 9114, Sections 4.3.1 and 4.4; RFC 8441, Section 4.
    fn check(self) -> Result<Option<Protocol>, Violation> {
        let is_connect = match self.method {
            None => return Err(Violation::malformed("a request without a method")),
            Some(method) => method == Method::Connect,
        };
        if !is_connect && self.protocol.is_some() {
            return Err(Violation::malformed("a protocol without CONNECT"));
        }
        let is_plain_connect = is_connect && self.protocol.is_none();
        let is_right = match is_plain_connect {
            true => self.has_authority && !self.has_scheme && !self.has_path,
            false => self.has_scheme && self.has_path,
        };
        match is_right && (self.has_authority || !is_connect) {
            true => Ok(self.protocol),
            false => Err(Violation::malformed("a request without its pseudo-headers")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scope;

    const GET: &[u8] = &[0xc0 | 17];
    const CONNECT: &[u8] = &[0xc0 | 15];
    const HTTPS: &[u8] = &[0xc0 | 23];
    const ROOT: &[u8] = &[0xc0 | 1];
    /// `:authority: a`, by the name's number.
    const AUTHORITY: &[u8] = &[0x50, 1, b'a'];
    /// `:status: 200`.
    const STATUS: &[u8] = &[0xc0 | 25];
    /// `accept: */*`.
    const ACCEPT: &[u8] = &[0xc0 | 29];

    /// A line whose name is spelled out.
    fn line(name: &str, value: &str) -> Vec<u8> {
        let mut line = Vec::new();
        match name.len() {
            length @ ..7 => line.push(0x20 | length as u8),
            length => line.extend([0x27, (length - 7) as u8]),
        }
        line.extend(name.as_bytes());
        line.push(value.len() as u8);
        line.extend(value.as_bytes());
        line
    }

    fn section(lines: &[&[u8]]) -> Vec<u8> {
        [&[0, 0][..], &lines.concat()].concat()
    }

    fn malformed(lines: &[&[u8]]) {
        let wrong = request(&section(lines)).unwrap_err();
        assert_eq!((wrong.scope, wrong.code), (Scope::Stream, Code::H3_MESSAGE_ERROR), "{lines:?}");
    }

    /// RFC 9204, Sections 4.5.4 and 4.5.6.
    #[test]
    fn lines_that_are_never_to_be_indexed_are_found() {
        let named = |first: u8| [&[first], &AUTHORITY[1..]].concat();
        let spelled = |bits: u8| {
            let mut line = line("cookie", "a");
            line[0] |= bits;
            line
        };
        for (line, is_secret) in [
            (ACCEPT.to_vec(), false),
            (named(0x50), false),
            (named(0x70), true),
            (spelled(0), false),
            (spelled(0x10), true),
        ] {
            for lines in [[GET, &line, ACCEPT], [&line, GET, ROOT]] {
                assert_eq!(has_secrets(&section(&lines)), is_secret, "{lines:?}");
            }
        }
        assert!(has_secrets(&[]) && has_secrets(&section(&[&AUTHORITY[..2]])));
    }

    #[test]
    fn requests_as_clients_make_them_pass() {
        let te = line("te", "trailers");
        for lines in [
            &[GET, HTTPS, AUTHORITY, ROOT][..],
            &[ROOT, AUTHORITY, HTTPS, GET, ACCEPT, ACCEPT, &te],
            // Host may stand for the authority.
            &[GET, HTTPS, ROOT, &line("host", "a")],
            &[&line(":method", "GET"), &line(":scheme", "http"), &line(":path", "*"), AUTHORITY],
            &[CONNECT, AUTHORITY],
        ] {
            assert_eq!(request(&section(lines)), Ok(None), "{lines:?}");
        }
    }

    /// RFC 9114, Section 4.3.
    #[test]
    fn pseudo_headers_have_their_order_and_number() {
        let right: [&[u8]; 4] = [GET, HTTPS, AUTHORITY, ROOT];
        for at in 0..4 {
            let twice = [&right[..], &[right[at]]].concat();
            malformed(&twice);
            let late: Vec<&[u8]> =
                (0..4).filter(|&other| other != at).map(|other| right[other]).collect();
            malformed(&[&late[..], &[ACCEPT, right[at]]].concat());
            if right[at] != AUTHORITY {
                malformed(&late);
            }
        }
        for other in [STATUS, &line(":status", "200"), &line(":x", ""), &line(":", "")] {
            malformed(&[&right[..], &[other]].concat());
        }
        malformed(&[CONNECT, HTTPS, AUTHORITY, ROOT]);
        malformed(&[CONNECT]);
        malformed(&[GET, &line(":scheme", "ftp"), AUTHORITY, ROOT]);
        malformed(&[GET, HTTPS, AUTHORITY, &line(":path", "")]);
        malformed(&[GET, HTTPS, AUTHORITY, &line(":path", "/a#b")]);
        malformed(&[]);
    }

    /// RFC 9114, Section 4.2.
    #[test]
    fn fields_of_a_connection_and_wrong_names_are_malformed() {
        let all = [
            ("connection", "close"),
            ("keep-alive", "x"),
            ("proxy-connection", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("Accept", "x"),
            ("a b", "x"),
            ("a\n", "x"),
            ("", "x"),
        ];
        for (name, value) in all {
            let wrong = line(name, value);
            malformed(&[GET, HTTPS, AUTHORITY, ROOT, &wrong]);
            assert!(trailers(&section(&[ACCEPT, &wrong])).is_err(), "{name}");
        }
        assert_eq!(trailers(&section(&[ACCEPT, &line("grpc-status", "0")])), Ok(()));
        for pseudo in [GET, STATUS, AUTHORITY, &line(":path", "/")] {
            assert!(trailers(&section(&[pseudo])).is_err());
        }
    }

    #[test]
    fn the_protocol_of_an_extended_connect_is_found_in_every_spelling() {
        let extended: [&[u8]; 4] = [CONNECT, HTTPS, AUTHORITY, ROOT];
        let coded: &[u8] = &[
            0x2f, 0, 0xb9, 0x5d, 0x87, 0x49, 0xc8, 0x7a, 0x3f, 0x87, 0xf0, 0x58, 0xd0, 0x72, 0x75,
            0x2a, 0x7f,
        ];
        for (spelled, is_websocket) in [
            (coded, true),
            (&line(":protocol", "websocket"), true),
            (&line(":protocol", "connect-udp"), false),
        ] {
            for at in 0..=4 {
                let mut lines = extended.to_vec();
                lines.insert(at, spelled);
                let begin = 2 + lines[..at].iter().map(|line| line.len()).sum::<usize>();
                let place = begin..begin + spelled.len();
                assert_eq!(request(&section(&lines)), Ok(Some(Protocol { is_websocket, place })));
            }
            malformed(&[&extended[..], &[spelled, spelled]].concat());
            malformed(&[GET, HTTPS, AUTHORITY, ROOT, spelled]);
            malformed(&[CONNECT, AUTHORITY, spelled]);
        }
        // Of a request that this side has made.
        let asked = line(":protocol", "websocket");
        let own = section(&[CONNECT, HTTPS, AUTHORITY, ROOT, &asked, ACCEPT]);
        let begin = own.len() - ACCEPT.len() - asked.len();
        assert_eq!(asks_for(&own, b"websocket"), Some(begin..begin + asked.len()));
        assert_eq!(asks_for(&own, b"connect-udp"), None);
        for other in [&[CONNECT, AUTHORITY][..], &[GET, HTTPS, AUTHORITY, ROOT, &asked], &[]] {
            assert_eq!(asks_for(&section(other), b"websocket"), None);
        }
        // What only looks like it.
        let hidden = line("a", std::str::from_utf8(&line(":protocol", "websocket")).unwrap());
        assert_eq!(request(&section(&[GET, HTTPS, AUTHORITY, ROOT, &hidden])), Ok(None));
    }

    #[test]
    fn what_cannot_be_decoded_ends_the_connection() {
        let whole = section(&[GET, HTTPS, AUTHORITY, ROOT, &line("a", "b")]);
        for wrong in [
            &[][..],
            &[0],
            // A dynamic table that there is none of: in the prefix, by entries, by names.
            &[1, 0, 0xc0 | 17],
            &[0, 0, 0x80],
            &[0, 0, 0x40, 0],
            &[0, 0, 0x10],
            &[0, 0, 0x00, 0],
            // Entry 99 of the static table.
            &[0, 0, 0xff, 36],
            &[0, 0, 0x27, 0xff, 0xff, 0xff, 0xff, 0xff],
            // Huffman's code with EOS in it.
            &[0, 0, 0x2c, 0xff, 0xff, 0xff, 0xff, 0],
            // ... and as a value that nobody reads here.
            &[0, 0, 0x5f, 14, 0x84, 0xff, 0xff, 0xff, 0xff],
            // Padding of 8 bits, and `a` with 11.
            &[0, 0, 0x5f, 14, 0x81, 0xff],
            // Padding that is not the beginning of EOS.
            &[0, 0, 0x5f, 14, 0x81, 0xfe],
            &[0, 0, 0x5f, 14, 0x82, 0x02, 0xaa],
            &[0, 0, 0x5f, 14, 0x82, 0x1f, 0xff],
            &whole[..whole.len() - 1],
        ] {
            assert_eq!(request(wrong), Err(UNDECODABLE), "{wrong:?}");
            assert!(trailers(wrong).is_err(), "{wrong:?}");
        }
        // `aaz`, whose last bits are ones.
        assert_eq!(trailers(&[0, 0, 0x5f, 14, 0x83, 0x18, 0xfd, 0xff]), Ok(()));
    }

    /// RFC 9114, Section 4.3.2.
    #[test]
    fn a_response_has_one_status_before_all_fields() {
        let spelled = |status: &str| line(":status", status);
        assert_eq!(response(&section(&[STATUS])), Ok(200));
        assert_eq!(response(&section(&[STATUS, ACCEPT])), Ok(200));
        assert_eq!(response(&section(&[&[0xff, 0]])), Ok(100), "entry 63");
        assert_eq!(response(&section(&[&[0xff, 8]])), Ok(500), "entry 71");
        // Entry 24, and another value.
        assert_eq!(response(&section(&[&[0x5f, 9, 3, b'4', b'1', b'8']])), Ok(418));
        assert_eq!(response(&section(&[&spelled("418")])), Ok(418));
        for wrong in ["", "20", "2000", "099", "101", "600", "2 0", "+20", "abc"] {
            assert!(response(&section(&[&spelled(wrong)])).is_err(), "{wrong}");
        }
        for lines in [
            &[][..],
            &[ACCEPT],
            &[ACCEPT, STATUS],
            &[STATUS, STATUS],
            &[STATUS, ROOT],
            &[STATUS, GET],
            &[STATUS, &line(":x", "")],
            &[STATUS, &line("connection", "close")],
            &[STATUS, &line("a b", "")],
        ] {
            let wrong = response(&section(lines)).unwrap_err();
            assert_eq!((wrong.scope, wrong.code), (Scope::Stream, Code::H3_MESSAGE_ERROR));
        }
    }
}
