//! How far the end of a gateway is.

use tokio::sync::watch;

/// What a gateway still does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// All.
    #[default]
    Serves,
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
