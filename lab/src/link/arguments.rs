//! The command `quicket lab link`.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use quicket_sim::scenario::Scenario;
use quicket_sim::units::parse_time;

use super::forwarder::Forwarder;
use super::measure::{self, Load};
use super::{LinkError, Options, Report};
use crate::command::{Failure, print, tell};

const EXAMPLES: &str = "\
Examples:
  quicket lab link --to 127.0.0.1:4433 --scenario lte
  quicket lab link --listen 127.0.0.1:4444 --to 127.0.0.1:4433 \\
    --scenario 'simple-p2p; down loss=3%; at 2s blackhole=500ms; every 5s rebind=port'
  quicket lab link --to 127.0.0.1:4433 --for 60s --json link.json \\
    --scenario 'drop-rate --delay=15ms --bandwidth=10Mbps --queue=25 \\
                --rate_to_server=30 --rate_to_client=30 --burst_to_server=3'
  quicket lab link --listen-in client --to-in server --to 127.0.0.1:4433   as root
  quicket lab link --measure 1gbit     how exact the link is on this machine
  quicket lab link --list              the scenarios that have a name

A scenario is clauses of KEY=VALUE, separated by `;`, each for both directions or after `up` or
`down`, at once or after `at TIME`, `every TIME` or `every TIME from TIME`. Times count from the
first datagram. A name may come first, the options of the QUIC interop runner's simulator may follow
it. The keys are:
  delay=15ms jitter=2ms rate=10mbit queue=25 or 64kB mtu=1500
  loss=1% loss-run=3 burst-loss=ENTER%,LEAVE% drop=2,5-7
  corrupt=1% corrupt-run=3 reorder=1%,8ms duplicate=1%
  mark=1% mark-above=20 ecn=keep, bleach or mangle
  blackhole=500ms rebind=port or address";

/// Where to lay a link, and what it does.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct LinkArguments {
    /// The server to forward to
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present_any = ["list", "measure"])]
    to: Option<SocketAddr>,
    /// Where clients send to; port 0 takes a free one, which is printed
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Another place that clients send to, and the address of the server that it reaches; may be
    /// given several times
    #[arg(long, value_name = "ADDRESS:PORT=ADDRESS:PORT", value_parser = gate)]
    also: Vec<(SocketAddr, SocketAddr)>,
    /// What the link does: a name of --list, a text, or both
    #[arg(long, value_name = "SCENARIO", default_value = "ideal")]
    scenario: Scenario,
    /// Where chance starts from: equal seeds make equal decisions
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// An address to reach the server from; each rebinding of the address takes the next one
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    outside: Vec<IpAddr>,
    /// Network namespace to listen in, as `ip netns` names it (needs root)
    #[arg(long, value_name = "NAME")]
    listen_in: Option<String>,
    /// Network namespace to reach the server in (needs root)
    #[arg(long, value_name = "NAME")]
    to_in: Option<String>,
    /// End after this time; without, at Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    duration: Option<Duration>,
    /// Watch the clock instead of sleeping for waits up to this long: more exact, more CPU time
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
    spin: Duration,
    /// Most bytes of datagrams on their way in each direction, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    memory: u32,
    /// Capture what passes on both sides into client.pcap and server.pcap in this folder
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,
    /// Keep only this many bytes in captures of datagrams with short headers: 64 show their headers
    #[arg(long, value_name = "BYTES", requires = "capture")]
    snap: Option<usize>,
    /// Write the report as JSON to this file; `-` writes it instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Send datagrams of 1472 bytes through the link at this rate, and report how exact it was
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "to")]
    measure: Option<u64>,
    /// List the scenarios that have a name
    #[arg(long)]
    list: bool,
}

fn gate(text: &str) -> Result<(SocketAddr, SocketAddr), String> {
    let parse = |text: &str| text.parse().map_err(|_| format!("`{text}` is no ADDRESS:PORT"));
    let (listen, to) =
        text.split_once('=').ok_or("write what clients send to, `=`, the server's")?;
    Ok((parse(listen)?, parse(to)?))
}

fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).map(|time| Duration::from_nanos(time.as_nanos()))
}

fn rate(text: &str) -> Result<u64, String> {
    let scenario: Scenario = format!("rate={text}").parse().map_err(|_| wrong_rate(text))?;
    scenario.up.rate.ok_or_else(|| wrong_rate(text))
}

