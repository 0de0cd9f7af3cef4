//! A connection that is made anew when it ends.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use quicket::tokio::Connection;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{Error, Event, Say, Server};

/// The first wait.
const SHORTEST: Duration = Duration::from_millis(250);
/// Waits double up to this; a connection that lasted so long is followed by the first wait again.
const LONGEST: Duration = Duration::from_secs(30);

/// The connection, while there is one.
pub(super) type Current = watch::Receiver<Option<Connection>>;

/// Keeps a connection to a server.
pub(super) struct Keeper {
    server: Server,
    say: Say,
    current: watch::Sender<Option<Connection>>,
}

impl Keeper {
    /// Makes the first connection.
    pub(super) async fn begin(server: Server, say: Say) -> Result<(Self, Current), Error> {
        let first = server.connect(true, &say).await?;
        let (current, receiver) = watch::channel(Some(first));
        Ok((Self { server, say, current }, receiver))
    }

    /// Makes another connection whenever one ends.
    pub(super) async fn run(self) -> Infallible {
        let mut pause = Pause::default();
        loop {
            let connection = self.current.borrow().clone();
            let wait = match connection {
                Some(connection) => {
                    let begun = Instant::now();
                    let ended = connection.closed().await;
                    self.current.send_replace(None);
                    if begun.elapsed() >= LONGEST {
                        pause = Pause::default();
                    }
                    let wait = pause.next();
                    (self.say)(&Event::Lost(ended, wait));
                    wait
                }
                None => match self.server.connect(true, &self.say).await {
                    Ok(connection) => {
                        self.current.send_replace(Some(connection));
                        continue;
                    }
                    Err(error) => {
                        let wait = pause.next();
                        (self.say)(&Event::Failed(error, wait));
                        wait
                    }
                },
            };
            sleep(wait).await;
        }
    }
}

/// Waits that double, give or take a quarter: servers that come back are not run over.
#[derive(Default)]
struct Pause {
    count: u32,
    random: RandomState,
}

impl Pause {
    fn next(&mut self) -> Duration {
        let doubled = SHORTEST.saturating_mul(1_u32.checked_shl(self.count).unwrap_or(u32::MAX));
        let wait = doubled.min(LONGEST);
        self.count = self.count.saturating_add(1);
        let share = u32::try_from(self.random.hash_one(self.count) % 50).unwrap_or_default();
        Duration::from_millis((wait * (75 + share) / 100).as_millis() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_bound() {
        let mut pause = Pause::default();
        let waits: Vec<Duration> = (0..40).map(|_| pause.next()).collect();
        assert!((187..=312).contains(&waits[0].as_millis()), "{waits:?}");
        assert!((375..=625).contains(&waits[1].as_millis()), "{waits:?}");
        assert!((22_500..=37_500).contains(&waits[39].as_millis()), "{waits:?}");
    }
}
