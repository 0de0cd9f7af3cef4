//! What the files of an operator have in common: lines of words, `#` begins a comment.

use std::fmt;
use std::str::FromStr;

/// Why a file cannot be used: the line, if it is one line's fault, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Counted from 1.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl ConfigError {
    pub(crate) fn of_file(message: impl Into<String>) -> Self {
        Self { line: None, message: message.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Hands each line that has words to `read`, the first word apart.
pub(crate) fn each_line(
    text: &str,
    mut read: impl FnMut(&str, &mut Words<'_>) -> Result<(), String>,
) -> Result<(), ConfigError> {
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = Words(line.split_whitespace().collect::<Vec<_>>().into_iter());
        let Some(first) = words.0.next() else { continue };
        let read = read(first, &mut words).and_then(|()| match words.0.next() {
            Some(word) => Err(format!("\"{word}\" is not known here")),
            None => Ok(()),
        });
        read.map_err(|message| ConfigError { line: Some(at + 1), message })?;
    }
    Ok(())
}

/// The words of a line that are left.
pub(crate) struct Words<'a>(std::vec::IntoIter<&'a str>);

impl<'a> Words<'a> {
    /// The next word, if there is one.
    pub(crate) fn take(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    /// The next word, if it is this one.
    pub(crate) fn take_if(&mut self, word: &str) -> bool {
        let is = self.0.as_slice().first() == Some(&word);
        if is {
            self.0.next();
        }
        is
    }

    /// The next word, which has to be there.
    pub(crate) fn need(&mut self, what: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("{what} is missing"))
    }

    /// The next word as a number within a range.
    pub(crate) fn number<N>(&mut self, what: &str, least: N, most: N) -> Result<N, String>
    where
        N: FromStr + PartialOrd + fmt::Display,
    {
        let word = self.need(what)?;
        match word.parse::<N>() {
            Ok(number) if number >= least && number <= most => Ok(number),
            _ => Err(format!("{what} is \"{word}\", and has to be {least} to {most}")),
        }
    }

    /// The next word as this many octets in hexadecimal digits.
    pub(crate) fn hex<const N: usize>(&mut self, what: &str) -> Result<[u8; N], String> {
        // The word may be a secret: it is not repeated.
        let octets = hex(self.need(what)?).and_then(|octets| octets.try_into().ok());
        octets.ok_or_else(|| format!("{what} has to be {} hexadecimal digits", 2 * N))
    }
}

/// Octets from hexadecimal digits.
pub(crate) fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        digits.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let (pairs, rest) = digits.as_ref()?.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}
