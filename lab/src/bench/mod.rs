//! The benchmark: implementations side by side, each in processes of its own.
//!
//! A server and a client are started for every single measurement, pinned to a core each. The
//! implementations take turns (A B C A B C ...), so that whatever else happens on the machine
//! happens to all of them.

mod contender;
mod driver;
mod figure;
mod load;
mod machine;
mod markdown;
mod network;
mod plot;
mod quicket;
mod report;
mod row;
mod tcp_plain;
mod tcp_tls;

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
use crate::peers::Workshop;
use contender::Contenders;
use driver::{Driver, Measured};
use network::Network;
use tcp_plain::Plain;
use tcp_tls::Rustls;

/// How often a measurement is made again that was disturbed.
const RETRIES: usize = 5;

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
/// When a check fails: bytes that differ, another cipher suite than asked for, a process that is not
/// pinned. A peer that cannot be built, a network that is not permitted and a measurement that fails
/// are no errors; the report names them.
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
    for &kind in &options.networks {
        let rows: Vec<Row> =
            options.rows.iter().copied().filter(|row| options.runs_over(*row, kind)).collect();
        if rows.is_empty() {
            continue;
        }
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
        // A quick run checks once: the code is the same over any network.
        let checks = !options.quick || report.series.is_empty();
        for contender in contenders.all().filter(|_| checks) {
            let checked = rows.iter().find(|row| contender.takes_part(**row));
            let points = checked.map(|row| row.points(&settings, kind)).unwrap_or_default();
            if let Some(point) = points.last() {
                progress(&format!("{kind}: checking {contender}"));
                driver.check(contender, point)?;
            }
        }
        for row in rows {
            for point in row.points(&settings, kind) {
                measure(&driver, kind, row, &point, &mut report, &mut progress)?;
            }
        }
    }
    Ok(report)
}

/// Measures one point of a row: all implementations in turn, again and again.
fn measure(
    driver: &Driver<'_>,
    network: NetworkKind,
    row: Row,
    point: &Point,
    report: &mut Report,
    progress: &mut impl FnMut(&str),
) -> Result<(), Failure> {
    let mut contenders: Vec<Contender> =
        driver.contenders.all().filter(|one| one.takes_part(row)).collect();
    let place = |contender| Place { network, row, point: point.name.into(), contender };
    for round in 1..=driver.settings.runs {
        let mut unable = Vec::new();
        for &contender in &contenders {
            let what = format!("{network}: {row} {}", point.name);
            progress(&format!("{}, run {round}, {contender}", what.trim_end()));
            let mut tries = 0;
            loop {
                tries += 1;
                let measured = match driver.measure(contender, point, round) {
                    Ok(measured) => measured,
                    Err(failure) => {
                        progress(&failure.to_string());
                        report.failed(&place(contender), &failure.to_string());
                        unable.push(contender);
                        break;
                    }
                };
                match measured {
                    Measured::Good(measurement) => {
                        report.add(place(contender), measurement);
                    }
                    Measured::Disturbed(measurement, _) if driver.settings.quick => {
                        report.add(place(contender), measurement);
                    }
                    Measured::Disturbed(_, others) if tries <= RETRIES => {
                        progress(&format!(
                            "again: {} had {:.0} % of a core",
                            others.who, others.percent
                        ));
                        report.discard(place(contender));
                        continue;
                    }
                    Measured::Disturbed(measurement, _) => {
                        report.add_disturbed(place(contender), measurement);
                    }
                    Measured::Unsupported(reason) => {
                        report.unsupported(&place(contender), &reason);
                        unable.push(contender);
                    }
                }
                break;
            }
        }
        contenders.retain(|one| !unable.contains(one));
    }
    Ok(())
}

/// Carries out `assignment` as one process of the benchmark.
pub(crate) fn process(contender: &str, assignment: &str) -> ExitCode {
    use quicket_workload::bench::run;
    match contender.parse() {
        Ok(Contender::Tcp) => run(assignment, tcp::serve::<Plain>, TcpClient::<Plain>::new),
        Ok(Contender::TcpTls) => run(assignment, tcp::serve::<Rustls>, TcpClient::<Rustls>::new),
        Ok(Contender::Quicket) => {
            run(assignment, quicket::serve_blocking, quicket::BlockingClient::new)
        }
        Ok(Contender::QuicketTokio) => run(assignment, quicket::serve_tokio, quicket::tokio_client),
        Ok(other @ (Contender::TcpOpenssl | Contender::Quinn | Contender::S2nQuic)) => {
            eprintln!("{other} is a program of its own");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
