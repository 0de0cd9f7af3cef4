//! The processes: the switch, and those with ports.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::unistd::{setgid, setgroups, setuid};
use quicket_packets::client::Port;
use quicket_packets::daemon::Daemon;
use quicket_packets::traffic::{Bucket, Generator, Sink};
use quicket_packets::{BATCH, Bell, Forwarder, Layout, Memory, Tuple};
use quicket_ring::program::{Receiver, Sender, halves};
use quicket_workload::bench::{Failure, pin};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities};

use super::{Assignment, Role, Word};

/// How long frames have come when the clock starts.
const WARM_UP: Duration = Duration::from_millis(50);
/// How long to wait for the first one.
const PATIENCE: Duration = Duration::from_secs(5);
/// The wire of the card.
pub(super) const GBIT: f64 = 10.0;
/// Positions of the card's rings.
const CARD: u32 = 4096;
/// What whoever shares a core with the switch may send at once, in nanoseconds of the wire: the card has room for it, and does
/// not run empty while the switch has the core.
const TURN: u32 = 250_000;
/// What stacks offer a card, as a share of what its wire carries: a little more, so that frames wait for the wire and not the wire
/// for them. What there is no room for is lost, and counted.
const OFFERED: f64 = 1.02;
/// Frames that stacks send at once, so that whoever shares their core does not take turns for a few.
const BLOCK: u32 = 4 * BATCH;
const UDP: u8 = 17;

/// Carries out `assignment`, until standard input ends.
pub(in crate::bench) fn process(assignment: &str) -> ExitCode {
    let assignment: Assignment = match serde_json::from_str(assignment) {
        Ok(assignment) => assignment,
        Err(error) => return failed(&error.into()),
    };
    if let Err(failure) = pin(assignment.core) {
        return failed(&failure);
    }
    if let Role::Daemon { user } = assignment.role {
        return daemon(&assignment, user)
            .map_or_else(|failure| failed(&failure), |()| ExitCode::SUCCESS);
    }
    std::thread::spawn(|| {
        while matches!(io::stdin().read(&mut [0; 64]), Ok(1..)) {}
        std::process::exit(0);
    });
    let moved = match &assignment.role {
        Role::Within => within(&assignment),
        Role::Ring => ring(&assignment),
        Role::Devices { way } => super::devices::move_frames(*way, assignment.milliseconds),
        Role::Sender { is_card, others } => match send(&assignment, *is_card, others) {
            Ok(never) => match never {},
            Err(failure) => Err(failure),
        },
        _ => receive(&assignment, matches!(assignment.role, Role::Receiver { is_card: true })),
    };
    match moved {
        Ok(word) => {
            word.emit();
            // The other thread ends this process.
            loop {
                std::thread::park();
            }
        }
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> ExitCode {
    Word::Failed { reason: failure.to_string() }.emit();
    ExitCode::FAILURE
}

fn daemon(assignment: &Assignment, user: Option<u32>) -> Result<(), Failure> {
    // He may not reach the folder. What he leaves there is replaced by the next one, which begins as this user.
    let daemon = Daemon::bind(&assignment.path, false)?;
    if let Some(user) = user {
        become_user(user)?;
    }
    let (stop, stopped) = UnixStream::pair()?;
    std::thread::spawn(move || {
        while matches!(io::stdin().read(&mut [0; 64]), Ok(1..)) {}
        drop(stop);
    });
    Word::Ready.emit();
    daemon.run(stopped.as_fd())?;
    Ok(())
}

/// Has the process be of a user who may do nothing but keep addresses for others, as the switch does.
fn become_user(user: u32) -> Result<(), Failure> {
    setgroups(&[])?;
    setgid(user.into())?;
    set_keep_capabilities(true)?;
    setuid(user.into())?;
    let chown = CapabilitySet::CHOWN;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: chown, permitted: chown, inheritable })?;
    Ok(())
}

/// Rings and slots of a port. Short frames have short slots.
fn layout(assignment: &Assignment, is_card: bool) -> Result<Layout, Failure> {
    let entries = match assignment.role {
        _ if is_card => CARD,
        // Each has its turn on the core after a while: meanwhile there is room.
        Role::Sender { .. } | Role::Receiver { .. } => {
            (CARD / assignment.ports as u32).next_power_of_two().max(128)
        }
        _ if assignment.ports > 8 => 128,
        _ => 256,
    };
    let slot = if assignment.len <= 128 { 128 } else { 2048 };
    Layout::new(entries, entries, slot).ok_or_else(|| "there is no such ring".into())
}

