//! Questions that go to the store together, and come to an end whatever becomes of who asks them.

use std::sync::Arc;

use quicket_register::{Failure, Judgement, SetReply, Trailer};
use tokio::time::Instant;

use super::ClusterRegister;

/// Questions that wait for the store. The register counts them, and hears of their end: here, or when this is dropped,
/// because the task that asks them was ended with the connection.
pub(super) struct Batch {
    register: Arc<ClusterRegister>,
    count: usize,
    first: Instant,
    is_over: bool,
}

impl Batch {
    /// So many, the first of which was asked at `first`.
    pub(super) const fn new(register: Arc<ClusterRegister>, count: usize, first: Instant) -> Self {
        Self { register, count, first, is_over: false }
    }

    pub(super) fn register(&self) -> &ClusterRegister {
        &self.register
    }

    /// When the first was asked.
    pub(super) const fn first(&self) -> Instant {
        self.first
    }

    /// They have come to their end.
    pub(super) fn judge(&mut self, told: Result<Trailer<'_>, Failure>) -> Judgement {
        self.is_over = true;
        let (now, first) = (self.register.now(), self.register.at(self.first));
        self.register.lock().judge(now, self.count, first, told)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // Who drops a question has answered that it is not taken.
        let judged = self.judge(Err(Failure::Error));
        (0..self.count).for_each(|_| self.register.metrics.answered(judged.of(SetReply::Held)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quicket_register::{Info, Look, MAX_ASKED, Next, WINDOW};

    use super::*;
    use crate::early::{Address, Place};
    use crate::metrics::Metrics;

    /// A time since 1970, in milliseconds.
    const TIME: u64 = 1_700_000_000_000;

    fn register() -> Arc<ClusterRegister> {
        let place = Place {
            address: Address::Unix("/nowhere".into()),
            name: "test".into(),
            username: None,
            password: None,
            secured: None,
            deadline: Duration::from_secs(200),
            replicas: 0,
        };
        ClusterRegister::new(place, Metrics::new().register()).0
    }

    /// A connection is cut with as many questions under way as there may be, again and again.
    #[tokio::test]
    async fn questions_of_a_connection_that_was_cut_leave_room_for_others() {
        let register = register();
        let info = Info { run_id: "a".into(), replication_id: "b".into(), ..Info::default() };
        let mark = format!("1 a b 0 {} {:016x}", TIME - 2 * WINDOW, 7);
        for round in 0..3 {
            let now = register.now();
            let look = Look {
                info: &info,
                time: TIME + now,
                mark: Some(mark.as_bytes()),
                denies: true,
                name: [0; 8],
            };
            assert_eq!(register.lock().looked(now, look), Next::Known);
            for number in 0..MAX_ASKED {
                let mut ticket = [0; 12];
                ticket[..8].copy_from_slice(&(round * MAX_ASKED + number).to_be_bytes());
                let asked = register.lock().ask(now, (TIME + now) / 1000, &ticket);
                assert_eq!(asked, Ok(()), "round {round}, {number}");
            }
            // Some tasks have begun, others have not.
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..MAX_ASKED / 64 {
                let batch = Batch::new(Arc::clone(&register), 64, Instant::now());
                tasks.spawn(async move {
                    let _batch = batch;
                    std::future::pending::<()>().await;
                });
                if number % 2 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            tasks.shutdown().await;
        }
    }
}
