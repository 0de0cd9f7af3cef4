//! A server as one of a site behind a balancer: connection IDs that lead to it, and reports.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quicket::steering::{
    Owner, Place, RoutableConnectionIds, ServerId, SwitchError, SwitchableConnectionIds,
};
use quicket::{ConnectionIdGenerator, EndpointConfig, Workers};
use quicket_balancer::{Report, Site, SiteConfiguration};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::conversation::Draining;
use crate::args::Behind;
use crate::exit::{Failure, Kind};
use crate::site;

/// How often a report goes out.
const INTERVAL: Duration = Duration::from_secs(1);

/// What issues connection IDs.
#[derive(Debug)]
enum Ids {
    /// Of one worker.
    Switchable(SwitchableConnectionIds),
    /// Several workers read them as they were at the start.
    Fixed(RoutableConnectionIds, SiteConfiguration),
}

/// A server of a site.
#[derive(Debug)]
pub(crate) struct Member {
    path: PathBuf,
    id: ServerId,
    ids: Ids,
    report_to: Vec<SocketAddr>,
    report_key: Mutex<Option<[u8; 32]>>,
}

impl Member {
    /// What the flags and the file say; `None` if the server is on its own.
    pub(crate) fn new(args: &Behind, workers: Workers) -> Result<Option<Arc<Self>>, Failure> {
        // One comes with the other.
        let Some((path, id)) = args.connection_ids.as_ref().zip(args.server_id) else {
            return Ok(None);
        };
        let site = site::read(path)?;
        let ids = issued(id, &site)
            .map_err(|error| site::wrong(path, format!("--server-id {id}: {error}")))?;
        let ids = match (workers, configuration(&site)) {
            (Workers::One | Workers::Count(1), _) | (_, None) => {
                Ids::Switchable(SwitchableConnectionIds::new(ids))
            }
            (_, Some(configuration)) => Ids::Fixed(ids, configuration),
        };
        if !args.report_to.is_empty() && site.report_key().is_none() {
            return Err(Failure::new(
                Kind::Usage,
                format!(
                    "--report-to needs a line \"report-key HEX\" in {}, with 64 digits of openssl \
                     rand -hex 32",
                    path.display()
                ),
            ));
        }
        Ok(Some(Arc::new(Self {
            path: path.clone(),
            id,
            ids,
            report_to: args.report_to.clone(),
            report_key: Mutex::new(site.report_key().copied()),
        })))
    }

    /// Has an endpoint issue connection IDs that lead to this server.
    pub(crate) fn configure(&self, config: EndpointConfig) -> EndpointConfig {
        match &self.ids {
            Ids::Switchable(ids) => config.connection_ids(ids.clone()),
            Ids::Fixed(ids, _) => config.connection_ids(ids.clone()),
        }
    }

    /// Reads the file again, and changes nothing yet.
    pub(crate) fn read(&self) -> Result<Site, Failure> {
        let site = site::read(&self.path)?;
        let wrong = |error: String| site::wrong(&self.path, error);
        let new = issued(self.id, &site).map_err(wrong)?;
        match &self.ids {
            Ids::Switchable(ids) => {
                // Tried, so that nothing changes where it would fail.
                let (in_use, new) = (ids.len(), new.len());
                if in_use != new {
                    return Err(wrong(SwitchError { in_use, new }.to_string()));
                }
            }
            Ids::Fixed(_, before) if configuration(&site) != Some(*before) => {
                let why = "with several workers, the configuration that is written changes with a \
                           restart only: start the server again";
                return Err(wrong(why.to_owned()));
            }
            Ids::Fixed(..) => {}
        }
        Ok(site)
    }

    /// Issues connection IDs as the file says now; says how in words.
    pub(crate) fn take_up(&self, site: Site) -> Result<String, Failure> {
        if let Ids::Switchable(ids) = &self.ids {
            let new = issued(self.id, &site).map_err(|error| site::wrong(&self.path, error))?;
            ids.switch(new).map_err(|error| site::wrong(&self.path, error))?;
        }
        let key = site.report_key().copied();
        *self.report_key.lock().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(format!("connection IDs of configuration {}", site.issue().number()))
    }

