//! Curves of files of any length in bounded memory: what is near in time shares a bin, and bins become wider
//! as time goes on.

/// How many bins of a curve there are at most. A plot is about 900 pixels wide.
const MAX_BINS: usize = 512;
/// Sums of less time than this share of the whole jump too much to be read as a rate.
const MAX_SUMS: usize = 160;
/// How wide bins are at first, in milliseconds.
const FIRST_WIDTH: f64 = 1e-3;
/// Times beyond this, in milliseconds, are not believed: three hundred years.
pub(super) const MAX_TIME: f64 = 1e13;

/// A moment in milliseconds since the first event, and a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) at: f64,
    pub(super) value: f64,
}

/// What can be put together with what came later in the same bin.
trait Bin: Copy {
    fn join(&mut self, later: Self);
}

/// Bins by time, each twice as wide as soon as there would be too many. Times do not go backwards.
#[derive(Clone, Debug)]
struct Bins<B> {
    width: f64,
    limit: usize,
    /// By their number: from `number * width` on.
    bins: Vec<(u64, B)>,
}

impl<B: Bin> Bins<B> {
    const fn new(limit: usize) -> Self {
        Self { width: FIRST_WIDTH, limit, bins: Vec::new() }
    }

    fn add(&mut self, at: f64, value: B) {
        let at = at.clamp(0.0, MAX_TIME);
        // The conversion saturates; the limit of times keeps it from that.
        let mut number = (at / self.width) as u64;
        while self.is_full(number) {
            self.widen();
            number = (at / self.width) as u64;
        }
        match self.bins.last_mut() {
            Some((last, bin)) if *last >= number => bin.join(value),
            _ => self.bins.push((number, value)),
        }
    }

    fn is_full(&self, number: u64) -> bool {
        self.bins.len() >= self.limit && self.bins.last().is_some_and(|(last, _)| *last < number)
    }

    fn widen(&mut self) {
        self.width *= 2.0;
        let mut joined: Vec<(u64, B)> = Vec::with_capacity(self.limit);
        for (number, bin) in self.bins.drain(..) {
            match joined.last_mut() {
                Some((last, before)) if *last == number / 2 => before.join(bin),
                _ => joined.push((number / 2, bin)),
            }
        }
        self.bins = joined;
    }
}

/// The first and last value within a bin, and the least and the greatest.
#[derive(Clone, Copy, Debug)]
struct Extremes {
    first: Point,
    least: Point,
    greatest: Point,
    last: Point,
}

impl Bin for Extremes {
    fn join(&mut self, later: Self) {
        if later.least.value < self.least.value {
            self.least = later.least;
        }
        if later.greatest.value > self.greatest.value {
            self.greatest = later.greatest;
        }
        self.last = later.last;
    }
}

/// A value over time. Of what falls into a bin, the first, last, least and greatest are kept.
#[derive(Clone, Debug)]
pub(super) struct Series(Bins<Extremes>);

impl Default for Series {
    fn default() -> Self {
        Self(Bins::new(MAX_BINS))
    }
}

impl Series {
    pub(super) fn add(&mut self, at: f64, value: f64) {
        let point = Point { at: at.clamp(0.0, MAX_TIME), value };
        let (first, least, greatest, last) = (point, point, point, point);
        self.0.add(at, Extremes { first, least, greatest, last });
    }

    /// What is left, in order of time.
    pub(super) fn points(&self) -> Vec<Point> {
        let mut points = Vec::with_capacity(4 * self.0.bins.len());
        for (_, Extremes { first, least, greatest, last }) in &self.0.bins {
            let mut four = [*first, *least, *greatest, *last];
            four.sort_by(|one, other| one.at.total_cmp(&other.at));
            for point in four {
                if points.last() != Some(&point) {
                    points.push(point);
                }
            }
        }
        points
    }

