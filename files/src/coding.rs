//! Files that lie there compressed already, and who takes them (RFC 9110, Section 12.5.3).

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Brotli (RFC 7932).
    Brotli,
    /// Zstandard (RFC 8878).
    Zstd,
    /// gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// All of them, the one that saves most first.
    const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// As HTTP calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// What the file's name has more than that of the file itself.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    /// Those that a client takes, the one that saves most first.
    pub(crate) fn accepted(asked: &HeaderMap) -> impl Iterator<Item = Self> {
        let takes = |coding: &Self| {
            let values =
                || asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
            let of = |name: &str| {
                values().flat_map(|value| value.split(',')).find_map(|entry| wanted(entry, name))
            };
            of(coding.name()).or_else(|| of("*")).unwrap_or(false)
        };
        Self::ALL.into_iter().filter(takes)
    }
}

/// Whether an entry concerns a coding, and if so, whether the client takes it: `br;q=0` says it does not.
fn wanted(entry: &str, name: &str) -> Option<bool> {
    let mut parts = entry.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(name) {
        return None;
    }
    let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
    Some(weight.is_none_or(|weight| !weight.trim_end_matches(['0', '.']).is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(value: &'static str) -> Vec<&'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, value.parse().unwrap());
        Coding::accepted(&headers).map(Coding::name).collect()
    }

    #[test]
    fn clients_get_what_they_take() {
        assert_eq!(accepted("gzip, deflate, br, zstd"), ["br", "zstd", "gzip"]);
        assert_eq!(accepted("GZIP;q=0.5"), ["gzip"]);
        assert_eq!(accepted("br;q=0, gzip;q=0.000, *"), ["zstd"]);
        assert_eq!(accepted("identity"), Vec::<&str>::new());
        assert_eq!(accepted("*;q=0"), Vec::<&str>::new());
        assert!(Coding::accepted(&HeaderMap::new()).next().is_none());
    }
}
