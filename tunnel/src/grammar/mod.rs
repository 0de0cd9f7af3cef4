//! The words of `ip link add NAME type TYPE …` and `ip fou add …`, as iproute2 reads them.
//!
//! One table says which words there are, which of them have a value, and what they do; another
//! one, which words of iproute2 are refused, and why. Of words that contradict each other the last
//! one counts, as with `ip`. Numbers are read as `ip` reads them: TOS and traffic class in
//! hexadecimal, everything else in decimal unless it begins with 0x.

mod display;
mod draft;
mod port;
#[cfg(test)]
#[path = "grammar_tests.rs"]
mod tests;
mod values;
mod words;

use std::{fmt, iter};

use crate::config::{Port, Tunnel};

use self::draft::Draft;
pub use self::port::{PortChoice, parse_port, parse_port_choice};
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
        ["port", "add", ref rest @ ..] => parse_port(rest).map(|port| Some(Line::Port(port))),
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
    apply(&mut draft, rest)?;
    draft.finish(name)
}

/// The tunnel after a change: what the words do not say remains, as with `ip link change`.
///
/// # Errors
///
/// As [`parse_line`], and when the type would be another one.
pub fn change(tunnel: &Tunnel, words: &[&str]) -> Result<Tunnel, ParseError> {
    let mut draft = Draft::default();
    let own = tunnel.words();
    let own = own.iter().flat_map(|(word, value)| iter::once(*word).chain(value.as_deref()));
    apply(&mut draft, own)?;
    draft.begin_change();
    apply(&mut draft, words.iter().copied())?;
    if draft.kind != Some(tunnel.kind) {
        return fail(format!(
            "{} is of type {}, which does not change: del it, and add it anew",
            tunnel.name,
            tunnel.kind.name()
        ));
    }
    draft.finish(tunnel.name.clone())
}

/// Does what words say, in their order.
fn apply<'a>(draft: &mut Draft, mut rest: impl Iterator<Item = &'a str>) -> Result<(), ParseError> {
    while let Some(word) = rest.next() {
        let Some(Word(_, value, apply)) = WORDS.iter().find(|known| known.0.contains(&word)) else {
            return fail(unknown(word));
        };
        let given = if value.is_empty() { Some("") } else { rest.next() };
        let Some(given) = given else {
            return fail(format!("\"{word}\" needs a value: {word} {value}"));
        };
        apply(draft, given).map_err(|why| {
            let given = if given.is_empty() { String::new() } else { format!(" {given}") };
            ParseError(format!("\"{word}{given}\": {why}"))
        })?;
    }
    Ok(())
}