/// A port with a tuple of its own.
fn open(assignment: &Assignment, is_card: bool) -> Result<(Port, SocketAddr), Failure> {
    let mut port = Port::open(&assignment.path, layout(assignment, is_card)?)?;
    let tuple = port.register(UdpSocket::bind((assignment.address(), 0))?)?;
    Ok((port, (tuple.address, tuple.port).into()))
}

fn open_all(assignment: &Assignment) -> Result<(Vec<Port>, Vec<SocketAddr>), Failure> {
    let ports = (0..assignment.ports).map(|_| open(assignment, false));
    Ok(ports.collect::<Result<Vec<_>, _>>()?.into_iter().unzip())
}

fn generator(
    assignment: &Assignment,
    flow: usize,
    from: SocketAddr,
    to: SocketAddr,
) -> Result<Generator, Failure> {
    let generator = Generator::new(flow as u32, from, to, assignment.len);
    generator.ok_or_else(|| "no frame has that length".into())
}

/// A generator and a sink for each address: each sends to the next one.
fn stacks(
    assignment: &Assignment,
    addresses: &[SocketAddr],
) -> Result<Vec<(Generator, Sink)>, Failure> {
    let count = addresses.len();
    let stack = |(n, from): (usize, &SocketAddr)| {
        let generator = generator(assignment, n, *from, addresses[(n + 1) % count])?;
        let before = (n + count - 1) % count;
        Ok((generator, Sink::new(before as u32, 1, *from, assignment.len)))
    };
    addresses.iter().enumerate().map(stack).collect()
}

/// When measuring begins and ends.
struct Clock {
    opened: Instant,
    first: Option<Instant>,
    begun: Option<(Instant, [u64; 3])>,
    len: Duration,
}

impl Clock {
    fn new(assignment: &Assignment) -> Self {
        let len = Duration::from_millis(assignment.milliseconds);
        Self { opened: Instant::now(), first: None, begun: None, len }
    }

    /// What was moved while it was measured, once that is over.
    fn look<'a>(&mut self, sinks: impl Iterator<Item = &'a Sink>) -> Result<Option<Word>, Failure> {
        let now = Instant::now();
        let counted = sinks.fold([0; 3], |[frames, lost, wrong], sink| {
            [frames + sink.received, lost + sink.lost, wrong + sink.wrong]
        });
        let Some(first) = self.first else {
            if counted != [0; 3] {
                self.first = Some(now);
            } else if now - self.opened > PATIENCE {
                return Err("no frame has come".into());
            }
            return Ok(None);
        };
        match self.begun {
            None if now - first >= WARM_UP => self.begun = Some((now, counted)),
            Some((begun, before)) if now - begun >= self.len => {
                let [frames, lost, wrong] = std::array::from_fn(|n| counted[n] - before[n]);
                let nanoseconds = (now - begun).as_nanos() as u64;
                return Ok(Some(Word::Moved { frames, lost, wrong, nanoseconds }));
            }
            _ => {}
        }
        Ok(None)
    }
}

/// Ports and switch in one thread.
fn within(assignment: &Assignment) -> Result<Word, Failure> {
    let mut forwarder = Forwarder::new([0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 3]);
    let mut ends: Vec<(Sender, Receiver, Bell)> = Vec::new();
    let mut addresses = Vec::new();
    let layout = layout(assignment, false)?;
    for n in 0..assignment.ports {
        let memory = Memory::create(layout)?;
        let theirs = Memory::open(memory.as_fd().try_clone_to_owned()?, layout)?;
        let (ours, bell) = Bell::pair()?;
        let number = forwarder.add(memory, ours);
        let port = 4000 + n as u16;
        let address: IpAddr = match assignment.is_v6 {
            true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1 + n as u16).into(),
            false => Ipv4Addr::new(10, 0, 0, 1 + n as u8).into(),
        };
        let registered = forwarder.register(number, Tuple { address, protocol: UDP, port });
        registered.map_err(|refusal| format!("a tuple was refused: {refusal:?}"))?;
        addresses.push((address, port).into());
        let (sender, receiver) = halves(theirs);
        ends.push((sender, receiver, bell));
    }
    let mut stacks = stacks(assignment, &addresses)?;
    let mut clock = Clock::new(assignment);
    loop {
        for ((generator, _), (sender, ..)) in stacks.iter_mut().zip(&mut ends) {
            let n = sender.room(BATCH)?.min(BATCH);
            for at in 0..n {
                if let Some(len) = sender.slot(at).and_then(|slot| generator.write(slot)) {
                    sender.set_len(at, len as u16);
                }
            }
            // Who looks at it in each turn does not sleep.
            let _ = sender.publish(n);
        }
        forwarder.turn();
        for ((_, sink), (_, receiver, _)) in stacks.iter_mut().zip(&mut ends) {
            let ready = receiver.ready()?;
            for at in 0..ready {
                if let Some(frame) = receiver.frame(at) {
                    sink.read(frame);
                }
            }
            receiver.release(ready);
        }
        if let Some(word) = clock.look(stacks.iter().map(|(_, sink)| sink))? {
            return Ok(word);
        }
    }
}

