//! When certificates are ordered. Pure: time and chance are arguments.

use std::time::{Duration, SystemTime};

/// After a failure that costs the authority nothing, such as one to reach it.
const SHORT: Duration = Duration::from_secs(5);
/// ... at most.
const MAX_SHORT: Duration = Duration::from_secs(60 * 60);
/// After the authority has said no. Public ones take five of these in an hour, for each name.
const LONG: Duration = Duration::from_secs(60);
/// ... at most.
const MAX_LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// How soon after a failure a process that has just started tries again.
const RESTART: Duration = Duration::from_secs(60);
/// How soon after an order the authority may ask for the next one (RFC 9773).
const URGENT: Duration = Duration::from_secs(60 * 60);

/// How long a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

impl Life {
    fn length(self) -> Duration {
        self.not_after.duration_since(self.not_before).unwrap_or_default()
    }
}

/// When the authority suggests to renew (RFC 9773, Section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: SystemTime,
    pub(crate) end: SystemTime,
}

/// When a certificate is to be ordered anew. `ordered` is when it was ordered, by this machine's clock; `share`, of
/// 65,536, is where in the authority's window this one comes.
///
/// It is at two thirds of its life, or in the window. However wrong the clock is, there are no more than three orders
/// in the time of a life: what a wrong clock takes for an old certificate is as old as its order was long ago.
pub(crate) fn due(
    life: Life,
    ordered: Option<SystemTime>,
    window: Option<Window>,
    share: u16,
) -> SystemTime {
    let third = life.length() / 3;
    let window = window.filter(|window| says_something(life, *window));
    let (wanted, least) = match window {
        Some(window) => {
            let length = window.end.duration_since(window.start).unwrap_or_default();
            let at = window.start + length / (1 << 16) * u32::from(share);
            // One that would have it end is not believed.
            (at.min(life.not_after.checked_sub(third / 2).unwrap_or(at)), third.min(URGENT))
        }
        None => (life.not_before + third * 2, third),
    };
    let least = ordered.and_then(|ordered| ordered.checked_add(least));
    least.map_or(wanted, |least| wanted.max(least))
}

/// False for a window that is none, or has all of the life within.
fn says_something(life: Life, window: Window) -> bool {
    let is_all = window.start <= life.not_before && window.end >= life.not_after;
    window.start <= window.end && !is_all
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The authority was not reached, or had troubles of its own.
    Unreachable,
    /// The authority has said no.
    Refused,
}

