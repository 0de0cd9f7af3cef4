//! From what the file says to what may run: finds everything that is wrong, not only the first.

use std::collections::HashSet;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderName;
use quicket::Identity;

use super::{File, Problem, congestion, early_data, key, limits, origin, pass, protocol, site};
use crate::resolve::{MAX_SERVERS, Resolver};
use crate::route::Sites;
use crate::snapshot::{Certificates, Snapshot};

/// The most of each that a file may have.
const MAX_ADDRESSES: usize = quicket::MAX_SOCKETS;
/// A day: longer waits are mistakes of unit.
const MAX_WAIT_MS: u64 = 24 * 60 * 60 * 1000;

/// Gathers problems.
#[derive(Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn add(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.0.push(Problem::new(place, what));
    }

    /// A value, or a problem more.
    pub(super) fn take<T>(&mut self, place: &str, result: Result<T, impl Display>) -> Option<T> {
        result.map_err(|what| self.add(place, what.to_string())).ok()
    }

    pub(super) fn wait(&mut self, place: &str, milliseconds: u64) -> Duration {
        if milliseconds == 0 || milliseconds > MAX_WAIT_MS {
            self.add(place, format!("{milliseconds} is not within 1 and {MAX_WAIT_MS} ms (a day)"));
        }
        Duration::from_millis(milliseconds)
    }
}

/// Checks a file with certificates in files.
pub(super) fn check(file: File, directory: &Path) -> Result<Snapshot, Vec<Problem>> {
    let mut problems = Problems::default();
    let mut certificates = Certificates::new();
    let ends_nothing = file.site.is_empty() && file.protocol.is_empty() && !file.pass.is_empty();
    if file.certificate.is_empty() && file.acme.is_none() && ends_nothing {
        // For those who ask for other names, and get nothing.
        let identity = problems.take("certificate", Identity::self_signed(["localhost"]));
        certificates.extend(identity.map(|identity| (Vec::new(), identity)));
    } else if file.certificate.is_empty() && file.acme.is_none() {
        problems.add(
            "certificate",
            "there is none: add [[certificate]] with chain = \"FILE\" and key = \"FILE\", or [acme]",
        );
    }
    let mut names = HashSet::new();
    let mut places = key::Places::default();
    for (at, certificate) in file.certificate.iter().enumerate() {
        let place = format!("certificate {}", at + 1);
        let Some(identity) =
            key::identity(certificate, directory, &place, &mut places, &mut problems)
        else {
            continue;
        };
        let Some(key_type) = problems.take(&place, identity.key_type()) else { continue };
        // A name may have a certificate with a key of each type: clients differ in what they verify.
        let all = identity.dns_names();
        let is_own = |name: &&String| names.insert(((*name).clone(), key_type));
        let own: Vec<String> = all.iter().filter(is_own).cloned().collect();
        if at > 0 && own.is_empty() {
            problems.add(
                &place,
                match all.is_empty() {
                    true => "has no DNS name, so that no client could ask for it: make it the first",
                    false => "has no effect: earlier ones have all of its names, and keys of the same type",
                },
            );
        }
        certificates.push((own, identity));
    }
    let mut snapshot = finish(file, directory, certificates, problems)?;
    snapshot.keys_away = places.away();
    Ok(snapshot)
}

/// Checks a file with certificates that are here already.
pub(super) fn check_with(
    file: File,
    directory: &Path,
    certificates: Certificates,
) -> Result<Snapshot, Vec<Problem>> {
    finish(file, directory, certificates, Problems::default())
}

