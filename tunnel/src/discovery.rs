//! The MTU of a path where ICMP is lost: Packetization Layer Path MTU Discovery (RFC 8899), by control
//! messages of GUE between two ends of ours.
//!
//! What is found counts once a probe was answered: towards an end that knows no such messages nothing changes. No
//! packet of others is at stake.

/// What is sure to get through, with the header of IP (RFC 8899, Section 5.1.2).
pub(crate) const BASE: u16 = 1280;
/// How often a probe is repeated that is not answered (MAX_PROBES).
const MAX_PROBES: u32 = 3;
/// Milliseconds to wait for an answer (PROBE_TIMER, which is never shorter).
const PROBE_TIMER: u64 = 1000;
/// Milliseconds until a path in use is confirmed (CONFIRMATION_TIMER).
const CONFIRMATION_TIMER: u64 = 5000;
/// Milliseconds until more is tried (PMTU_RAISE_TIMER).
const RAISE_TIMER: u64 = 600_000;
/// Milliseconds until an end that does not answer is asked again; twice as long each time.
const PATIENCE: u64 = 5000;
/// Octets that are not worth another probe.
const CLOSE_ENOUGH: u16 = 8;

/// What is to be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Whether the other end answers, and the least gets through.
    Base,
    /// How much gets through: less than this.
    Search { below: u16 },
    /// Nothing, but whether it still does.
    Complete,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    size: u16,
    number: u64,
    tries: u32,
}

/// The search on one path. Times are in milliseconds, sizes with the header of IP.
#[derive(Clone, Debug)]
pub(crate) struct Discovery {
    state: State,
    /// What the system knows of the path.
    max: u16,
    /// What got through; none as long as nothing was answered.
    found: Option<u16>,
    probe: Option<Sent>,
    /// When something is to be done.
    next: u64,
    /// When more is tried than was found.
    raise: u64,
    /// How long to leave an end alone that does not answer.
    patience: u64,
    /// Whether packets were sent since the path was confirmed.
    used: bool,
}

impl Discovery {
    pub(crate) const fn new(max: u16) -> Self {
        Self {
            state: State::Base,
            max,
            found: None,
            probe: None,
            next: 0,
            raise: 0,
            patience: PATIENCE,
            used: false,
        }
    }

    /// The most that packets may have: what was found, within what the system knows.
    pub(crate) fn mtu(&self) -> u16 {
        self.found.map_or(self.max, |found| found.min(self.max))
    }

