//! `quicket switch sink`.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quicket_packets::client::Port;
use quicket_packets::traffic::Account;
use quicket_packets::{Queue, Reason};
use serde_json::{Value, json};

use super::{ENTRIES, FEW, PAUSE, cannot, layout, open, register, some, until_told, waited};
use crate::args::SwitchSink;
use crate::exit::Failure;
use crate::units::Rate;

/// What has come.
struct Came {
    account: Account,
    /// Flows of all queues.
    flows: usize,
    /// From the first frame to the last.
    time: Duration,
    /// Frames for which there was no room here.
    full: u64,
    /// ... and that were longer than there was.
    long: u64,
    /// What has ended it before its time.
    error: Option<io::Error>,
}

/// What all queues share.
struct Shared<'a> {
    stop: &'a AtomicBool,
    is_over: AtomicBool,
    begun: Instant,
    time: Option<Duration>,
    count: Option<u64>,
    received: AtomicU64,
}

impl Shared<'_> {
    /// How many frames more there are to be, as far as other queues have not had them meanwhile.
    fn left(&self) -> u32 {
        let received = self.received.load(Ordering::Relaxed);
        let left = self.count.map_or(u64::MAX, |count| count.saturating_sub(received));
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn goes_on(&self) -> bool {
        let is_enough = || self.count.is_some_and(|n| self.received.load(Ordering::Relaxed) >= n);
        !self.stop.load(Ordering::Relaxed)
            && !self.is_over.load(Ordering::Relaxed)
            && !is_enough()
            && self.time.is_none_or(|time| self.begun.elapsed() < time)
    }
}

pub(in crate::switch) fn run(args: &SwitchSink) -> Result<(), Failure> {
    let layout = layout(FEW, ENTRIES, args.longest)?;
    let mut port = open(&args.name, layout)?;
    let queues = (1..args.queues).map(|_| port.add_queue(layout)).collect::<io::Result<Vec<_>>>();
    let queues =
        queues.map_err(|error| Failure::environment("cannot have so many queues", error))?;
    let here = register(&mut port, args.address)?;
    let (count, time) = (args.count, args.time);
    let work = move |stop: &AtomicBool| count_all(port, queues, here, (count, time), stop);
    let came = until_told(|| crate::out::tell!("quicket: frames to {here} are counted"), work)?;
    crate::print(&if args.json { report(&came).to_string() } else { text(&came) })?;
    came.error.map_or(Ok(()), |error| Err(cannot(error)))
}

/// Counts what comes to all queues.
fn count_all(
    mut port: Port,
    mut queues: Vec<Queue>,
    here: SocketAddr,
    (count, time): (Option<u64>, Option<Duration>),
    stop: &AtomicBool,
) -> Came {
    let begun = Instant::now();
    let (is_over, received) = (AtomicBool::new(false), AtomicU64::new(0));
    let shared = Shared { stop, is_over, begun, time, count, received };
    let found = Mutex::new(Vec::new());
    let count = |queue: &mut Queue| {
        let mut counted = Counted { account: Account::new(here), times: None, error: None };
        if let Err(error) = count_one(queue, &mut counted, &shared) {
            counted.error = Some(error);
            shared.is_over.store(true, Ordering::Relaxed);
        }
        found.lock().unwrap_or_else(PoisonError::into_inner).push(counted);
    };
    std::thread::scope(|scope| {
        let count = &count;
        for queue in &mut queues {
            scope.spawn(move || count(queue));
        }
        count(port.queue());
    });
    let (account, time) = (Account::new(here), Duration::ZERO);
    let mut came = Came { account, flows: 0, time, full: 0, long: 0, error: None };
    let mut all = None::<(Instant, Instant)>;
    for result in found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let Counted { account, times, error } = result;
        came.error = came.error.or(error);
        came.flows += account.flows();
        came.account.add(&account);
        all = match (all, times) {
            (Some((first, last)), Some(times)) => Some((first.min(times.0), last.max(times.1))),
            (all, times) => all.or(times),
        };
    }
    came.time = all.map_or(Duration::ZERO, |(first, last)| last - first);
    match port.counters() {
        Ok(counters) => {
            came.full = counters.dropped(Reason::Full);
            came.long = counters.dropped(Reason::Slot);
        }
        Err(error) => came.error = came.error.or(Some(error)),
    }
    came
}

