//! `quicket balance`: an address in front of many servers.

mod report;
mod rule;
mod status;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::signal::unix::{SignalKind, signal};

use self::rule::{Files, Rule};
use crate::args::{Balance, BalanceCommand};
use crate::control;
use crate::exit::{Failure, Kind};
use crate::out::tell;

/// What names of sockets begin with.
const PREFIX: &str = "quicket-balance/";
/// How often silence is looked for.
const TICK: Duration = Duration::from_millis(250);

pub(crate) fn run(args: &Balance) -> Result<(), Failure> {
    if let Some(BalanceCommand::Status(arguments)) = &args.command {
        return status::show(arguments);
    }
    let path = args.config.as_ref();
    let path = path.ok_or_else(|| Failure::new(Kind::Usage, "--config FILE is missing"))?;
    let files = Files::read(path)?;
    if args.show_config {
        return crate::print(files.shown().trim_end());
    }
    if args.check {
        return crate::print(&files.summary());
    }
    let runtime = crate::one_thread()?;
    let balanced = runtime.block_on(balance(files, args.counters));
    // Nobody waits for a thread that answers questions.
    runtime.shutdown_background();
    balanced
}

/// Balances until it is told to stop.
async fn balance(files: Files, counters: Option<u32>) -> Result<(), Failure> {
    let watch = |kind| {
        signal(kind).map_err(|error| Failure::environment("cannot watch for signals", error))
    };
    let mut hangup = watch(SignalKind::hangup())?;
    let mut terminate = watch(SignalKind::terminate())?;
    let mut interrupt = watch(SignalKind::interrupt())?;
    let reports = match files.config.reports {
        Some(reports) => Some(UdpSocket::bind(reports.address).await.map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::AddrNotAvailable => {
                    "; reports names an address of this host: ip addr shows them".to_owned()
                }
                io::ErrorKind::AddrInUse => {
                    format!("; ss -lunp 'sport = :{}' says who has it", reports.address.port())
                }
                _ => String::new(),
            };
            let what = format!("cannot take reports at {}", reports.address);
            Failure::environment(what, format!("{error}{advice}"))
        })?),
        None => None,
    };
    let summary = files.summary();
    let rule = Arc::new(Rule::begin(files)?);
    let told = Arc::clone(&rule);
    control::report(PREFIX, "balance-control", move || report::json(&told))
        .map_err(|error| Failure::environment("no socket to be asked by", error))?;
    tell!("quicket: balancer is ready: {summary}");
    crate::notify::ready("balances");
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let every = Duration::from_secs(counters.unwrap_or(1).into());
    let mut print = tokio::time::interval(every);
    let mut datagram = [0; quicket_balancer::REPORT_LEN + 1];
    loop {
        tokio::select! {
            _ = hangup.recv() => rule.read_again(),
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            len = receive(reports.as_ref(), &mut datagram) => rule.hear(&datagram[..len]),
            _ = print.tick(), if counters.is_some() => {
                // Whoever read the counters has gone; datagrams go on.
                let mut out = io::stdout();
                let _ = writeln!(out, "{}", report::json(&rule)).and_then(|()| out.flush());
            }
            _ = tick.tick() => {
                rule.look();
                if let Some(error) = rule.balancer.failed() {
                    return Err(Failure::environment("a worker ended", error));
                }
            }
        }
    }
}

/// The length of the next datagram that may be a report.
async fn receive(socket: Option<&UdpSocket>, datagram: &mut [u8]) -> usize {
    let Some(socket) = socket else { return std::future::pending().await };
    loop {
        match socket.recv(datagram).await {
            Ok(len) => return len,
            // An error of something that was sent, which nothing was.
            Err(_) => tokio::time::sleep(TICK).await,
        }
    }
}
