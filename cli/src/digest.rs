//! SHA-256 of files and streams.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use aws_lc_rs::digest::{Context, SHA256};

/// A SHA-256 hash; printed as lowercase hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sha256([u8; 32]);

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Sha256 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || "a SHA-256 hash has 64 hexadecimal digits".to_owned();
        if text.len() != 64 {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digit = |at: usize| char::from(digits[at]).to_digit(16).ok_or_else(wrong);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Ok(Self(bytes))
    }
}

impl serde::Serialize for Sha256 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A hash in progress.
#[derive(Clone)]
pub(crate) struct Hasher(Context);

impl Hasher {
    pub(crate) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(crate) fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// Takes in all that is left of a reader; returns its length.
    pub(crate) fn update_from(&mut self, reader: &mut dyn Read) -> io::Result<u64> {
        let mut buffer = vec![0; 256 << 10];
        let mut total = 0;
        loop {
            let read = match reader.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if read == 0 {
                return Ok(total);
            }
            self.update(&buffer[..read]);
            total += read as u64;
        }
    }

    pub(crate) fn finish(self) -> Sha256 {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.finish().as_ref());
        Sha256(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn hashes_are_read_and_printed() {
        let mut hasher = Hasher::new();
        assert_eq!(hasher.update_from(&mut &b"abc"[..]).unwrap(), 3);
        let hash = hasher.finish();
        assert_eq!(hash.to_string(), ABC);
        assert_eq!(ABC.to_uppercase().parse::<Sha256>().unwrap(), hash);
        for wrong in ["", &ABC[1..], &ABC.replace('b', "g"), &ABC.replacen("ba", "\u{e9}", 1)] {
            assert!(wrong.parse::<Sha256>().is_err(), "{wrong}");
        }
    }
}