    /// In a word.
    pub(crate) const fn state(&self) -> &'static str {
        match (self.state, self.found) {
            (State::Base, None) => "unanswered",
            (State::Base, Some(_)) => "base",
            (State::Search { .. }, _) => "search",
            (State::Complete, _) => "complete",
        }
    }

    /// The system knows another MTU: of the device, or by ICMP.
    pub(crate) const fn set_max(&mut self, max: u16) {
        if max > self.max {
            // There is more to be tried.
            self.raise = 0;
        }
        self.max = max;
    }

    /// Packets were sent by the path.
    pub(crate) const fn note_use(&mut self) {
        self.used = true;
    }

    /// When [`Self::due`] is to be asked.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The probe that is to be sent now: its number and size.
    pub(crate) fn due(&mut self, now: u64, random: impl FnOnce() -> u64) -> Option<(u64, u16)> {
        if now < self.next {
            return None;
        }
        self.next = now + PROBE_TIMER;
        if let Some(sent) = &mut self.probe {
            if sent.tries < MAX_PROBES && sent.size <= self.max {
                sent.tries += 1;
                return Some((sent.number, sent.size));
            }
            let size = sent.size;
            self.probe = None;
            if self.lost(size, now) {
                return None;
            }
        }
        let size = self.wanted(now)?;
        let number = random();
        self.probe = Some(Sent { size, number, tries: 1 });
        Some((number, size))
    }

    /// The least that is tried.
    fn base(&self) -> u16 {
        BASE.min(self.max)
    }

    /// What to ask about next; if nothing, it is time to look again later.
    fn wanted(&mut self, now: u64) -> Option<u16> {
        if self.state == State::Base {
            return Some(self.base());
        }
        let found = self.found.unwrap_or(BASE);
        if self.state == State::Complete && now >= self.raise && self.max > found {
            self.state = State::Search { below: self.max.saturating_add(1) };
        }
        if let State::Search { below } = self.state {
            // Mostly a path carries what its first link does: that is tried first.
            if below > self.max && found < self.max {
                return Some(self.max);
            }
            if below > found.saturating_add(CLOSE_ENOUGH) && found < self.max {
                return Some(found + (below - found) / 2);
            }
            self.state = State::Complete;
            self.raise = now + RAISE_TIMER;
            self.next = now + CONFIRMATION_TIMER;
            return None;
        }
        self.next = now + if self.used { PROBE_TIMER } else { CONFIRMATION_TIMER };
        std::mem::take(&mut self.used).then(|| found.min(self.max))
    }

    /// A probe of this size has not been answered, however often; true if the other end is to be left
    /// alone for a while.
    fn lost(&mut self, size: u16, now: u64) -> bool {
        match self.state {
            State::Base => {
                self.next = now + self.patience;
                self.patience = (self.patience * 2).min(RAISE_TIMER);
                return true;
            }
            State::Search { .. } => self.state = State::Search { below: size },
            // A black hole (RFC 8899, Section 4.3): begin with what is sure.
            State::Complete => {
                self.state = State::Base;
                self.found = Some(BASE);
            }
        }
        false
    }

    /// A probe was answered; true if it is the last one that was sent.
    pub(crate) fn answered(&mut self, number: u64, now: u64) -> bool {
        let Some(sent) = self.probe.filter(|sent| sent.number == number) else { return false };
        self.probe = None;
        self.patience = PATIENCE;
        if self.state == State::Complete {
            self.next = now + CONFIRMATION_TIMER;
            return true;
        }
        self.next = now;
        self.found = Some(sent.size.max(self.found.unwrap_or(0)));
        if self.state == State::Base {
            self.found = Some(sent.size);
            self.state = State::Search { below: self.max.saturating_add(1) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path at one time: what it carries, or nothing.
    struct Sim {
        discovery: Discovery,
        now: u64,
        sent: Vec<u16>,
    }

    impl Sim {
        fn new(max: u16) -> Self {
            Self { discovery: Discovery::new(max), now: 0, sent: Vec::new() }
        }

        /// Milliseconds pass, in which the path carries this.
        fn pass(&mut self, milliseconds: u64, carries: u16, used: bool) -> u16 {
            let end = self.now + milliseconds;
            while self.now < end {
                if used {
                    self.discovery.note_use();
                }
                let number = self.now + 1;
                if let Some((number, size)) = self.discovery.due(self.now, || number) {
                    self.sent.push(size);
                    if size <= carries {
                        assert!(self.discovery.answered(number, self.now + 10));
                        assert!(!self.discovery.answered(number, self.now + 10), "once");
                    }
                }
                assert!(!self.discovery.answered(u64::MAX, self.now));
                self.now = self.discovery.next().max(self.now + 1).min(end);
            }
            self.discovery.mtu()
        }
    }

    #[test]
    fn an_end_that_does_not_answer_changes_nothing_and_is_left_alone() {
        let mut sim = Sim::new(1500);
        assert_eq!(sim.pass(3_600_000, 0, true), 1500);
        assert_eq!(sim.discovery.state(), "unanswered");
        assert!(sim.sent.iter().all(|size| *size == BASE));
        assert!(sim.sent.len() < 60, "{}", sim.sent.len());
        // It is there at last.
        assert_eq!(sim.pass(700_000, 1500, true), 1500);
        assert_eq!(sim.discovery.state(), "complete");
    }

    #[test]
    fn a_path_as_wide_as_its_first_link_takes_two_probes() {
        let mut sim = Sim::new(1500);
        assert_eq!(sim.pass(100, 1500, true), 1500);
        assert_eq!(sim.sent, [1280, 1500]);
        assert_eq!(sim.discovery.state(), "complete");
        assert_eq!(sim.pass(600_000 - 200, 1500, false), 1500);
        assert_eq!(sim.sent, [1280, 1500, 1500], "a path that nobody uses any more is left alone");
    }

    #[test]
    fn what_a_path_drops_without_a_word_is_found_out() {
        for carries in [1280, 1281, 1288, 1300, 1400, 1420, 1492, 1499, 1500] {
            let mut sim = Sim::new(1500);
            let found = sim.pass(30_000, carries, true);
            assert!(found <= carries && found + CLOSE_ENOUGH >= carries, "{carries}: {found}");
            assert!(sim.sent.len() < 30, "{carries}: {:?}", sim.sent);
            // And remains.
            assert_eq!(sim.pass(500_000, carries, true), found);
        }
    }

    #[test]
    fn a_path_that_becomes_narrower_is_a_black_hole_for_seconds_only() {
        let mut sim = Sim::new(9000);
        assert_eq!(sim.pass(10_000, 9000, true), 9000);
        sim.pass(CONFIRMATION_TIMER + 4 * PROBE_TIMER, 1400, true);
        assert!(sim.discovery.mtu() <= 1400, "{}", sim.discovery.mtu());
        let found = sim.pass(60_000, 1400, true);
        assert!((1392..=1400).contains(&found), "{found}");
        // The other end is gone for a while: what is sure remains.
        assert_eq!(sim.pass(60_000, 0, true), BASE);
        // Wider again: in ten minutes, or at once if the system says so.
        sim.pass(1_300_000, 9000, true);
        assert_eq!(sim.discovery.mtu(), 9000);
        sim.discovery.set_max(1300);
        assert_eq!(sim.discovery.mtu(), 1300);
        sim.discovery.set_max(9000);
        assert_eq!(sim.pass(20_000, 9000, true), 9000);
    }

    #[test]
    fn a_path_below_the_base_is_what_the_system_says() {
        let mut sim = Sim::new(1000);
        assert_eq!(sim.pass(10_000, 1000, true), 1000);
        assert!(sim.sent.iter().all(|size| *size <= 1000));
        assert_eq!(sim.discovery.state(), "complete");
    }
}
