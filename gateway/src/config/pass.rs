//! Connections that are passed on without being ended here: their tables, and their check.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quicket_member::{MAX_FILE, Site};
use quicket_steering::{Configurations, ServerId};
use serde::Deserialize;

use super::check::Problems;
use super::site::is_dns_name;
use super::{File, read_bytes};
use crate::pass::{self, Address, Passes};
use crate::protocol::{Authority, Place};
use crate::resolve::Resolver;

/// How many tables there may be: each unknown datagram is held against the connection IDs of all files.
pub(super) const MAX_PASSES: usize = 1000;
/// ... and files that say how connection IDs are written.
const MAX_ID_FILES: usize = 8;

/// Connections with some server names, which are passed on to where they are ended.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pass {
    /// The server names that clients ask for: DNS names; `*.` and a name for its direct subdomains; `*` for
    /// all others, and for clients that ask for none.
    pub names: Vec<String>,
    /// Where connections over QUIC go: `udp://HOST:PORT`.
    #[serde(default)]
    pub quic: Option<String>,
    /// Where connections with TLS over TCP go: `tcp://HOST:PORT`, or `unix:/PATH`.
    #[serde(default)]
    pub tls: Option<String>,
    /// Tell the origin of `tls` who the client is, by PROXY protocol version 2.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// The file that says how the origin of `quic` writes its connection IDs.
    #[serde(default)]
    pub connection_ids: Option<PathBuf>,
    /// What names the origin in them: as many hexadecimal digits as the file asks for.
    #[serde(default)]
    pub server_id: Option<String>,
    /// How long a connection to the origin of `tls` may take, in milliseconds.
    #[serde(default = "default_connect")]
    pub connect_timeout_ms: u64,
    /// How long nothing may come in either direction, in milliseconds.
    #[serde(default = "default_idle")]
    pub idle_timeout_ms: u64,
}

const fn default_connect() -> u64 {
    5_000
}
const fn default_idle() -> u64 {
    300_000
}

/// Origins by the files with which their connection IDs are read.
type ById = BTreeMap<PathBuf, HashMap<ServerId, Arc<pass::Pass>>>;

/// Checks all tables of a file. What else it serves keeps its names.
pub(super) fn passes(
    file: &File,
    directory: &Path,
    resolver: &Arc<Resolver>,
    problems: &mut Problems,
) -> Passes {
    let mut checked = Passes::default();
    let mut by_id = ById::new();
    if file.pass.len() > MAX_PASSES {
        problems.add("pass", format!("more than {MAX_PASSES} tables"));
    }
    if !file.pass.is_empty() && file.balancer.is_some() {
        problems.add(
            "pass",
            "does not go with [balancer]: what is in front routes by connection IDs of this gateway, and those of \
             origins are others",
        );
    }
    for (at, pass) in file.pass.iter().enumerate() {
        let place = format!("pass {}", at + 1);
        let rules = Arc::new(pass.rules(&place, resolver, problems));
        pass.names(&rules, &mut checked, &place, problems);
        pass.ids(&rules, &mut by_id, &place, directory, problems);
    }
    let own = file.site.iter().enumerate().flat_map(|(at, site)| {
        site.names.iter().map(move |name| (format!("site {}.names", at + 1), name))
    });
    let private = file.protocol.iter().enumerate().flat_map(|(at, protocol)| {
        protocol.names.iter().map(move |name| (format!("protocol {}.names", at + 1), name))
    });
    for (place, name) in own.chain(private) {
        if !checked.keep(name) {
            problems.add(place, format!("{name} is passed on by a [[pass]], too"));
        }
    }
    if by_id.len() > MAX_ID_FILES {
        problems.add("pass", format!("more than {MAX_ID_FILES} files of connection_ids"));
    }
    for (path, servers) in by_id {
        if let Some(configurations) = problems.take("pass.connection_ids", reader(&path, &servers))
        {
            checked.route(configurations, servers);
        }
    }
    checked
}

impl Pass {
    fn rules(&self, place: &str, resolver: &Arc<Resolver>, problems: &mut Problems) -> pass::Pass {
        if self.quic.is_none() && self.tls.is_none() {
            problems
                .add(place, "goes nowhere: quic = \"udp://HOST:PORT\", tls = \"tcp://HOST:PORT\"");
        }
        if self.tls.is_none() && self.proxy_protocol {
            problems.add(format!("{place}.proxy_protocol"), "is for tls only, and there is none");
        }
        let quic = self.quic.as_deref().and_then(|text| {
            let read = Authority::parse(text, "udp", resolver);
            let wrong = || format!("{text:?} is no udp://HOST:PORT");
            problems.take(&format!("{place}.quic"), read.ok_or_else(wrong))
        });
        let tls = self.tls.as_deref().and_then(|text| {
            let unix = text.strip_prefix("unix:").filter(|path| path.starts_with('/'));
            let read = unix.map(|path| Place::Unix(path.into()));
            let read = read.or_else(|| Authority::parse(text, "tcp", resolver).map(Place::Tcp));
            let wrong = || format!("{text:?} is none of tcp://HOST:PORT, unix:/PATH");
            problems.take(&format!("{place}.tls"), read.ok_or_else(wrong))
        });
        pass::Pass {
            name: self.names.first().cloned().unwrap_or_default(),
            quic: quic.map(Address::new),
            tls,
            proxy_protocol: self.proxy_protocol,
            connect: problems.wait(&format!("{place}.connect_timeout_ms"), self.connect_timeout_ms),
            idle: problems.wait(&format!("{place}.idle_timeout_ms"), self.idle_timeout_ms),
        }
    }

