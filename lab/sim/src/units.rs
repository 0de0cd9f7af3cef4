//! Quantities of the scenario text: probabilities, times, rates and sizes.

use std::fmt;
use std::str::FromStr;

use quicket_engine::random::Random;
use quicket_engine::time::Duration;

use crate::rng::SimRng;

/// A probability in parts per million, from 0 to 1,000,000; written `1%`, `0.025%` or `40ppm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u32);

impl Probability {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(1_000_000);

    /// From parts per million; more than a million counts as always.
    pub const fn ppm(ppm: u32) -> Self {
        if ppm > 1_000_000 { Self::ALWAYS } else { Self(ppm) }
    }

    /// From whole percents.
    pub const fn percent(percent: u32) -> Self {
        Self::ppm(percent.saturating_mul(10_000))
    }

    /// Parts per million.
    pub const fn as_ppm(self) -> u32 {
        self.0
    }

    /// True for [`Probability::NEVER`].
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }

    /// Draws: true with this probability. Draws nothing when the answer is certain.
    pub fn draw(self, rng: &mut SimRng) -> bool {
        match self {
            Self::NEVER => false,
            Self::ALWAYS => true,
            Self(ppm) => rng.below(1_000_000) < u64::from(ppm),
        }
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        if part == 0 {
            return write!(f, "{whole}%");
        }
        write!(f, "{whole}.{}%", format!("{part:04}").trim_end_matches('0'))
    }
}

impl FromStr for Probability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a probability: write it as `1%`, `0.5%` or `40ppm`, at most 100%"
            )
        };
        let ppm = if let Some(number) = text.strip_suffix('%') {
            decimal(number, 10_000)
        } else {
            text.strip_suffix("ppm").and_then(|number| number.parse().ok())
        };
        match ppm {
            Some(ppm) if ppm <= 1_000_000 => Ok(Self(ppm as u32)),
            _ => Err(wrong()),
        }
    }
}

/// The largest unit that divides `value`, from a table sorted by size, largest first.
fn largest_unit(value: u64, units: &[(&'static str, u64)]) -> (u64, &'static str) {
    let fitting = units.iter().find(|(_, size)| value != 0 && value.is_multiple_of(*size));
    let (name, size) = fitting.or(units.last()).copied().unwrap_or(("", 1));
    (value / size, name)
}

/// A decimal number such as `1.5`, times `scale`; `None` if it is no such number, too large, or
/// finer than `1 / scale`.
fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 18 {
        return None;
    }
    let fraction = u128::from(part.parse::<u64>().ok()?) * u128::from(scale);
    let divisor = 10_u128.pow(part.len() as u32);
    if !fraction.is_multiple_of(divisor) {
        return None;
    }
    let whole = u128::from(whole.parse::<u64>().ok()?) * u128::from(scale);
    u64::try_from(whole + fraction / divisor).ok()
}

/// A number followed by one of `units`, sorted so that no name hides a longer one.
fn with_unit(text: &str, units: &[(&'static str, u64)]) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(split);
    let (_, size) = units.iter().find(|(name, _)| *name == unit)?;
    decimal(number, *size)
}

const TIMES: &[(&str, u64)] =
    &[("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
const RATES: &[(&str, u64)] =
    &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];
const SIZES: &[(&str, u64)] = &[("MB", 1_000_000), ("kB", 1_000), ("B", 1)];

/// Parses a time such as `15ms`, `1.5s`, `250us` or `2min`.
///
/// # Errors
/// A sentence that says how to write it.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    with_unit(text, TIMES).map(Duration::from_nanos).ok_or_else(|| {
        format!("`{text}` is not a time: write a number with `min`, `s`, `ms`, `us` or `ns`, such as `15ms`")
    })
}

/// Writes a time so that [`parse_time`] gives the same one.
pub fn print_time(time: Duration) -> String {
    if time.is_zero() {
        return "0".to_owned();
    }
    let (number, unit) = largest_unit(time.as_nanos(), TIMES);
    format!("{number}{unit}")
}

/// Parses a rate such as `10mbit`, in bits per second, above zero.
pub(crate) fn parse_rate(text: &str) -> Result<u64, String> {
    with_unit(text, RATES).filter(|rate| *rate > 0).ok_or_else(|| {
        format!("`{text}` is not a rate: write a number above 0 with `gbit`, `mbit`, `kbit` or `bit`, such as `10mbit`, or `off` for no limit")
    })
}

/// Writes a rate so that [`parse_rate`] gives the same one.
pub(crate) fn print_rate(bits_per_second: u64) -> String {
    let (number, unit) = largest_unit(bits_per_second, RATES);
    format!("{number}{unit}")
}

/// A length of a queue, in packets (`25`) or in bytes of IP packets (`64kB`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueLength {
    /// Packets, whatever their size.
    Packets(u64),
    /// Bytes of IP packets.
    Bytes(u64),
}

impl fmt::Display for QueueLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets}"),
            Self::Bytes(bytes) => {
                let (number, unit) = largest_unit(*bytes, SIZES);
                write!(f, "{number}{unit}")
            }
        }
    }
}

impl FromStr for QueueLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(packets) = text.parse() {
            return Ok(Self::Packets(packets));
        }
        with_unit(text, SIZES).map(Self::Bytes).ok_or_else(|| {
            format!(
                "`{text}` is not a queue length: write packets as `25`, bytes as `64kB`, or `off`"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_exact_to_one_in_a_million() {
        for text in ["0%", "1%", "0.5%", "0.0001%", "12.34%", "100%"] {
            let p: Probability = text.parse().unwrap();
            assert_eq!(p.to_string(), text);
        }
        assert_eq!("40ppm".parse::<Probability>().unwrap(), Probability::ppm(40));
        for text in ["", "1", "101%", "-1%", "0.00001%", "%", "1.%", ".5%", "ppm", "x%"] {
            let error = text.parse::<Probability>().unwrap_err();
            assert!(error.contains("write it as"), "{error}");
        }
    }

    #[test]
    fn draws_follow_the_probability() {
        let mut rng = SimRng::new(1);
        let hits = (0..100_000).filter(|_| Probability::percent(3).draw(&mut rng)).count();
        assert!((2_700..3_300).contains(&hits), "{hits}");
        assert!(!Probability::NEVER.draw(&mut rng));
        assert!(Probability::ALWAYS.draw(&mut rng));
    }

    #[test]
    fn times_and_rates_print_in_the_largest_whole_unit() {
        for text in ["0", "15ms", "1500ms", "250us", "1ns", "2min", "90s"] {
            assert_eq!(print_time(parse_time(text).unwrap()), text);
        }
        assert_eq!(parse_time("1.5s").unwrap(), Duration::from_millis(1_500));
        for text in ["10mbit", "1gbit", "2500kbit", "1bit"] {
            assert_eq!(print_rate(parse_rate(text).unwrap()), text);
        }
        for text in ["15", "ms", "1.2.3s", "1h", "-1s", "0.1ns", "999999999999s"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        for text in ["0bit", "10", "10mb", "off"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn queue_lengths_are_packets_or_bytes() {
        assert_eq!("25".parse(), Ok(QueueLength::Packets(25)));
        assert_eq!("64kB".parse(), Ok(QueueLength::Bytes(64_000)));
        assert_eq!("1.5kB".parse::<QueueLength>().unwrap().to_string(), "1500B");
        assert!("64k".parse::<QueueLength>().unwrap_err().contains("write packets as"));
    }
}
