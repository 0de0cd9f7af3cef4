//! The benchmark: implementations side by side, each in processes of its own.
//!
//! A server and a client are started for every single measurement, pinned to a core each. The
//! implementations take turns (A B C A B C ...), so that whatever else happens on the machine
//! happens to all of them.

mod balance;
mod contender;
mod cores;
mod driver;
mod fetches;
mod figure;
mod gateway;
mod http;
mod load;
mod machine;
mod markdown;
mod network;
mod notes;
mod plan;
mod plot;
mod quicket;
mod report;
mod round;
mod row;
mod switch;
mod tcp_plain;
mod tcp_tls;
mod tunnel;

use std::path::PathBuf;
use std::process::ExitCode;

use quicket_workload::bench::tcp::{self, TcpClient};
use quicket_workload::bench::{Cipher, Direction, Failure};

pub use contender::Contender;
pub use figure::{Better, Figure};
pub use machine::Machine;
pub use network::NetworkKind;
pub use quicket_workload::bench::MAX_IDLE_CONNECTIONS;
pub use report::{Line, Place, Report, Series, Settings, Spread};
pub use row::{Point, Rival, Row};

use crate::Certificates;
use crate::netns::NetnsError;
use crate::peers::Workshop;
use contender::Contenders;
use driver::Driver;
use network::Network;
use plan::{Progress, Step};
use tcp_plain::Plain;
use tcp_tls::Rustls;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The implementations, in the order in which they take turns.
    pub contenders: Vec<Contender>,
    /// The networks to run over, each row over those that it is meant for.
    pub networks: Vec<NetworkKind>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Measurements of each row, of which the median counts.
    pub runs: usize,
    /// Whether everything is small: it shows that all of it runs, and no more.
    pub quick: bool,
    /// Connections of the idle row; a default if it is not given.
    pub idle_connections: Option<usize>,
    /// Whether measurements count although others had the processor, instead of being made again.
    pub keep_disturbed: bool,
    /// The cipher suite.
    pub cipher: Cipher,
    /// UDP payloads of this size in bytes.
    pub udp_payload: u16,
    /// This program, which is started again for the processes: it must begin with
    /// [`hidden_process`](crate::hidden_process).
    pub executable: PathBuf,
}

impl Options {
    /// Everything, in full size, with `executable` as the program that is started again.
    #[must_use]
    pub fn everything(executable: PathBuf) -> Self {
        Self {
            contenders: Contender::ALL.to_vec(),
            networks: NetworkKind::ALL.to_vec(),
            rows: Row::ALL.to_vec(),
            runs: 3,
            quick: false,
            idle_connections: None,
            keep_disturbed: false,
            cipher: Cipher::Aes128Gcm,
            udp_payload: 1472,
            executable,
        }
    }

    /// Whether a row is measured over a network; a quick run takes one for each row, unless it is
    /// asked for certain ones.
    fn runs_over(&self, row: Row, network: NetworkKind) -> bool {
        if self.quick && self.networks.len() == NetworkKind::ALL.len() {
            row.quick_network() == network
        } else {
            row.networks().contains(&network)
        }
    }
}

/// Runs the benchmark. `progress` is told, in plain words, what comes next.
///
/// # Errors
///
/// When there are no sources of peers or no certificates. A peer that cannot be built, a network
/// that is not permitted, a measurement that fails and a check that does (bytes that differ,
/// another cipher suite than asked for, a process that is not pinned) are no errors; the report
/// names them.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<Report, Failure> {
    let workshop = Workshop::new()?;
    let mut skipped = Vec::new();
    let contenders = Contenders::prepare(options, &workshop, |sentence| {
        progress(&sentence);
        skipped.push(sentence);
    });
    let certificates = Certificates::generate()?;
    let settings = Settings::of(options);
    let mut report = Report::new(settings, contenders.descriptions());
    report.skipped = skipped;
    let steps = plan::steps(options, &settings, contenders.all());
    let mut progress = Progress::new(&steps, &settings, progress);
    progress.announce();
    for &kind in &options.networks {
        let steps: Vec<&Step> = steps.iter().filter(|step| step.network == kind).collect();
        if steps.is_empty() {
            continue;
        }
        let lanes = (0..kind.lanes()).map(|_| Network::new(kind)).collect();
        let lanes: Vec<Network> = match lanes {
            Ok(lanes) => lanes,
            Err(error) => {
                let error: NetnsError = error;
                let sentence = format!("The {kind} rows were skipped: {error}.");
                progress.say(&sentence);
                report.skipped.push(sentence);
                continue;
            }
        };
        let driver = |network| Driver {
            contenders: &contenders,
            certificates: &certificates,
            network,
            settings: &settings,
        };
        let drivers: Vec<Driver<'_>> = lanes.iter().map(driver).collect();
        let failed = check(&drivers, &steps, &mut report, &mut progress);
        for step in steps {
            let contenders = step.contenders.iter().copied().filter(|one| !failed.contains(one));
            let step = Step { contenders: contenders.collect(), ..*step };
            round::measure(&drivers, &step, &mut report, &mut progress);
        }
    }
    Ok(report)
}