fn finish(
    file: File,
    directory: &Path,
    certificates: Certificates,
    mut problems: Problems,
) -> Result<Snapshot, Vec<Problem>> {
    if file.listen.is_empty() {
        problems.add("listen", "there is no address: listen = [\"[::]:443\"] stands for all");
    }
    addresses(&file, &mut problems);
    unencrypted(&file, &mut problems);
    let resolver = Arc::new(resolver(&file.resolver, &mut problems));
    let origins = origin::check(&file.origin, directory, &resolver, &mut problems);
    let has_others = !file.protocol.is_empty() || !file.pass.is_empty();
    let sites = match file.site.is_empty() && has_others {
        false => site::check(&file.site, directory, &origins, &mut problems),
        true => without_sites(&file, &mut problems),
    };
    let protocols =
        protocol::protocols(&file.protocol, &file.limits, directory, &resolver, &mut problems);
    let passes = pass::passes(&file, directory, &resolver, &mut problems);
    let metrics = file.metrics.as_ref().and_then(|metrics| metrics.check(directory, &mut problems));
    let traces = file.traces.as_ref().and_then(|traces| traces.check(directory, &mut problems));
    let balancer = file.balancer.as_ref();
    let balancer = balancer.and_then(|balancer| balancer.check(directory, &mut problems));
    let secrets = early_data::secrets(file.secrets.as_ref(), directory, &mut problems);
    let register = file
        .early_data
        .as_ref()
        .and_then(|register| register.check(file.secrets.is_some(), directory, &mut problems));
    let http = (!sites.is_empty()).then(|| "h3".to_owned());
    let served: Vec<String> = http.into_iter().chain(protocols.alpn().iter().cloned()).collect();
    let acme = file
        .acme
        .as_ref()
        .and_then(|acme| acme.check(&file, &sites, &certificates, directory, &mut problems));
    let congestion = congestion::check(&file.congestion, &served, &mut problems);
    let capture = file.capture.and_then(|capture| capture.check(&mut problems));
    let limits = limits::check(&file.limits, &mut problems);
    let access_log = file.access_log.map(|path| access_log(path, directory, &mut problems));
    if !problems.0.is_empty() {
        return Err(problems.0);
    }
    let mut certificate_fields: Vec<HeaderName> =
        sites.rules().flat_map(|rule| rule.fields.names().cloned()).collect();
    certificate_fields.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    certificate_fields.dedup();
    Ok(Snapshot {
        listen: file.listen,
        redirect: file.redirect,
        proxy_protocol: file.proxy_protocol,
        unencrypted: file.disable_1rtt_encryption,
        balancer,
        metrics,
        traces,
        capture,
        secrets,
        register,
        certificates,
        acme,
        congestion,
        access_log,
        limits,
        sites,
        certificate_fields,
        protocols,
        passes,
        origins: origins.into_values().collect(),
        keys_away: Vec::new(),
    })
}

/// Where requests are logged. The file may come later, its directory may not.
fn access_log(path: PathBuf, directory: &Path, problems: &mut Problems) -> PathBuf {
    if path.as_os_str() == "-" {
        return path;
    }
    let path = directory.join(path);
    // A path without a directory is one of this process's.
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above
        && !above.is_dir()
    {
        let what = format!("there is no directory {0}: make it (mkdir -p {0})", above.display());
        problems.add("access_log", what);
    }
    path
}

/// What resolves names.
fn resolver(servers: &[SocketAddr], problems: &mut Problems) -> Resolver {
    if servers.len() > MAX_SERVERS {
        problems.add("resolver", format!("more than {MAX_SERVERS} name servers"));
    }
    if servers.iter().any(|server| server.port() == 0) {
        problems.add("resolver", "a name server has a port: 53 is that of DNS");
    }
    Resolver::new(servers.to_vec())
}

/// Who has no encryption is named.
fn unencrypted(file: &File, problems: &mut Problems) {
    /// The shortest prefixes of a network, of IPv4 and IPv6.
    const SHORTEST: [u8; 2] = [8, 8];
    for network in &file.disable_1rtt_encryption {
        let shortest = SHORTEST[usize::from(network.addr().is_ipv6())];
        if network.prefix_len() < shortest {
            let what = format!("{network} is no network of your own: /{shortest} is the largest");
            problems.add("disable_1rtt_encryption", what);
        }
    }
}

/// A file with private protocols, or with what is passed on, only.
fn without_sites(file: &File, problems: &mut Problems) -> Sites {
    // Challenges may be answered there.
    if !file.redirect.is_empty() && file.acme.is_none() {
        problems.add("redirect", "leads to HTTPS, and there is no [[site]]");
    }
    Sites::default()
}

