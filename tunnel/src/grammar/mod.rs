//! The words of `ip link add NAME type TYPE …` and `ip fou add …`, as iproute2 reads them.
//!
//! One table says which words there are, which of them have a value, and what they do; another
//! one, which words of iproute2 are refused, and why. Of words that contradict each other the last
//! one counts, as with `ip`. Numbers are read as `ip` reads them: TOS and traffic class in
//! hexadecimal, everything else in decimal unless it begins with 0x.

mod draft;
mod port;
#[cfg(test)]
#[path = "grammar_tests.rs"]
mod tests;
mod values;
mod words;

use std::fmt;

use crate::config::{Port, Tunnel};

use self::draft::Draft;
use self::port::port;
use self::values::device_name;
use self::words::{WORDS, Word, unknown};

/// A line: what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A tunnel.
    Tunnel(Box<Tunnel>),
    /// A port.
    Port(Port),
}

/// Which word is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

fn fail<T>(message: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError(message.into()))
}

/// Reads a line: `add NAME type …`, `port add …`; none if it is empty or a comment (`#`).
///
/// # Errors
///
/// When a word is unknown, not supported, lacks its value, or contradicts the type of the tunnel.
pub fn parse_line(line: &str) -> Result<Option<Line>, ParseError> {
    let line = line.split('#').next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        [] => Ok(None),
        ["add", ref rest @ ..] => tunnel(rest).map(|tunnel| Some(Line::Tunnel(tunnel.into()))),
        ["port", "add", ref rest @ ..] => port(rest).map(|port| Some(Line::Port(port))),
        [first, ..] => fail(format!("\"{first}\" is neither \"add\" nor \"port add\"")),
    }
}

fn tunnel(words: &[&str]) -> Result<Tunnel, ParseError> {
    let mut rest = words.iter().copied();
    let name = match rest.next() {
        Some("name") => rest.next(),
        first => first,
    };
    let Some(name) = name else {
        return fail("the name of the tunnel is missing: add NAME type …");
    };
    let name = device_name(name).map_err(ParseError)?;
    let mut draft = Draft::default();
    while let Some(word) = rest.next() {
        let Some(Word(_, value, apply)) = WORDS.iter().find(|known| known.0.contains(&word)) else {
            return fail(unknown(word));
        };
        let given = if value.is_empty() { Some("") } else { rest.next() };
        let Some(given) = given else {
            return fail(format!("\"{word}\" needs a value: {word} {value}"));
        };
        apply(&mut draft, given).map_err(|why| {
            let given = if given.is_empty() { String::new() } else { format!(" {given}") };
            ParseError(format!("\"{word}{given}\": {why}"))
        })?;
    }
    draft.finish(name)
}
