//! What a failed run says, so that it can be understood and repeated.

use std::fmt;

use super::Sim;

/// Packets of the log to show.
const SHOWN_PACKETS: usize = 40;

/// A promise that was broken, with all that is needed to repeat the run.
#[derive(Clone, Debug)]
pub struct Failure {
    what: String,
    report: String,
}

impl Failure {
    pub(super) fn new(sim: &Sim, what: String) -> Self {
        Self { what, report: report(sim).unwrap_or_default() }
    }

    /// What went wrong.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.what, self.report)
    }
}

impl std::error::Error for Failure {}

fn report(sim: &Sim) -> Result<String, fmt::Error> {
    use fmt::Write;

    let mut out = String::new();
    writeln!(out, "SEED={} at {:?}", sim.seed, sim.now())?;
    writeln!(out, "repeat with QUICKET_SIM_SEED={} (QUICKET_SIM_TRACE=1 shows all)", sim.seed)?;
    for scenario in &sim.scenarios {
        writeln!(out, "path {scenario}")?;
    }
    for (index, host) in sim.hosts.iter().enumerate() {
        writeln!(out, "host {index} {}: {:?}", host.address(), host.stats())?;
        for (handle, session) in host.sessions() {
            writeln!(out, "  connection {}: {:?}", handle.0, session.connection)?;
            writeln!(out, "    done {}: {:?}", session.app.is_done(), session.app)?;
            writeln!(out, "    events {:?}", session.events)?;
            writeln!(out, "    timeout {:?}", session.connection.poll_timeout())?;
            writeln!(out, "    {:?}", session.connection.stats())?;
        }
        for ended in host.ended() {
            writeln!(out, "  ended {:?}", ended.error)?;
            writeln!(out, "    done {}: {:?}", ended.done, ended.app)?;
            writeln!(out, "    events {:?}", ended.events)?;
            writeln!(out, "    {:?}", ended.stats)?;
        }
    }
    write!(out, "latest packets:\n{}", sim.network.log().tail(SHOWN_PACKETS))?;
    Ok(out)
}
