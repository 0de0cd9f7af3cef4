//! One server of a site.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quicket::steering::{Owner, Place, RoutableConnectionIds, ServerId, SwitchError};
use quicket::steering::{SwitchableConnectionIds, aes_128};
use quicket::{ConnectionIdGenerator, EndpointConfig, Workers};
use quicket_balancer::{Report, Site, SiteConfiguration};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use crate::error::MemberError;
use crate::keys::{sign, wall_clock};

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

/// Who gets reports, and what they are signed with.
#[derive(Clone, Default)]
struct Reports {
    to: Vec<SocketAddr>,
    key: Option<[u8; 32]>,
}

impl Reports {
    fn new(site: &Site, to: &[SocketAddr]) -> Result<Self, MemberError> {
        let key = site.report_key().copied();
        match key.is_some() || to.is_empty() {
            true => Ok(Self { to: to.to_vec(), key }),
            false => Err(MemberError::NoReportKey),
        }
    }
}

/// The key is not printed.
impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reports").field("to", &self.to).finish_non_exhaustive()
    }
}

/// A server of a site.
#[derive(Debug)]
pub struct Member {
    id: ServerId,
    ids: Ids,
    reports: watch::Sender<Reports>,
}

/// What a file says now, checked, and not yet in use.
#[derive(Debug)]
pub struct Change {
    ids: RoutableConnectionIds,
    reports: Reports,
    number: u8,
}

impl Member {
    /// The server of this ID, which reports to these balancers.
    ///
    /// # Errors
    ///
    /// If the ID or the number of workers does not fit into connection IDs, or there is no key for reports.
    pub fn new(
        site: &Site,
        id: ServerId,
        report_to: &[SocketAddr],
        workers: Workers,
    ) -> Result<Self, MemberError> {
        let ids = issued(id, site)?;
        let ids = match (workers.count().map_err(MemberError::Workers)?, written(site)) {
            (1, _) | (_, None) => Ids::Switchable(SwitchableConnectionIds::new(ids)),
            (workers, Some(configuration)) => {
                has_room(id, site, workers)?;
                Ids::Fixed(ids, configuration)
            }
        };
        let reports = Reports::new(site, report_to)?;
        Ok(Self { id, ids, reports: watch::Sender::new(reports) })
    }

    /// The ID by which balancers know it.
    #[must_use]
    pub const fn id(&self) -> ServerId {
        self.id
    }

    /// Has an endpoint issue connection IDs that lead to this server.
    #[must_use]
    pub fn configure(&self, config: EndpointConfig) -> EndpointConfig {
        match &self.ids {
            Ids::Switchable(ids) => config.connection_ids(ids.clone()),
            Ids::Fixed(ids, _) => config.connection_ids(ids.clone()),
        }
    }

    /// Checks what the file says now, and changes nothing yet.
    ///
    /// # Errors
    ///
    /// If it cannot be taken up.
    pub fn prepare(&self, site: &Site, report_to: &[SocketAddr]) -> Result<Change, MemberError> {
        let new = issued(self.id, site)?;
        match &self.ids {
            Ids::Switchable(ids) if ids.len() != new.len() => {
                let (in_use, new) = (ids.len(), new.len());
                return Err(MemberError::Length(SwitchError { in_use, new }));
            }
            Ids::Fixed(_, before) if written(site) != Some(*before) => {
                return Err(MemberError::Restart);
            }
            Ids::Switchable(_) | Ids::Fixed(..) => {}
        }
        let reports = Reports::new(site, report_to)?;
        Ok(Change { ids: new, reports, number: site.issue().number() })
    }

    /// Issues connection IDs as the file says now: those that peers have stay valid. Says how in words.
    ///
    /// # Errors
    ///
    /// If the change is one that another server has checked.
    pub fn take_up(&self, change: Change) -> Result<String, MemberError> {
        if let Ids::Switchable(ids) = &self.ids {
            ids.switch(change.ids).map_err(MemberError::Length)?;
        }
        self.reports.send_replace(change.reports);
        Ok(format!("connection IDs of configuration {}", change.number))
    }