    /// The greatest value.
    pub(super) fn greatest(&self) -> f64 {
        self.0.bins.iter().map(|(_, bin)| bin.greatest.value).fold(0.0, f64::max)
    }
}

#[derive(Clone, Copy, Debug)]
struct Sum(f64);

impl Bin for Sum {
    fn join(&mut self, later: Self) {
        self.0 += later.0;
    }
}

/// Bytes for each span of time.
#[derive(Clone, Debug)]
pub(super) struct Sums(Bins<Sum>);

impl Default for Sums {
    fn default() -> Self {
        Self(Bins::new(MAX_SUMS))
    }
}

impl Sums {
    pub(super) fn add(&mut self, at: f64, bytes: u64) {
        self.0.add(at, Sum(bytes as f64));
    }

    /// The rate in bits per second over time, until `end` (in milliseconds). Silence is 0.
    pub(super) fn rates(&self, end: f64) -> Vec<Point> {
        let end = end.clamp(FIRST_WIDTH, MAX_TIME);
        // Bins that are finer than that, of a file of few packets far apart, are looked at together.
        let width = self.0.width.max(end / MAX_SUMS as f64);
        if self.0.bins.is_empty() {
            return Vec::new();
        }
        // What is left at the end belongs to the last, which is wider.
        let count = ((end / width) as usize).clamp(1, 2 * MAX_SUMS);
        let mut sums = vec![0.0; count];
        for (number, Sum(bytes)) in &self.0.bins {
            let at = (*number as f64 * self.0.width / width) as usize;
            if let Some(sum) = sums.get_mut(at.min(count - 1)) {
                *sum += bytes;
            }
        }
        let points = sums.iter().enumerate().map(|(at, bytes)| {
            let from = at as f64 * width;
            let until = if at + 1 == count { end } else { from + width };
            // Between its ends: a rate holds for a span.
            let spent = (until - from).max(FIRST_WIDTH) / 1e3;
            Point { at: f64::midpoint(from, until), value: bytes * 8.0 / spent }
        });
        points.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_points_become_a_few_and_peaks_stay() {
        let mut series = Series::default();
        for at in 0..1_000_000 {
            let value = if at == 654_321 { 9.0 } else { f64::from(at % 7) / 7.0 };
            series.add(f64::from(at) / 10.0, value);
        }
        let points = series.points();
        assert!((512..=2048).contains(&points.len()), "{}", points.len());
        assert!(points.is_sorted_by(|one, other| one.at <= other.at));
        assert!(points.contains(&Point { at: 65_432.1, value: 9.0 }));
        assert_eq!(points.last().map(|point| point.at), Some(99_999.9));
        assert!((series.greatest() - 9.0).abs() < 1e-9);
    }

    #[test]
    fn times_that_leap_or_go_back_cost_no_more() {
        let mut series = Series::default();
        for at in [0.0, 1e300, 5.0, f64::MAX, 1.0, f64::INFINITY] {
            series.add(at, 1.0);
        }
        assert!(series.points().iter().all(|point| (0.0..=MAX_TIME).contains(&point.at)));
        let mut sums = Sums::default();
        for at in 0..1000 {
            sums.add(f64::from(at) * 1e10, 1);
        }
        assert!(sums.rates(1e13).len() <= 2 * MAX_SUMS);
    }

    #[test]
    fn the_sum_under_the_rates_is_what_was_sent() {
        let mut sums = Sums::default();
        for at in 0..5000 {
            sums.add(f64::from(at), 1000);
        }
        let rates = sums.rates(5000.0);
        assert!(rates.len() > 50, "{}", rates.len());
        let width = rates[1].at - rates[0].at;
        let bits: f64 = rates.iter().map(|point| point.value * width / 1e3).sum();
        assert!((bits / 40e6 - 1.0).abs() < 0.02, "{bits}");
        // 1,000 bytes each millisecond.
        assert!((rates[20].value / 8e6 - 1.0).abs() < 0.1, "{:?}", rates[20]);
    }
}
