//! Application protocols, as the ALPN option has them.

use super::errno::Errno;

/// The longest list in text, in bytes.
const MAX_ALPN_TEXT: usize = 128;

/// A list of application protocols (RFC 7301).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Alpn(Vec<Vec<u8>>);

impl Alpn {
    /// Reads names that are separated by commas, with or without spaces before them.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Errno> {
        if text.is_empty() || text.len() > MAX_ALPN_TEXT {
            return Err(Errno::EINVAL);
        }
        let names = text.split(|byte| *byte == b',').map(trim_start);
        Ok(Self(names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()))
    }

    /// The names with commas between them.
    pub(super) fn to_text(&self) -> Vec<u8> {
        self.0.join(&b","[..])
    }

    /// The names.
    pub(super) fn names(&self) -> &[Vec<u8>] {
        &self.0
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `name` is on the list.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|each| each == name)
    }

    /// True if both lists have the same names, in whatever order.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let has_all = |one: &Self, other: &Self| other.0.iter().all(|name| one.has(name));
        has_all(self, other) && has_all(other, self)
    }

    /// True if both lists have a name in common.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().any(|name| other.has(name))
    }
}

fn trim_start(name: &[u8]) -> &[u8] {
    let spaces = name.iter().take_while(|byte| **byte == b' ').count();
    name.get(spaces..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_lists_with_commas() {
        let alpn = Alpn::parse(b"smbd, h3,ksmbd").unwrap();
        assert_eq!(alpn.to_text(), b"smbd,h3,ksmbd");
        assert!(alpn.has(b"h3") && !alpn.has(b"h"));
        assert!(alpn.overlaps(&Alpn::parse(b"x,ksmbd").unwrap()));
        assert!(!alpn.overlaps(&Alpn::parse(b"x").unwrap()));
        for (list, is_same) in [
            ("ksmbd,smbd,h3", true),
            ("h3,h3,smbd,ksmbd", true),
            ("smbd,h3", false),
            ("smbd,h3,ksmbd,x", false),
        ] {
            let list = Alpn::parse(list.as_bytes()).unwrap();
            assert_eq!((alpn.is_same(&list), list.is_same(&alpn)), (is_same, is_same), "{list:?}");
        }
        assert!(Alpn::default().is_same(&Alpn::default()) && !alpn.is_same(&Alpn::default()));
        assert_eq!(Alpn::parse(b""), Err(Errno::EINVAL));
        assert_eq!(Alpn::parse(&[b'a'; 129]), Err(Errno::EINVAL));
    }
}
