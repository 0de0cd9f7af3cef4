//! Path MTU discovery by probes (RFC 8899; RFC 9000, Section 14.3). All sizes are UDP payloads in
//! bytes.

use crate::config::{MAX_UDP_PAYLOAD, MIN_UDP_PAYLOAD};
use crate::time::{Duration, Time};

/// Losses of one size before it is given up (RFC 8899, Section 5.1.2: MAX_PROBES).
const MAX_PROBES: u8 = 3;
/// Losses of full-size packets, at different moments and with none acknowledged in between, that
/// reveal a black hole (RFC 8899, Section 4.3).
const BLACK_HOLE_LOSSES: u8 = 3;
/// Probe timeouts in a row after which small packets are tried.
const BLACK_HOLE_PTOS: u32 = 3;
/// Sizes tried first, upwards until one fails: what Ethernet, jumbo frames and loopback carry,
/// over IPv6 and IPv4.
const LADDER: [u16; 8] = [1452, 1472, 8952, 8972, 16_336, 65_487, 65_507, MAX_UDP_PAYLOAD];
/// Sizes that links and tunnels are likely to carry, tried between one that works and one that
/// fails.
const LIKELY: [u16; 23] = [
    1232, 1252, 1280, 1312, 1352, 1372, 1392, 1412, 1432, 1444, 1452, 1464, 1472, 1560, 2020, 4048,
    4324, 8152, 8872, 8952, 8972, 16_336, 32_720,
];
/// What IPv6 over Ethernet carries.
const ETHERNET: u16 = 1452;
/// A search between likely sizes ends when what is left to gain is at most this fraction.
const GRANULARITY: u16 = 16;

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MtuSettings {
    /// What a path is trusted to carry without a probe: 1200 at least.
    pub(crate) initial: u16,
    /// The largest size to try; equal to `initial` to not search at all.
    pub(crate) upper_bound: u16,
    /// What the peer accepts: its max_udp_payload_size (RFC 9000, Section 18.2).
    pub(crate) peer_limit: u16,
    /// How long after a finished search to search again (RFC 8899, Section 5.1.1:
    /// PMTU_RAISE_TIMER, 600 s).
    pub(crate) interval: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Something between the current size and `ceiling` may work.
    Searching { ceiling: u16, failed_once: bool },
    /// Nothing more is tried before `again`.
    Complete { again: Option<Time> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    size: u16,
    in_flight: bool,
    losses: u8,
}

/// The MTU of one path and the search for a larger one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathMtu {
    settings: MtuSettings,
    current: u16,
    state: State,
    probe: Option<Probe>,
    /// Losses that count towards a black hole, and when the last of them was found.
    suspicion: u8,
    suspected_at: Option<Time>,
}

impl PathMtu {
    pub(crate) fn new(settings: &MtuSettings) -> Self {
        let mut mtu = Self {
            settings: *settings,
            current: MIN_UDP_PAYLOAD,
            state: State::Complete { again: None },
            probe: None,
            suspicion: 0,
            suspected_at: None,
        };
        mtu.current = settings.initial.min(mtu.limit()).max(MIN_UDP_PAYLOAD);
        mtu.begin_search();
        mtu
    }

    /// The size to send now.
    #[inline]
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    fn limit(&self) -> u16 {
        self.settings.upper_bound.max(self.settings.initial).min(self.settings.peer_limit)
    }

    /// The peer's max_udp_payload_size transport parameter.
    pub(crate) fn set_peer_limit(&mut self, max_udp_payload_size: u64) {
        let limit = u16::try_from(max_udp_payload_size).unwrap_or(MAX_UDP_PAYLOAD);
        self.settings.peer_limit = limit.max(MIN_UDP_PAYLOAD);
        self.current = self.current.min(self.settings.peer_limit);
        self.begin_search();
    }

    fn begin_search(&mut self) {
        self.search_up_to(self.limit());
        if let State::Searching { failed_once, .. } = &mut self.state {
            *failed_once = false;
        }
    }

    /// Searches below a ceiling that is known or suspected to be the highest that works.
    fn search_up_to(&mut self, ceiling: u16) {
        self.probe = None;
        self.state = if ceiling > self.current {
            State::Searching { ceiling, failed_once: true }
        } else {
            State::Complete { again: None }
        };
    }

    /// The size of a probe to send now, if any: PING and PADDING to exactly this size, one at a
    /// time, not retransmitted (RFC 9000, Section 14.4). Only for a validated path, after the
    /// handshake is confirmed.
    pub(crate) fn poll_probe(&mut self, now: Time) -> Option<u16> {
        if let State::Complete { again: Some(again) } = self.state
            && again <= now
        {
            self.begin_search();
        }
        let State::Searching { ceiling, failed_once } = self.state else { return None };
        match self.probe {
            Some(probe) if probe.in_flight => None,
            Some(probe) => Some(probe.size),
            None => {
                let size = next_size(self.current, ceiling, failed_once);
                match size {
                    Some(size) => {
                        self.probe = Some(Probe { size, in_flight: false, losses: 0 });
                    }
                    None => self.complete(now),
                }
                size
            }
        }
    }

