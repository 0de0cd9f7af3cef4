//! Congestion control: how much may be in flight on a path, and how fast it is sent.
//!
//! [`PathCongestion`] is what a path owns: the bytes in flight, the pacer, the delivery rate
//! estimator and a [`CongestionController`] that draws the conclusions.

mod bbr;
mod controller;
mod cubic;
mod delivery;
mod flight;
mod hystart;
mod new_reno;
mod pacer;
mod parameters;

pub(crate) use controller::CongestionController;
pub(crate) use delivery::{RateSample, RateSnapshot};
pub(crate) use flight::PathCongestion;
pub use parameters::{Congestion, CongestionParameters};

use alloc::boxed::Box;

use bbr::Bbr;
use cubic::Cubic;
use new_reno::NewReno;

/// Which congestion controller a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionAlgorithm {
    /// NewReno as RFC 9002, Section 7 describes it.
    NewReno,
    /// CUBIC (RFC 9438) with HyStart++ (RFC 9406).
    #[default]
    Cubic,
    /// BBR version 3 (draft-ietf-ccwg-bbr).
    Bbr,
}

impl Congestion {
    /// A controller for a path that carries datagrams of `mtu` bytes. `seed` is a random number
    /// that keeps connections from acting in step.
    pub(crate) fn controller(self, mtu: u16, seed: u64) -> Box<dyn CongestionController> {
        let parameters = self.parameters;
        match self.algorithm {
            CongestionAlgorithm::NewReno => Box::new(NewReno::new(mtu, parameters)),
            CongestionAlgorithm::Cubic => Box::new(Cubic::new(mtu, parameters)),
            CongestionAlgorithm::Bbr => Box::new(Bbr::new(mtu, seed, parameters)),
        }
    }
}

/// The window that a path starts with unless another is chosen, in bytes (RFC 9002, Section 7.2).
#[cfg(test)]
fn initial_window(mtu: u16) -> u64 {
    CongestionParameters::default().initial_bytes(mtu)
}

/// The smallest window, in bytes (RFC 9002, Section 7.2: kMinimumWindow).
pub(crate) fn minimum_window(mtu: u16) -> u64 {
    2 * u64::from(mtu)
}

#[cfg(test)]
mod tests;
