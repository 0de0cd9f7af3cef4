//! The names of the lender's sockets, in the abstract namespace (unix(7)).

use core::fmt::Write;

/// The longest name, without the zero in front.
pub const MAX_NAME: usize = 64;
/// Octets of what a program proves by that it was lent sockets.
pub const TOKEN: usize = 16;
/// Octets of what tells lenders apart.
const NUMBER: usize = 8;
const PREFIX: &str = "quicket-tcp-";
/// The length of what all names of a lender begin with.
const BASE: usize = PREFIX.len() + 2 * NUMBER;

/// A name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    octets: [u8; MAX_NAME],
    len: usize,
}

impl Place {
    const fn new() -> Self {
        Self { octets: [0; MAX_NAME], len: 0 }
    }

    /// The name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }
}

impl Write for Place {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.len + text.len();
        let place = self.octets.get_mut(self.len..end).ok_or(core::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Where a lender is, and what it knows its programs by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    number: [u8; NUMBER],
    token: [u8; TOKEN],
}

impl Names {
    /// Of numbers that nobody can foresee.
    #[must_use]
    pub const fn new(number: [u8; NUMBER], token: [u8; TOKEN]) -> Self {
        Self { number, token }
    }

    /// What programs prove by that they were lent sockets.
    #[must_use]
    pub const fn token(&self) -> &[u8; TOKEN] {
        &self.token
    }

    /// Where the lender takes requests.
    #[must_use]
    pub fn requests(&self) -> Place {
        self.with(format_args!(""))
    }

    /// The lender's end of a socket.
    #[must_use]
    pub fn socket(&self, id: u64) -> Place {
        self.with(format_args!("/{id:x}"))
    }

    /// The program's end of one that listens.
    #[must_use]
    pub fn listener(&self, id: u64) -> Place {
        self.with(format_args!("/listener/{id:x}"))
    }

    /// The program's end of one that is connected, or was to be.
    #[must_use]
    pub fn client(&self, id: u64) -> Place {
        self.with(format_args!("/client/{id:x}"))
    }

    /// The socket whose lender's end is called that.
    #[must_use]
    pub fn is_socket(&self, name: &[u8]) -> Option<u64> {
        number(self.within(name)?)
    }

    /// The socket that listens, and whose program's end is called that.
    #[must_use]
    pub fn is_listener(&self, name: &[u8]) -> Option<u64> {
        number(self.within(name)?.strip_prefix(b"listener/")?)
    }

    /// What the environment says.
    #[must_use]
    pub fn to_variable(&self) -> [u8; 2 * (NUMBER + TOKEN)] {
        let mut text = [0; 2 * (NUMBER + TOKEN)];
        let octets = self.number.iter().chain(&self.token);
        for (place, octet) in text.as_chunks_mut::<2>().0.iter_mut().zip(octets) {
            *place = [digit(octet >> 4), digit(octet & 15)];
        }
        text
    }

    /// Reads what the environment says. None if it makes no sense.
    #[must_use]
    pub fn from_variable(text: &[u8]) -> Option<Self> {
        let (number, token) = text.split_at_checked(2 * NUMBER)?;
        Some(Self { number: octets(number)?, token: octets(token)? })
    }

    fn with(&self, rest: core::fmt::Arguments<'_>) -> Place {
        let mut place = Place::new();
        let base = u64::from_be_bytes(self.number);
        // The longest of them has room.
        let _ = write!(place, "{PREFIX}{base:016x}").and_then(|()| place.write_fmt(rest));
        place
    }

    /// What comes behind the beginning and a slash.
    fn within<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        let (base, rest) = name.split_at_checked(BASE)?;
        (base == self.requests().as_bytes()).then_some(rest)?.strip_prefix(b"/")
    }
}

const fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' + value - 10 }
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, octet| Some(sum << 4 | u64::from(value(*octet)?)))
}

fn octets<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    if pairs.len() != N {
        return None;
    }
    let mut octets = [0; N];
    for (octet, [high, low]) in octets.iter_mut().zip(pairs) {
        *octet = value(*high)? << 4 | value(*low)?;
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names = Names::new([1, 2, 3, 4, 5, 6, 7, 0xf8], [0xab; TOKEN]);

    #[test]
    fn names_say_whose_sockets_they_are_and_which() {
        for id in [0, 7, u64::MAX] {
            let (socket, listener) = (NAMES.socket(id), NAMES.listener(id));
            assert_eq!(NAMES.is_socket(socket.as_bytes()), Some(id));
            assert_eq!(NAMES.is_listener(listener.as_bytes()), Some(id));
            assert_eq!(NAMES.is_listener(socket.as_bytes()), None);
            assert_eq!(NAMES.is_socket(listener.as_bytes()), None);
            let client = NAMES.client(id);
            assert_eq!(NAMES.is_socket(client.as_bytes()), None);
            assert_eq!(NAMES.is_listener(client.as_bytes()), None);
            let other = Names::new([1; NUMBER], [0xab; TOKEN]);
            assert_eq!(other.is_socket(socket.as_bytes()), None);
        }
        for name in [&b""[..], b"quicket-tcp-", NAMES.requests().as_bytes(), &[0xff; 108]] {
            assert_eq!((NAMES.is_socket(name), NAMES.is_listener(name)), (None, None));
        }
        assert_eq!(NAMES.is_socket(b"quicket-tcp-01020304050607f8/"), None);
        assert_eq!(NAMES.is_socket(b"quicket-tcp-01020304050607f8/g"), None);
        assert_eq!(NAMES.is_socket(b"quicket-tcp-01020304050607f8/10000000000000000"), None);
    }

    #[test]
    fn the_environment_says_where_the_lender_is() {
        let text = NAMES.to_variable();
        assert_eq!(Names::from_variable(&text), Some(NAMES));
        for len in 0..text.len() {
            assert_eq!(Names::from_variable(&text[..len]), None);
        }
        assert_eq!(Names::from_variable(&[b'g'; 48]), None);
        assert_eq!(Names::from_variable(&[b'0'; 50]), None);
    }
}