    fn complete(&mut self, now: Time) {
        let again = (self.current < self.limit()).then(|| now + self.settings.interval);
        self.state = State::Complete { again };
    }

    /// The probe of [`Self::poll_probe`] was sent.
    pub(crate) fn on_probe_sent(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.in_flight = true;
        }
    }

    /// A probe of `size` bytes was acknowledged. True if the MTU is larger now.
    pub(crate) fn on_probe_acked(&mut self, size: u16) -> bool {
        self.on_packet_acked(size);
        let State::Searching { .. } = self.state else { return false };
        if self.probe.is_some_and(|p| p.size <= size) {
            self.probe = None;
        }
        let larger = size > self.current && size <= self.limit();
        if larger {
            self.current = size;
        }
        larger
    }

    /// A probe of `size` bytes was lost. That is no sign of congestion
    /// (RFC 9000, Section 14.4).
    pub(crate) fn on_probe_lost(&mut self, size: u16) {
        let Some(probe) = self.probe.as_mut().filter(|p| p.size == size && p.in_flight) else {
            return;
        };
        probe.in_flight = false;
        probe.losses = probe.losses.saturating_add(1);
        if probe.losses >= MAX_PROBES {
            self.exclude(size);
        }
    }

    /// The socket refused to send `size` bytes: the limit of this host's own interface.
    /// True if the MTU is smaller now.
    pub(crate) fn on_send_refused(&mut self, size: u16) -> bool {
        if size > self.current {
            self.exclude(size);
            return false;
        }
        let smaller = self.current > MIN_UDP_PAYLOAD;
        self.current = MIN_UDP_PAYLOAD;
        self.search_up_to(size.saturating_sub(1));
        smaller
    }

    /// `size` does not work.
    fn exclude(&mut self, size: u16) {
        self.probe = None;
        if let State::Searching { ceiling, failed_once } = &mut self.state {
            *ceiling = (*ceiling).min(size.saturating_sub(1));
            *failed_once = true;
        }
    }

    /// A packet of `size` bytes, probe or not, was acknowledged.
    #[inline]
    pub(crate) fn on_packet_acked(&mut self, size: u16) {
        if size > MIN_UDP_PAYLOAD {
            self.suspicion = 0;
        }
    }

    /// A packet of `size` bytes that was no probe was lost; all losses of one ACK have the same
    /// `now` and count once, for a full queue drops many at a time. True if the path turns out to
    /// be a black hole for such sizes: the MTU is 1200 again (RFC 8899, Section 4.3).
    #[inline]
    pub(crate) fn on_packet_lost(&mut self, now: Time, size: u16) -> bool {
        if size <= MIN_UDP_PAYLOAD || self.suspected_at == Some(now) {
            return false;
        }
        self.suspected_at = Some(now);
        self.suspicion = self.suspicion.saturating_add(1);
        self.suspicion >= BLACK_HOLE_LOSSES && self.fall_back()
    }

    /// A probe timeout expired for the `count`-th time in a row: nothing at all is acknowledged,
    /// so that no loss is ever found if all packets are too large. True if the MTU is smaller now.
    pub(crate) fn on_pto(&mut self, count: u32) -> bool {
        count >= BLACK_HOLE_PTOS && self.fall_back()
    }

    /// Back to what always works; what worked until now is searched below, and tried again in
    /// full when the interval has passed.
    fn fall_back(&mut self) -> bool {
        self.suspicion = 0;
        if self.current <= MIN_UDP_PAYLOAD {
            return false;
        }
        let failed = self.current;
        self.current = MIN_UDP_PAYLOAD;
        self.search_up_to(failed.saturating_sub(1));
        true
    }

    /// When to ask [`Self::poll_probe`] again although nothing was acknowledged or lost.
    pub(crate) fn timeout(&self) -> Option<Time> {
        match self.state {
            State::Complete { again } => again,
            State::Searching { .. } => None,
        }
    }
}

/// The next size to try above `floor`, which works, up to `ceiling`, above which nothing does.
fn next_size(floor: u16, ceiling: u16, failed_once: bool) -> Option<u16> {
    if ceiling <= floor {
        return None;
    }
    if !failed_once {
        let rung = LADDER.iter().copied().find(|&s| s > floor && s <= ceiling);
        return Some(rung.unwrap_or(ceiling));
    }
    let mut between = LIKELY.iter().copied().filter(|&s| s > floor && s <= ceiling);
    // Beyond Ethernet each size is rarer than the one before, so that going up step by step
    // wastes the fewest probes; below, any is as likely.
    let middle = if floor >= ETHERNET { 0 } else { between.clone().count() / 2 };
    if let Some(size) = between.nth(middle) {
        return Some(size);
    }
    let gap = ceiling.saturating_sub(floor);
    (gap > floor / GRANULARITY).then(|| floor.saturating_add(gap.div_ceil(2)))
}

#[cfg(test)]
#[path = "mtu_tests.rs"]
mod tests;