/// How long to wait after so many failures in a row, 1 at least. `jitter`, of 65,536, has those wait differently who
/// failed together. What the authority asks for counts if it is more, within a day.
pub(crate) fn pause(
    failures: u32,
    trouble: Trouble,
    asked: Option<Duration>,
    jitter: u16,
) -> Duration {
    let (first, factor, most) = match trouble {
        Trouble::Unreachable => (SHORT, 2_u32, MAX_SHORT),
        Trouble::Refused => (LONG, 4, MAX_LONG),
    };
    let times = factor.checked_pow(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let wait = first.saturating_mul(times).min(most);
    let wait = wait.max(asked.unwrap_or_default().min(MAX_LONG));
    // A fifth more at most.
    wait + wait / 5 / (1 << 16) * u32::from(jitter)
}

/// When a process that starts may try what failed last at `failed`. Who has put things right starts anew, and should
/// not wait for long; what starts again and again should not try each time.
pub(crate) fn first_attempt(now: SystemTime, failed: Option<SystemTime>) -> SystemTime {
    // A time to come is one of a wrong clock.
    let recent = failed.filter(|&failed| failed <= now);
    recent.map_or(now, |failed| now.max(failed + RESTART))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn day(days: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + DAY * (20_000 + days)
    }

    fn life() -> Life {
        Life { not_before: day(0), not_after: day(90) }
    }

    fn window(start: u32, end: u32) -> Option<Window> {
        Some(Window { start: day(start), end: day(end) })
    }

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_of_its_life() {
        assert_eq!(due(life(), None, None, 0), day(60));
        assert_eq!(due(life(), Some(day(0)), None, u16::MAX), day(60));
    }

    #[test]
    fn the_window_of_the_authority_counts_and_each_has_its_place_in_it() {
        assert_eq!(due(life(), Some(day(0)), window(40, 42), 0), day(40));
        let middle = due(life(), Some(day(0)), window(40, 42), 1 << 15);
        assert!(middle > day(41) - DAY / 100 && middle <= day(41), "{middle:?}");
        assert!(due(life(), Some(day(0)), window(40, 42), u16::MAX) < day(42));
        // It was revoked on the tenth day: at once.
        assert!(due(life(), Some(day(0)), window(9, 9), 77) <= day(9));
    }

    #[test]
    fn windows_that_say_nothing_or_come_too_late_do_not_count() {
        for wrong in [window(42, 40), window(0, 90), window(0, 1000)] {
            assert_eq!(due(life(), Some(day(0)), wrong, 9), day(60), "{wrong:?}");
        }
        for late in [window(200, 300), window(89, 91)] {
            assert_eq!(due(life(), Some(day(0)), late, u16::MAX), day(75), "{late:?}");
        }
    }

    #[test]
    fn a_wrong_clock_orders_three_times_in_a_life_at_most() {
        // The clock is a year ahead: all that comes has ended already.
        assert_eq!(due(life(), Some(day(365)), None, 0), day(395));
        // An authority that always wants another one gets it every hour.
        let hour = Duration::from_secs(3600);
        assert_eq!(due(life(), Some(day(30)), window(1, 2), 0), day(30) + hour);
        let short = Life { not_before: day(0), not_after: day(0) + Duration::from_secs(9) };
        assert_eq!(due(short, Some(day(0)), None, 0), day(0) + Duration::from_secs(6));
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX as u64);
        assert_eq!(due(life(), Some(end), None, 0), day(60), "a time that is none");
        let none = Life { not_before: day(1), not_after: day(0) };
        assert_eq!(due(none, None, None, 0), day(1));
    }

    #[test]
    fn failures_wait_longer_and_longer_and_not_for_ever() {
        let refused = |failures| pause(failures, Trouble::Refused, None, 0).as_secs();
        assert_eq!([1, 2, 3, 4].map(refused), [60, 240, 960, 3840]);
        let first_hour = (1..).scan(0, |at, failures| {
            *at += refused(failures);
            Some(*at)
        });
        // With the very first one.
        assert!(first_hour.take_while(|&at| at < 3600).count() < 5);
        assert_eq!([7, 1000, u32::MAX].map(refused), [86_400; 3]);
        let unreachable = |failures| pause(failures, Trouble::Unreachable, None, 0).as_secs();
        assert_eq!([1, 2, 3, 100, u32::MAX].map(unreachable), [5, 10, 20, 3600, 3600]);
        assert_eq!(pause(0, Trouble::Unreachable, None, 0).as_secs(), 5);
    }

    #[test]
    fn jitter_adds_a_fifth_at_most_and_the_authority_is_heard() {
        let with = |jitter| pause(1, Trouble::Refused, None, jitter);
        assert!(with(u16::MAX) > with(0) && with(u16::MAX) <= Duration::from_secs(72));
        let asked = |seconds| {
            pause(1, Trouble::Unreachable, Some(Duration::from_secs(seconds)), 0).as_secs()
        };
        assert_eq!((asked(1), asked(600), asked(u64::MAX)), (5, 600, 86_400));
    }

    #[test]
    fn a_process_that_starts_again_and_again_does_not_order_each_time() {
        assert_eq!(first_attempt(day(1), None), day(1));
        assert_eq!(first_attempt(day(1), Some(day(0))), day(1));
        assert_eq!(first_attempt(day(1), Some(day(1))), day(1) + RESTART);
        assert_eq!(first_attempt(day(1), Some(day(9))), day(1), "the clock was wrong");
    }
}
