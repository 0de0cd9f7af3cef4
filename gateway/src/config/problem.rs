//! What is wrong with a file, and where.

use std::fmt;
use std::io;
use std::path::Path;

/// Something that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: a line, or the name of the field; empty if it concerns the whole.
    place: String,
    /// What, and what to do.
    what: String,
}

impl Problem {
    pub(super) fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }

    /// The same, told of `name` if it is about the field `place`, or one of its fields.
    pub(super) fn instead_of(mut self, place: &str, name: &str) -> Self {
        let rest = self.place.strip_prefix(place);
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
            name.clone_into(&mut self.place);
        }
        self
    }

    pub(super) fn file(path: &Path, error: &io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "; is the name right?",
            io::ErrorKind::IsADirectory => "; name a file",
            io::ErrorKind::PermissionDenied => "; ls -l shows who may read it",
            _ => "",
        };
        Self::new("", format!("cannot read {}: {error}{hint}", path.display()))
    }

    pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map(|span| {
            let before = text.get(..span.start).unwrap_or_default();
            1 + before.bytes().filter(|&byte| byte == b'\n').count()
        });
        let place = line.map(|line| format!("line {line}")).unwrap_or_default();
        Self::new(place, plain(error.message()))
    }
}

/// What the parser says, without the names of types.
fn plain(message: &str) -> String {
    const WHOLE: &str = "expected a whole number, without a unit or quotes";
    let mut message = message.to_owned();
    for number in ["u8", "u16", "u32", "u64", "usize"] {
        let expected = format!("expected {number}");
        if message.ends_with(&expected) {
            message = message.replace(&expected, WHOLE);
        }
    }
    if message.ends_with("invalid socket address syntax") {
        message = message
            .replace("invalid socket address syntax", "an address has a port: \"127.0.0.1:443\"");
    }
    message
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for Problem {}
