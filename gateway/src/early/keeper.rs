//! The task that speaks with the store.

use std::future::Future;
use std::sync::Arc;

use quicket_register::{Failure, Look, Next, Refusal, SetReply, Trailer};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep_until, timeout, timeout_at};

use super::place::Place;
use super::store::{Fault, PATIENCE, Store};
use super::{Asked, Batch, ClusterRegister, Credentials};

/// Questions that go to the store at once.
const MAX_BATCH: usize = 64;
/// How often a look is repeated because somebody has written a mark meanwhile.
const LOOKS: usize = 4;

/// The task that speaks with the store.
pub(crate) struct Keeper {
    register: Arc<ClusterRegister>,
    questions: mpsc::Receiver<Asked>,
    place: Place,
    /// What was told last.
    told: Option<Result<(), Refusal>>,
}

impl Keeper {
    pub(super) const fn new(
        register: Arc<ClusterRegister>,
        questions: mpsc::Receiver<Asked>,
        place: Place,
    ) -> Self {
        Self { register, questions, place, told: None }
    }

    /// Keeps a connection, looks at the store, and asks it, until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let look_at = self.register.instant(self.register.lock().look_at());
            self.refusing(sleep_until(look_at)).await;
            let Credentials { password, secured } = self.register.credentials.borrow().clone();
            let place = Place { password, secured, ..self.place.clone() };
            let fault = match self.refusing(Store::connect(&place)).await {
                Ok((store, driver)) => self.hold(store, driver).await,
                Err(fault) => fault,
            };
            let now = self.register.now();
            self.register.lock().broken(now);
            self.tell(Some(&fault));
        }
    }

    /// Waits for something, while nobody is asked.
    async fn refusing<T>(&mut self, until: impl Future<Output = T>) -> T {
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                done = &mut until => return done,
                Some(asked) = self.questions.recv() => self.register.fail(vec![asked]),
            }
        }
    }

    /// Asks a store until its connection is of no more use; why.
    async fn hold(&mut self, store: Store, driver: JoinHandle<()>) -> Fault {
        let _ends = Ends(driver.abort_handle());
        let mut driver = driver;
        let (mut batches, mut looks) = (JoinSet::new(), JoinSet::new());
        loop {
            let look_at = self.register.instant(self.register.lock().look_at());
            let mut batch = Vec::new();
            tokio::select! {
                _ = &mut driver => return Fault::new("the store has ended the connection"),
                count = self.questions.recv_many(&mut batch, MAX_BATCH), if batches.len() < MAX_BATCH => {
                    if let Some(first) = batch.first().map(|asked| asked.at) {
                        // It is counted before its task begins, which may never come to that.
                        let counted = Batch::new(Arc::clone(&self.register), count, first);
                        batches.spawn(ask(counted, store.clone(), batch));
                    }
                }
                // A store that has forgotten is looked at now.
                Some(_) = batches.join_next() => self.tell(None),
                Some(looked) = looks.join_next() => match looked {
                    Ok(Ok(())) => self.tell(None),
                    Ok(Err(fault)) => return fault,
                    Err(error) => return error.into(),
                },
                () = sleep_until(look_at), if looks.is_empty() => {
                    let name = self.place.name.clone();
                    looks.spawn(look(Arc::clone(&self.register), store.clone(), name));
                }
            }
        }
    }

    /// Has counters and log say how it is, if that is new.
    fn tell(&mut self, fault: Option<&Fault>) {
        let (breaker, standing) = self.register.state();
        self.register.metrics.state(breaker, standing);
        let before = self.told.replace(standing);
        if before == Some(standing) {
            return;
        }
        let address = &self.place.address;
        match (standing, fault) {
            (Ok(()), _) => {
                log::info!("early data is taken: the store {address} knows all uses of tickets")
            }
            (Err(_), Some(fault)) => {
                log::warn!("early data is refused: the store {address}: {fault}")
            }
            (Err(why), None) => log::warn!("early data is refused: {why} (the store {address})"),
        }
    }
}

/// Ends a task when it is dropped.
struct Ends(tokio::task::AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Asks a store, and gives the answers.
async fn ask(mut counted: Batch, mut store: Store, batch: Vec<Asked>) {
    let (deadline, with_evicted) = {
        let register = counted.register().lock();
        (std::time::Duration::from_millis(register.deadline()), register.wants_evicted())
    };
    let tickets: Vec<_> = batch.iter().map(|asked| asked.ticket).collect();
    let asked = timeout_at(counted.first() + deadline, store.ask(&tickets, with_evicted)).await;
    let told = match &asked {
        Ok(Ok(answers)) => Ok(Trailer {
            mark: answers.mark.as_deref(),
            time: answers.time,
            evicted: answers.evicted,
        }),
        Ok(Err(fault)) => {
            log::debug!("the register of tickets: {fault}");
            Err(Failure::Error)
        }
        Err(_) => Err(Failure::Late),
    };
    let judged = counted.judge(told);
    let replies = asked.ok().and_then(Result::ok).map(|answers| answers.replies);
    // Without answers, what they were does not matter.
    let replies = replies.unwrap_or_else(|| vec![SetReply::Held; batch.len()]);
    for (asked, reply) in batch.into_iter().zip(replies) {
        counted.register().metrics.took(asked.at.elapsed());
        counted.register().answer(asked.answer, judged.of(reply));
    }
}

/// Looks at a store, and writes its mark where there is none.
async fn look(register: Arc<ClusterRegister>, mut store: Store, name: String) -> Result<(), Fault> {
    let late = |_| Fault::new("the store does not answer within a second");
    for _ in 0..LOOKS {
        let mut id = [0; 16];
        aws_lc_rs::rand::fill(&mut id)?;
        let begun = tokio::time::Instant::now();
        let looked = timeout(PATIENCE, store.look(&id)).await.map_err(late)??;
        let now = register.now();
        // An answer that has lain about while this process stood still tells nothing of the store's clock.
        if begun.elapsed() > PATIENCE {
            return Err(Fault::new("this process was held up while the store answered"));
        }
        // Before an answer of it counts.
        if let Some(id) = &looked.id {
            register.asks(&name, id);
        }
        let mut mark = [0; 8];
        aws_lc_rs::rand::fill(&mut mark)?;
        let look = Look {
            info: &looked.info,
            time: looked.time,
            mark: looked.mark.as_deref(),
            denies: looked.denies,
            name: mark,
        };
        let next = register.lock().looked(now, look);
        match next {
            Next::Known | Next::Unfit(_) => return Ok(()),
            Next::Write(mark) => {
                timeout(PATIENCE, store.write(mark.text())).await.map_err(late)??;
            }
        }
    }
    Err(Fault::new("its mark is written by others again and again: do they ask the same store?"))
}
