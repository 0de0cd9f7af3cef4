//! Paths of requests. Routes, files and origins of many kinds read them: what these could read in two ways is made
//! alike, or refused.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Says why a path may not be passed on, if so.
///
/// No segment is `.` or `..`, in any spelling: an origin that resolves them would find itself in another
/// route. Nor are there control characters, backslashes, or a % that encodes nothing (RFC 3986, Section 2.1).
pub(crate) fn check(path: &str) -> Result<(), &'static str> {
    let is_clean = |segment: &[u8]| {
        // A parameter (;) ends the name for some origins, which may find it, and slashes in it, once they have decoded the path.
        let name = segment.split(|&byte| byte == b';').next().unwrap_or_default();
        name != b"." && name != b".."
    };
    let is_plain = path.bytes().all(|byte| byte > 0x20 && byte != 0x7f && byte != b'\\');
    if !is_plain || !decoded(path).split(|&byte| byte == b'/' || byte == b'\\').all(is_clean) {
        return Err("a path with . or .. in it");
    }
    // Where a path is a string of C, it ends with the zero.
    match path.split('%').skip(1).all(|after| octet(after).is_some_and(|octet| octet != 0)) {
        true => Ok(()),
        false => Err("a path with % and no octet behind it, or zero"),
    }
}

/// The path with what need not be encoded decoded, and all digits in upper case (RFC 3986, Sections 6.2.2.1 and
/// 6.2.2.2); nothing if it is so already.
pub(crate) fn normalised(path: &str) -> Option<String> {
    let mut pieces = path.split('%');
    let mut text = pieces.next()?.to_owned();
    for piece in pieces {
        match (octet(piece), piece.get(2..)) {
            (Some(octet), Some(rest)) => {
                match octet {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        text.push(char::from(octet));
                    }
                    octet => {
                        let _ = write!(text, "%{octet:02X}");
                    }
                }
                text.push_str(rest);
            }
            _ => {
                text.push('%');
                text.push_str(piece);
            }
        }
    }
    (text != path).then_some(text)
}

/// What percent-encoding stands for (RFC 3986, Section 2.1); a % that is followed by something else stays.
fn decoded(path: &str) -> Cow<'_, [u8]> {
    if !path.contains('%') {
        return Cow::Borrowed(path.as_bytes());
    }
    let mut bytes = Vec::with_capacity(path.len());
    for (at, piece) in path.split('%').enumerate() {
        match octet(piece).filter(|_| at > 0) {
            Some(octet) => {
                bytes.push(octet);
                bytes.extend(&piece.as_bytes()[2..]);
            }
            None => {
                bytes.extend((at > 0).then_some(b'%'));
                bytes.extend(piece.as_bytes());
            }
        }
    }
    Cow::Owned(bytes)
}

/// The octet whose two digits come first.
fn octet(digits: &str) -> Option<u8> {
    let &[high, low, ..] = digits.as_bytes() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// How the paths of a route begin: whole segments.
#[derive(Clone, Debug)]
pub(crate) struct Prefix {
    text: String,
    /// The segments, decoded.
    names: Vec<Vec<u8>>,
}

impl Prefix {
    /// A slash at the end of `path` does not count.
    pub(crate) fn new(path: &str) -> Self {
        let path = path.trim_end_matches('/');
        let text = normalised(path).unwrap_or_else(|| path.to_owned());
        let names = text.split('/').skip(1).map(|segment| decoded(segment).into_owned()).collect();
        Self { text, names }
    }

    /// Without a slash at the end; empty for all paths.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// How many segments there are.
    pub(crate) const fn depth(&self) -> usize {
        self.names.len()
    }

    /// True if both are the beginning of the same paths.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.names == other.names
    }

    /// What follows in a path that begins so.
    pub(crate) fn rest<'a>(&self, path: &'a str) -> Option<&'a str> {
        let mut rest = path;
        for name in &self.names {
            let after = rest.strip_prefix('/')?;
            let (segment, after) = after.split_at(after.find('/').unwrap_or(after.len()));
            if *decoded(segment) != **name {
                return None;
            }
            rest = after;
        }
        Some(rest)
    }
}

/// Where a path leads for those who read it in another way than a [`Prefix`]: they leave out empty segments
/// and what follows `;`, or take an encoded slash or backslash for a slash, before or after all else.
#[derive(Debug)]
pub(crate) struct Doubt {
    /// What all agree on, but for empty segments.
    names: Vec<Vec<u8>>,
    /// What follows may be anything.
    is_open: bool,
}

