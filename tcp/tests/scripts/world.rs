//! Connections in a time that scripts give, without a port: what Core is to the stack's thread and its callers.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use quicket_packets::icmp::{Failure, Report};
use quicket_packets::{Layout, Memory, Tuple, halves};
use smoltcp::time::{Duration, Instant};

use super::calls::Descriptor;
use super::packet::{Packet, SYN, quote};
use super::script::{Micros, Setting};
use crate::connections::{Connections, Sizes};
use crate::out::Out;
use crate::segment::{Ends, Segment};

/// When scripts begin.
const BEGINNING: Instant = Instant::from_micros_const(1_000_000);
/// Frames that a script may have the stack send.
const FRAMES: u32 = 4096;
/// Timers that come at one time: more than that, and they do so without end.
const MAX_TIMERS: usize = 1000;

pub(super) struct World {
    pub(super) connections: Connections,
    pub(super) out: Out,
    /// Since the script's beginning.
    pub(super) now: Micros,
    pub(super) ends: Ends,
    /// The first sequence number of the stack, once it has sent a SYN.
    ours: u32,
    /// Where the other side's data begins, in the numbers of the script.
    pub(super) begins: u32,
    /// What the stack has sent and the script has not looked at, and when.
    pub(super) sent: VecDeque<(Micros, Packet)>,
    pub(super) descriptors: BTreeMap<i64, Descriptor>,
}

impl World {
    pub(super) fn new(setting: &Setting) -> Self {
        let Setting { is_v4, mtu, receive_buffer: receive, send_buffer: send, .. } = *setting;
        // Addresses for documents (RFC 5737, RFC 3849): the system has none of them, and so no device that has a word in it.
        let address = |last: u8, port| match is_v4 {
            true => SocketAddr::from(([192, 0, 2, last], port)),
            false => SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()], port)),
        };
        let layout = Layout::new(FRAMES, 16, 2048).unwrap();
        Self {
            connections: Connections::new(Sizes { receive, send, mtu }),
            out: Out::new(halves(Memory::create(layout).unwrap()).0),
            now: 0,
            ends: Ends { local: address(1, 8080), remote: address(2, 40_000) },
            ours: 0,
            begins: 1,
            sent: VecDeque::new(),
            descriptors: BTreeMap::new(),
        }
    }

    pub(super) fn instant(&self) -> Instant {
        BEGINNING + Duration::from_micros(self.now)
    }

    /// When the next timer comes, or now if it should have come.
    pub(super) fn next_timer(&self) -> Option<Micros> {
        let next = self.connections.next_timer()?;
        Some(self.now.max((next.total_micros() - BEGINNING.total_micros()) as Micros))
    }

    /// Time goes on until the next timer, which is not before `time`.
    ///
    /// # Errors
    ///
    /// What is wrong with segments that are sent.
    pub(super) fn pass(&mut self, time: Micros) -> Result<(), String> {
        self.now = self.now.max(time);
        for _ in 0..MAX_TIMERS {
            let now = self.instant();
            self.connections.settle_due(&mut self.out, now);
            self.connections.settle_starved(&mut self.out, now);
            if self.next_timer() != Some(self.now) {
                return self.look();
            }
        }
        Err("a timer comes without end".into())
    }

    /// A segment comes.
    ///
    /// # Errors
    ///
    /// What is wrong with segments that are sent.
    pub(super) fn come(&mut self, packet: &Packet) -> Result<(), String> {
        // What a client's data begins with is known once it is answered.
        if packet.flags & SYN != 0 && self.descriptors.values().any(Descriptor::is_connecting) {
            self.begins = packet.sequence.wrapping_add(1);
        }
        let frame = packet.write(&self.ends, self.ours);
        let segment = Segment::read(&frame).ok_or("the segment cannot be read")?;
        let now = self.instant();
        self.connections.deliver(&segment, &mut self.out, now);
        self.settle()
    }

    /// A router says that a segment was too long.
    ///
    /// # Errors
    ///
    /// What is wrong with segments that are sent.
    pub(super) fn hear(&mut self, mtu: u32, sequence: u32) -> Result<(), String> {
        let tuple = |address: SocketAddr| Tuple {
            address: address.ip(),
            protocol: 6,
            port: address.port(),
        };
        let report = Report {
            reporter: self.ends.remote.ip(),
            failure: Failure::TooBig { mtu },
            kind: if self.ends.local.is_ipv4() { (3, 4) } else { (2, 0) },
            source: tuple(self.ends.local),
            destination: tuple(self.ends.remote),
            quoted: &quote(sequence, self.ours),
        };
        let now = self.instant();
        self.connections.hear(&report, now);
        self.settle()
    }

    /// What the stack does after each batch of frames.
    fn settle(&mut self) -> Result<(), String> {
        let now = self.instant();
        self.connections.settle_touched(&mut self.out, now);
        self.pass(self.now)
    }

    /// Notes what was sent.
    pub(super) fn look(&mut self) -> Result<(), String> {
        for frame in std::mem::take(&mut self.out.log) {
            let packet = Packet::read(&frame, &self.ends, &mut self.ours)?;
            if let (SYN, Some(number)) = (packet.flags & SYN, packet.acknowledgment) {
                self.begins = number;
            }
            self.sent.push_back((self.now, packet));
        }
        // Nobody sleeps.
        self.connections.woken.clear();
        Ok(())
    }
}
