//! Applications of a simulation: what is sent, and checks of what is received.

mod datagrams;
mod pattern;
mod streams;
mod work;

use quicket_engine::time::Time;
use quicket_engine::{Connection, Event};
use quicket_wire::Side;

pub use datagrams::DatagramLoad;
pub use pattern::Pattern;
pub use work::{WorkApp, Workload};

use crate::rng::SimRng;

/// What an application may touch when it is called.
pub struct AppContext<'a> {
    /// The present.
    pub now: Time,
    /// The side of the connection that the application is on.
    pub side: Side,
    /// Its connection.
    pub connection: &'a mut Connection,
    /// Its own chances.
    pub rng: &'a mut SimRng,
}

/// What an application did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Stream bytes that the connection took.
    pub sent: u64,
    /// Stream bytes read and found right.
    pub received: u64,
    /// Streams sent in whole and acknowledged.
    pub streams_sent: u64,
    /// Streams read to their end.
    pub streams_received: u64,
    /// Streams accepted that began as early data.
    pub streams_early: u64,
    /// Streams that the peer or this side gave up.
    pub streams_given_up: u64,
    /// Datagrams that the connection took.
    pub datagrams_sent: u64,
    /// Datagrams received and found right.
    pub datagrams_received: u64,
}

/// An application on one side of a connection. A returned error is a broken promise of the
/// transport and fails the run.
pub trait App: std::fmt::Debug {
    /// Hears of an event.
    ///
    /// # Errors
    /// A sentence that says which promise was broken.
    fn on_event(&mut self, cx: &mut AppContext<'_>, event: &Event) -> Result<(), String>;

    /// Goes on with its work; called after events and at [`App::next_time`].
    ///
    /// # Errors
    /// A sentence that says which promise was broken.
    fn poll(&mut self, _: &mut AppContext<'_>) -> Result<(), String> {
        Ok(())
    }

    /// True when it has nothing left to do by itself, as one that only reacts always has.
    fn is_done(&self) -> bool {
        true
    }

    /// When it wants to be called without an event.
    fn next_time(&self) -> Option<Time> {
        None
    }

    /// What it did so far.
    fn tally(&self) -> Tally {
        Tally::default()
    }
}

/// An application that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idle;

impl App for Idle {
    fn on_event(&mut self, _: &mut AppContext<'_>, _: &Event) -> Result<(), String> {
        Ok(())
    }
}
