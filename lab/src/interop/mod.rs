//! Interoperability: every case between every two implementations, in both roles.

mod case;
mod check;
mod report;
mod session;
mod site;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Instant;

pub use case::Case;
pub use report::{Outcome, Report, Run};
pub use session::{Record, Told};

use crate::Certificates;
use crate::peers::{Implementation, Program, Workshop};
use session::Session;
use site::Site;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cases.
    pub cases: Vec<Case>,
    /// Client and server of each pair.
    pub pairs: Vec<(Implementation, Implementation)>,
}

impl Options {
    /// All cases between all implementations, each with itself too.
    #[must_use]
    pub fn everything() -> Self {
        Self::among(&Implementation::ALL)
    }

    /// All cases between the given implementations, each with itself too.
    #[must_use]
    pub fn among(implementations: &[Implementation]) -> Self {
        let pairs = implementations
            .iter()
            .flat_map(|&client| implementations.iter().map(move |&server| (client, server)))
            .collect();
        Self { cases: Case::ALL.to_vec(), pairs }
    }
}

/// Builds the implementations that `options` names and runs each case between each pair.
///
/// `progress` is shown each run as soon as it is over.
///
/// # Errors
///
/// When a peer cannot be built or the machine denies a temporary file; a case that fails is no
/// error but part of the report.
pub fn run(
    options: &Options,
    workshop: &Workshop,
    mut progress: impl FnMut(&Run),
) -> Result<Report, Box<dyn std::error::Error + Send + Sync>> {
    let mut programs = BTreeMap::<Implementation, Program>::new();
    for &(client, server) in &options.pairs {
        for implementation in [client, server] {
            if let Entry::Vacant(entry) = programs.entry(implementation) {
                entry.insert(workshop.prepare(implementation)?);
            }
        }
    }
    let certificates = Certificates::generate()?;
    let site = Site::generate(&options.cases)?;
    let mut report = Report::default();
    for (client, server) in &options.pairs {
        for &case in &options.cases {
            let (Some(client_program), Some(server_program)) =
                (programs.get(client), programs.get(server))
            else {
                continue;
            };
            let session = Session {
                case,
                client: client_program,
                server: server_program,
                certificates: &certificates,
                site: &site,
            };
            let start = Instant::now();
            let (outcome, record) = match session.run() {
                Ok(record) => (check::outcome(case, &record, &site), Some(record)),
                Err(failure) => (Outcome::Failed { reason: failure.to_string() }, None),
            };
            let seconds = start.elapsed().as_secs_f64();
            let run = Run { case, client: *client, server: *server, outcome, seconds, record };
            progress(&run);
            report.runs.push(run);
        }
    }
    Ok(report)
}
