//! Octets in messages of JSON: text of hexadecimal digits.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Octets that are text of hexadecimal digits in messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hex(…)")
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_hex(&self.0))
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let octets = Octets::deserialize(deserializer)?;
        let octets = <[u8; N]>::try_from(octets.0);
        octets.map(Self).map_err(|octets| D::Error::invalid_length(octets.len(), &"another number"))
    }
}

/// The same of any length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Octets(pub Vec<u8>);

impl Serialize for Octets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let octets = from_hex(&text).ok_or_else(|| D::Error::custom("not hexadecimal digits"))?;
        Ok(Self(octets))
    }
}

fn to_hex(octets: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    octets.iter().flat_map(|octet| [digit(octet >> 4), digit(octet & 15)]).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        &[high, low] => u8::try_from(value(high)? << 4 | value(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}
