//! Two ways to one end, of which the first has a start (after RFC 8305, "Happy Eyeballs").

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// Which way came to the end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Winner<A, B> {
    First(A),
    Second(B),
}

/// Goes the first way, and the second one too when `head_start` is over or the first has failed;
/// what is not needed any more is dropped. An error of the first way that `is_final` ends both.
/// Without a winner: why the first failed, and the second if it was gone.
pub(crate) async fn race<A, B, E>(
    first: impl Future<Output = Result<A, E>>,
    second: impl Future<Output = Result<B, E>>,
    head_start: Duration,
    is_final: impl Fn(&E) -> bool,
) -> Result<Winner<A, B>, (E, Option<E>)> {
    let begin = Notify::new();
    let second = async {
        tokio::select! {
            () = sleep(head_start) => {}
            () = begin.notified() => {}
        }
        second.await
    };
    let mut first = pin!(first);
    let mut second = pin!(second);
    let (mut first_error, mut second_error) = (None, None);
    loop {
        tokio::select! {
            biased;
            done = &mut first, if first_error.is_none() => match done {
                Ok(won) => return Ok(Winner::First(won)),
                Err(error) if is_final(&error) => return Err((error, None)),
                Err(error) => {
                    begin.notify_one();
                    first_error = Some(error);
                }
            },
            done = &mut second, if second_error.is_none() => match done {
                Ok(won) => return Ok(Winner::Second(won)),
                Err(error) => second_error = Some(error),
            },
        }
        match (first_error.take(), second_error.take()) {
            (Some(first), Some(second)) => return Err((first, Some(second))),
            failed => (first_error, second_error) = failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const START: Duration = Duration::from_millis(300);

    async fn after<T>(millis: u64, outcome: Result<T, &'static str>) -> Result<T, &'static str> {
        sleep(Duration::from_millis(millis)).await;
        outcome
    }

    async fn run(
        first: (u64, Result<(), &'static str>),
        second: (u64, Result<(), &'static str>),
    ) -> (Result<Winner<(), ()>, (&'static str, Option<&'static str>)>, u128) {
        let begun = Instant::now();
        let ways = (after(first.0, first.1), after(second.0, second.1));
        let outcome = race(ways.0, ways.1, START, |error| *error == "final").await;
        (outcome, begun.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_to_arrive_wins_and_the_second_starts_late() {
        assert_eq!(run((299, Ok(())), (0, Ok(()))).await, (Ok(Winner::First(())), 299));
        assert_eq!(run((9000, Ok(())), (50, Ok(()))).await, (Ok(Winner::Second(())), 350));
        assert_eq!(run((320, Ok(())), (50, Ok(()))).await, (Ok(Winner::First(())), 320));
        // A failure leaves the other way at once.
        assert_eq!(run((10, Err("a")), (50, Ok(()))).await, (Ok(Winner::Second(())), 60));
        assert_eq!(run((900, Ok(())), (10, Err("b"))).await, (Ok(Winner::First(())), 900));
    }

    #[tokio::test(start_paused = true)]
    async fn two_failures_are_both_told_and_a_final_one_ends_it() {
        assert_eq!(run((10, Err("a")), (10, Err("b"))).await, (Err(("a", Some("b"))), 20));
        assert_eq!(run((900, Err("a")), (10, Err("b"))).await, (Err(("a", Some("b"))), 900));
        assert_eq!(run((10, Err("final")), (10, Ok(()))).await, (Err(("final", None)), 10));
    }
}