    /// Reports every second, and at once when the server begins to drain, as `drains` says of its stage; until
    /// nobody can set the stage any more.
    pub async fn report<T>(
        self: Arc<Self>,
        mut stage: watch::Receiver<T>,
        drains: impl Fn(&T) -> bool,
    ) {
        let mut reports = self.reports.subscribe();
        let (mut v4, mut v6) = (None, None);
        let mut last = 0;
        loop {
            let Reports { to, key } = reports.borrow_and_update().clone();
            // Each is later than the one before, even where two are made in a millisecond.
            let time = wall_clock().max(last + 1);
            last = time;
            let draining = drains(&stage.borrow_and_update());
            let report = Report { id: self.id, time, draining, percent: 100 };
            if let Some(key) = key {
                let datagram = report.encode(|body| sign(&key, body));
                for address in &to {
                    let socket = match address {
                        SocketAddr::V4(_) => bound(&mut v4, Ipv4Addr::UNSPECIFIED.into()).await,
                        SocketAddr::V6(_) => bound(&mut v6, Ipv6Addr::UNSPECIFIED.into()).await,
                    };
                    if let Some(socket) = socket {
                        // A balancer that is not there may come back.
                        let _ = socket.send_to(&datagram, address).await;
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL), if !to.is_empty() => {}
                _ = reports.changed() => {}
                changed = stage.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// The socket that is there, or else a new one. Where none can be had, the next report tries again.
async fn bound(held: &mut Option<UdpSocket>, any: IpAddr) -> Option<&UdpSocket> {
    if held.is_none() {
        *held = UdpSocket::bind((any, 0)).await.ok();
    }
    held.as_ref()
}

/// The configuration that servers write.
fn written(site: &Site) -> Option<SiteConfiguration> {
    site.configurations().iter().find(|one| one.id == site.issue()).copied()
}

/// Checks that connection IDs can lead to each of the workers.
fn has_room(server_id: ServerId, site: &Site, workers: usize) -> Result<(), MemberError> {
    let last = u16::try_from(workers - 1).ok();
    let fits = site.issuer(&aes_128).zip(last).is_some_and(|(codec, worker)| {
        codec.check(&Place { server_id, owner: Some(Owner { generation: 0, worker }) }).is_ok()
    });
    if fits { Ok(()) } else { Err(MemberError::NoRoom(workers)) }
}

/// What issues connection IDs that lead to this server: to its first worker, where the format asks
/// for one. The endpoint gives each worker its own.
fn issued(server_id: ServerId, site: &Site) -> Result<RoutableConnectionIds, MemberError> {
    let codec = site.issuer(&aes_128).ok_or(MemberError::NoConfiguration)?;
    let owner = codec.format().owner().map(|_| Owner { generation: 0, worker: 0 });
    RoutableConnectionIds::new(codec, Place { server_id, owner }).map_err(MemberError::ServerId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{server_id, verify};

    const PLAIN: &str = "config 0 server-id 4 nonce 12 plain\n";
    const OWNER: &str = "config 0 server-id 4 nonce 12 plain owner 1 mask 0011223344556677\n";

    fn member(file: &str, id: &str, to: &[SocketAddr], workers: usize) -> Result<Member, String> {
        let (site, id) = (Site::parse(file).unwrap(), server_id(id).unwrap());
        Member::new(&site, id, to, Workers::Count(workers)).map_err(|error| error.to_string())
    }

    fn again(member: &Member, file: &str, to: &[SocketAddr]) -> Result<String, String> {
        let prepared = member.prepare(&Site::parse(file).unwrap(), to);
        prepared.and_then(|change| member.take_up(change)).map_err(|error| error.to_string())
    }

    fn key() -> String {
        format!("report-key {}\n", "5a".repeat(32))
    }

    #[test]
    fn what_does_not_fit_together_is_named_and_a_changed_file_is_taken_up() {
        let to = ["127.0.0.1:9".parse().unwrap()];
        assert!(member(PLAIN, "01", &[], 1).unwrap_err().contains("not the format's length"));
        assert!(member(PLAIN, "00000001", &to, 1).unwrap_err().contains("report-key"));
        assert!(member(PLAIN, "00000001", &[], 0).unwrap_err().contains("1 to 256 workers"));
        let member = member(PLAIN, "00000001", &[], 1).unwrap();
        let next = format!("{PLAIN}config 1 server-id 4 nonce 12 plain\nissue 1");
        assert_eq!(again(&member, &next, &[]).unwrap(), "connection IDs of configuration 1");
        for (wrong, why) in [
            ("config 1 server-id 4 nonce 13 plain", "18 octets"),
            ("config 1 server-id 5 nonce 11 plain", "not the format's length"),
        ] {
            let error = again(&member, wrong, &[]).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(again(&member, &next, &to).unwrap_err().contains("report-key"));
        let printed = format!("{:?}", self::member(&(key() + PLAIN), "00000001", &to, 1));
        assert!(!printed.contains("90"), "the key is not printed: {printed}");
    }

    #[test]
    fn several_workers_need_room_and_keep_what_they_began_with() {
        let error = |file, workers| member(file, "00000001", &[], workers).unwrap_err();
        assert!(error(PLAIN, 2).contains("\"owner 1 mask HEX\""));
        assert!(error(OWNER, 17).contains("\"owner 2 mask HEX\""));
        let member = member(OWNER, "00000001", &[], 16).unwrap();
        let read = format!("{OWNER}{}issue 0", OWNER.replace("config 0", "config 1"));
        again(&member, &read, &[]).unwrap();
        let written = read.replace("issue 0", "issue 1");
        assert!(again(&member, &written, &[]).unwrap_err().contains("restart"));
    }

    #[tokio::test]
    async fn reports_say_that_it_is_there_and_that_it_drains() {
        let file = "config 0 server-id 1 nonce 7 plain\n".to_owned() + &key();
        let balancer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let to = [balancer.local_addr().unwrap()];
        let member = Arc::new(member(&file, "07", &[], 1).unwrap());
        let (drain, draining) = watch::channel(false);
        let reporting = tokio::spawn(Arc::clone(&member).report(draining, |drains| *drains));
        let mut buffer = [0; 100];
        let mut next = async || {
            let received =
                tokio::time::timeout(Duration::from_secs(20), balancer.recv(&mut buffer));
            let len = received.await.expect("a report").unwrap();
            Report::decode(&buffer[..len], |body, tag| verify(&[0x5a; 32], body, tag)).unwrap()
        };
        // Whom to tell may come with a reload.
        again(&member, &file, &to).unwrap();
        let first = next().await;
        assert_eq!((first.id.as_slice(), first.draining, first.percent), (&[7][..], false, 100));
        drain.send_replace(true);
        while !next().await.draining {}
        assert!(next().await.time > first.time);
        drop(drain);
        tokio::time::timeout(Duration::from_secs(20), reporting).await.expect("an end").unwrap();
    }
}
