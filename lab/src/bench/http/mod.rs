//! Files over HTTP: programs as users start them, where other rows have processes of the benchmark.
//!
//! The server serves a folder in memory, on a core of its own. On the other core, the client's
//! program is started anew for each file, and timed from its start to its end.

mod programs;
mod site;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use quicket_workload::bench::{Failure, Latencies, Link, Measurement, Outcome, pin};

use self::programs::Pair;
use self::site::Site;
use super::Contender;
use super::contender::Contenders;
use crate::Certificates;

pub(super) use programs::{curl_version, keep_in, nginx, orphanless, temporary_paths};
pub(super) use site::folder_in_memory;

/// How long a server may take until its first answer.
const START: Duration = Duration::from_secs(10);
/// How long to wait before it is asked again.
const AGAIN: Duration = Duration::from_millis(50);
/// The fewest small files to take a median of.
const LEAST: usize = 5;

/// Whose programs are started, and with what.
pub(super) struct Visit<'a> {
    pub(super) contender: Contender,
    pub(super) contenders: &'a Contenders,
    pub(super) certificates: &'a Certificates,
}

/// Has small files fetched one after the other for so many milliseconds, and then a large one of
/// so many bytes, which is compared with what was served. The calling thread stays pinned.
pub(super) fn measure(
    visit: &Visit<'_>,
    cores: [usize; 2],
    bytes: u64,
    milliseconds: u64,
) -> Result<Measurement, Failure> {
    let site = Site::new(bytes)?;
    pin(cores[0])?;
    let mut pair = Pair::start(visit, &site)?;
    pin(cores[1])?;
    wait_for(&mut pair)?;
    let small = fetch_small(&pair, Duration::from_millis(milliseconds))?;
    let server = Pid::from_raw(pair.server.id().try_into()?);
    let before = cpu_time(server)?;
    let Fetched { took, client_cpu } = fetch(&mut pair.fetch(site::LARGE))?;
    let server_cpu = cpu_time(server)?.saturating_sub(before);
    pair.server.kill();
    site.compare()?;
    Ok(Measurement {
        result: Outcome::Files {
            bytes,
            nanoseconds: took.as_nanos().try_into()?,
            small: small.summary(Duration::from_millis(milliseconds)),
        },
        client_cpu_ns: client_cpu.as_nanos().try_into()?,
        server_cpu_ns: server_cpu.as_nanos().try_into()?,
        link: Link::default(),
    })
}

/// Waits until the server answers.
fn wait_for(pair: &mut Pair) -> Result<(), Failure> {
    let deadline = Instant::now() + START;
    loop {
        match fetch(&mut pair.fetch(site::SMALL)) {
            Ok(_) => return Ok(()),
            Err(failure) if Instant::now() > deadline => {
                return Err(pair.server.error(format!("does not answer: {failure}")).into());
            }
            Err(_) => std::thread::sleep(AGAIN),
        }
    }
}

fn fetch_small(pair: &Pair, time: Duration) -> Result<Latencies, Failure> {
    let mut all = Latencies::default();
    let begun = Instant::now();
    while begun.elapsed() < time || all.len() < LEAST {
        let start = Instant::now();
        let Fetched { took, .. } = fetch(&mut pair.fetch(site::SMALL))?;
        all.record(start, start + took);
    }
    Ok(all)
}

/// What fetching a file has taken.
struct Fetched {
    /// From the start of the program to its end.
    took: Duration,
    /// In user space and the kernel.
    client_cpu: Duration,
}

/// Runs a client's program. It bounds its time itself.
fn fetch(command: &mut Command) -> Result<Fetched, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let start = Instant::now();
    let child = command.spawn()?;
    let pid = Pid::from_raw(child.id().try_into()?);
    // It has ended then, but what it has used can still be asked for.
    waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
    let took = start.elapsed();
    let client_cpu = cpu_time(pid);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let program = command.get_program().display();
        return Err(format!("{program}: {}; {}", output.status, said.trim()).into());
    }
    Ok(Fetched { took, client_cpu: client_cpu? })
}

/// The CPU time of all threads that a process has and had.
fn cpu_time(process: Pid) -> Result<Duration, Failure> {
    Ok(clock_getcpuclockid(process)?.now()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_program_that_has_ended_is_known_and_its_failure_quoted() {
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let fetched = fetch(Command::new("sh").args(["-c", busy])).unwrap();
        assert!(fetched.client_cpu > Duration::from_micros(100), "{:?}", fetched.client_cpu);
        assert!(fetched.took > Duration::from_micros(100));
        let failed = fetch(Command::new("sh").args(["-c", "echo the reason >&2; exit 3"]));
        assert!(failed.is_err_and(|error| error.to_string().ends_with("the reason")));
    }
}
