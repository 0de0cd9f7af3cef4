//! Runs a script, event by event.
//!
//! Segments that the script does not expect are a failure before whatever happens next, and at its end: packetdrill notices them only
//! when it expects another one. Times are exact, if the script does not say otherwise.

use std::task::Poll;

use super::calls::{Outcome, patience};
use super::packet::Packet;
use super::script::{Action, Call, Event, Failure, Micros, Script, When};
use super::world::World;

/// How long a segment is waited for whose time is not given.
const PATIENCE: Micros = 3_600_000_000;

/// A call that has not returned.
struct Waiting {
    line: usize,
    call: Call,
    /// When it should.
    end: Micros,
    /// When it gives up.
    deadline: Option<Micros>,
}

pub(super) struct Runner {
    world: World,
    /// When the last event was.
    last: Micros,
    tolerance: Micros,
    waiting: Option<Waiting>,
}

/// Runs a script.
///
/// # Errors
///
/// The first line that does not come true.
pub(super) fn run(script: &Script) -> Result<(), Failure> {
    let mut runner = Runner {
        world: World::new(&script.setting),
        last: 0,
        tolerance: script.setting.tolerance,
        waiting: None,
    };
    for event in &script.events {
        runner.event(event)?;
    }
    let line = script.events.last().map_or(0, |event| event.line);
    runner.expects_silence().map_err(|text| Failure { line, text })?;
    match runner.waiting {
        Some(Waiting { line, call, .. }) => {
            Err(Failure { line, text: format!("{} has not returned", call.name) })
        }
        None => Ok(()),
    }
}

/// A time, as scripts write it.
fn time(time: Micros) -> String {
    format!("{}.{:06}", time / 1_000_000, time % 1_000_000)
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Ok(number) => number.to_string(),
        Err(name) => format!("-1 {name}"),
    }
}

fn differ(expected: impl std::fmt::Display, came: impl std::fmt::Display) -> String {
    format!("expected: {expected}\n    came:     {came}")
}

impl Runner {
    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        let base = match event.when {
            When::Between { is_relative: true, .. } => self.last,
            _ => 0,
        };
        let (from, to) = match event.when {
            When::Between { from, to, .. } => (base + from, base + to),
            When::Any => (self.world.now, self.world.now + PATIENCE),
        };
        let here = |text| Failure { line: event.line, text };
        if to < self.world.now {
            return Err(here(format!("it is {} by now", time(self.world.now))));
        }
        if let Action::Leaves(packet) = &event.action {
            return self.leaves(packet, (from, to), event.line);
        }
        self.wait_until(from, event.line)?;
        self.expects_silence().map_err(here)?;
        self.last = from;
        match &event.action {
            Action::Leaves(_) => Ok(()),
            Action::Comes(packet) => self.world.come(packet).map_err(here),
            Action::TooBig { mtu, sequence } => self.world.hear(*mtu, *sequence).map_err(here),
            Action::Calls(call) => return self.call(call, base, event.line),
        }?;
        self.try_again(event.line)
    }

    /// A segment is sent in some time.
    fn leaves(
        &mut self,
        expected: &Packet,
        (from, to): (Micros, Micros),
        line: usize,
    ) -> Result<(), Failure> {
        let (from, to) = (from.saturating_sub(self.tolerance), to + self.tolerance);
        while self.world.sent.is_empty() {
            let next = self.next().filter(|next| *next <= to);
            self.step(next.unwrap_or(to), line)?;
            if next.is_none() {
                break;
            }
        }
        let here = |text| Failure { line, text };
        let Some((at, packet)) = self.world.sent.pop_front() else {
            let text = differ(expected, format!("nothing until {}", time(to)));
            return Err(here(text));
        };
        if !expected.describes(&packet) {
            return Err(here(differ(expected, format!("{packet} at {}", time(at)))));
        }
        if !(from..=to).contains(&at) {
            let expected = format!("it at {} to {}", time(from), time(to));
            return Err(here(differ(expected, format!("it at {}", time(at)))));
        }
        self.last = at;
        Ok(())
    }

    /// A call begins.
    fn call(&mut self, call: &Call, base: Micros, line: usize) -> Result<(), Failure> {
        let here = |text| Failure { line, text };
        if let Some(waiting) = &self.waiting {
            let text = format!("{} of line {} has not returned", waiting.call.name, waiting.line);
            return Err(here(text));
        }
        let outcome = self.world.attempt(call).map_err(here)?;
        match (outcome, call.end) {
            (Poll::Ready(outcome), None) => check(call, &outcome).map_err(here),
            (Poll::Ready(outcome), Some(end)) => {
                check(call, &outcome).map_err(here)?;
                self.check_end(base + end, line)
            }
            (Poll::Pending, None) => {
                Err(here(differ(format!("it is {}", call.result), "it waits")))
            }
            (Poll::Pending, Some(end)) => {
                let deadline = patience(call).map(|time| self.world.now + time);
                let call = call.clone();
                self.waiting = Some(Waiting { line, call, end: base + end, deadline });
                Ok(())
            }
        }
    }

    fn check_end(&self, end: Micros, line: usize) -> Result<(), Failure> {
        if self.world.now.abs_diff(end) <= self.tolerance {
            return Ok(());
        }
        let text = differ(
            format!("it returns at {}", time(end)),
            format!("it returned at {}", time(self.world.now)),
        );
        Err(Failure { line, text })
    }

    /// Something has happened that a call may have waited for.
    fn try_again(&mut self, line: usize) -> Result<(), Failure> {
        let Some(Waiting { line: began, call, end, deadline }) = &self.waiting else {
            return Ok(());
        };
        let here = |text| Failure { line: *began, text };
        let mut outcome = self.world.attempt(call).map_err(here)?;
        if outcome.is_pending() && deadline.is_some_and(|deadline| deadline <= self.world.now) {
            outcome = Poll::Ready(self.world.gives_up(call).map_err(here)?);
        }
        let Poll::Ready(outcome) = outcome else { return Ok(()) };
        check(call, &outcome).map_err(|text| here(format!("{text}, in line {line}")))?;
        self.check_end(*end, *began)?;
        self.waiting = None;
        Ok(())
    }

    /// When something happens by itself.
    fn next(&self) -> Option<Micros> {
        let deadline = self.waiting.as_ref().and_then(|waiting| waiting.deadline);
        self.world.next_timer().into_iter().chain(deadline).min()
    }

    fn step(&mut self, to: Micros, line: usize) -> Result<(), Failure> {
        self.world.pass(to).map_err(|text| Failure { line, text })?;
        self.try_again(line)
    }

    /// Time goes by until an event.
    fn wait_until(&mut self, time: Micros, line: usize) -> Result<(), Failure> {
        while let Some(next) = self.next().filter(|next| *next < time) {
            self.step(next, line)?;
        }
        // A segment that is to be sent at that time is expected by then, or comes before what happens then.
        self.step(time, line)
    }

    fn expects_silence(&self) -> Result<(), String> {
        match self.world.sent.front() {
            None => Ok(()),
            Some((at, packet)) => {
                Err(differ("no segment before this", format!("{packet} at {}", time(*at))))
            }
        }
    }
}

fn check(call: &Call, outcome: &Outcome) -> Result<(), String> {
    let is_right = match (outcome, &call.errno) {
        (Ok(number), None) => *number == call.result,
        (Err(name), Some(expected)) => call.result == -1 && name == expected,
        _ => false,
    };
    if is_right {
        return Ok(());
    }
    let errno = call.errno.as_deref().unwrap_or_default();
    let expected = format!("{} {errno}", call.result);
    Err(differ(expected.trim_end(), said(outcome)))
}
