//! TCP through a tunnel between two namespaces, or over the bare pair.
//!
//! Each end of the tunnel is a process on the core of the TCP end beside it.

pub(super) mod end;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use quicket_workload::bench::{Carried, Failure, Measurement, Outcome, Scenario};
use serde::{Deserialize, Serialize};

use super::Contender;
use super::driver::{CORES, Driver, START, Said};
use super::row::Point;
use crate::hidden::HIDDEN_BENCH;
use crate::netns::{End, Namespaces};
use crate::process::Process;

/// What an end is called among the hidden processes.
pub(super) const END: &str = "tunnel-end";
/// The device, whoever has made it.
const DEVICE: &str = "tun1";
/// What GUE leaves of 1,500 bytes, for the relay; WireGuard needs more.
const MTU: &str = "1468";
const WIREGUARD_MTU: &str = "1420";
/// Ports of the relay and of WireGuard.
const PORT: u16 = 7001;
/// Keys of X25519, secret and public: the first is an example of RFC 7748, Section 6.1; nothing is
/// secret here.
const KEYS: [[&str; 2]; 2] = [
    [
        "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
    ],
    [
        "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
        "07a37cbc142093c8b755dc1b10e86cb426374ad16aa853ed0bdfc0b2b86d1c7c",
    ],
];

/// What an end of ours is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Assignment {
    core: usize,
    device: String,
    kind: Kind,
}

/// What an end is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// Quicket's tunnel, by a line of its grammar.
    Tunnel { line: String, workers: usize },
    /// What carries without a look.
    Relay { local: Ipv4Addr, remote: Ipv4Addr, mtu: u16 },
}

/// Makes one measurement.
pub(super) fn measure(
    driver: &Driver<'_>,
    contender: Contender,
    point: &Point,
) -> Result<Said, Failure> {
    let Scenario::Tunnel { streams, carried, milliseconds } = point.scenario else {
        return Err("no load of tunnels".into());
    };
    let namespaces = driver.network.namespaces().ok_or("a tunnel needs namespaces")?;
    let mut conditions = point.conditions;
    let scenario = match streams {
        None => Scenario::Flow { milliseconds },
        Some(streams) => {
            conditions.busy = streams as usize;
            Scenario::Connections { connections: streams as usize, bytes: 1, milliseconds }
        }
    };
    if contender == Contender::Tcp {
        let pair = driver.start_at(
            Namespaces::address(End::Left),
            Contender::Tcp,
            scenario,
            conditions,
            conditions.cipher,
        )?;
        return Ok(told(pair.finish()?, 0));
    }
    let tunnel = Tunnel::lay(driver, namespaces, contender, carried)?;
    let before = tunnel.cpu_time()?;
    let pair = driver.start_at(
        inner(End::Left, carried),
        Contender::Tcp,
        scenario,
        conditions,
        conditions.cipher,
    )?;
    let said = pair.finish()?;
    let cpu = tunnel.cpu_time()?.saturating_sub(before);
    Ok(told(said, u64::try_from(cpu.as_nanos())?))
}

/// What TCP says, with what the tunnel took for it.
fn told(said: Said, tunnel_cpu_ns: u64) -> Said {
    match said {
        Said::Measured(Measurement { result, client_cpu_ns, server_cpu_ns, link }) => {
            let result = Outcome::Tunnelled { load: Box::new(result), tunnel_cpu_ns };
            Said::Measured(Measurement { result, client_cpu_ns, server_cpu_ns, link })
        }
        other => other,
    }
}

/// The address of an end inside the tunnel.
fn inner(end: End, carried: Carried) -> IpAddr {
    let last = if end == End::Left { 1 } else { 2 };
    match carried {
        Carried::Sit => Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, last).into(),
        Carried::Ipip | Carried::Gre => Ipv4Addr::new(10, 9, 0, last as u8).into(),
    }
}

fn other(end: End) -> End {
    if end == End::Left { End::Right } else { End::Left }
}

fn outer(end: End) -> Result<Ipv4Addr, Failure> {
    match Namespaces::address(end) {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => Err("the namespaces have IPv4".into()),
    }
}

/// A tunnel that is there. It is removed on drop.
struct Tunnel<'a> {
    namespaces: &'a Namespaces,
    ends: Vec<Process>,
}

