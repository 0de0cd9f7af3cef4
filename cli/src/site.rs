//! The file of a site's connection IDs, which balancers and servers have in common.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use quicket::steering::{BlockCipher, ServerId, aes_128};
use quicket_balancer::Site;

use crate::exit::{Failure, Kind};

/// The longest file in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Reads a file of text, which has a bound.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::file(format!("cannot read {}", path.display()), &error);
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > MAX_FILE {
        true => Err(wrong(path, format!("it is longer than {MAX_FILE} bytes"))),
        false => Ok(text),
    }
}

/// A file that says what cannot be.
pub(crate) fn wrong(path: &Path, why: impl fmt::Display) -> Failure {
    Failure::new(Kind::Usage, format!("{}: {why}", path.display()))
}

/// Reads the file of connection IDs.
pub(crate) fn read(path: &Path) -> Result<Site, Failure> {
    Site::parse(&read_text(path)?).map_err(|error| wrong(path, error))
}

/// The cipher of connection IDs.
pub(crate) fn aes(key: &[u8; 16]) -> Arc<dyn BlockCipher> {
    aes_128(key)
}

/// What authenticates the body of a report.
pub(crate) fn sign(key: &[u8; 32], body: &[u8]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, body).as_ref().try_into().unwrap_or_default()
}

/// Whether `tag` is what [`sign`] makes of a body; takes as long if it is not.
#[cfg(target_os = "linux")]
pub(crate) fn verify(key: &[u8; 32], body: &[u8], tag: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), body, tag).is_ok()
}

/// The clock of the machine, in milliseconds since 1970.
pub(crate) fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a server ID.
pub(crate) fn server_id(text: &str) -> Result<ServerId, &'static str> {
    let digit = |letter: char| letter.to_digit(16).map(|digit| digit as u8);
    let digits: Option<Vec<u8>> = text.chars().map(digit).collect();
    let octets = digits.filter(|digits| digits.len() % 2 == 0).map(|digits| {
        digits.chunks(2).map(|pair| pair.iter().fold(0, |all, digit| all << 4 | digit)).collect()
    });
    octets
        .and_then(|octets: Vec<u8>| ServerId::new(&octets))
        .ok_or("give 2 to 30 hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_ids_are_hexadecimal() {
        assert_eq!(server_id("00ff12").unwrap().as_slice(), [0, 0xff, 0x12]);
        for wrong in ["", "0", "0x12", "zz", &"00".repeat(16)] {
            assert!(server_id(wrong).is_err(), "{wrong}");
        }
    }
}