fn addresses(file: &File, problems: &mut Problems) {
    for (place, addresses) in [("listen", &file.listen), ("redirect", &file.redirect)] {
        if addresses.len() > MAX_ADDRESSES {
            problems.add(place, format!("more than {MAX_ADDRESSES} addresses"));
        }
        let mut seen = HashSet::new();
        for address in addresses {
            if address.port() != 0 && !seen.insert(address) {
                problems.add(place, format!("{address} is there twice"));
            }
        }
    }
    for address in &file.redirect {
        if address.port() != 0 && file.listen.contains(address) {
            problems.add("redirect", format!("{address} is in listen, too"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const ORIGIN: &str = "[origin.app]\nservers = [\"http://127.0.0.1:8080\"]\n";

    fn problems(text: &str) -> Vec<String> {
        let problems = parse(text, Path::new(".")).expect_err("it is wrong");
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_empty_file_lacks_everything() {
        let all = problems("").join("\n");
        for what in ["certificate", "listen", "site"] {
            assert!(all.contains(what), "{all}");
        }
    }

    #[test]
    fn what_is_not_known_is_told_with_its_line() {
        assert_eq!(problems("listen = []\nlisen = []\n").len(), 1);
        assert!(problems("listen = []\nlisen = []\n")[0].starts_with("line 2: "));
    }

    #[test]
    fn no_mistake_is_told_in_words_of_the_parser() {
        let origin = |line: &str| format!("listen = []\n{ORIGIN}{line}\n");
        for (text, words) in [
            (origin("retries = -1"), "expected a whole number"),
            (origin("answer_timeout_ms = \"5s\""), "expected a whole number"),
            ("listen = [\"127.0.0.1\"]\n".to_owned(), "an address has a port"),
        ] {
            let all = problems(&text).join("\n");
            assert!(all.starts_with("line ") && all.contains(words), "{all}");
        }
        let all = problems("[[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n");
        assert!(all.join("\n").contains("the file has none: add [origin.NAME]"), "{all:?}");
    }

    #[test]
    fn each_mistake_is_told_with_its_place() {
        let text = format!(
            "listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]\nredirect = [\"127.0.0.1:1\"]\n{ORIGIN}\
             pause_ms = 0\nmax_failures = 0\n[origin.bad]\nservers = [\"ftp://x\", \"http://\"]\n\
             [[site]]\nnames = [\"a.example\", \"A.example\", \"a_b.*.c\"]\n\
             [[site.route]]\npath = \"a/../b\"\nmethods = [\"G T\"]\norigin = \"ap\"\n\
             [limits]\nrequests = 0\nconnections = 0\nheader_bytes = 1\n"
        );
        let resolver = format!("resolver = [{}\"127.0.0.1:0\"]\n", "\"127.0.0.1:53\", ".repeat(8));
        let text = format!("{resolver}access_log = \"nowhere/access.json\"\n{text}");
        let all = problems(&text).join("\n");
        for what in [
            "listen: 127.0.0.1:1 is there twice",
            "redirect: 127.0.0.1:1 is in listen, too",
            "origin.app.pause_ms: 0 is not within",
            "origin.app.max_failures: 0 would",
            "origin.bad.servers: \"ftp://x\"",
            "origin.bad.servers: \"http://\"",
            "site 1.names: a.example is there twice",
            "site 1.names: \"a_b.*.c\" is no DNS name",
            "site 1, route 1.path: \"a/../b\"",
            "site 1, route 1.methods: \"G T\" is no method",
            "site 1, route 1.origin: there is no origin \"ap\"; there are: app, bad",
            "access_log: there is no directory ./nowhere: make it (mkdir -p ./nowhere)",
            "resolver: more than 8 name servers",
            "resolver: a name server has a port",
            "limits.requests",
            "limits.connections",
            "limits.header_bytes",
        ] {
            assert!(all.contains(what), "{what:?} is not in\n{all}");
        }
    }
}
