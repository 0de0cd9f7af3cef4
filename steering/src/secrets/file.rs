//! The file of a site's secrets.
//!
//! ```text
//! quicket-secrets 1
//! previous 4 1764547200 <64 hexadecimal digits>
//! current 5 1765152000 <64 hexadecimal digits>
//! next 6 1765756800 <64 hexadecimal digits>
//! ```
//!
//! A line for each root: what it is, its number, when it was drawn (seconds since 1970), the secret.
//! Empty lines and those that begin with # mean nothing.

use core::fmt::{self, Write};

use alloc::string::String;

use super::{ROOT_LEN, Root, SiteSecrets, wipe};

/// The longest file in bytes.
pub const MAX_FILE: usize = 4096;

/// The first line.
const HEAD: &str = "quicket-secrets 1";

/// Why a file is none of a site's secrets. Lines are counted from 1. Nothing of the file is repeated: it
/// may be secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretsError {
    /// It has more bytes than [`MAX_FILE`].
    TooLong,
    /// It is not ASCII text.
    NotText,
    /// The first line is not that of such a file.
    Head,
    /// A line does not have the four words of a root.
    Words(usize),
    /// A line is of another kind than the three that there are.
    Kind(usize),
    /// A second line of a kind.
    Twice(usize),
    /// The number, or the time, is none.
    Number(usize),
    /// The secret is not 64 hexadecimal digits.
    Secret(usize),
    /// There is no line of this kind.
    Missing(&'static str),
    /// The numbers do not follow each other.
    Order,
    /// Two roots are the same.
    Same,
    /// There is no number behind the last one.
    LastNumber,
}

impl fmt::Display for SecretsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "it has more than {MAX_FILE} bytes: it is another file")?,
            Self::NotText => f.write_str("it is not text: it is another file")?,
            Self::Head => write!(f, "line 1 is not \"{HEAD}\": it is another file")?,
            Self::Words(line) => write!(
                f,
                "line {line} does not have four words: previous, current or next, a number, a time, a \
                 secret"
            )?,
            Self::Kind(line) => {
                write!(f, "line {line} does not begin with previous, current or next")?;
            }
            Self::Twice(line) => write!(f, "line {line} is the second of its kind: remove one")?,
            Self::Number(line) => {
                write!(f, "line {line}: the second and third word are not numbers")?;
            }
            Self::Secret(line) => write!(
                f,
                "line {line}: the secret is not {} hexadecimal digits",
                ROOT_LEN.saturating_mul(2)
            )?,
            Self::Missing(kind) => write!(f, "there is no line {kind}")?,
            Self::Order => {
                f.write_str("the numbers of previous, current and next are not in turn")?
            }
            Self::Same => f.write_str("two lines have the same secret, which was never rotated")?,
            Self::LastNumber => f.write_str("its numbers have come to their end")?,
        }
        f.write_str("; quicket switch secrets new makes such a file")
    }
}

impl core::error::Error for SecretsError {}

impl SiteSecrets {
    /// Reads a file.
    ///
    /// # Errors
    /// When anything in it is not as it must be.
    pub fn parse(file: &[u8]) -> Result<Self, SecretsError> {
        if file.len() > MAX_FILE {
            return Err(SecretsError::TooLong);
        }
        let text = core::str::from_utf8(file).ok().filter(|text| text.is_ascii());
        let text = text.ok_or(SecretsError::NotText)?;
        let mut lines = (1..).zip(text.lines());
        if lines.next().is_none_or(|(_, line)| line.trim_end() != HEAD) {
            return Err(SecretsError::Head);
        }
        let (mut previous, mut current, mut next) = (None, None, None);
        for (number, line) in lines {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_ascii_whitespace();
            let slot = match words.next() {
                Some("previous") => &mut previous,
                Some("current") => &mut current,
                Some("next") => &mut next,
                _ => return Err(SecretsError::Kind(number)),
            };
            if slot.is_some() {
                return Err(SecretsError::Twice(number));
            }
            *slot = Some(root(words, number)?);
        }
        let secrets = Self {
            previous,
            current: current.ok_or(SecretsError::Missing("current"))?,
            next: next.ok_or(SecretsError::Missing("next"))?,
        };
        secrets.check()?;
        Ok(secrets)
    }

    fn check(&self) -> Result<(), SecretsError> {
        let follows =
            |before: &Root, after: &Root| before.number.checked_add(1) == Some(after.number);
        let [current, next] = [&self.current, &self.next];
        let previous = self.previous.as_ref();
        if !follows(current, next) || !previous.is_none_or(|previous| follows(previous, current)) {
            return Err(SecretsError::Order);
        }
        let same = |one: &Root, other: &Root| one.secret == other.secret;
        let repeats = |previous: &Root| same(previous, current) || same(previous, next);
        if same(current, next) || previous.is_some_and(repeats) {
            return Err(SecretsError::Same);
        }
        Ok(())
    }

    /// The file, which holds the secrets: only its owner may be able to read it.
    #[must_use]
    pub fn to_file(&self) -> String {
        // Of one size from the beginning, so that no part of it stays behind where memory was given back.
        let mut out = String::with_capacity(MAX_FILE);
        out.push_str(HEAD);
        out.push('\n');
        let rows = [("current", &self.current), ("next", &self.next)];
        let previous = self.previous.iter().map(|root| ("previous", root));
        for (kind, root) in previous.chain(rows) {
            // Strings take all that is written.
            let _ = write!(out, "{kind} {} {} ", root.number, root.made);
            root.secret.iter().for_each(|octet| {
                let _ = write!(out, "{octet:02x}");
            });
            out.push('\n');
        }
        out
    }
}

/// The words of a line behind the first.
fn root<'a>(mut words: impl Iterator<Item = &'a str>, line: usize) -> Result<Root, SecretsError> {
    let mut word = || words.next().ok_or(SecretsError::Words(line));
    let (number, made, digits) = (word()?, word()?, word()?);
    if words.next().is_some() {
        return Err(SecretsError::Words(line));
    }
    // "+7" would be a number to Rust.
    let is_number = |word: &str| word.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(number) || !is_number(made) {
        return Err(SecretsError::Number(line));
    }
    let number = number.parse().map_err(|_| SecretsError::Number(line))?;
    let made = made.parse().map_err(|_| SecretsError::Number(line))?;
    let mut secret = [0; ROOT_LEN];
    match decode(digits, &mut secret) {
        Some(()) => {
            let root = Root { number, made, secret };
            wipe(&mut secret);
            Ok(root)
        }
        None => Err(SecretsError::Secret(line)),
    }
}

/// Hexadecimal digits into as many octets as there must be.
fn decode(digits: &str, out: &mut [u8; ROOT_LEN]) -> Option<()> {
    if digits.len() != ROOT_LEN.saturating_mul(2) {
        return None;
    }
    for (octet, pair) in out.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        let value = |digit: u8| char::from(digit).to_digit(16);
        // Two digits make at most 255.
        *octet = (value(high)? << 4 | value(low)?) as u8;
    }
    Some(())
}
