//! The process at an end of a tunnel of ours: the tunnel, or what carries without a look.

use std::io::Read;
use std::process::ExitCode;

use quicket_tunnel::{Line, Relay, Setup, Tunnels, parse_line, remove_device};
use quicket_workload::bench::{Failure, pin};

use super::{Assignment, Kind, PORT};

/// Carries packets until standard input ends.
pub(in crate::bench) fn process(assignment: &str) -> ExitCode {
    match carry(assignment) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            crate::command::tell(failure);
            ExitCode::FAILURE
        }
    }
}

fn carry(assignment: &str) -> Result<(), Failure> {
    let Assignment { core, device, kind } = serde_json::from_str(assignment)?;
    // Several workers are for several cores.
    if !matches!(kind, Kind::Tunnel { workers: 2.., .. }) {
        pin(core)?;
    }
    match kind {
        Kind::Tunnel { line, workers } => {
            let Some(Line::Tunnel(tunnel)) = parse_line(&line)? else {
                return Err("the line is no tunnel's".into());
            };
            let setup = Setup { tunnels: vec![*tunnel], ports: Vec::new() };
            let tunnels = Tunnels::start(setup, workers)?;
            wait()?;
            drop(tunnels);
        }
        Kind::Relay { local, remote, mtu } => {
            let relay = Relay::open(&device, mtu, (local, PORT).into(), (remote, PORT).into())?;
            let (ear, bell) = std::io::pipe()?;
            let thread = std::thread::spawn(move || relay.run(ear));
            wait()?;
            drop(bell);
            thread.join().map_err(|_| "the relay panicked")??;
        }
    }
    Ok(remove_device(&device)?)
}

/// Says that packets are carried, and waits for the end.
fn wait() -> Result<(), Failure> {
    crate::command::print("\"ready\"\n")?;
    while matches!(std::io::stdin().read(&mut [0; 64]), Ok(1..)) {}
    Ok(())
}
