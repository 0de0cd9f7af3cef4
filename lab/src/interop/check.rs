//! Whether what both ends have told is what had to happen.

use std::collections::BTreeMap;

use quicket_workload::peer::Facts;

use super::case::{Case, Expected};
use super::report::Outcome;
use super::session::Record;
use super::site::{self, Site};

/// Judges a run.
pub(super) fn outcome(case: Case, record: &Record, site: &Site) -> Outcome {
    match check(case, record, site) {
        Ok(()) => Outcome::Passed,
        Err(reason) => Outcome::Failed { reason },
    }
}

fn check(case: Case, record: &Record, site: &Site) -> Result<(), String> {
    let plan = case.plan();
    if let Some(error) = record.client.errors.first() {
        return Err(format!("the client says: {error}"));
    }
    if let Some(error) = record.server.errors.first() {
        return Err(format!("the server says: {error}"));
    }
    if !record.client.done {
        return Err("the client did not say that it is done".into());
    }
    files(plan.files, record, site)?;
    let connections = plan.expected.earlier_connections + 1;
    for (end, told) in [("client", &record.client), ("server", &record.server)] {
        if told.connections.len() != connections {
            let number = told.connections.len();
            return Err(format!("the {end} had {number} connections instead of {connections}"));
        }
        if told.closed != connections {
            return Err(format!("the {end} saw {} connections closed", told.closed));
        }
    }
    if (record.client.streams, record.client.datagrams)
        != (plan.expected.streams, plan.expected.datagrams)
    {
        return Err(format!(
            "{} streams and {} datagrams were echoed instead of {} and {}",
            record.client.streams,
            record.client.datagrams,
            plan.expected.streams,
            plan.expected.datagrams
        ));
    }
    let ends = record.client.connections.values().zip(record.server.connections.values());
    for (number, (client, server)) in ends.enumerate() {
        let last = number + 1 == connections;
        let expected = if last { plan.expected } else { Expected::PLAIN };
        connection(client, server, plan.alpn, plan.retry, expected)
            .map_err(|reason| format!("connection {}: {reason}", number + 1))?;
    }
    Ok(())
}

fn files(sizes: &[usize], record: &Record, site: &Site) -> Result<(), String> {
    let on_disk: BTreeMap<_, _> =
        sizes.iter().map(|&size| (site::name(size), site.sha256(size).to_owned())).collect();
    if record.stored != on_disk {
        return Err(format!("the files stored are {:?}", record.stored));
    }
    for &size in sizes {
        let claimed = record.client.files.get(&format!("/{}", site::name(size)));
        if claimed.map(String::as_str) != Some(site.sha256(size)) {
            return Err(format!("the client reports {claimed:?} for {}", site::name(size)));
        }
    }
    Ok(())
}

fn connection(
    client: &Facts,
    server: &Facts,
    alpn: &str,
    retry: bool,
    expected: Expected,
) -> Result<(), String> {
    if client.version.is_none() || client.version != server.version {
        return Err(format!("versions are {:?} and {:?}", client.version, server.version));
    }
    for facts in [client, server] {
        if facts.alpn.as_deref() != Some(alpn) {
            return Err(format!("the application protocol is {:?}", facts.alpn));
        }
    }
    agreed("retry", client.retry, server.retry, retry)?;
    agreed("resumed", client.resumed, server.resumed, expected.resumed)?;
    if let Some(early_data) = expected.early_data {
        agreed("early data", client.early_data, server.early_data, early_data)?;
    }
    if expected.key_update {
        let updated = |facts: &Facts| facts.key_updates.map(|updates| updates > 0);
        agreed("key update", updated(client), updated(server), true)?;
    }
    Ok(())
}