    fn names(
        &self,
        rules: &Arc<pass::Pass>,
        checked: &mut Passes,
        place: &str,
        problems: &mut Problems,
    ) {
        let place = format!("{place}.names");
        if self.names.is_empty() {
            problems.add(&place, "there is none: names = [\"*\"] stands for all others");
        }
        for name in &self.names {
            let bare = name.strip_prefix("*.").unwrap_or(name);
            if name != "*" && (!is_dns_name(bare) || bare.starts_with('[')) {
                problems.add(&place, format!("{name:?} is no DNS name, nor *.NAME, nor *"));
            } else if !checked.add(name, rules) {
                problems.add(&place, format!("{name} is there twice"));
            }
        }
    }

    /// Notes how connection IDs of the origin are read.
    fn ids(
        &self,
        rules: &Arc<pass::Pass>,
        by_id: &mut ById,
        place: &str,
        directory: &Path,
        problems: &mut Problems,
    ) {
        let (Some(file), Some(text)) = (&self.connection_ids, &self.server_id) else {
            if self.connection_ids.is_some() || self.server_id.is_some() {
                problems
                    .add(place, "connection_ids and server_id go together: one of them is missing");
            }
            return;
        };
        if self.quic.is_none() {
            problems.add(format!("{place}.connection_ids"), "is for quic only, and there is none");
        }
        let server_id = format!("{place}.server_id");
        let Some(id) = problems.take(&server_id, quicket_member::server_id(text)) else { return };
        let servers = by_id.entry(directory.join(file)).or_default();
        match servers.get(&id).filter(|other| authority(other) != authority(rules)) {
            Some(_) => problems.add(server_id, format!("{text} is another origin's already")),
            None => drop(servers.insert(id, Arc::clone(rules))),
        }
    }
}

fn authority(pass: &pass::Pass) -> Option<&Authority> {
    pass.quic.as_ref().map(|address| address.authority())
}

/// What reads the connection IDs of a file, in which each of these servers has room.
fn reader(
    path: &Path,
    servers: &HashMap<ServerId, Arc<pass::Pass>>,
) -> Result<Configurations, String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = read_bytes(path, MAX_FILE).map_err(|problem| problem.to_string())?;
    let site = Site::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| told(&error))?;
    let all = site.reader(&quicket_member::aes).ok_or_else(|| told(&"no configuration"))?;
    for codec in all.all() {
        let fits = |id: &&ServerId| id.as_slice().len() != codec.format().server_id_len();
        if let Some(id) = servers.keys().find(fits) {
            let (has, wants) = (id.as_slice().len(), codec.format().server_id_len());
            return Err(told(&format_args!(
                "server IDs have {wants} octets, and one of a [[pass]] {has}"
            )));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    fn problems(text: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let ids = "config 0 server-id 1 nonce 7 plain\n";
        std::fs::write(directory.path().join("ids"), ids).unwrap();
        let problems = parse(text, directory.path()).expect_err("it is wrong");
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        all.join("\n")
    }

    #[test]
    fn each_mistake_is_told_with_its_place() {
        let all = problems(
            "[[pass]]\nnames = []\n\
             [[pass]]\nnames = [\"a b\", \"a.example\", \"A.example\"]\nquic = \"tcp://a:1\"\ntls = \"udp://a:1\"\n\
             connect_timeout_ms = 0\nidle_timeout_ms = 0\n\
             [[pass]]\nnames = [\"b.example\"]\nquic = \"udp://a:1\"\nproxy_protocol = true\nserver_id = \"01\"\n\
             [[pass]]\nnames = [\"c.example\"]\ntls = \"tcp://a:1\"\nconnection_ids = \"ids\"\nserver_id = \"xx\"\n\
             [[pass]]\nnames = [\"d.example\"]\nquic = \"udp://a:1\"\nconnection_ids = \"ids\"\nserver_id = \"0102\"\n\
             [[pass]]\nnames = [\"e.example\"]\nquic = \"udp://a:1\"\nconnection_ids = \"none\"\nserver_id = \"01\"\n\
             [[pass]]\nnames = [\"f.example\"]\nquic = \"udp://b:1\"\nconnection_ids = \"none\"\nserver_id = \"01\"\n\
             [[site]]\nnames = [\"b.example\"]\n[[site.route]]\nrespond = {}\n\
             [[protocol]]\nalpn = [\"x\"]\nstreams = \"tcp://a:1\"\nnames = [\"c.example\"]\n",
        );
        for what in [
            "pass 1.names: there is none",
            "pass 1: goes nowhere",
            "pass 2.names: \"a b\" is no DNS name",
            "pass 2.names: A.example is there twice",
            "pass 2.quic: \"tcp://a:1\"",
            "pass 2.tls: \"udp://a:1\"",
            "pass 2.connect_timeout_ms",
            "pass 2.idle_timeout_ms",
            "pass 3.proxy_protocol: is for tls",
            "pass 3: connection_ids and server_id go together",
            "pass 4.connection_ids: is for quic",
            "pass 4.server_id: give 2 to 30",
            "server IDs have 1 octets, and one of a [[pass]] 2",
            "none: ",
            "pass 7.server_id: 01 is another origin's",
            "site 1.names: b.example is passed on",
            "protocol 1.names: c.example is passed on",
        ] {
            assert!(all.contains(what), "{what:?} is not in\n{all}");
        }
    }
}
