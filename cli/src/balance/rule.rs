//! Files and reports become snapshots that workers go by.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quicket_balancer::{
    Balancer, Config, ConfigError, Health, Numbers, Report, ReportError, Site, Snapshot, Standing,
};

use crate::exit::Failure;
use crate::out::tell;
use crate::serve::say;
use crate::site;

/// What the files say.
#[derive(Clone, Debug)]
pub(super) struct Files {
    path: PathBuf,
    pub(super) config: Config,
    pub(super) site: Option<Site>,
}

impl Files {
    /// Reads and checks the file and that of connection IDs.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |error: ConfigError| site::wrong(path, error);
        let config = Config::parse(&site::read_text(path)?).map_err(wrong)?;
        let file = config.connection_ids.as_deref();
        let site = file.map(site::read).transpose()?;
        config.check_with(site.as_ref()).map_err(wrong)?;
        Ok(Self { path: path.to_owned(), config, site })
    }

    /// What the files say, without secrets.
    pub(super) fn shown(&self) -> String {
        let mut text = self.config.shown();
        if let Some(site) = &self.site {
            for one in site.configurations() {
                let issued = if one.id == site.issue() { ", which servers write" } else { "" };
                let _ = writeln!(text, "# {}{issued}", one.line());
            }
        }
        text
    }

    /// In a line.
    pub(super) fn summary(&self) -> String {
        let listen: Vec<String> = self.config.listen.iter().map(ToString::to_string).collect();
        let mut line =
            format!("{} servers behind {}", self.config.servers.len(), listen.join(", "));
        if let Some(site) = &self.site {
            let first = site.configurations().iter().map(|one| one.format.server_id_len()).min();
            let share = 2_f64.powi(8 * first.unwrap_or(1) as i32) * 8.0
                / (self.config.servers.len() * site.configurations().len()) as f64;
            let _ = write!(
                line,
                "; {} configurations of connection IDs; about one in {share:.0} connection IDs \
                 that clients make up names a server by chance",
                site.configurations().len()
            );
        }
        line
    }
}

/// A balancer with what rules it.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) balancer: Balancer,
    state: Mutex<State>,
}

/// What is known now.
#[derive(Debug)]
pub(super) struct State {
    pub(super) files: Files,
    health: Health,
    numbers: Numbers,
    start: Instant,
    /// Standing and weight of each server in the snapshot.
    known: Vec<(Standing, u32)>,
    pub(super) reports: Reports,
    /// How often the files were taken up, at the start included.
    pub(super) taken_up: u64,
    /// Why the files could not be taken up when they were read last.
    pub(super) refused: Option<String>,
}

/// Reports, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reports {
    pub(super) accepted: u64,
    pub(super) malformed: u64,
    pub(super) forged: u64,
    pub(super) stale: u64,
    pub(super) unknown: u64,
}

impl State {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn standings(&self) -> Vec<(Standing, u32)> {
        let config = &self.files.config;
        let timeout = config.reports.map_or(u32::MAX, |reports| reports.timeout);
        let now = self.now();
        config.servers.iter().map(|server| self.health.of(server, timeout, now)).collect()
    }

    fn snapshot(&mut self) -> Snapshot {
        let reader = self.files.site.as_ref().and_then(|site| site.reader(&site::aes));
        let now = self.now();
        let snapshot =
            Snapshot::new(&self.files.config, reader, &self.health, &mut self.numbers, now);
        let members = snapshot.members().iter();
        self.known = members.map(|member| (member.standing, member.weight)).collect();
        snapshot
    }
}

impl Rule {
    /// Starts a balancer.
    pub(super) fn begin(files: Files) -> Result<Self, Failure> {
        let mut state = State {
            files,
            health: Health::new(0),
            numbers: Numbers::default(),
            start: Instant::now(),
            known: Vec::new(),
            reports: Reports::default(),
            taken_up: 1,
            refused: None,
        };
        let snapshot = state.snapshot();
        let balancer = Balancer::start(&state.files.config, snapshot)
            .map_err(|error| Failure::environment("cannot start", error))?;
        match (balancer.in_kernel(), &state.files.config.xdp) {
            (Some(Ok(left_out)), Some(xdp)) => {
                let but = match left_out {
                    0 => String::new(),
                    count => {
                        format!("; {count} servers have no route it can take and get nothing of it")
                    }
                };
                tell!("quicket: the kernel forwards what it can on {}{but}", xdp.device);
            }
            (Some(Err(why)), Some(xdp)) => tell!(
                "quicket: the kernel forwards nothing on {}, all goes by user space: {why}",
                xdp.device
            ),
            _ => {}
        }
        Ok(Self { balancer, state: Mutex::new(state) })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files again. If anything is wrong with them, all stays as it is.
    pub(super) fn read_again(&self) {
        let path = self.state().files.path.clone();
        let read = Files::read(&path).map_err(|failure| failure.message);
        let mut state = self.state();
        let read =
            read.and_then(|files| match state.files.config.fixed_difference(&files.config) {
                Some(what) => Err(format!(
                    "{}: {what} cannot change while the balancer runs: start it again",
                    path.display()
                )),
                None => Ok(files),
            });
        match read {
            Ok(files) => {
                say(format_args!("quicket: read again: {}", files.summary()));
                state.health.keep_only(&files.config);
                state.files = files;
                state.taken_up += 1;
                state.refused = None;
                let snapshot = state.snapshot();
                self.balancer.replace(&state.files.config, snapshot);
            }
            Err(error) => {
                say(format_args!("quicket: all stays as it was: {error}"));
                state.refused = Some(error);
            }
        }
    }

    /// Takes note of a datagram that may be a report.
    pub(super) fn hear(&self, datagram: &[u8]) {
        let mut state = self.state();
        let key = state.files.site.as_ref().and_then(|site| site.report_key().copied());
        let verify = |body: &[u8], tag: &[u8]| key.is_some_and(|key| site::verify(&key, body, tag));
        let now = state.now();
        let State { files, health, .. } = &mut *state;
        let heard = Report::decode(datagram, verify)
            .and_then(|report| health.hear(report, &files.config, now, site::wall_clock()));
        let reports = &mut state.reports;
        *match heard {
            Ok(()) => &mut reports.accepted,
            Err(ReportError::Malformed) => &mut reports.malformed,
            Err(ReportError::Forged) => &mut reports.forged,
            Err(ReportError::Stale) => &mut reports.stale,
            Err(ReportError::Unknown) => &mut reports.unknown,
        } += 1;
    }

    /// Makes another snapshot if reports, or silence, have changed what servers are.
    pub(super) fn look(&self) {
        let mut state = self.state();
        let standings = state.standings();
        if standings == state.known {
            return;
        }
        let servers = state.files.config.servers.iter();
        for ((server, old), new) in servers.zip(&state.known).zip(&standings) {
            if old != new {
                let (standing, weight) = (new.0.name(), f64::from(new.1) / 100.0);
                say(format_args!("quicket: server {} is {standing}, weight {weight}", server.name));
            }
        }
        let snapshot = state.snapshot();
        if snapshot.is_desperate() {
            say(format_args!(
                "quicket: no server takes connections as far as is known: all are tried"
            ));
        }
        self.balancer.replace(&state.files.config, snapshot);
    }
}
