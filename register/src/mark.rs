//! What is written in the store about itself.

use alloc::format;
use alloc::string::String;

use crate::{Info, Millis};

/// The first word.
const VERSION: &str = "1";
/// The longest mark that is read, in bytes.
const MAX_LEN: usize = 512;

/// Since when the store knows all uses, and which store it was then. Servers that find another store than the mark
/// says write another mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    text: String,
    began: Millis,
}

impl Mark {
    /// That of a store which knows all uses from now on, by its own time; `name` is random.
    #[must_use]
    pub fn new(info: &Info, began: Millis, name: [u8; 8]) -> Self {
        let name = u64::from_be_bytes(name);
        let identity = identity(info);
        Self { text: format!("{VERSION} {identity} {began} {name:016x}"), began }
    }

    /// Reads one of the store that `info` tells of; nothing if it is another's, or none.
    #[must_use]
    pub fn of(info: &Info, text: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_LEN)?;
        let rest = text.strip_prefix(VERSION)?.strip_prefix(' ')?;
        let rest = rest.strip_prefix(&identity(info))?.strip_prefix(' ')?;
        let (began, name) = rest.split_once(' ')?;
        let is_name = name.len() == 16 && name.bytes().all(|digit| digit.is_ascii_hexdigit());
        let began = began.parse().ok().filter(|_| is_name)?;
        Some(Self { text: text.into(), began })
    }

    /// What stands in the store.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// By the store's time, in milliseconds since 1970.
    #[must_use]
    pub const fn began(&self) -> Millis {
        self.began
    }
}

fn identity(info: &Info) -> String {
    format!("{} {} {}", info.run_id, info.replication_id, info.evicted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> Info {
        Info { run_id: "aa".into(), replication_id: "bb".into(), evicted: 7, ..Info::default() }
    }

    #[test]
    fn a_mark_is_that_of_its_store() {
        let mark = Mark::new(&info(), 123, [1; 8]);
        assert_eq!(mark.text(), "1 aa bb 7 123 0101010101010101");
        assert_eq!(Mark::of(&info(), mark.text().as_bytes()), Some(mark.clone()));
        let others = [
            Info { run_id: "ab".into(), ..info() },
            Info { replication_id: "b".into(), ..info() },
            Info { evicted: 8, ..info() },
            Info { evicted: 0, ..info() },
        ];
        for other in others {
            assert_eq!(Mark::of(&other, mark.text().as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_no_mark_is_none() {
        for text in [
            &b""[..],
            b"1",
            b"2 aa bb 7 123 0101010101010101",
            b"1 aa bb 7 123",
            b"1 aa bb 7 -1 0101010101010101",
            b"1 aa bb 7 123 010101010101010x",
            b"1 aa bb 7 123 0101010101010101 ",
            b"1 aa bb 7 123 \xff101010101010101",
            b"1 aa bb 7 99999999999999999999 0101010101010101",
        ] {
            assert_eq!(Mark::of(&info(), text), None, "{text:?}");
        }
    }
}
