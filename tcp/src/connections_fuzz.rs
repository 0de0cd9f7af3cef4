//! What strangers send to a listener, for fuzzing.

use quicket_packets::{Layout, Memory, halves};
use smoltcp::wire::{IpProtocol, IpRepr, TcpControl, TcpRepr, TcpSeqNumber};

use super::*;
use crate::segment::emit;

const SIZES: Sizes = Sizes { receive: 4096, send: 4096, mtu: 1280 };
const BACKLOG: usize = 3;
/// What the other sides begin with.
const FIRST: u32 = 0xffff_ff00;

/// A listener, its connections and their far ends, in a time of its own. Nobody takes what they send: after a while there is
/// no room.
struct Bench {
    connections: Connections,
    out: Out,
    now: Instant,
    local: SocketAddr,
    accepted: VecDeque<Id>,
}

/// Eight bytes are a step: what happens, of which connection, and numbers.
pub(crate) fn run(bytes: &[u8]) {
    let layout = Layout::new(256, 16, 1344).expect("a layout");
    let (sender, _) = halves(Memory::create(layout).expect("memory"));
    let local: SocketAddr = ([192, 0, 2, 1], 80).into();
    let mut connections = Connections::new(SIZES);
    assert!(connections.owned.listen(local));
    connections.listen(local, BACKLOG);
    let (out, now) = (Out::new(sender), Instant::from_secs(1));
    let mut bench = Bench { connections, out, now, local, accepted: VecDeque::new() };
    for step in bytes.chunks(8) {
        let mut all = [0; 8];
        all[..step.len()].copy_from_slice(step);
        bench.step(all);
        bench.check();
    }
    bench.end();
}

impl Bench {
    fn step(&mut self, [what, who, flags, a, b, c, d, e]: [u8; 8]) {
        let Self { connections, out, now, accepted, .. } = self;
        match what & 15 {
            0 => {
                // From timer to timer.
                let until = *now + smoltcp::time::Duration::from_millis(u64::from(a) << (b % 12));
                while let Some(next) = connections.next_timer().filter(|next| *next <= until) {
                    *now = next.max(*now);
                    connections.settle_due(out, *now);
                }
                *now = until;
            }
            1 => accepted.extend(connections.accept(self.local)),
            2 => {
                if let Some(id) = accepted.pop_front() {
                    connections.release(id, out, *now);
                }
            }
            3 | 4 => {
                let Some(id) = accepted.get(usize::from(who) % accepted.len().max(1)) else {
                    return;
                };
                let connection = connections.get(*id).expect("it is held");
                let mut buffer = vec![a; usize::from(a) << (b & 7)];
                let _ = match what & 15 {
                    3 => connection.read(&mut buffer, c & 1 != 0),
                    _ => connection.write(&buffer),
                };
                connections.settle(*id, out, *now);
            }
            5 => {
                let Some(id) = accepted.get(usize::from(who) % accepted.len().max(1)) else {
                    return;
                };
                connections.get(*id).expect("it is held").close();
                connections.settle(*id, out, *now);
            }
            6 => connections.settle_starved(out, *now),
            _ => self.come(who, flags, [a, b], [c, d], e),
        }
    }

    /// A segment comes from one of a few ends, whose numbers are not far from what is expected.
    fn come(&mut self, who: u8, flags: u8, sequence: [u8; 2], acknowledgment: [u8; 2], e: u8) {
        let ends =
            Ends { local: self.local, remote: ([192, 0, 2, 2], 1024 + u16::from(who % 6)).into() };
        let known = self.connections.by_ends.get(&ends).copied();
        let numbers = known.and_then(|id| self.connections.slots[id].as_deref());
        let (sent, expected) = match numbers.map(Connection::numbers) {
            Some((sent, expected)) if expected != 0 => (sent, expected),
            _ => (0, FIRST),
        };
        let offset = |bytes| i32::from(i16::from_be_bytes(bytes)).cast_unsigned();
        let control = match flags & 7 {
            0 | 1 => TcpControl::Syn,
            2 => TcpControl::Fin,
            3 => TcpControl::Rst,
            4 => TcpControl::Psh,
            _ => TcpControl::None,
        };
        // Most often, exactly the next.
        let is_off = flags & 8 != 0;
        let by = |bytes, is_off: bool| if is_off { offset(bytes) } else { 0 };
        let number = |number: u32| TcpSeqNumber(number.cast_signed());
        let payload = vec![e; if flags & 16 != 0 { usize::from(e) * 5 } else { 0 }];
        let tcp = TcpRepr {
            src_port: ends.remote.port(),
            dst_port: ends.local.port(),
            control,
            seq_number: number(expected.wrapping_add(by(sequence, is_off))),
            ack_number: (flags & 32 == 0)
                .then(|| number(sent.wrapping_add(by(acknowledgment, flags & 64 != 0)))),
            window_len: if flags & 128 != 0 { u16::from(e) } else { 60_000 },
            window_scale: (control == TcpControl::Syn).then_some(e % 16),
            max_seg_size: (control == TcpControl::Syn)
                .then_some(u16::from_be_bytes(acknowledgment)),
            sack_permitted: e & 1 != 0,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &payload,
        };
        let (source, destination) = (ends.remote.ip().into(), ends.local.ip().into());
        let ip = IpRepr::new(source, destination, IpProtocol::Tcp, tcp.buffer_len(), 64);
        let mut frame = vec![0; 14 + ip.buffer_len()];
        frame[12..14].copy_from_slice(&[8, 0]);
        emit(&ip, &tcp, &mut frame[14..]);
        let segment = Segment::read(&frame).expect("it is one");
        let Self { connections, out, now, .. } = self;
        connections.deliver(&segment, out, *now);
        connections.settle_touched(out, *now);
    }

    /// What holds at any time.
    fn check(&mut self) {
        // No buffer here has so many segments that others have their turn: who waits for his own sends without end.
        assert!(!self.connections.is_starved() || !self.out.has_room());
        let Connections { slots, by_ends, listening, orphans, .. } = &self.connections;
        let all = || slots.iter().flatten();
        for connection in all() {
            assert_ne!(connection.error, Some(ErrorKind::Other), "smoltcp has panicked");
            // What waits for its acknowledgment was written, or is a FIN.
            let flight = connection.flight().unwrap_or_default();
            assert!(flight as usize <= SIZES.send + 1, "{flight}");
        }
        assert_eq!(
            all().filter(|connection| !connection.place.is_detached()).count(),
            by_ends.len()
        );
        assert_eq!(all().filter(|connection| connection.role == Role::Orphan).count(), *orphans);
        let queued = all().filter(|connection| connection.role == Role::Queued).count();
        assert!(queued <= BACKLOG && listening.len() == 1);
        assert!(
            by_ends
                .iter()
                .all(|(ends, id)| slots[*id].as_ref().is_some_and(|c| c.place.ends == *ends))
        );
    }

    /// All is given back.
    fn end(mut self) {
        let Self { connections, out, now, accepted, local } = &mut self;
        for id in accepted.drain(..) {
            connections.release(id, out, *now);
        }
        connections.listen_no_more(*local, out, *now);
        connections.fail(ErrorKind::ConnectionReset);
        assert!(connections.is_empty() && connections.by_ends.is_empty());
        assert!(!connections.owned.has(*local) && connections.owned.take_surplus() == [*local]);
    }
}
