//! The beginning of a connection as observers see it.

use alloc::boxed::Box;

use super::Connection;
use super::parameters::Kept;
use crate::congestion::minimum_window;
use crate::crypto::{Direction, Level};
use crate::observer::{NewConnection, Observation, Observer, Observers, RecoveryParameters};
use crate::recovery::{
    GRANULARITY, PACKET_THRESHOLD, PERSISTENT_CONGESTION_THRESHOLD, TIME_THRESHOLD,
};
use crate::time::Time;

impl Connection {
    /// Asks who wants to hear of the connection, and tells them that it begins.
    pub(super) fn begin_observing(&mut self, now: Time, observers: Option<&dyn Observers>) {
        self.reporting.observer = observers.and_then(|observers| self.new_observer(now, observers));
        if !self.reporting.is_observed() {
            return;
        }
        self.observe_start(now);
        self.reporting.observe(now, &Observation::Recovery(self.recovery_parameters()));
        for direction in [Direction::Send, Direction::Receive] {
            self.reporting
                .observe(now, &Observation::KeyInstalled { level: Level::Initial, direction });
        }
    }

    fn new_observer(&self, now: Time, observers: &dyn Observers) -> Option<Box<dyn Observer>> {
        let (remote, original_dcid) =
            (self.active_route().remote, self.handshake.cids.original_dcid);
        observers.observer(&NewConnection { now, side: self.role.side(), remote, original_dcid })
    }

    fn observe_start(&mut self, now: Time) {
        let (route, cids) = (self.active_route(), self.handshake.cids);
        let started = Observation::Started {
            local: route.local,
            remote: route.remote,
            source_cid: cids.local_scid,
            destination_cid: cids.initial_dcid,
        };
        self.reporting.observe(now, &started);
    }

    /// Has a connection observed that began before, if one of `observers` wants to: first it hears, as if that
    /// had just happened, what is known of addresses, version, parameters, handshake and path. An observer that
    /// there is already stays, unless it [is done](Observer::is_done).
    pub fn observe_from(&mut self, now: Time, observers: &dyn Observers) {
        self.reporting.forget_observer_that_is_done();
        if self.reporting.is_observed() {
            return;
        }
        self.reporting.observer = self.new_observer(now, observers);
        if !self.reporting.is_observed() {
            return;
        }
        self.observe_start(now);
        self.reporting.observe(now, &Observation::Version(self.version()));
        let Some(mut observer) = self.reporting.observer.take() else { return };
        let (ours, theirs) = (&self.handshake.local_parameters, &self.handshake.remote_parameters);
        observe_parameters(&mut *observer, now, Direction::Send, ours.as_ref());
        observe_parameters(&mut *observer, now, Direction::Receive, theirs.as_ref());
        if let Some(summary) = self.handshake_summary() {
            observer.observe(now, &Observation::HandshakeComplete(summary));
        }
        if self.is_confirmed() {
            observer.observe(now, &Observation::HandshakeConfirmed);
        }
        let (path, pto_count) = (self.path_stats(), self.recovery.pto_count());
        observer.observe(now, &Observation::Metrics { path: &path, pto_count });
        self.reporting.observer = Some(observer);
    }

    /// Forgets the observer, if it wants to hear no more.
    pub fn forget_observer_that_is_done(&mut self) {
        self.reporting.forget_observer_that_is_done();
    }

    fn recovery_parameters(&self) -> RecoveryParameters {
        let path = self.path_stats();
        RecoveryParameters {
            packet_threshold: PACKET_THRESHOLD,
            time_threshold_eighths: TIME_THRESHOLD,
            granularity: GRANULARITY,
            initial_rtt: path.smoothed_rtt.into(),
            max_datagram_size: path.mtu,
            initial_window: path.congestion_window,
            minimum_window: minimum_window(path.mtu),
            persistent_congestion_threshold: PERSISTENT_CONGESTION_THRESHOLD,
        }
    }
}

/// Tells of parameters that are known.
#[inline(never)] // keeps them out of the frame of its caller
fn observe_parameters(
    observer: &mut dyn Observer,
    now: Time,
    direction: Direction,
    kept: Option<&Kept>,
) {
    if let Some(kept) = kept {
        observer.observe(now, &Observation::Parameters { direction, parameters: &kept.get() });
    }
}
