//! The process in the middle: a balancer with one worker, or what forwards without a look; or one of
//! their programs in the kernel.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use quicket_balancer::{Balancer, Device, Forwarder, Offload, XdpMode};
use quicket_bpf::{Counts, Run, Verdict};
use quicket_workload::bench::{Failure, Ids, Usage, pin};

use super::generator::Frame;
use super::yardstick::Way;
use super::{Assignment, Middle, Word, generator, site, yardstick};
use crate::netns::{DEVICE, End, Namespaces};

/// How long datagrams have come when the clock starts, at least.
const WARM_UP: Duration = Duration::from_millis(300);
/// Datagrams that have come by then, at least.
const WARM_UP_DATAGRAMS: u64 = 10_000;
/// How long to wait for them.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often counters are looked at.
const LOOK: Duration = Duration::from_millis(5);
/// Datagrams that may be between being received and being sent when counters are read.
const UNDER_WAY: u64 = 4096;

/// Packets in a round of a program's, of as many flows, the same number in all measurements: packets
/// that come again sooner are in the processor's cache.
const ROUND: usize = 10_000;
/// Rounds of a program, at least; the median counts.
const ROUNDS: usize = 5;

/// Carries out `assignment`.
pub(in crate::bench) fn process(assignment: &str) -> ExitCode {
    match carry_out(assignment) {
        Ok(counted) => {
            counted.emit();
            // The benchmark has what it wants, and says so by the end of standard input.
            let _ = io::stdin().read(&mut [0; 1]);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            Word::Failed { reason: failure.to_string() }.emit();
            ExitCode::FAILURE
        }
    }
}

