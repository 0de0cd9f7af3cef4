//! `quicket switch generate`.

use std::fmt::Write;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use quicket_packets::client::Port;
use quicket_packets::icmp::Report;
use quicket_packets::traffic::{Generator, shortest};
use quicket_packets::{BATCH, Counters, REASONS, Reason};
use serde_json::{Map, Value, json};

use super::{
    ENTRIES, FEW, PAUSE, cannot, layout, open, register, some, source, until_told, waited,
};
use crate::args::SwitchGenerate;
use crate::exit::{Failure, Kind};

/// How long the switch may take to forward what was sent last.
const END: Duration = Duration::from_secs(1);
/// With a rate, so much of it may go at once after a wait: the system wakes threads late.
const BURST: Duration = Duration::from_millis(5);
/// So often the switch is asked for its counters meanwhile, which are what is known if it ends.
const LOOK: Duration = Duration::from_millis(100);

/// What became of frames.
struct Sent {
    written: u64,
    /// From the first frame to the last.
    time: Duration,
    errors: u64,
    /// As the switch has said last ...
    counters: Counters,
    /// ... which is after all of them, unless it has gone.
    is_settled: bool,
    /// Frames that the switch has not looked at by now.
    waiting: u64,
    /// What has ended it before its time.
    error: Option<io::Error>,
}

pub(in crate::switch) fn run(args: &SwitchGenerate) -> Result<(), Failure> {
    let least = shortest(args.to);
    let len = args.len.unwrap_or(least.max(64) as u16);
    if usize::from(len) < least {
        let why = format!("frames to {} have {least} octets at least: give --len {least}", args.to);
        return Err(Failure::new(Kind::Usage, why));
    }
    if args.from.is_some_and(|from| from.is_ipv4() != args.to.is_ipv4()) {
        return Err(Failure::new(Kind::Usage, "--from is of another family than the destination"));
    }
    let first = match args.from {
        Some(from) => from,
        None => (source(args.to)?, 0).into(),
    };
    let mut port = open(&args.name, layout(ENTRIES, FEW, len.max(1600))?)?;
    // Numbers of flows are drawn, so that a sink can tell those of several generators apart.
    let mut seed = [0; 4];
    let drawn = SystemRandom::new().fill(&mut seed);
    drawn.map_err(|error| Failure::environment("cannot draw a number", error))?;
    let seed = u32::from_ne_bytes(seed);
    let mut generators = Vec::new();
    for flow in 0..args.flows {
        let mut from = first;
        if from.port() != 0 {
            let number = from.port().checked_add(flow);
            from.set_port(number.ok_or_else(|| {
                Failure::new(
                    Kind::Usage,
                    "--from has no room for so many --flows: choose a lower port",
                )
            })?);
        }
        let from = register(&mut port, from)?;
        let flow = seed.wrapping_add(flow.into());
        let generator = Generator::new(flow, from, args.to, len.into());
        generators.push(generator.ok_or_else(|| {
            Failure::new(
                Kind::Usage,
                "no packet has that length, or the addresses are of two families",
            )
        })?);
    }
    let bounds = Bounds { count: args.count, time: args.time, rate: args.rate };
    let work = move |stop: &AtomicBool| send(&mut port, &mut generators, bounds, stop);
    let sent = until_told(|| (), work)?;
    crate::print(&if args.json { report(&sent).to_string() } else { text(&sent) })?;
    if let Some(error) = sent.error {
        return Err(cannot(error));
    }
    if sent.written > 0 && sent.counters.sent == 0 {
        let why =
            "no frame was delivered: quicket switch generate --help says what the reasons mean";
        return Err(Failure::new(Kind::Connection, why));
    }
    Ok(())
}

/// When it ends, and how fast it is.
#[derive(Clone, Copy)]
struct Bounds {
    count: Option<u64>,
    time: Option<Duration>,
    rate: Option<u64>,
}

