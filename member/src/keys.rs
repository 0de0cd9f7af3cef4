//! What a site's keys are used with, and how its servers are called.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use quicket::steering::{BlockCipher, ServerId, aes_128};

/// The cipher of connection IDs.
#[must_use]
pub fn aes(key: &[u8; 16]) -> Arc<dyn BlockCipher> {
    aes_128(key)
}

/// What authenticates the body of a report.
#[must_use]
pub fn sign(key: &[u8; 32], body: &[u8]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, body).as_ref().try_into().unwrap_or_default()
}

/// Whether `tag` is what [`sign`] makes of a body; takes as long if it is not.
#[must_use]
pub fn verify(key: &[u8; 32], body: &[u8], tag: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), body, tag).is_ok()
}

/// The clock of the machine, in milliseconds since 1970.
#[must_use]
pub fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a server ID.
///
/// # Errors
///
/// If it is not of 1 to 15 octets, in hexadecimal digits.
pub fn server_id(text: &str) -> Result<ServerId, &'static str> {
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