/// At least one end must tell, and none may tell otherwise.
fn agreed(
    what: &str,
    client: Option<bool>,
    server: Option<bool>,
    expected: bool,
) -> Result<(), String> {
    let told = [client, server];
    if told.contains(&Some(expected)) && !told.contains(&Some(!expected)) {
        Ok(())
    } else {
        Err(format!("{what}: client {client:?}, server {server:?}, expected {expected}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::session::Told;
    use super::*;

    /// What a good run of `case` looks like.
    fn good(case: Case, site: &Site) -> Record {
        let plan = case.plan();
        let mut record = Record::default();
        let connections = plan.expected.earlier_connections as u64 + 1;
        for number in 1..=connections {
            let expected = if number == connections { plan.expected } else { Expected::PLAIN };
            let facts = Facts {
                version: Some("0x00000001".into()),
                alpn: Some(plan.alpn.into()),
                resumed: Some(expected.resumed),
                early_data: expected.early_data,
                retry: Some(plan.retry),
                key_updates: Some(u64::from(expected.key_update)),
            };
            for told in [&mut record.client, &mut record.server] {
                told.connections.insert(number, facts.clone());
                told.closed += 1;
            }
        }
        for &size in plan.files {
            let digest = site.sha256(size).to_owned();
            record.client.files.insert(format!("/{}", site::name(size)), digest.clone());
            record.stored.insert(site::name(size), digest);
        }
        record.client = Told {
            streams: plan.expected.streams,
            datagrams: plan.expected.datagrams,
            done: true,
            ..record.client
        };
        record
    }

    #[test]
    fn a_good_run_of_every_case_passes() {
        let site = Site::generate(&Case::ALL).unwrap();
        for case in Case::ALL {
            assert_eq!(check(case, &good(case, &site), &site), Ok(()), "{case}");
        }
    }

    /// Spoils a good run of `case` and returns the complaint.
    fn spoiled(case: Case, spoil: impl FnOnce(&mut Record)) -> String {
        let site = Site::generate(&[case]).unwrap();
        let mut record = good(case, &site);
        spoil(&mut record);
        check(case, &record, &site).unwrap_err()
    }

    #[test]
    fn each_case_fails_when_its_feature_was_not_used() {
        let last = |record: &mut Record| record.server.connections.clone().len() as u64;
        let complaint = spoiled(Case::Retry, |record| {
            record.server.connections.get_mut(&1).unwrap().retry = Some(false);
        });
        assert!(complaint.contains("retry"), "{complaint}");
        let complaint = spoiled(Case::Resumption, |record| {
            let last = last(record);
            record.client.connections.get_mut(&last).unwrap().resumed = Some(false);
        });
        assert!(complaint.contains("connection 2: resumed"), "{complaint}");
        let complaint = spoiled(Case::ZeroRtt, |record| {
            for told in [&mut record.client, &mut record.server] {
                told.connections.get_mut(&2).unwrap().early_data = None;
            }
        });
        assert!(complaint.contains("early data"), "{complaint}");
        let complaint = spoiled(Case::KeyUpdate, |record| {
            record.server.connections.get_mut(&1).unwrap().key_updates = Some(0);
        });
        assert!(complaint.contains("key update"), "{complaint}");
        let complaint = spoiled(Case::Streams, |record| record.client.streams -= 1);
        assert!(complaint.contains("1999 streams"), "{complaint}");
        let complaint = spoiled(Case::Datagrams, |record| record.client.datagrams = 0);
        assert!(complaint.contains("0 datagrams"), "{complaint}");
    }

    #[test]
    fn a_wrong_or_missing_file_fails() {
        let complaint = spoiled(Case::Transfer, |record| {
            record.stored.insert(site::name(1), site::sha256(b"x"));
        });
        assert!(complaint.contains("the files stored"), "{complaint}");
        let complaint = spoiled(Case::Http3, |record| {
            record.client.files.pop_first();
        });
        assert!(complaint.contains("the client reports None"), "{complaint}");
    }

    #[test]
    fn a_complaint_of_either_end_fails() {
        let complaint = spoiled(Case::Handshake, |record| {
            record.server.errors.push("broken".into());
        });
        assert_eq!(complaint, "the server says: broken");
        let complaint = spoiled(Case::Handshake, |record| record.client.done = false);
        assert!(complaint.contains("done"), "{complaint}");
    }

    #[test]
    fn one_end_may_be_ignorant_but_not_of_another_opinion() {
        assert!(agreed("x", None, Some(true), true).is_ok());
        assert!(agreed("x", None, None, true).is_err());
        assert!(agreed("x", Some(false), Some(true), true).is_err());
        assert!(agreed("x", Some(true), None, false).is_err());
    }
}