fn wrong_rate(text: &str) -> String {
    format!("`{text}` is not a rate: write a number above 0 as `1gbit` or `250mbit`")
}

impl LinkArguments {
    fn options(&self, to: SocketAddr) -> Options {
        Options {
            listen: self.listen,
            to,
            also: self.also.clone(),
            scenario: self.scenario.clone(),
            seed: self.seed,
            outside: self.outside.clone(),
            listen_in: self.listen_in.clone(),
            send_in: self.to_in.clone(),
            spin: self.spin,
            memory: (self.memory as usize) << 20,
            capture: self.capture.clone(),
            snap: self.snap,
        }
    }
}

/// Carries out the command.
pub(crate) fn run(arguments: &LinkArguments) -> Result<(), Failure> {
    if arguments.list {
        return list();
    }
    let report = match (arguments.to, arguments.measure) {
        (Some(to), _) => forward(&arguments.options(to), arguments.duration)?,
        (None, Some(rate)) => {
            let load = Load { rate, duration: arguments.duration.unwrap_or(measure::DURATION) };
            let outcome = measure::run(&arguments.options(measure::anywhere()), load)?;
            tell(outcome.text().trim_end());
            outcome.link
        }
        // The parser has seen to it.
        (None, None) => return Err(LinkError::new("say where to forward to with --to").into()),
    };
    write(&report, arguments.json.as_deref())
}

fn list() -> Result<(), Failure> {
    let mut all = String::new();
    for name in Scenario::NAMES {
        let description = Scenario::description(name).unwrap_or_default();
        let text = Scenario::named(name).map(|scenario| scenario.to_string()).unwrap_or_default();
        let _ = writeln!(all, "{name:<13} {description}\n{:13} {text}\n", "");
    }
    Ok(print(&all)?)
}

fn forward(options: &Options, duration: Option<Duration>) -> Result<Report, Failure> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    let interrupted = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    let mut forwarder = Forwarder::new(options)?;
    let end = if duration.is_none() { "; Ctrl-C ends it" } else { "" };
    let targets = [options.to].into_iter().chain(options.also.iter().map(|gate| gate.1));
    for (listen, to) in forwarder.addresses().into_iter().zip(targets) {
        tell(format_args!("link from {listen} to {to}{end}"));
    }
    let deadline = duration.map(|duration| Instant::now() + duration);
    forwarder.run(Some(interrupted.as_fd()), deadline)?;
    Ok(forwarder.report())
}

fn write(report: &Report, json: Option<&Path>) -> Result<(), Failure> {
    if json == Some(Path::new("-")) {
        return Ok(print(&report.to_json())?);
    }
    print(&report.table())?;
    if let Some(path) = json {
        std::fs::write(path, report.to_json()).map_err(|error| {
            LinkError::system(format!("cannot write {}", path.display()), error)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        link: LinkArguments,
    }

    fn parse(arguments: &[&str]) -> Result<LinkArguments, String> {
        let line = ["link"].iter().chain(arguments);
        Line::try_parse_from(line).map(|line| line.link).map_err(|error| error.to_string())
    }

    #[test]
    fn a_full_command_line_is_understood() {
        let arguments = parse(&[
            "--to",
            "127.0.0.1:4433",
            "--scenario",
            "simple-p2p; down loss=3%",
            "--outside",
            "127.0.0.2,127.0.0.3",
            "--for",
            "90s",
            "--spin",
            "50us",
            "--memory",
            "2",
        ])
        .unwrap();
        let options = arguments.options(arguments.to.unwrap());
        assert_eq!(options.scenario, "simple-p2p; down loss=3%".parse().unwrap());
        assert_eq!((options.outside.len(), options.memory), (2, 2 << 20));
        assert_eq!(arguments.duration, Some(Duration::from_secs(90)));
        assert_eq!(options.spin, Duration::from_micros(50));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(parse(&[]).unwrap_err().contains("--to"));
        assert!(parse(&["--measure", "fast"]).unwrap_err().contains("as `1gbit`"));
        let error = parse(&["--to", "127.0.0.1:1", "--scenario", "lossy"]).unwrap_err();
        assert!(error.contains("use one of ideal, simple-p2p"), "{error}");
        assert!(parse(&["--list"]).unwrap().list);
        assert_eq!(parse(&["--measure", "1gbit"]).unwrap().measure, Some(1_000_000_000));
    }
}
