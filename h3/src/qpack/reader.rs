//! Field lines of an encoded section.

use std::borrow::Cow;
use std::ops::Range;

use super::huffman;

/// Names of the static table (RFC 9204, Appendix A) that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name<'a> {
    Authority,
    Method,
    Path,
    Scheme,
    Status,
    /// Another name of the static table. None of those belongs to a connection, and none is a pseudo-header.
    Listed,
    /// A name that is spelled out.
    Literal(Cow<'a, [u8]>),
}

/// The entry of the static table with this number: its name, and its value where it matters here.
fn entry(index: usize) -> Option<(Name<'static>, &'static [u8])> {
    Some(match index {
        0 => (Name::Authority, b""),
        1 => (Name::Path, b"/"),
        15 => (Name::Method, b"CONNECT"),
        // DELETE, GET, HEAD, OPTIONS, POST, PUT: it matters only that they are not CONNECT.
        16..=21 => (Name::Method, b"GET"),
        22 => (Name::Scheme, b"http"),
        23 => (Name::Scheme, b"https"),
        24 => (Name::Status, b"103"),
        25 => (Name::Status, b"200"),
        26 => (Name::Status, b"304"),
        27 => (Name::Status, b"404"),
        28 => (Name::Status, b"503"),
        63 => (Name::Status, b"100"),
        64 => (Name::Status, b"204"),
        65 => (Name::Status, b"206"),
        66 => (Name::Status, b"302"),
        67 => (Name::Status, b"400"),
        68 => (Name::Status, b"403"),
        69 => (Name::Status, b"421"),
        70 => (Name::Status, b"425"),
        71 => (Name::Status, b"500"),
        99.. => return None,
        _ => (Name::Listed, b""),
    })
}

/// A string, perhaps in Huffman's code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    bytes: &'a [u8],
    is_coded: bool,
}

impl<'a> Text<'a> {
    const fn plain(bytes: &'a [u8]) -> Self {
        Self { bytes, is_coded: false }
    }

    /// What it says, if its code is right.
    pub(super) fn decode(self) -> Option<Cow<'a, [u8]>> {
        match self.is_coded {
            true => huffman::decode(self.bytes).map(Cow::Owned),
            false => Some(Cow::Borrowed(self.bytes)),
        }
    }
}

/// One line of a section.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    pub(super) name: Name<'a>,
    pub(super) value: Text<'a>,
    /// It is never to be indexed (RFC 9204, Section 4.5.4).
    pub(super) is_secret: bool,
    /// Where in the section it is.
    pub(super) place: Range<usize>,
}

/// Reads lines of a section, one after the other.
pub(super) struct Reader<'a> {
    section: &'a [u8],
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader behind the prefix (RFC 9204, Section 4.5.1); none if it refers to the dynamic table, or is cut off.
    pub(super) fn new(section: &'a [u8]) -> Option<Self> {
        let mut reader = Self { section, left: section };
        let required_insert_count = reader.integer(8)?;
        reader.integer(7)?;
        (required_insert_count == 0).then_some(reader)
    }

    /// The next line; none at the end. Fails where it is cut off, or refers to what is not there.
    pub(super) fn next(&mut self) -> Option<Option<Line<'a>>> {
        let begin = self.place();
        let Some(&first) = self.left.first() else { return Some(None) };
        let (name, value, is_secret) = match first {
            // RFC 9204, Section 4.5.2: an entry of the static table. 10 in front is the dynamic one's.
            0xc0.. => {
                let (name, value) = entry(self.integer(6)?)?;
                (name, Text::plain(value), false)
            }
            // Section 4.5.4: the name of such an entry, and a value.
            0x50..=0x5f | 0x70..=0x7f => {
                let (name, _) = entry(self.integer(4)?)?;
                (name, self.string(7)?, first & 0x20 != 0)
            }
            // Section 4.5.6: both are spelled out.
            0x20..=0x3f => {
                let name = self.string(3)?.decode()?;
                (Name::Literal(name), self.string(7)?, first & 0x10 != 0)
            }
            // Of the dynamic table.
            _ => return None,
        };
        Some(Some(Line { name, value, is_secret, place: begin..self.place() }))
    }

    /// Finds `:path`, if its name is that of the static table. No other line is decoded, nor is its code looked at.
    pub(super) fn path(mut self) -> Option<(Range<usize>, Text<'a>)> {
        loop {
            let begin = self.place();
            let (is_path, value) = match *self.left.first()? {
                0xc0.. => {
                    let (name, value) = entry(self.integer(6)?)?;
                    (name == Name::Path, Text::plain(value))
                }
                0x50..=0x5f | 0x70..=0x7f => {
                    let (name, _) = entry(self.integer(4)?)?;
                    (name == Name::Path, self.text(7)?)
                }
                0x20..=0x3f => {
                    self.text(3)?;
                    self.text(7)?;
                    continue;
                }
                _ => return None,
            };
            if is_path {
                return Some((begin..self.place(), value));
            }
        }
    }

    const fn place(&self) -> usize {
        self.section.len() - self.left.len()
    }

    /// RFC 7541, Section 5.1, as long as it may be a length.
    fn integer(&mut self, prefix: u32) -> Option<usize> {
        let mask = 0xff_u8 >> (8 - prefix);
        let mut value = usize::from(self.byte()? & mask);
        if value < usize::from(mask) {
            return Some(value);
        }
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.left.split_first()?;
        self.left = rest;
        Some(first)
    }

    /// A string whose code is right.
    fn string(&mut self, prefix: u32) -> Option<Text<'a>> {
        let Text { bytes, is_coded } = self.text(prefix)?;
        // RFC 7541, Section 5.2: padding is shorter than a byte, and the beginning of EOS. h3 takes any bits for padding that are
        // no symbol, and EOS itself.
        if is_coded && !huffman::is_code(bytes) {
            return None;
        }
        Some(Text { bytes, is_coded })
    }

    /// The bit above the length says whether it is in Huffman's code (RFC 9204, Section 4.1.2).
    fn text(&mut self, prefix: u32) -> Option<Text<'a>> {
        let is_coded = self.left.first()? >> prefix & 1 == 1;
        let length = self.integer(prefix)?;
        let (bytes, rest) = self.left.split_at_checked(length)?;
        self.left = rest;
        Some(Text { bytes, is_coded })
    }
}
