//! A place behind a balancer that routes by connection IDs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use quicket::Workers;
use quicket_member::{MAX_FILE, Member, MemberError};
use serde::Deserialize;

use super::check::Problems;
use super::read_bytes;
use crate::snapshot::Behind;

/// What peers accept from each other (RFC 9000, Section 18.2), up to the most that UDP carries.
const PAYLOADS: std::ops::RangeInclusive<u16> = 1200..=65527;

/// A place behind a balancer that routes by connection IDs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Balancer {
    /// The file that says how connection IDs are written: the same as the balancer's.
    pub connection_ids: PathBuf,
    /// What names this gateway in connection IDs: as many hexadecimal digits as the file asks for.
    pub server_id: String,
    /// Balancers that hear every second that the gateway is there, and that it takes no more connections once it is
    /// told to stop.
    #[serde(default)]
    pub report_to: Vec<SocketAddr>,
    /// The largest UDP payload that clients may send, in bytes: what encapsulation leaves of the path.
    pub max_udp_payload: Option<u16>,
}

impl Balancer {
    /// Checks it.
    pub(super) fn check(&self, directory: &Path, problems: &mut Problems) -> Option<Behind> {
        let path = directory.join(&self.connection_ids);
        let bytes = problems.take("balancer.connection_ids", read_bytes(&path, MAX_FILE));
        let site = bytes.and_then(|bytes| {
            let site = quicket_member::Site::parse(&String::from_utf8_lossy(&bytes));
            let site = site.map_err(|error| format!("{}: {error}", path.display()));
            problems.take("balancer.connection_ids", site)
        });
        let id = problems.take("balancer.server_id", quicket_member::server_id(&self.server_id));
        if self.max_udp_payload.is_some_and(|payload| !PAYLOADS.contains(&payload)) {
            let (least, most) = PAYLOADS.into_inner();
            let what = format!("is not within {least} and {most}");
            problems.add("balancer.max_udp_payload", what);
        }
        let (site, id) = (site?, id?);
        // How many workers there are is not the file's: that is looked at once they start.
        if let Err(error) = Member::new(&site, id, &self.report_to, Workers::One) {
            problems.add(field(&error), error.to_string());
        }
        let (report_to, max_udp_payload) = (self.report_to.clone(), self.max_udp_payload);
        Some(Behind { site, id, report_to, max_udp_payload })
    }
}

/// The field in which something is wrong.
pub(crate) const fn field(error: &MemberError) -> &'static str {
    match error {
        MemberError::ServerId(_) => "balancer.server_id",
        MemberError::NoReportKey => "balancer.report_to",
        _ => "balancer.connection_ids",
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use std::fs;

    #[test]
    fn each_mistake_is_told_with_its_field() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("site", "config 0 server-id 4 nonce 12 plain\n");
        write("bad", "config 0 server-id 4\n");
        let balancer = |lines: &str| -> String {
            let text = format!("[balancer]\n{lines}");
            let problems = parse(&text, dir.path()).unwrap_err();
            problems.iter().map(|problem| format!("{problem}\n")).collect()
        };
        let ids = "connection_ids = \"site\"\n";
        let id = "server_id = \"00000001\"\n";
        for (lines, what) in [
            (format!("connection_ids = \"none\"\n{id}"), "balancer.connection_ids: cannot read "),
            (format!("connection_ids = \"bad\"\n{id}"), "/bad: line 1: a configuration needs"),
            (format!("{ids}server_id = \"1\""), "balancer.server_id: give 2 to 30 hexadecimal"),
            (format!("{ids}server_id = \"01\""), "balancer.server_id: the server ID has 1 octets"),
            (
                format!("{ids}{id}report_to = [\"127.0.0.1:9\"]"),
                "balancer.report_to: reports need a line \"report-key HEX\"",
            ),
            (
                format!("{ids}{id}max_udp_payload = 1199"),
                "balancer.max_udp_payload: is not within 1200 and 65527",
            ),
            (ids.to_owned(), "missing field `server_id`"),
            (id.to_owned(), "missing field `connection_ids`"),
            (format!("{ids}{id}report = true"), "unknown field `report`"),
        ] {
            let told = balancer(&lines);
            assert!(told.contains(what), "{what:?} is not in\n{told}");
        }
        let told = balancer(&format!("{ids}{id}max_udp_payload = 1440"));
        assert!(!told.contains("balancer"), "{told}");
    }
}