impl<'a> Tunnel<'a> {
    fn lay(
        driver: &Driver<'_>,
        namespaces: &'a Namespaces,
        contender: Contender,
        carried: Carried,
    ) -> Result<Self, Failure> {
        let mut tunnel = Self { namespaces, ends: Vec::new() };
        for (end, core) in [(End::Left, CORES[0]), (End::Right, CORES[1])] {
            let command = command(driver, contender, carried, end, core)?;
            let name = format!("an end of {contender}");
            let mut process = Process::start(name, &mut namespaces.inside(end, &command))?;
            match process.next::<String>(Instant::now() + START)? {
                Some(word) if word == "ready" => tunnel.ends.push(process),
                other => return Err(process.error(format!("says {other:?}")).into()),
            }
            let address = inner(end, carried);
            let (address, nodad) = match address {
                IpAddr::V4(_) => (format!("{address}/30"), &[][..]),
                IpAddr::V6(_) => (format!("{address}/64"), &["nodad"][..]),
            };
            let words = ["addr", "add", &address, "dev", DEVICE];
            namespaces.ip(end, &[&words[..], nodad].concat())?;
            let set =
                |words: &[&str]| namespaces.ip(end, &[&["link", "set", DEVICE], words].concat());
            match contender {
                Contender::NoOffloads => set(&["gso_max_segs", "1"])?,
                // What fits in one datagram of IP with its header.
                Contender::Relay => set(&["mtu", MTU, "gso_max_size", "61440"])?,
                Contender::WireguardGo => set(&["mtu", WIREGUARD_MTU])?,
                // Ours have what the path leaves.
                _ => {}
            }
            set(&["up"])?;
        }
        Ok(tunnel)
    }

    /// CPU time of both ends.
    fn cpu_time(&self) -> Result<Duration, Failure> {
        let mut all = Duration::ZERO;
        for end in &self.ends {
            let process = Pid::from_raw(end.id().try_into()?);
            all += Duration::from(clock_getcpuclockid(process)?.now()?);
        }
        Ok(all)
    }
}

impl Drop for Tunnel<'_> {
    fn drop(&mut self) {
        self.ends.clear();
        for end in [End::Left, End::Right] {
            // A device that goes with its process is gone by now.
            let _ = self.namespaces.ip(end, &["link", "del", DEVICE]);
        }
    }
}

/// The command of an end.
fn command(
    driver: &Driver<'_>,
    contender: Contender,
    carried: Carried,
    end: End,
    core: usize,
) -> Result<Command, Failure> {
    let (local, remote) = (outer(end)?, outer(other(end))?);
    if contender == Contender::WireguardGo {
        let [own, peer] = if end == End::Left { KEYS } else { [KEYS[1], KEYS[0]] };
        let configuration = format!(
            "private_key={},listen_port={PORT},public_key={},endpoint={remote}:{PORT},\
             allowed_ip={}/32",
            own[0],
            peer[1],
            inner(other(end), Carried::Ipip),
        );
        let program = driver.contenders.program(contender)?;
        // It pins itself to nothing.
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]).arg(&program.executable);
        command.args([DEVICE, WIREGUARD_MTU, &configuration]);
        return Ok(command);
    }
    let kind = match contender {
        Contender::Relay => Kind::Relay { local, remote, mtu: MTU.parse()? },
        _ => Kind::Tunnel {
            line: line(contender, carried, local, remote),
            workers: if contender == Contender::TwoWorkers { 2 } else { 1 },
        },
    };
    let assignment = Assignment { core, device: DEVICE.to_owned(), kind };
    let mut command = Command::new(driver.contenders.this_program());
    command.args([HIDDEN_BENCH, END, &serde_json::to_string(&assignment)?]);
    Ok(command)
}

/// A tunnel of ours in the words of its grammar.
fn line(contender: Contender, carried: Carried, local: Ipv4Addr, remote: Ipv4Addr) -> String {
    let kind = match carried {
        Carried::Ipip => "ipip",
        Carried::Gre => "gre",
        Carried::Sit => "sit mode ip6ip",
    };
    let encap = match contender {
        Contender::WithoutUdp => "none",
        Contender::Direct => "fou encap-dport 4754",
        _ => "gue",
    };
    format!("add {DEVICE} type {kind} remote {remote} local {local} encap {encap}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_tunnel_is_one_of_the_grammar() {
        let ends = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        for carried in [Carried::Ipip, Carried::Gre, Carried::Sit] {
            for contender in [Contender::WithoutUdp, Contender::Direct, Contender::Quicket] {
                let line = line(contender, carried, ends.0, ends.1);
                assert!(matches!(quicket_tunnel::parse_line(&line), Ok(Some(_))), "{line}");
            }
        }
        let line = line(Contender::Quicket, Carried::Ipip, ends.0, ends.1);
        let kind = Kind::Tunnel { line, workers: 1 };
        let assignment = Assignment { core: 0, device: DEVICE.to_owned(), kind };
        let text = serde_json::to_string(&assignment).unwrap();
        let back: Assignment = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{back:?}"), format!("{assignment:?}"));
    }
}