impl Bounds {
    /// How many frames may go now, of those beyond `base` that the rate counts from.
    fn most(&self, written: u64, base: &mut (Instant, u64)) -> u64 {
        let left = self.count.map_or(u64::MAX, |count| count.saturating_sub(written));
        let Some(rate) = self.rate else { return left };
        let (begun, before) = *base;
        let due = before + (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        // What it was late with beyond a burst is given up: a generator does not catch up.
        let burst = ((rate as f64 * BURST.as_secs_f64()) as u64).max(1);
        let most = due.saturating_sub(written);
        if most > burst {
            *base = (Instant::now(), written + burst);
        }
        left.min(most.min(burst))
    }
}

fn send(port: &mut Port, generators: &mut [Generator], bounds: Bounds, stop: &AtomicBool) -> Sent {
    let begun = Instant::now();
    let mut sent = Sent {
        written: 0,
        time: Duration::ZERO,
        errors: 0,
        counters: Counters::default(),
        is_settled: false,
        waiting: 0,
        error: None,
    };
    let result = write_all(port, generators, bounds, stop, &mut sent);
    sent.time = begun.elapsed();
    sent.error = result.and_then(|()| settle(port, &mut sent)).err();
    sent
}

/// Writes frames until it is enough.
fn write_all(
    port: &mut Port,
    generators: &mut [Generator],
    bounds: Bounds,
    stop: &AtomicBool,
    sent: &mut Sent,
) -> io::Result<()> {
    let begun = Instant::now();
    let (mut next, mut base, mut looked) = (0, (begun, 0), begun);
    let count = generators.len();
    while !stop.load(Ordering::Relaxed)
        && bounds.count.is_none_or(|count| sent.written < count)
        && bounds.time.is_none_or(|time| begun.elapsed() < time)
    {
        let mut left = bounds.most(sent.written, &mut base).min(BATCH.into());
        if left == 0 {
            // Until the next one is due, or a fraction of it.
            let each = bounds.rate.map_or(PAUSE, |rate| Duration::from_secs(1) / clamped(rate));
            std::thread::sleep(each.clamp(Duration::from_micros(50), Duration::from_millis(1)));
        } else {
            let n = port.send(|slot| {
                left = left.checked_sub(1)?;
                let len = generators.get_mut(next)?.write(slot);
                next = (next + 1) % count;
                len
            })?;
            sent.written += u64::from(n);
            if n == 0 {
                waited(port.wait_for_room(Some(PAUSE)))?;
            }
        }
        hear(port, sent)?;
        if looked.elapsed() >= LOOK {
            sent.counters = port.counters()?;
            looked = Instant::now();
        }
    }
    Ok(())
}

/// Reads what comes: it is not for a generator, but what ICMP says, if anything.
fn hear(port: &mut Port, sent: &mut Sent) -> io::Result<()> {
    let errors = &mut sent.errors;
    port.receive(u32::MAX, |frame| *errors += u64::from(Report::read(frame).is_some()))?;
    Ok(())
}

/// Waits until the switch has looked at all that was written, for a while: then all places of the ring are free.
fn settle(port: &mut Port, sent: &mut Sent) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        sent.waiting = u64::from(ENTRIES.saturating_sub(port.room(ENTRIES)?));
        if sent.waiting == 0 || begun.elapsed() >= END {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    sent.counters = port.counters()?;
    sent.is_settled = true;
    hear(port, sent)
}

/// As much of a number as has room.
fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Frames that the switch has made something of, apart from those for which a receiver had no room: they are counted there.
fn forwarded(counters: &Counters) -> u64 {
    counters.sent + dropped(counters).map(|(_, n)| n).sum::<u64>()
}

/// Why frames were dropped that were sent, and how many.
fn dropped(counters: &Counters) -> impl Iterator<Item = (Reason, u64)> {
    let of_receivers = [Reason::Full, Reason::Slot, Reason::Icmp];
    let all = REASONS.into_iter().filter(move |reason| !of_receivers.contains(reason));
    all.map(|reason| (reason, counters.dropped(reason))).filter(|(_, n)| *n > 0)
}

/// Frames for which there was no room where they were to go: at a receiver, or in the ring of a device. None if the switch has not
/// said how many were for it.
fn without_room(sent: &Sent) -> Option<u64> {
    let rest = sent.written.saturating_sub(forwarded(&sent.counters));
    sent.is_settled.then(|| rest.saturating_sub(sent.waiting))
}

/// Frames of which nobody knows what became of them, as the switch has gone.
fn unknown(sent: &Sent) -> u64 {
    let rest = sent.written.saturating_sub(forwarded(&sent.counters));
    if sent.is_settled { 0 } else { rest }
}

fn rate(sent: &Sent) -> f64 {
    sent.written as f64 / sent.time.as_secs_f64().max(f64::MIN_POSITIVE)
}

fn report(sent: &Sent) -> Value {
    let dropped: Map<String, Value> =
        dropped(&sent.counters).map(|(reason, n)| (reason.name().to_owned(), n.into())).collect();
    json!({
        "written": sent.written,
        "seconds": sent.time.as_secs_f64(),
        "frames_per_second": rate(sent),
        "delivered": sent.counters.sent,
        "dropped": dropped,
        "without_room": without_room(sent),
        "waiting": sent.is_settled.then_some(sent.waiting),
        "unknown": unknown(sent),
        "errors": sent.errors,
    })
}

fn text(sent: &Sent) -> String {
    let seconds = sent.time.as_secs_f64();
    let mut out = format!(
        "{} written in {seconds:.3} s, {:.0} in a second\n{} delivered, or left by a device",
        some(sent.written, "frame was", "frames were"),
        rate(sent),
        some(sent.counters.sent, "was", "were"),
    );
    for (reason, n) in dropped(&sent.counters) {
        let _ = write!(out, ", {n} dropped: {}", reason.name());
    }
    if let Some(without) = without_room(sent).filter(|n| *n > 0) {
        let _ = write!(out, ", {without} had no room at a receiver or device");
    }
    if sent.is_settled && sent.waiting > 0 {
        let _ = write!(out, ", {} wait for the switch", sent.waiting);
    }
    if !sent.is_settled {
        let n = unknown(sent);
        let _ =
            write!(out, ", when the switch was last asked; what became of {n} others is not known");
    }
    if sent.errors > 0 {
        let _ =
            write!(out, "\n{} come", some(sent.errors, "error of ICMP has", "errors of ICMP have"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_to_and_what_was_missed_is_given_up() {
        let bounds = Bounds { count: Some(100_000), time: None, rate: Some(1_000_000) };
        // A second late, with nothing sent: a burst of 5 ms.
        let mut base = (Instant::now().checked_sub(Duration::from_secs(1)).unwrap(), 0);
        assert_eq!(bounds.most(0, &mut base), 5000);
        assert_eq!(base.1, 5000);
        // From there on it counts anew.
        assert!(bounds.most(5000, &mut base) < 5000);
        assert_eq!(bounds.most(100_000, &mut base), 0);
        let bounds = Bounds { count: Some(7), time: None, rate: None };
        assert_eq!(bounds.most(5, &mut base), 2);
        // Slower than one in a burst.
        let bounds = Bounds { count: None, time: None, rate: Some(10) };
        let mut base = (Instant::now(), 0);
        assert_eq!(bounds.most(0, &mut base), 0);
        base.0 = base.0.checked_sub(Duration::from_millis(150)).unwrap();
        assert_eq!(bounds.most(0, &mut base), 1);
    }

    #[test]
    fn what_was_dropped_is_said_with_the_reason() {
        let mut counters = Counters::default();
        counters.sent = 7;
        let time = Duration::from_secs(2);
        let mut sent = Sent {
            written: 10,
            time,
            errors: 1,
            counters,
            is_settled: true,
            waiting: 1,
            error: None,
        };
        let shown = text(&sent);
        assert!(shown.contains("10 frames were written in 2.000 s, 5 in a second"), "{shown}");
        assert!(shown.contains("2 had no room at a receiver or device, 1 wait"), "{shown}");
        assert!(shown.contains("1 error of ICMP has come"), "{shown}");
        assert_eq!(
            (&report(&sent)["without_room"], &report(&sent)["waiting"]),
            (&json!(2), &json!(1))
        );
        assert_eq!(report(&sent)["frames_per_second"], 5.0);
        assert_eq!(report(&sent)["unknown"], 0);
        // The switch has gone: what it had said is known, and no more.
        sent.is_settled = false;
        let shown = text(&sent);
        assert!(shown.contains("7 were delivered"), "{shown}");
        assert!(shown.contains("what became of 3 others is not known"), "{shown}");
        assert!(!shown.contains("had no room") && !shown.contains("wait for"), "{shown}");
        let told = report(&sent);
        assert_eq!((&told["delivered"], &told["unknown"]), (&json!(7), &json!(3)));
        assert!(told["without_room"].is_null() && told["waiting"].is_null(), "{told}");
    }
}
