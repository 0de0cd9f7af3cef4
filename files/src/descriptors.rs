//! Files need descriptors, and there may be none.

use std::future::Future;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

/// How long a request waits for a descriptor.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the first of those who wait tries again.
const PAUSE: Duration = Duration::from_millis(20);
/// How often at most the log says that there are none.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Requests that wait for a descriptor.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// Held by the one that tries; the others queue for it.
    turn: tokio::sync::Mutex<()>,
    told: Mutex<Option<Instant>>,
}

impl Descriptors {
    /// Tries until there is a descriptor for it, in the order in which the requests came. The error
    /// is [`is_shortage`] if there is none for long.
    ///
    /// # Errors
    ///
    /// Those of the attempt.
    pub async fn wait_for<T, F>(&self, mut attempt: impl FnMut() -> F) -> io::Result<T>
    where
        F: Future<Output = io::Result<T>>,
    {
        let error = match attempt().await {
            Err(error) if is_shortage(&error) => error,
            done => return done,
        };
        self.tell(&error);
        let tries = async {
            let _turn = self.turn.lock().await;
            loop {
                match attempt().await {
                    Err(error) if is_shortage(&error) => sleep(PAUSE).await,
                    done => return done,
                }
            }
        };
        timeout(PATIENCE, tries).await.unwrap_or(Err(error))
    }

    /// Says in the log what requests wait for, but not for each of them.
    fn tell(&self, error: &io::Error) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = told.is_none_or(|told| told.elapsed() >= TELL_EVERY);
        if is_due {
            *told = Some(Instant::now());
        }
        drop(told);
        if is_due {
            log::warn!(
                "no descriptors for files: {error}; requests wait until others are answered. \
                 Allow this program more: ulimit -n, or LimitNOFILE= of its service"
            );
        }
    }
}

/// True if a file could not be opened for want of descriptors.
#[cfg(unix)]
pub fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// True if a file could not be opened for want of descriptors.
#[cfg(not(unix))]
pub const fn is_shortage(_: &io::Error) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn a_request_waits_for_a_descriptor_and_other_errors_are_final() {
        let descriptors = Descriptors::default();
        let tries = AtomicUsize::new(0);
        let none = || io::Error::from(rustix::io::Errno::MFILE);
        let attempt = || {
            let tried = tries.fetch_add(1, Ordering::Relaxed);
            std::future::ready(if tried < 3 { Err(none()) } else { Ok("open") })
        };
        assert_eq!(descriptors.wait_for(attempt).await.unwrap(), "open");
        assert_eq!(tries.into_inner(), 4);
        let attempt = || std::future::ready(io::Result::<()>::Err(io::ErrorKind::NotFound.into()));
        let failed = descriptors.wait_for(attempt).await;
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
