//! `quicket tunnel`: devices whose packets go through UDP.

mod control;
mod report;
mod show;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use quicket_tunnel::{Line, Setup, Tunnels, parse_line, remove_device};

use crate::args::{Carrying, Tunnel, TunnelCommand};
use crate::exit::{Failure, Kind};
use crate::out::tell;

/// The longest file of tunnels in bytes.
const MAX_FILE: u64 = 1 << 20;

/// How long a program that was told to stop may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &Tunnel) -> Result<(), Failure> {
    match &arguments.command {
        TunnelCommand::Add(add) => {
            let mut setup = Setup::default();
            read(&mut setup, &format!("add {}", add.words.words.join(" ")), None)?;
            carry(setup, add.carrying)
        }
        TunnelCommand::Run(file) => {
            let place = file.file.display();
            let failed = |error| Failure::environment(format!("cannot read {place}"), error);
            if fs::metadata(&file.file).map_err(failed)?.len() > MAX_FILE {
                return Err(usage(format!("{place} is longer than {MAX_FILE} bytes")));
            }
            let text = fs::read_to_string(&file.file).map_err(failed)?;
            let mut setup = Setup::default();
            for (number, line) in text.lines().enumerate() {
                read(&mut setup, line, Some(number + 1))?;
            }
            if setup.tunnels.is_empty() {
                return Err(usage(format!("{place} has no tunnel: no line begins with \"add\"")));
            }
            carry(setup, file.carrying)
        }
        TunnelCommand::Change(change) => show::change(&change.words),
        TunnelCommand::Show(arguments) => show::show(arguments),
        TunnelCommand::Port { action } => show::port(action),
        TunnelCommand::Del { name } => remove(name),
    }
}

/// Stops the program that carries a tunnel, if there is one, and removes the device.
fn remove(name: &str) -> Result<(), Failure> {
    let carriers = control::Carrier::all()?;
    let carried = carriers.iter().any(|carrier| carrier.has(name));
    if carried {
        control::Carrier::of(name)?.command(&format!("stop {name}"))?;
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        match remove_device(name) {
            // The program has yet to let go of it.
            Err(_) if carried && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            removed => {
                return removed.map_err(|error| {
                    Failure::environment(format!("cannot remove the device {name}"), error)
                });
            }
        }
    }
}

fn usage(message: String) -> Failure {
    Failure::new(Kind::Usage, message)
}

/// Adds what a line says.
fn read(setup: &mut Setup, line: &str, number: Option<usize>) -> Result<(), Failure> {
    match parse_line(line) {
        Ok(Some(Line::Tunnel(tunnel))) => setup.tunnels.push(*tunnel),
        Ok(Some(Line::Port(port))) => setup.ports.push(port),
        Ok(None) => {}
        Err(error) => {
            let place = number.map(|number| format!("line {number}: ")).unwrap_or_default();
            return Err(usage(format!("{place}{error}")));
        }
    }
    Ok(())
}

fn carry(setup: Setup, carrying: Carrying) -> Result<(), Failure> {
    let Carrying { workers, counters } = carrying;
    for carrier in control::Carrier::all()? {
        // The system lets a second program take queues of a device that has several.
        if let Some(taken) = setup.tunnels.iter().find(|tunnel| carrier.has(&tunnel.name)) {
            return Err(Failure::new(
                Kind::Environment,
                format!(
                    "process {} carries {} already: stop it, or use quicket tunnel change",
                    carrier.report["pid"], taken.name
                ),
            ));
        }
    }
    let tunnels =
        Tunnels::start(setup, usize::from(workers)).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput if error.raw_os_error().is_none() => {
                usage(error.to_string())
            }
            _ => Failure::environment("cannot start", error),
        })?;
    let tunnels = Arc::new(tunnels);
    control::serve(tunnels.clone()).map_err(|error| {
        Failure::environment("no socket to be asked by (quicket tunnel show)", error)
    })?;
    for (index, tunnel) in tunnels.setup().tunnels.iter().enumerate() {
        let mtu = tunnels.mtu(index).unwrap_or(0);
        let remote = match &tunnel.external {
            Some(_) => "many".to_owned(),
            None => tunnel.remote.to_string(),
        };
        tell!("quicket: {} is ready: remote {remote}, mtu {mtu}", tunnel.name);
    }
    crate::notify::ready("carries tunnels");
    let mut out = io::stdout();
    let mut printed = Instant::now();
    loop {
        if let Some(seconds) = counters
            && printed <= Instant::now()
        {
            // Whoever read the counters has gone; the packets go on.
            let _ = writeln!(out, "{}", report::json(&tunnels)).and_then(|()| out.flush());
            printed += Duration::from_secs(u64::from(seconds));
        }
        let left = counters.map(|_| printed.saturating_duration_since(Instant::now()));
        if let Some(error) = tunnels.failed(left) {
            if error.kind() == io::ErrorKind::Interrupted {
                return Ok(());
            }
            return Err(Failure::environment("a tunnel ended", error));
        }
    }
}
