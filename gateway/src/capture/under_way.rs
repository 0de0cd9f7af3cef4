//! Captures that are under way, for whose end that of the gateway waits.

use tokio::sync::watch;

/// How many there are.
#[derive(Default)]
pub(crate) struct UnderWay(watch::Sender<usize>);

impl UnderWay {
    /// One more, until what is returned is dropped.
    pub(crate) fn one(&self) -> One<'_> {
        self.0.send_modify(|number| *number += 1);
        One(&self.0)
    }

    /// Waits until there is none.
    pub(crate) async fn all_ended(&self) {
        let _ = self.0.subscribe().wait_for(|number| *number == 0).await;
    }
}

/// A capture that is under way.
pub(crate) struct One<'a>(&'a watch::Sender<usize>);

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|number| *number -= 1);
    }
}