impl Doubt {
    /// Nothing if all read the path alike.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let has_empty = path.contains("//");
        if !has_empty && !path.contains(['%', ';']) {
            return None;
        }
        let (mut names, mut is_open) = (Vec::new(), false);
        for segment in path.split('/') {
            let name = decoded(segment);
            let mut pieces = name.split(|byte| matches!(byte, b'/' | b'\\' | b';'));
            let begin = pieces.next().unwrap_or_default();
            if !begin.is_empty() {
                names.push(begin.to_vec());
            }
            if pieces.next().is_some() {
                is_open = true;
                break;
            }
        }
        (has_empty || is_open).then_some(Self { names, is_open })
    }

    /// True if somebody may find that the path begins so.
    pub(crate) fn may_begin_with(&self, prefix: &Prefix) -> bool {
        let (ours, theirs) = (&self.names, &prefix.names);
        ours.starts_with(theirs) || (self.is_open && theirs.starts_with(ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in
            ["/", "/a", "/a/b.c", "/..a/b..", "/%41", "/...", "/a;..", "/a%3b../b", "/;%2e", "/%ff"]
        {
            assert_eq!(check(path), Ok(()), "{path}");
        }
        for path in [
            "/..",
            "/a/../b",
            "/a/%2e%2E/b",
            "/.%2e",
            "/./a",
            "/a/..;x/b",
            "/a\\..\\b",
            "/a%2f..%2fb",
            "/a%5c..%5cb",
            "/a;x%2f..",
            "/a;%2f../b",
            "/;a%5c.%5cb",
            "/..%3bx/b",
            "/%2e%3b",
            "/a%2",
            "/%",
            "/%%32e%%32e/b",
            "/a%zz",
            "/a%+1",
            "/a%00",
        ] {
            assert!(check(path).is_err(), "{path}");
        }
    }

    /// RFC 3986, Section 6.2.2.
    #[test]
    fn what_need_not_be_encoded_is_not() {
        for (path, expected) in [
            ("/%70rivate/%7e%2D%2e%5F", Some("/private/~-._")),
            ("/%2fa%c3%a9", Some("/%2Fa%C3%A9")),
            ("/%2570", None),
            ("/a%20b%40", None),
            ("/a", None),
            ("*", None),
        ] {
            assert_eq!(normalised(path).as_deref(), expected, "{path}");
            let again = normalised(expected.unwrap_or(path));
            assert_eq!(again, None, "once is enough: {path}");
        }
    }

    #[test]
    fn a_prefix_is_whole_segments_in_any_spelling() {
        let rest = |prefix: &str, path| Prefix::new(prefix).rest(path);
        assert_eq!(rest("/a/b/", "/a/b"), Some(""));
        assert_eq!(rest("/a/b", "/a/b/c/"), Some("/c/"));
        assert_eq!(rest("/a", "/ab"), None);
        assert_eq!(rest("/a/b", "/a"), None);
        assert_eq!(rest("/", "/a//b"), Some("/a//b"));
        assert_eq!((rest("/", "*"), rest("/a", "*")), (Some("*"), None));
        for (prefix, path) in
            [("/@a", "/%40a/b"), ("/%40a", "/@a/b"), ("/%70", "/p/b"), ("/é", "/%c3%a9/b")]
        {
            assert_eq!(rest(prefix, path), Some("/b"), "{prefix}, {path}");
        }
        assert!(Prefix::new("/%40a").is_like(&Prefix::new("/@a/")));
        assert!(!Prefix::new("/a").is_like(&Prefix::new("/a/b")));
    }

    #[test]
    fn it_is_known_where_others_may_see_a_path_lead() {
        let may = |path: &str, prefix: &str| {
            Doubt::of(path).is_some_and(|doubt| doubt.may_begin_with(&Prefix::new(prefix)))
        };
        for path in [
            "//a/b",
            "/a//b",
            "///a///b/c",
            "/a;x/b",
            "/a;x=/../b",
            "/a%2Fb",
            "/a%2fb",
            "/a%5Cb",
            "/a%3Bx/b",
            "/;x/a/b",
            "/%2Fa/b",
            "/a;%2Fb",
            "/a%3B%2Fb",
            "//a/;x%5Cb",
        ] {
            assert!(may(path, "/a/b"), "{path}");
        }
        for path in ["/a/b", "//b/a", "/ab;x", "/a/c;x/b", "/a/bc%2F", "/%61/b", "/", "/a/", "*"] {
            assert!(!may(path, "/a/b"), "{path}");
        }
        assert!(may("//a", "/") && may("/a//", "/a"), "which is how a prefix reads it, too");
    }
}