/// Sends up to as many frames as may go.
fn write(port: &mut Port, generator: &mut Generator, most: u32) -> io::Result<u32> {
    let mut left = most;
    port.send(|slot| {
        left = left.checked_sub(1)?;
        generator.write(slot)
    })
}

/// All ports, each of which sends to the next one.
fn ring(assignment: &Assignment) -> Result<Word, Failure> {
    let (mut ports, addresses) = open_all(assignment)?;
    let mut stacks = stacks(assignment, &addresses)?;
    let mut clock = Clock::new(assignment);
    loop {
        for ((generator, _), port) in stacks.iter_mut().zip(&mut ports) {
            write(port, generator, BATCH)?;
        }
        for ((_, sink), port) in stacks.iter_mut().zip(&mut ports) {
            port.receive(u32::MAX, |frame| sink.read(frame))?;
        }
        if let Some(word) = clock.look(stacks.iter().map(|(_, sink)| sink))? {
            return Ok(word);
        }
    }
}

/// Counts what comes: to the card, as the wire takes it, or to all ports.
fn receive(assignment: &Assignment, is_card: bool) -> Result<Word, Failure> {
    let (mut ports, addresses) = match is_card {
        true => {
            let (port, address) = open(assignment, true)?;
            (vec![port], vec![address])
        }
        false => open_all(assignment)?,
    };
    let flows = if is_card { assignment.ports } else { 1 };
    let sink =
        |(n, address): (usize, &SocketAddr)| Sink::new(n as u32, flows, *address, assignment.len);
    let mut sinks: Vec<Sink> = addresses.iter().enumerate().map(sink).collect();
    let mut bucket = is_card.then(|| Bucket::new(GBIT, assignment.len));
    Word::Opened { addresses }.emit();
    let mut clock = Clock::new(assignment);
    loop {
        for (sink, port) in sinks.iter_mut().zip(&mut ports) {
            let most = match &mut bucket {
                Some(bucket) => bucket.take_waiting(port.ready()?),
                None => u32::MAX,
            };
            port.receive(most, |frame| sink.read(frame))?;
        }
        if assignment.is_beside {
            std::thread::yield_now();
        }
        if let Some(word) = clock.look(sinks.iter())? {
            return Ok(word);
        }
    }
}

/// Sends as much as the wire takes: from the card to each of the others in turn, or from all ports to the card.
fn send(
    assignment: &Assignment,
    is_card: bool,
    others: &[SocketAddr],
) -> Result<std::convert::Infallible, Failure> {
    let (mut ports, addresses) = match is_card {
        true => {
            let (port, address) = open(assignment, true)?;
            (vec![port], vec![address])
        }
        false => open_all(assignment)?,
    };
    let generator = |flow: usize| {
        let from = addresses[flow % addresses.len()];
        let to = *others.get(flow % others.len().max(1)).ok_or("there is nobody to send to")?;
        generator(assignment, flow, from, to)
    };
    let generators = (0..assignment.ports).map(generator).collect::<Result<Vec<_>, _>>();
    let mut generators: Vec<Generator> = generators?;
    if generators.is_empty() {
        return Err("there is nobody to send to".into());
    }
    let count = ports.len();
    let mut flows = (0..generators.len()).cycle();
    if is_card {
        // Its frames come while its process pauses, too.
        let mut bucket = Bucket::new(GBIT, assignment.len).with_burst(TURN);
        loop {
            let flow = flows.next().unwrap_or_default();
            let n = bucket.take(BATCH);
            write(&mut ports[flow % count], &mut generators[flow], n)?;
            if assignment.is_beside && n < BATCH {
                std::thread::yield_now();
            }
        }
    }
    let mut bucket = Bucket::new(GBIT * OFFERED, assignment.len).with_burst(TURN);
    let block = BLOCK.min(bucket.most() / 2).max(1);
    loop {
        if bucket.take_all(block) {
            let mut left = block;
            while left > 0 {
                let (flow, n) = (flows.next().unwrap_or_default(), left.min(BATCH));
                write(&mut ports[flow % count], &mut generators[flow], n)?;
                left -= n;
            }
        } else if assignment.is_beside {
            std::thread::yield_now();
        }
    }
}
