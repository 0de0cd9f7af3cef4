//! A server of HTTP/1.1 and a generator of load, the same over TCP of the system and over that of a stack in user space.
//! Each fetch has a connection of its own; `/8192` is a body of so many octets.
//!
//! ```text
//! quicket switch packets --name ./ports &
//! cargo run --release -p quicket-tcp --example http -- serve ./ports 127.0.0.1:8000 &
//! cargo run --release -p quicket-tcp --example http -- load ./ports 127.0.0.1:8000 8192
//! ```
//!
//! `switch` is such a switch, without the program `quicket`. With `system` instead of the path of a switch it is TCP of the system. `load` says in one line of JSON how many fetches
//! there were, how long that took, and how many octets came.

mod load;
mod serve;
mod transport;

use std::error::Error;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use quicket_packets::control::Control;
use quicket_packets::daemon::Daemon;
use quicket_packets::device::Mode;
use quicket_tcp::{Options, Stack, TcpListener};

const USAGE: &str = "usage: http switch SWITCH [DEVICE]
       http serve system|SWITCH ADDRESS [--threads N] [--mtu N]
       http load system|SWITCH ADDRESS SIZE [--threads N] [--seconds N] [--mtu N]";

/// The value of an option, which is taken out of the words.
fn option(words: &mut Vec<String>, name: &str) -> Result<Option<u64>, Box<dyn Error>> {
    let Some(at) = words.iter().position(|word| word == name) else { return Ok(None) };
    let value = words.get(at + 1).ok_or_else(|| format!("{name} has a number\n{USAGE}"))?;
    let value = value.parse().map_err(|_| format!("{value} is no number\n{USAGE}"))?;
    words.drain(at..at + 2);
    Ok(Some(value))
}

fn to_json(fetched: &load::Fetched) -> String {
    let load::Fetched { times, time, octets } = fetched;
    let at = |part: f64| {
        let last = times.len().saturating_sub(1);
        times.get((last as f64 * part) as usize).copied().unwrap_or_default().as_micros()
    };
    format!(
        "{{\"fetches\": {}, \"seconds\": {:.3}, \"octets\": {octets}, \"median_us\": {}, \"p99_us\": {}}}",
        times.len(),
        time.as_secs_f64(),
        at(0.5),
        at(0.99)
    )
}

/// Runs a switch for packets, with a device if one is given, until this process is ended.
fn switch(path: &str, device: Option<&str>) -> Result<(), Box<dyn Error>> {
    let daemon = Daemon::bind(Path::new(path), false)?;
    // Nobody closes the other end.
    let (_stop, stopped) = UnixStream::pair()?;
    let running = std::thread::spawn(move || daemon.run(stopped.as_fd()));
    if let Some(device) = device {
        Control::connect(Path::new(path))?.attach(device, Mode::Best)?;
    }
    println!("{path}");
    running.join().map_err(|_| "the switch has panicked")??;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let threads = usize::try_from(option(&mut words, "--threads")?.unwrap_or(4))?.clamp(1, 256);
    let time = Duration::from_secs(option(&mut words, "--seconds")?.unwrap_or(5));
    let mut options = Options::default();
    if let Some(mtu) = option(&mut words, "--mtu")? {
        options.mtu = usize::try_from(mtu)?;
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["switch", path] => switch(path, None)?,
        ["switch", path, device] => switch(path, Some(device))?,
        ["serve", "system", address] => {
            let listener = std::net::TcpListener::bind(address)?;
            println!("{}", listener.local_addr()?);
            serve::serve(&listener, threads);
        }
        ["serve", switch, address] => {
            let stack = Stack::with_options(switch, options)?;
            let listener = TcpListener::with_backlog(&stack, address.parse()?, 1024)?;
            println!("{}", listener.local_addr()?);
            serve::serve(&listener, threads);
        }
        ["load", transport, address, size] => {
            let (address, size): (SocketAddr, usize) = (address.parse()?, size.parse()?);
            let load = load::Load { address, size, threads, time };
            let fetched = match transport {
                "system" => load.run(&transport::System)?,
                switch => load.run(&Stack::with_options(switch, options)?)?,
            };
            println!("{}", to_json(&fetched));
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
