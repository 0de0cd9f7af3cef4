//! The processes: a switch, a server, a generator of load.

use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use quicket_packets::control::Control;
use quicket_packets::daemon::Daemon;
use quicket_packets::device::Mode;
use quicket_tcp::Stack;
use quicket_workload::bench::Failure;

use super::{Assignment, Transport, Word};

#[path = "../../../../tcp/examples/http/load.rs"]
mod load;
#[path = "../../../../tcp/examples/http/serve.rs"]
pub(super) mod serve;
#[path = "../../../../tcp/examples/http/transport.rs"]
mod transport;

/// Connections that wait for the server.
const BACKLOG: usize = 1024;
/// Nanoseconds of a tick of `/proc/stat`: Linux has no other value in its interface to programs.
const TICK: u64 = 10_000_000;

impl Word {
    fn emit(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            let _ = crate::command::print(&(line + "\n"));
        }
    }
}

/// Carries out `assignment`, until standard input ends.
pub(in crate::bench) fn process(assignment: &str) -> ExitCode {
    std::thread::spawn(|| {
        while matches!(io::stdin().read(&mut [0; 64]), Ok(1..)) {}
        std::process::exit(0);
    });
    let done = match serde_json::from_str(assignment) {
        Ok(Assignment::Switch { path, device }) => switch(&path, device.as_deref()),
        Ok(Assignment::Server { transport, address, threads }) => {
            server(&transport, address, threads)
        }
        Ok(Assignment::Load { transport, address, bytes, milliseconds, threads }) => {
            let time = Duration::from_millis(milliseconds);
            fetch(&transport, &load::Load { address, size: bytes, threads, time })
        }
        Err(error) => Err(error.into()),
    };
    match done {
        // The other thread ends this process.
        Ok(()) => loop {
            std::thread::park();
        },
        Err(failure) => {
            Word::Failed { reason: failure.to_string() }.emit();
            ExitCode::FAILURE
        }
    }
}

fn switch(path: &Path, device: Option<&str>) -> Result<(), Failure> {
    let daemon = Daemon::bind(path, false)?;
    // The other end is closed with the process.
    let (_stop, stopped) = UnixStream::pair()?;
    let running = std::thread::spawn(move || daemon.run(stopped.as_fd()));
    if let Some(device) = device {
        Control::connect(path)?.attach(device, Mode::Best)?;
    }
    Word::Ready { address: None }.emit();
    running.join().map_err(|_| "the switch has panicked")??;
    Ok(())
}

fn server(
    transport: &Transport,
    address: std::net::SocketAddr,
    threads: usize,
) -> Result<(), Failure> {
    match transport {
        Transport::System => {
            let listener = TcpListener::bind(address)?;
            Word::Ready { address: Some(listener.local_addr()?) }.emit();
            serve::serve(&listener, threads);
        }
        Transport::Stack(path) => {
            let stack = Stack::open(path)?;
            let listener = quicket_tcp::TcpListener::with_backlog(&stack, address, BACKLOG)?;
            Word::Ready { address: Some(listener.local_addr()?) }.emit();
            serve::serve(&listener, threads);
        }
    }
    Ok(())
}

fn fetch(transport: &Transport, load: &load::Load) -> Result<(), Failure> {
    let fetched = match transport {
        Transport::System => {
            let before = busy()?;
            (load.run(&transport::System)?, busy()? - before)
        }
        Transport::Stack(path) => {
            let stack = Stack::open(path)?;
            let before = busy()?;
            (load.run(&stack)?, busy()? - before)
        }
    };
    let (fetched, cpu_ns) = fetched;
    Word::Fetched {
        fetches: fetched.times.len() as u64,
        octets: fetched.octets,
        nanoseconds: fetched.time.as_nanos().try_into()?,
        cpu_ns,
    }
    .emit();
    Ok(())
}

/// For how long processors were not idle, all of them together, in nanoseconds.
fn busy() -> Result<u64, Failure> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let all = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = all.split_whitespace().skip(1).map_while(|n| n.parse().ok()).collect();
    let [user, nice, system, _idle, _waits, irq, softirq, ..] = ticks[..] else {
        return Err("/proc/stat has something else than the times of processors".into());
    };
    Ok((user + nice + system + irq + softirq) * TICK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fetched_is_counted_with_both_kinds_of_tcp() {
        let before = busy().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packets");
        let daemon = Daemon::bind(&path, false).unwrap();
        let (_stop, stopped) = UnixStream::pair().unwrap();
        std::thread::spawn(move || daemon.run(stopped.as_fd()));
        let stack = Stack::open(&path).unwrap();
        let local = "127.0.0.1:0".parse().unwrap();
        let load = |address| load::Load {
            address,
            size: 5000,
            threads: 2,
            time: Duration::from_millis(100),
        };
        let ours = quicket_tcp::TcpListener::bind(&stack, local).unwrap();
        let address = ours.local_addr().unwrap();
        std::thread::spawn(move || serve::serve(&ours, 2));
        let by_stack = load(address).run(&Stack::open(&path).unwrap()).unwrap();
        let theirs = TcpListener::bind(local).unwrap();
        let address = theirs.local_addr().unwrap();
        std::thread::spawn(move || serve::serve(&theirs, 2));
        let by_system = load(address).run(&transport::System).unwrap();
        for fetched in [by_stack, by_system] {
            let fetches = fetched.times.len() as u64;
            assert!(fetches > 1 && (5000 * fetches..5200 * fetches).contains(&fetched.octets));
        }
        assert!(busy().unwrap() > before);
    }
}
