//! Numbers with units, for people.

use std::fmt;
use std::time::Duration;

/// A count of bytes: `1.5 MB`. Decimal units, as in the names of link speeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0 as f64, 1, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
    }
}

/// A speed in bits per second: `1.5 Gbit/s`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate(f64);

impl Rate {
    /// So many bytes in this time; none if no time passed.
    pub(crate) fn of(bytes: u64, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        Self(if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 })
    }

    /// In bits per second.
    pub(crate) fn bits_per_second(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
    }
}

/// A time: `340 us`, `12.5 ms`, `3.2 s`, `2 min 05 s`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(pub(crate) Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        if seconds >= 120 {
            return write!(f, "{} min {:02} s", seconds / 60, seconds % 60);
        }
        if seconds >= 1 {
            return write!(f, "{:.1} s", self.0.as_secs_f64());
        }
        scaled(f, self.0.as_nanos() as f64 / 1e3, 1, &["us", "ms"])
    }
}

/// Writes a number with the largest unit that leaves it at 1 or above; whole numbers of the
/// smallest unit have no fraction.
fn scaled(
    f: &mut fmt::Formatter<'_>,
    mut value: f64,
    digits: usize,
    units: &[&str],
) -> fmt::Result {
    let mut at = 0;
    while value >= 999.95 && at + 1 < units.len() {
        value /= 1000.0;
        at += 1;
    }
    let digits = if at == 0 { 0 } else { digits };
    write!(f, "{value:.digits$} {}", units[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_the_fitting_unit() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(999).to_string(), "999 B");
        assert_eq!(Bytes(1500).to_string(), "1.5 kB");
        assert_eq!(Bytes(999_960).to_string(), "1.0 MB");
        assert_eq!(Bytes(u64::MAX).to_string(), "18.4 EB");
    }

    #[test]
    fn rates_are_in_bits() {
        assert_eq!(Rate::of(125_000_000, Duration::from_secs(1)).to_string(), "1.0 Gbit/s");
        assert_eq!(Rate::of(1, Duration::ZERO).bits_per_second(), 0);
    }

    #[test]
    fn times_take_the_fitting_unit() {
        assert_eq!(Time(Duration::from_micros(340)).to_string(), "340 us");
        assert_eq!(Time(Duration::from_micros(12_500)).to_string(), "12.5 ms");
        assert_eq!(Time(Duration::from_millis(3210)).to_string(), "3.2 s");
        assert_eq!(Time(Duration::from_secs(125)).to_string(), "2 min 05 s");
    }
}