/// Names and values, as counters give them.
type Values = Vec<(&'static str, u64)>;

fn carry_out(assignment: &str) -> Result<Word, Failure> {
    let assignment: Assignment = serde_json::from_str(assignment)?;
    pin(assignment.core)?;
    let IpAddr::V4(address) = Namespaces::address(End::Left) else {
        return Err("the namespaces have IPv4".into());
    };
    match assignment.middle {
        Middle::Balancer => balance(&assignment, address),
        Middle::Forwarder => forward(&assignment, address),
        Middle::Program => program(&assignment, address),
        Middle::Yardstick => yardstick(&assignment, address),
    }
}

/// Has the kernel run the balancer's program, without sending anything.
fn program(assignment: &Assignment, address: Ipv4Addr) -> Result<Word, Failure> {
    let (config, snapshot) = site::snapshot(address, assignment)?;
    let counts = Counts::new(assignment.servers)?;
    // The frames are for no device in particular.
    let device = Device { mac: generator::FRAME_TO, ..Device::find(DEVICE, XdpMode::Generic)? };
    let offload = Offload::new(&device, &config, &snapshot, &counts, |at| u32::try_from(at).ok())?;
    let flows = flows(assignment)?;
    for (number, id) in flows.iter().enumerate() {
        offload.learn(&id[1..=usize::from(id[0])], number % assignment.servers as usize);
    }
    Word::Ready.emit();
    // A packet of ours has the kernel find the neighbour.
    let neighbour = Namespaces::address(End::Right);
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?.send_to(&[0], (neighbour, 9))?;
    let run = |packet: &[u8]| offload.run(packet, 1);
    let mut frame = frame(assignment, address, &flows);
    let deadline = Instant::now() + PATIENCE;
    while run(frame.of(0, &flows[0]))?.verdict != Verdict::Redirect {
        if Instant::now() > deadline {
            return Err("the program does not forward".into());
        }
        std::thread::sleep(LOOK);
    }
    time_runs(assignment, frame, &flows, run)
}

/// The same with the program that looks at nothing.
fn yardstick(assignment: &Assignment, address: Ipv4Addr) -> Result<Word, Failure> {
    let device = Device::find(DEVICE, XdpMode::Generic)?;
    let way = Way {
        device: device.index,
        ethernet: [generator::FRAME_TO, device.mac],
        ip: [site::server(1), address],
    };
    let (program, flows) = (yardstick::load(&way)?, flows(assignment)?);
    Word::Ready.emit();
    let frame = frame(assignment, address, &flows);
    time_runs(assignment, frame, &flows, |packet| program.run(packet, 1))
}

/// The connection IDs of the flows that programs are given in turn: a round of them at least, and no
/// more of those that are enciphered, as the kernel remembers 65,536.
fn flows(assignment: &Assignment) -> Result<Vec<site::Id>, Failure> {
    let flows = match assignment.ids {
        Ids::Plain => assignment.flows.max(ROUND as u32),
        _ => ROUND as u32,
    };
    site::ids(&Assignment { flows, ..*assignment })
}

fn frame(assignment: &Assignment, address: Ipv4Addr, flows: &[site::Id]) -> Frame {
    Frame::new(assignment.ids, SocketAddrV4::new(address, site::PORT), &flows[0])
}

/// Times a program, which has to forward the packets of all flows.
fn time_runs(
    assignment: &Assignment,
    mut frame: Frame,
    flows: &[site::Id],
    run: impl Fn(&[u8]) -> io::Result<Run>,
) -> Result<Word, Failure> {
    let (mut rounds, start) = (Vec::new(), Instant::now());
    let time = Duration::from_millis(assignment.milliseconds);
    let all = ROUNDS.max(flows.len().div_ceil(ROUND));
    let mut turn = flows.iter().enumerate().cycle();
    while rounds.len() < all || start.elapsed() < time {
        let begun = Instant::now();
        let mut cpu_ns = 0;
        for (flow, id) in turn.by_ref().take(ROUND) {
            // One at a time: another run would find the packet as this one has left it. What it takes
            // to look at the clock is in the time, then.
            let run = run(frame.of(flow, id))?;
            if run.verdict != Verdict::Redirect {
                return Err(format!("the program says {:?}", run.verdict).into());
            }
            cpu_ns += u64::from(run.nanoseconds);
        }
        rounds.push((cpu_ns, u64::try_from(begun.elapsed().as_nanos())?));
    }
    rounds.sort_unstable();
    let (cpu_ns, nanoseconds) = rounds[rounds.len() / 2];
    Ok(Word::Counted { packets: ROUND as u64, nanoseconds, cpu_ns, calls: 0 })
}

fn balance(assignment: &Assignment, address: Ipv4Addr) -> Result<Word, Failure> {
    let (config, snapshot) = site::snapshot(address, assignment)?;
    let balancer = Balancer::start(&config, snapshot)?;
    let (word, grown) = watch(assignment, || balancer.counters())?;
    // It has to have been the work that was asked for.
    let names = match assignment.ids {
        Ids::First => ["kept", "hashed"],
        _ => ["named", "named"],
    };
    let decided: u64 = names.iter().map(|name| value(&grown, name)).sum();
    let received = value(&grown, "received") * if names[0] == names[1] { 2 } else { 1 };
    if decided + UNDER_WAY < received {
        return Err(format!("{decided} of {received} went the way they should: {grown:?}").into());
    }
    Ok(word)
}

fn forward(assignment: &Assignment, address: Ipv4Addr) -> Result<Word, Failure> {
    let (config, snapshot) = site::snapshot(address, assignment)?;
    let forwarder = Forwarder::open(&config, snapshot)?;
    let counters = forwarder.counters();
    let (ear, _bell) = io::pipe()?;
    std::thread::spawn(move || forwarder.run(ear));
    Ok(watch(assignment, || counters.values())?.0)
}

fn value(values: &Values, name: &str) -> u64 {
    values.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
}

/// Waits for the load, and counts and times what becomes of it. All that the counters have grown
/// by is given, too.
fn watch(
    assignment: &Assignment,
    counters: impl Fn() -> Values,
) -> Result<(Word, Values), Failure> {
    Word::Ready.emit();
    let deadline = Instant::now() + PATIENCE;
    // Each flow has come once, more or less.
    let wanted = WARM_UP_DATAGRAMS.max(assignment.flows.into());
    let mut begun: Option<Instant> = None;
    loop {
        let received = value(&counters(), "received");
        let long = received > 0 && begun.get_or_insert_with(Instant::now).elapsed() >= WARM_UP;
        if long && received >= wanted {
            break;
        }
        if Instant::now() > deadline {
            return Err(format!("{received} datagrams came, and {wanted} should have").into());
        }
        std::thread::sleep(LOOK);
    }
    let (before, cpu, start) = (counters(), Usage::now()?.cpu_ns, Instant::now());
    std::thread::sleep(Duration::from_millis(assignment.milliseconds));
    let (after, cpu_ns) = (counters(), Usage::now()?.cpu_ns - cpu);
    let nanoseconds = u64::try_from(start.elapsed().as_nanos())?;
    let grown = after.iter().zip(&before).map(|((name, now), (_, then))| (*name, now - then));
    let grown: Values = grown.collect();
    let (packets, received) = (value(&grown, "sent"), value(&grown, "received"));
    if packets + UNDER_WAY < received || packets == 0 {
        return Err(format!("{packets} of {received} datagrams were sent on: {grown:?}").into());
    }
    let calls = value(&grown, "receive_calls") + value(&grown, "send_calls");
    Ok((Word::Counted { packets, nanoseconds, cpu_ns, calls }, grown))
}
