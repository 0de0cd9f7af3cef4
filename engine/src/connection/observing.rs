//! The beginning of a connection as observers see it.

use super::Connection;
use crate::congestion::minimum_window;
use crate::crypto::{Direction, Level};
use crate::observer::{NewConnection, Observation, Observers, RecoveryParameters};
use crate::recovery::{
    GRANULARITY, PACKET_THRESHOLD, PERSISTENT_CONGESTION_THRESHOLD, TIME_THRESHOLD,
};
use crate::time::Time;

impl Connection {
    /// Asks who wants to hear of the connection, and tells them that it begins.
    pub(super) fn begin_observing(&mut self, now: Time, observers: Option<&dyn Observers>) {
        let cids = self.handshake.cids;
        let original_dcid = cids.original_dcid;
        let connection = NewConnection { now, side: self.side, original_dcid };
        let observer = observers.and_then(|observers| observers.observer(&connection));
        if observer.is_none() {
            return;
        }
        self.observer = observer;
        let route = self.active_route();
        let started = Observation::Started {
            local: route.local,
            remote: route.remote,
            source_cid: cids.local_scid,
            destination_cid: cids.initial_dcid,
        };
        self.observe(now, &started);
        self.observe(now, &Observation::Recovery(self.recovery_parameters()));
        for direction in [Direction::Send, Direction::Receive] {
            self.observe(now, &Observation::KeyInstalled { level: Level::Initial, direction });
        }
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
