//! The benchmark: implementations side by side, each in processes of its own.
//!
//! A server and a client are started for every single measurement, pinned to a core each. The
//! implementations take turns (A B C A B C ...), so that whatever else happens on the machine
//! happens to all of them.

mod contender;
mod driver;
mod machine;
mod markdown;
mod metric;
mod network;
mod plot;
mod quicket;
mod report;
mod tcp_tls;

use std::path::PathBuf;
use std::process::ExitCode;

use quicket_workload::bench::{Cipher, Direction, Failure};

pub use contender::Contender;
pub use machine::Machine;
pub use metric::{Better, METRICS, Metric, Row};
pub use network::NetworkKind;
pub use quicket_workload::bench::MAX_IDLE_CONNECTIONS;
pub use report::{Report, Series, Settings, Spread};

use crate::Certificates;
use crate::peers::Workshop;
use contender::Contenders;
use driver::Driver;
use network::Network;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The implementations, in the order in which they take turns.
    pub contenders: Vec<Contender>,
    /// The networks to run over.
    pub networks: Vec<NetworkKind>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Measurements of each row, of which the median counts.
    pub runs: usize,
    /// Whether everything is small: it shows that all of it runs, and no more.
    pub quick: bool,
    /// Connections of the idle row; a default if it is not given.
    pub idle_connections: Option<usize>,
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
            runs: 5,
            quick: false,
            idle_connections: None,
            cipher: Cipher::Aes128Gcm,
            udp_payload: 1472,
            executable,
        }
    }
}

/// Runs the benchmark. `progress` is told, in plain words, what comes next.
///
/// # Errors
///
/// When a peer cannot be built, or a check fails: bytes that differ, another cipher suite than
/// asked for, a process that is not pinned. A network that is not permitted is no error; the
/// report names it.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<Report, Failure> {
    let workshop = Workshop::new()?;
    let contenders = Contenders::prepare(options, &workshop)?;
    let certificates = Certificates::generate()?;
    let settings = Settings::of(options);
    let mut report = Report::new(settings, contenders.descriptions());
    for &kind in &options.networks {
        let network = match Network::new(kind) {
            Ok(network) => network,
            Err(error) => {
                let sentence = format!("The {kind} rows were skipped: {error}.");
                progress(&sentence);
                report.skipped.push(sentence);
                continue;
            }
        };
        let driver = Driver {
            contenders: &contenders,
            certificates: &certificates,
            network: &network,
            settings: &settings,
        };
        for &contender in &options.contenders {
            progress(&format!("{kind}: checking {contender}"));
            driver.check(contender)?;
        }
        for &row in &options.rows {
            for round in 1..=options.runs {
                for &contender in &options.contenders {
                    progress(&format!("{kind}: {row}, run {round}, {contender}"));
                    let measurement = driver.measure(contender, row.scenario(&settings))?;
                    report.add(kind, row, contender, measurement);
                }
            }
        }
    }
    Ok(report)
}

/// Carries out `assignment` as one process of the benchmark.
pub(crate) fn process(contender: &str, assignment: &str) -> ExitCode {
    match contender.parse() {
        Ok(Contender::TcpTls) => {
            quicket_workload::bench::run(assignment, tcp_tls::serve, tcp_tls::TcpTlsClient::new)
        }
        Ok(Contender::Quicket) => quicket_workload::bench::run(
            assignment,
            quicket::serve_blocking,
            quicket::BlockingClient::new,
        ),
        Ok(Contender::QuicketTokio) => quicket_workload::bench::run(
            assignment,
            quicket::serve_tokio,
            quicket::TokioClient::new,
        ),
        Ok(other @ Contender::Quinn) => {
            eprintln!("{other} is a program of its own");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
