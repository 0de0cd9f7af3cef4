//! How far the end of a gateway is.

use tokio::sync::watch;

/// What a gateway still does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// All.
    #[default]
    Serves,
    /// The next generation takes what is new over TCP, and what is new over QUIC, but for clients that were on their way.
    HandsOver,
    /// The next generation takes what is new. Requests under way are answered; what has no requests
    /// (private protocols, upgrades) goes on.
    Superseded,
    /// Requests under way are answered, and all else ends.
    Stops,
}

/// Tells what is under way how far the end is. A gateway that is gone has stopped.
#[derive(Clone, Debug)]
pub(crate) struct Ending(watch::Receiver<Stage>);

impl Ending {
    /// With what sets the stage.
    pub(crate) fn new() -> (watch::Sender<Stage>, Self) {
        let (set, stage) = watch::channel(Stage::default());
        (set, Self(stage))
    }

    /// All has ended, too, that `Stops` lets end.
    pub(crate) fn is_over(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// How far it is.
    pub(crate) fn stage(&self) -> Stage {
        match self.is_over() {
            false => *self.0.borrow(),
            true => Stage::Stops,
        }
    }

    /// Waits until nothing new is accepted over TCP.
    pub(crate) async fn accepts_no_more(&mut self) {
        self.reaches(Stage::HandsOver).await;
    }

    /// Waits until nothing new is taken.
    pub(crate) async fn takes_nothing_new(&mut self) {
        self.reaches(Stage::Superseded).await;
    }

    /// Waits until all ends.
    pub(crate) async fn stops(&mut self) {
        self.reaches(Stage::Stops).await;
    }

    async fn reaches(&mut self, wanted: Stage) {
        let _ = self.0.wait_for(|stage| *stage >= wanted).await;
    }
}

/// The next generation has taken over: what waits to be accepted over TCP is its.
pub(crate) fn hand_over(stage: &watch::Sender<Stage>) {
    stage.send_if_modified(|stage| {
        let serves = *stage == Stage::Serves;
        if serves {
            *stage = Stage::HandsOver;
        }
        serves
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over TCP nothing new is accepted before what is there is told.
    #[tokio::test]
    async fn what_is_new_over_tcp_is_handed_over_first() {
        let (stage, ending) = Ending::new();
        let (mut accepting, mut taking) = (ending.clone(), ending.clone());
        let accepts = async move { accepting.accepts_no_more().await };
        let takes = async move { taking.takes_nothing_new().await };
        let (accepts, takes) = (tokio::spawn(accepts), tokio::spawn(takes));
        stage.send_replace(Stage::HandsOver);
        accepts.await.unwrap();
        tokio::task::yield_now().await;
        assert!(!takes.is_finished());
        stage.send_replace(Stage::Superseded);
        takes.await.unwrap();
        drop(stage);
        assert!(ending.is_over() && ending.stage() == Stage::Stops);
    }
}