/// What has come to a queue.
struct Counted {
    account: Account,
    /// When the first and the last frame has.
    times: Option<(Instant, Instant)>,
    error: Option<io::Error>,
}

fn count_one(queue: &mut Queue, counted: &mut Counted, shared: &Shared<'_>) -> io::Result<()> {
    let Counted { account, times, .. } = counted;
    loop {
        // What is there is counted in any case.
        let is_last = !shared.goes_on();
        let before = account.received;
        let n = queue.receive(shared.left(), |frame| account.read(frame))?;
        let new = account.received - before;
        shared.received.fetch_add(new, Ordering::Relaxed);
        if new > 0 {
            let now = Instant::now();
            *times = Some((times.map_or(now, |(first, _)| first), now));
        }
        if is_last {
            return Ok(());
        }
        if n == 0 {
            waited(queue.wait(Some(PAUSE)))?;
        }
    }
}

/// Frames in a second. Those of the first look have come before the time began, but are as many as one in thousands.
fn rate(came: &Came) -> f64 {
    match came.time.as_secs_f64() {
        seconds if seconds > 0.0 => came.account.received as f64 / seconds,
        _ => 0.0,
    }
}

fn report(came: &Came) -> Value {
    let Came { account, flows, time, full, long, .. } = came;
    json!({
        "received": account.received,
        "octets": account.octets,
        "seconds": time.as_secs_f64(),
        "frames_per_second": rate(came),
        "bits_per_second": Rate::of(account.octets, *time).bits_per_second(),
        "flows": flows,
        "lost": account.lost,
        "late": account.late,
        "doubled": account.doubled,
        "misdelivered": account.misdelivered,
        "foreign": account.foreign,
        "untold": account.untold,
        "errors": account.errors,
        "full": full,
        "too_long": long,
    })
}

fn text(came: &Came) -> String {
    let Came { account, flows, time, full, long, .. } = came;
    let mut out = format!(
        "{} of {} {} come in {:.3} s, {:.0} in a second, {}\nlost: {}, late: {}, twice: {}, misdelivered: {}",
        some(account.received, "frame", "frames"),
        some(*flows as u64, "flow", "flows"),
        if account.received == 1 { "has" } else { "have" },
        time.as_secs_f64(),
        rate(came),
        Rate::of(account.octets, *time),
        account.lost,
        account.late,
        account.doubled,
        account.misdelivered,
    );
    for (n, what) in [
        (account.foreign, "of no generator, or changed"),
        (account.untold, "of more flows than are told apart"),
        (account.errors, "errors of ICMP"),
        (*full, "without room here"),
        (*long, "longer than --longest"),
    ] {
        if n > 0 {
            let _ = write!(out, "\n{what}: {n}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_programs_hear_what_has_come() {
        let mut account = Account::new("127.0.0.1:9".parse().unwrap());
        (account.received, account.octets, account.lost) = (1000, 64_000, 3);
        account.foreign = 2;
        let time = Duration::from_millis(500);
        let came = Came { account, flows: 4, time, full: 1, long: 0, error: None };
        let shown = text(&came);
        for words in [
            "1000 frames of 4 flows have come in 0.500 s, 2000 in a second, 1.0 Mbit/s",
            "lost: 3, late: 0",
            "of no generator, or changed: 2",
            "without room here: 1",
        ] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        assert!(!shown.contains("longest"));
        let one = Came { flows: 1, ..came };
        assert!(text(&one).contains("1000 frames of 1 flow have come"), "{}", text(&one));
        let came = Came { flows: 4, ..one };
        let told = report(&came);
        assert_eq!((&told["lost"], &told["full"]), (&json!(3), &json!(1)));
        assert_eq!(told["frames_per_second"], 2000.0);
    }
}
