//! Axes: units that fit, and round numbers on them.

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Bytes,
    Milliseconds,
    BitsPerSecond,
    Count,
}

/// A unit, and how much of the quantity it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    pub(super) size: f64,
}

impl Quantity {
    /// The largest unit of which there is one at least.
    pub(super) fn unit(self, greatest: f64) -> Unit {
        let (smallest, units): (&str, &[(&'static str, f64)]) = match self {
            Self::Bytes => {
                ("B", &[("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)])
            }
            Self::Milliseconds => (
                "µs",
                &[("h", 3_600_000.0), ("min", 60_000.0), ("s", 1e3), ("ms", 1.0), ("µs", 1e-3)],
            ),
            Self::BitsPerSecond => {
                ("bit/s", &[("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)])
            }
            Self::Count => ("", &[("", 1.0)]),
        };
        let fitting = units.iter().find(|(_, size)| greatest >= *size).or(units.last());
        fitting
            .map_or(Unit { name: smallest, size: 1.0 }, |(name, size)| Unit { name, size: *size })
    }
}

/// Round numbers from 0 on: so many steps, about, or fewer.
#[derive(Clone, Debug)]
pub(super) struct Ticks {
    step: f64,
    count: usize,
}

impl Ticks {
    /// Ticks up to `greatest`, which is above 0.
    pub(super) fn new(greatest: f64, about: usize, whole: bool) -> Self {
        let rough = greatest / about as f64;
        let magnitude = 10f64.powf(rough.log10().floor());
        let round = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * magnitude);
        let step = round.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough);
        let step = if whole { step.max(1.0) } else { step };
        let count = (greatest / step * 1.000_001).floor() as usize;
        Self { step, count: count.min(2 * about) }
    }

    /// The first tick at or above `greatest`, where an axis may end.
    pub(super) fn end(&self, greatest: f64) -> f64 {
        (greatest / self.step * 0.999_999).ceil().max(1.0) * self.step
    }

    /// Their values, and how they are written.
    pub(super) fn labels(&self) -> impl Iterator<Item = (f64, String)> + use<> {
        let digits = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        let (step, count) = (self.step, self.count);
        (0..=count).map(move |number| {
            let value = number as f64 * step;
            (value, format!("{value:.digits$}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_greatest_value() {
        assert_eq!(Quantity::Bytes.unit(2.5e6).name, "MB");
        assert_eq!(Quantity::Bytes.unit(0.0).name, "B");
        assert_eq!(Quantity::Milliseconds.unit(0.5).name, "µs");
        assert_eq!(Quantity::Milliseconds.unit(90_000.0).name, "min");
        assert_eq!(Quantity::BitsPerSecond.unit(2e12).name, "Gbit/s");
    }

    #[test]
    fn ticks_are_round_and_few() {
        let labels = |greatest, about, whole| {
            let labels = Ticks::new(greatest, about, whole).labels();
            labels.map(|(_, label)| label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(1.03, 5, false), "0.0 0.5 1.0");
        assert_eq!(labels(47.0, 5, false), "0 10 20 30 40");
        assert_eq!(labels(2.0, 5, true), "0 1 2");
        assert_eq!(labels(0.3, 5, false), "0.0 0.1 0.2 0.3");
        assert!((Ticks::new(47.0, 5, false).end(47.0) - 50.0).abs() < 1e-9);
        for greatest in [1e-9, 1.0, 4e18, 1e300] {
            assert!(Ticks::new(greatest, 5, false).labels().count() <= 11);
        }
    }
}
