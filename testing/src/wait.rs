use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take to come about on a machine that is busy.
pub const LONG: Duration = Duration::from_secs(40);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until something is so, for at most [`LONG`].
///
/// # Panics
///
/// If it is not so by then; the message names `what`.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}: not so after {} s", LONG.as_secs());
        thread::sleep(PAUSE);
    }
}