/// Checks all who take part in `steps`, which are over the same network; returns those that
/// are not what they claim to be. A quick run checks once: the code is the same over any network.
fn check(
    drivers: &[Driver<'_>],
    steps: &[&Step],
    report: &mut Report,
    progress: &mut Progress<impl FnMut(&str)>,
) -> Vec<Contender> {
    let mut failed = Vec::new();
    let Some(driver) =
        drivers.first().filter(|_| !report.settings.quick || report.series.is_empty())
    else {
        return failed;
    };
    for contender in report.contenders.keys().copied().collect::<Vec<_>>() {
        let Some(step) = steps.iter().find(|step| step.contenders.contains(&contender)) else {
            continue;
        };
        let network = step.network;
        progress.say(&format!("{network}: checking {contender}"));
        if let Err(failure) = driver.check(contender, &step.point) {
            let sentence = format!("{contender} was left out over {network}: {failure}");
            progress.say(&sentence);
            report.failures.push(sentence);
            failed.push(contender);
        }
    }
    failed
}

/// Carries out `assignment` as one process of the benchmark.
pub(crate) fn process(contender: &str, assignment: &str) -> ExitCode {
    use quicket_workload::bench::run;
    match contender {
        balance::MIDDLE => return balance::middle::process(assignment),
        balance::GENERATOR => return balance::generator::process(assignment),
        tunnel::END => return tunnel::end::process(assignment),
        gateway::ORIGIN => return gateway::origin::process(assignment),
        switch::END => return switch::process(assignment),
        fetches::END => return fetches::process(assignment),
        gateway::LOAD => return gateway::load::process(assignment),
        _ => {}
    }
    let blocking = |sharing| {
        run(
            assignment,
            |assignment, ready| quicket::serve_blocking(sharing, assignment, ready),
            |assignment| quicket::BlockingClient::new(sharing, assignment),
        )
    };
    match contender.parse() {
        Ok(Contender::Tcp) => run(assignment, tcp::serve::<Plain>, TcpClient::<Plain>::new),
        Ok(Contender::TcpTls) => run(assignment, tcp::serve::<Rustls>, TcpClient::<Rustls>::new),
        Ok(Contender::Quicket) => blocking(quicket::Sharing::Nothing),
        Ok(Contender::QuicketWorkers) => blocking(quicket::Sharing::Workers),
        Ok(Contender::QuicketHandedOn) => blocking(quicket::Sharing::HandedOn),
        Ok(Contender::QuicketHandedOnPlain) => blocking(quicket::Sharing::HandedOnPlain),
        Ok(Contender::QuicketSwitch) => blocking(quicket::Sharing::Switch),
        Ok(Contender::QuicketForwarded) => blocking(quicket::Sharing::Forwarded),
        Ok(Contender::QuicketPort) => blocking(quicket::Sharing::Port),
        Ok(Contender::QuicketTokio) => run(assignment, quicket::serve_tokio, quicket::tokio_client),
        Ok(other) => {
            crate::command::tell(format_args!("{other} is a program of its own"));
            ExitCode::FAILURE
        }
        Err(error) => {
            crate::command::tell(error);
            ExitCode::FAILURE
        }
    }
}
