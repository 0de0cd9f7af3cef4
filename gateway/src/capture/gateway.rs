//! A gateway that is asked for a capture.

use std::io;

use super::frame::Frame;
use super::session::{self, Circumstances, Report};
use super::{Refused, Request};
use crate::Gateway;
use crate::stage::Stage;

impl Gateway {
    /// Captures what clients do over QUIC, and tells `to` in [frames](super::frame), until that ends: by what was asked
    /// for or is allowed, when the file is read again and allows it no more, when the gateway has stopped, or when
    /// `is_wanted` says so. It takes the thread that calls it, and so must `to` not wait for ever. There is one capture at a
    /// time.
    ///
    /// # Errors
    ///
    /// What writing says: the capture has ended then. One that is refused is told, and no error.
    pub fn capture(
        &self,
        request: &Request,
        to: &mut impl io::Write,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Result<Report, Refused>> {
        let _one = self.capturing.one();
        let look = || Circumstances {
            allowed: self.shared.current().0.capture,
            superseded: matches!(self.shared.ending.stage(), Stage::HandsOver | Stage::Superseded),
            stops: self.shared.ending.is_over(),
        };
        let ended = session::run(&self.captures, request, to, look, is_wanted)?;
        if let Err(refused) = &ended {
            Frame::Refused(refused.0.clone()).write(to)?;
            to.flush()?;
        }
        Ok(ended)
    }

    /// Whether it takes new connections: no next generation has taken over, and it does not stop.
    pub fn takes_new(&self) -> bool {
        self.shared.ending.stage() == Stage::Serves
    }
}
