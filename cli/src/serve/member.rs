//! A server as one of a site behind a balancer, as its flags and the file say.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quicket::steering::ServerId;
use quicket::{EndpointConfig, Workers};
use quicket_member::{Change, MemberError};
use tokio::sync::watch;

use super::conversation::Draining;
use crate::args::Behind;
use crate::exit::Failure;
use crate::site;

/// A server of a site, and where it reads how connection IDs are written.
#[derive(Debug)]
pub(crate) struct Member {
    path: PathBuf,
    report_to: Vec<SocketAddr>,
    member: Arc<quicket_member::Member>,
}

impl Member {
    /// What the flags and the file say; `None` if the server is on its own.
    pub(crate) fn new(args: &Behind, workers: Workers) -> Result<Option<Arc<Self>>, Failure> {
        // One comes with the other.
        let Some((path, id)) = args.connection_ids.as_ref().zip(args.server_id) else {
            return Ok(None);
        };
        let report_to = args.report_to.clone();
        let member = quicket_member::Member::new(&site::read(path)?, id, &report_to, workers);
        let member = Arc::new(member.map_err(|error| unfit(path, id, &error))?);
        Ok(Some(Arc::new(Self { path: path.clone(), report_to, member })))
    }

    /// Has an endpoint issue connection IDs that lead to this server.
    pub(crate) fn configure(&self, config: EndpointConfig) -> EndpointConfig {
        self.member.configure(config)
    }

    /// Reads the file again, and changes nothing yet.
    pub(crate) fn read(&self) -> Result<Change, Failure> {
        let read = self.member.prepare(&site::read(&self.path)?, &self.report_to);
        read.map_err(|error| unfit(&self.path, self.member.id(), &error))
    }

    /// Issues connection IDs as the file says now; says how in words.
    pub(crate) fn take_up(&self, change: Change) -> Result<String, Failure> {
        self.member.take_up(change).map_err(|error| site::wrong(&self.path, error))
    }

    /// Reports until the server ends, if anybody is to hear of it.
    pub(crate) async fn report(self: Arc<Self>, draining: watch::Receiver<Draining>) {
        if !self.report_to.is_empty() {
            let drains = |draining: &Draining| *draining != Draining::No;
            Arc::clone(&self.member).report(draining, drains).await;
        }
    }
}

/// What does not fit, with the flag that says so.
fn unfit(path: &Path, id: ServerId, error: &MemberError) -> Failure {
    match error {
        MemberError::ServerId(error) => site::wrong(path, format!("--server-id {id}: {error}")),
        MemberError::NoReportKey => site::wrong(path, format!("--report-to: {error}")),
        error => site::wrong(path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn behind(path: PathBuf, id: &str, report_to: &[&str]) -> Behind {
        Behind {
            connection_ids: Some(path),
            server_id: Some(quicket_member::server_id(id).unwrap()),
            report_to: report_to.iter().map(|address| address.parse().unwrap()).collect(),
            max_udp_payload: None,
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_flag_and_a_changed_file_is_taken_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("site");
        let good = "config 0 server-id 4 nonce 12 plain\n";
        fs::write(&path, good).unwrap();
        let refused = |id: &str, to: &[&str], workers| {
            Member::new(&behind(path.clone(), id, to), Workers::Count(workers)).unwrap_err().message
        };
        assert!(refused("01", &[], 1).contains("site: --server-id 01: "));
        let error = refused("00000001", &["127.0.0.1:9"], 1);
        assert!(error.contains("--report-to: ") && error.contains("report-key"), "{error}");
        assert!(refused("00000001", &[], 2).contains("--workers 1"));
        let member = Member::new(&behind(path.clone(), "00000001", &[]), Workers::Count(1))
            .unwrap()
            .unwrap();
        fs::write(&path, format!("{good}config 1 server-id 4 nonce 12 plain\nissue 1")).unwrap();
        let said = member.take_up(member.read().unwrap()).unwrap();
        assert_eq!(said, "connection IDs of configuration 1");
        for (wrong, why) in [
            ("config 1 server-id 4 nonce 13 plain", "18 octets"),
            ("config 1 server-id 5 nonce 11 plain", "not the format's length"),
            ("config 1", "line 1"),
        ] {
            fs::write(&path, wrong).unwrap();
            let error = member.read().unwrap_err().message;
            assert!(error.contains(why) && error.contains("site: "), "{error}");
        }
    }
}
