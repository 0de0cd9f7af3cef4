//! The site of a measurement: its files, and the connection IDs of its servers.

use std::fmt::Write;
use std::net::Ipv4Addr;

use quicket::steering::aes_128;
use quicket_balancer::{Config, Health, Numbers, Site, Snapshot};
use quicket_engine::random::Random;
use quicket_sim::rng::SimRng;
use quicket_steering::{Place, ServerId};
use quicket_workload::bench::{Failure, Ids};

use super::Assignment;

/// The port of the site.
pub(super) const PORT: u16 = 443;
/// Bytes of a connection ID at most, its length before it.
pub(super) type Id = [u8; 21];

/// The two files, as operators write them.
fn files(address: Ipv4Addr, assignment: &Assignment) -> (String, String) {
    let mut balance = format!("listen {address}:{PORT}\nflows 4194304\n");
    for number in 1..=assignment.servers {
        let _ = writeln!(balance, "server s{number} {} id {number:08x}", server(number));
    }
    let (nonce, key) = match assignment.ids {
        Ids::Plain => (12, "plain"),
        Ids::First | Ids::OnePass => (12, "key 8f95f09245765f80256934e50c66207f"),
        Ids::FourPasses => (8, "key 8f95f09245765f80256934e50c66207f"),
    };
    (balance, format!("config 0 server-id 4 nonce {nonce} {key}\n"))
}

/// The address of a server, counted from 1: never 10.0.0.0, and 10,000 are within 10.0.0.0/8.
pub(super) const fn server(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + number)
}

/// What a balancer of the site at `address` goes by.
pub(super) fn snapshot(
    address: Ipv4Addr,
    assignment: &Assignment,
) -> Result<(Config, Snapshot), Failure> {
    let (balance, site) = files(address, assignment);
    let (config, site) = (Config::parse(&balance)?, Site::parse(&site)?);
    let reader = site.reader(&|key| aes_128(key));
    let snapshot = Snapshot::new(&config, reader, &Health::new(0), &mut Numbers::default(), 0);
    Ok((config, snapshot))
}

/// A connection ID for each flow: of the servers in turn, or what a client makes up.
pub(super) fn ids(assignment: &Assignment) -> Result<Vec<Id>, Failure> {
    let (_, site) = files(Ipv4Addr::LOCALHOST, assignment);
    let site = Site::parse(&site)?;
    let codec = site.issuer(&|key| aes_128(key)).ok_or("nothing is issued")?;
    // Nonces differ, and no more is asked of them.
    let mut rng = SimRng::new(1);
    let mut random = |out: &mut [u8]| rng.fill(out);
    let id = |flow: u32| -> Result<Id, Failure> {
        let mut id = Id::default();
        if assignment.ids == Ids::First {
            id[0] = 8;
            random(&mut id[1..9]);
            return Ok(id);
        }
        let server = 1 + flow % assignment.servers;
        let server_id = ServerId::new(&server.to_be_bytes()).ok_or("no server ID")?;
        let minted = codec.mint(&Place { server_id, owner: None }, &mut random)?;
        let octets = minted.as_slice();
        id[0] = octets.len() as u8;
        id[1..=octets.len()].copy_from_slice(octets);
        Ok(id)
    };
    (0..assignment.flows).map(id).collect()
}

#[cfg(test)]
mod tests {
    use quicket_balancer::{Decision, Flow, Flows, Way};

    use super::*;
    use crate::bench::balance::generator::payload;

    #[test]
    fn datagrams_name_the_servers_in_turn_and_first_packets_none() {
        for ids in [Ids::Plain, Ids::OnePass, Ids::FourPasses, Ids::First] {
            let assignment = Assignment {
                core: 0,
                middle: super::super::Middle::Balancer,
                ids,
                servers: 7,
                flows: 20,
                train: 1,
                milliseconds: 1,
            };
            let (_, snapshot) = snapshot(Ipv4Addr::new(192, 0, 2, 1), &assignment).unwrap();
            let mut flows = Flows::new(1000, 60, [1; 16]);
            let flow = Flow {
                client: "198.51.100.1:5".parse().unwrap(),
                local: "192.0.2.1:443".parse().unwrap(),
            };
            for (number, id) in super::ids(&assignment).unwrap().iter().enumerate() {
                let decision = snapshot.decide(&mut flows, &flow, &payload(ids, id), 1);
                let named = Decision::Forward { server: number % 7, way: Way::Named };
                match ids {
                    Ids::First => assert!(
                        !matches!(decision, Decision::Forward { way: Way::Named, .. }),
                        "{decision:?}"
                    ),
                    _ => assert_eq!(decision, named),
                }
            }
        }
    }
}
