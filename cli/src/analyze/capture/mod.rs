//! Captures (draft-ietf-opsawg-pcapng) whose packets are opened with the secrets that stand in them, told as the events
//! that a qlog would have.
//!
//! A file is read twice: for its secrets, which may stand behind what they open, and for its packets. What is on the wire
//! tells when packets went and what they held, not what their senders thought: congestion windows are not there, and what
//! was lost is inferred (`recovery`).

mod blocks;
mod events;
mod flows;
mod link;
mod recovery;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::path::Path;

use quicket_trace::{KeyLog, Observer, headers};

use super::input;
use super::log::{Log, MAX_CONNECTIONS};
use crate::exit::{Failure, Kind};
use blocks::Block;
use events::Teller;
use flows::Flows;

/// What captures must have.
pub(super) const NEEDED: &str = "a capture is needed that has the first packets of a connection of QUIC and its secrets: \
     make one with quicket gateway capture, or put a log of SSLKEYLOGFILE into one with editcap --inject-secrets \
     tls,KEYS FILE FILE.pcapng";

/// Reads all packets of a file that are there.
pub(super) fn read(path: &Path, log: &mut Log) -> Result<(), Failure> {
    if !path.is_file() {
        let words =
            format!("{}: a capture is read twice; write it into a file first", path.display());
        return Err(Failure::new(Kind::Environment, words));
    }
    let mut keys = KeyLog::default();
    each_block(path, |block| {
        if let Block::Secrets(lines) = block {
            keys.add(&String::from_utf8_lossy(lines));
        }
    })?;
    let sessions = keys.sessions();
    let mut reading = Reading {
        observer: Observer::new(keys).most(MAX_CONNECTIONS),
        flows: Flows::default(),
        teller: Teller::default(),
        counts: Counts::default(),
    };
    let ended = each_block(path, |block| match block {
        Block::Packet(packet) => reading.on_packet(&packet, log),
        Block::Unplaced => reading.counts.unplaced += 1,
        Block::Secrets(_) => {}
    })?;
    if let Some(why) = ended {
        log.on_unreadable(why);
    }
    reading.finish(sessions, log);
    Ok(())
}

/// Gives all blocks of a file out; why it ends too early, if it does.
fn each_block(path: &Path, on_block: impl FnMut(Block<'_>)) -> Result<Option<String>, Failure> {
    let (input, _) = input::open(path)?;
    blocks::each(input, on_block)
        .map_err(|why| Failure::new(Kind::Environment, format!("{}: {why}", path.display())))
}

/// What was left out, and why.
#[derive(Debug, Default)]
struct Counts {
    /// Packets that are no datagrams of UDP, or of a kind of link that is not known.
    others: u64,
    /// Packets of no interface that the file describes, or without a time (Simple Packet Blocks).
    unplaced: u64,
    /// Datagrams that are of no connection that begins in the file.
    strays: u64,
    /// Packets of which the file has a part only.
    cut: u64,
    /// Packets that no secret opens.
    closed: u64,
}

/// A file that is being read.
#[derive(Debug)]
struct Reading {
    observer: Observer,
    flows: Flows,
    teller: Teller,
    counts: Counts,
}

impl Reading {
    fn on_packet(&mut self, packet: &blocks::Packet<'_>, log: &mut Log) {
        let datagram = link::ip_packet(packet.link, packet.data)
            .and_then(|bytes| headers::read(packet.at, bytes));
        let Some(datagram) = datagram else {
            self.counts.others += 1;
            return;
        };
        let Some(from_client) = self.flows.is_from_client(&datagram, &self.observer) else {
            self.counts.strays += 1;
            return;
        };
        let is_cut = datagram.payload.len() < datagram.len;
        let (teller, counts) = (&mut self.teller, &mut self.counts);
        let mut any = false;
        self.observer.datagram(&datagram, from_client, |found| {
            any = true;
            if found.content.is_some() {
                teller.on_packet(&found, packet.way, log);
            } else if found.kind.carries_frames() {
                counts.closed += 1;
            }
        });
        if is_cut {
            counts.cut += 1;
        } else if !any {
            counts.strays += 1;
        }
    }

    /// Tells what is known of connections as a whole, and what was left out.
    fn finish(self, sessions: usize, log: &mut Log) {
        self.teller.finish(self.observer.ciphers(), log);
        let Counts { others, unplaced, strays, cut, closed } = self.counts;
        let mut remark = |count: u64, words: &str| {
            if count > 0 {
                log.remarks.push(format!("{count} {words}"));
            }
        };
        remark(
            closed,
            &format!(
                "packets are not opened: the file has secrets of {sessions} sessions, and none for them; they are left out."
            ),
        );
        remark(
            cut,
            "datagrams are cut, and what is missing of them is left out; counts are too low.",
        );
        remark(
            strays,
            "datagrams are of no connection of QUIC that begins in the file; they are left out.",
        );
        remark(
            others,
            "packets are no datagrams of UDP, or of a kind of link that is not known; they are left out.",
        );
        remark(
            unplaced,
            "packets are of no interface that the file describes, or have no time; they are left out.",
        );
        remark(
            self.observer.beyond(),
            &format!(
                "packets would begin connections beyond the {MAX_CONNECTIONS} that are drawn; they are left out."
            ),
        );
        if log.known > 0 {
            log.remarks.push(
                "Made of a capture: round-trip times and bytes in flight are those of acknowledgements as they were seen \
                 where it was made, losses are inferred from them (RFC 9002, Section 6.1), and congestion windows are not \
                 on the wire."
                    .to_owned(),
            );
        }
    }
}