    /// Reports every second, at once when the server begins to drain, until the process ends.
    pub(crate) async fn report(self: Arc<Self>, mut draining: watch::Receiver<Draining>) {
        if self.report_to.is_empty() {
            return;
        }
        let v4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.ok();
        let v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await.ok();
        let mut last = 0;
        loop {
            let key = *self.report_key.lock().unwrap_or_else(PoisonError::into_inner);
            // Each is later than the one before, even where two are made in a millisecond.
            let time = site::wall_clock().max(last + 1);
            last = time;
            let drains = *draining.borrow() != Draining::No;
            let report = Report { id: self.id, time, draining: drains, percent: 100 };
            if let Some(key) = key {
                let datagram = report.encode(|body| site::sign(&key, body));
                for address in &self.report_to {
                    let socket = if address.is_ipv4() { &v4 } else { &v6 };
                    if let Some(socket) = socket {
                        // A balancer that is not there may come back.
                        let _ = socket.send_to(&datagram, address).await;
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                changed = draining.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// The configuration that servers write.
fn configuration(site: &Site) -> Option<SiteConfiguration> {
    site.configurations().iter().find(|one| one.id == site.issue()).copied()
}

/// What issues connection IDs that lead to this server: to its first worker, where the format asks
/// for one. The endpoint gives each worker its own.
fn issued(server_id: ServerId, site: &Site) -> Result<RoutableConnectionIds, String> {
    let codec = site.issuer(&site::aes).ok_or("there is no configuration")?;
    let owner = codec.format().owner().map(|_| Owner { generation: 0, worker: 0 });
    let place = Place { server_id, owner };
    RoutableConnectionIds::new(codec, place).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn behind(path: PathBuf, id: &str, report_to: &[&str]) -> Behind {
        Behind {
            connection_ids: Some(path),
            server_id: Some(site::server_id(id).unwrap()),
            report_to: report_to.iter().map(|address| address.parse().unwrap()).collect(),
            max_udp_payload: None,
        }
    }

    #[test]
    fn what_does_not_fit_together_is_named_and_a_changed_file_is_taken_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("site");
        let good = "config 0 server-id 4 nonce 12 plain\n";
        fs::write(&path, good).unwrap();
        let refused = |id: &str, to: &[&str]| {
            Member::new(&behind(path.clone(), id, to), Workers::Count(1)).unwrap_err()
        };
        assert!(refused("01", &[]).message.contains("--server-id 01"));
        assert!(refused("00000001", &["127.0.0.1:9"]).message.contains("report-key"));
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

    #[tokio::test]
    async fn reports_say_that_it_is_there_and_that_it_drains() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("site");
        let file = "config 0 server-id 1 nonce 7 plain\nreport-key ".to_owned() + &"5a".repeat(32);
        fs::write(&path, file).unwrap();
        let balancer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = balancer.local_addr().unwrap().to_string();
        let member =
            Member::new(&behind(path, "07", &[&address]), Workers::Count(1)).unwrap().unwrap();
        let (drain, draining) = watch::channel(Draining::No);
        let reporting = tokio::spawn(member.report(draining));
        let mut buffer = [0; 100];
        let mut next = async || {
            let len = balancer.recv(&mut buffer).await.unwrap();
            let decoded =
                Report::decode(&buffer[..len], |body, tag| site::sign(&[0x5a; 32], body) == tag);
            decoded.unwrap()
        };
        let first = next().await;
        assert_eq!((first.id.as_slice(), first.draining, first.percent), (&[7][..], false, 100));
        drain.send_replace(Draining::Stopping);
        while !next().await.draining {}
        assert!(next().await.time > first.time);
        reporting.abort();
    }
}
