//! Data that smoltcp has no timer for.
//!
//! It stops the timer of data in flight when the other side says that it has no room, or when the timer comes while that is so,
//! and starts none when there is room again. Shown an acknowledgment, it goes on by itself.

use smoltcp::socket::tcp::State;
use smoltcp::time::Instant;
use smoltcp::wire::TcpControl;

use super::{Connection, USER_TIMEOUT};
use crate::out::Out;
use crate::segment::bare;

impl Connection {
    /// Looks whether data waits that smoltcp has no timer for.
    pub(super) fn watch_over(&mut self, now: Instant) {
        // In LAST-ACK, smoltcp hears nothing but of acknowledged data.
        let may_stall = matches!(
            self.state(),
            State::Established | State::CloseWait | State::FinWait1 | State::Closing
        );
        if !may_stall || self.place.is_starved() || self.view().send_queue() == 0 {
            self.times.rest();
            return;
        }
        // Its timer for the end of all is not meant.
        self.socket().set_timeout(None);
        let next = self.interface.poll_at(now, &self.prepared.sockets);
        self.socket().set_timeout(Some(USER_TIMEOUT.into()));
        self.times.watch_over(next, now);
    }

    /// Has smoltcp send again: by a probe while there is no room, which it begins when it hears that; else as after the third
    /// acknowledgment of the same (RFC 5681, Section 3.2).
    pub(super) fn revive(&mut self, out: &mut Out, now: Instant) {
        let Some(numbers) = self.known() else { return };
        let (acknowledged, room) = (numbers.acknowledged, self.ledger.room());
        let windows = match room {
            0 => vec![0],
            // One with another window has smoltcp count from the beginning, and so does the next one.
            _ => vec![if room > 1 { room - 1 } else { 2 }, room, room, room, room],
        };
        self.ledger.repeat();
        for window in windows {
            let told = (TcpControl::None, numbers.expected, acknowledged, window);
            self.show(&bare(&self.place.ends, told), out, now);
        }
    }
}
