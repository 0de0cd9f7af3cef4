use quicket_packets::{Layout, Memory, halves};
use smoltcp::wire::{IpProtocol, IpRepr, TcpControl, TcpRepr, TcpSeqNumber};

use super::*;
use crate::segment::emit;

const SIZES: Sizes = Sizes { receive: 8192, send: 8192, mtu: 1500 };

/// Connections to a listener, in a time of the test's own; what they send is not read.
struct Bench {
    connections: Connections,
    out: Out,
    now: Instant,
    ends: Ends,
}

impl Bench {
    fn new() -> Self {
        let layout = Layout::new(1024, 16, 2048).unwrap();
        let (sender, _) = halves(Memory::create(layout).unwrap());
        let ends =
            Ends { local: ([192, 0, 2, 1], 80).into(), remote: ([192, 0, 2, 2], 1024).into() };
        let mut connections = Connections::new(SIZES);
        connections.owned.listen(ends.local);
        connections.listen(ends.local, 4);
        Self { connections, out: Out::new(sender), now: Instant::from_secs(1), ends }
    }

    /// A segment comes.
    fn come(
        &mut self,
        control: TcpControl,
        sequence: u32,
        acknowledgment: Option<u32>,
        window: u16,
    ) {
        let number = |number: u32| TcpSeqNumber(number.cast_signed());
        let tcp = TcpRepr {
            src_port: self.ends.remote.port(),
            dst_port: self.ends.local.port(),
            control,
            seq_number: number(sequence),
            ack_number: acknowledgment.map(number),
            window_len: window,
            window_scale: None,
            max_seg_size: Some(1460).filter(|_| control == TcpControl::Syn),
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: b"",
        };
        let (source, destination) = (self.ends.remote.ip().into(), self.ends.local.ip().into());
        let ip = IpRepr::new(source, destination, IpProtocol::Tcp, tcp.buffer_len(), 64);
        let mut frame = vec![0; 14 + ip.buffer_len()];
        frame[12..14].copy_from_slice(&[8, 0]);
        emit(&ip, &tcp, &mut frame[14..]);
        let segment = Segment::read(&frame).unwrap();
        self.connections.deliver(&segment, &mut self.out, self.now);
        self.connections.settle_touched(&mut self.out, self.now);
    }

    /// Time goes by, as the thread sees it: from timer to timer.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time.into();
        while let Some(next) = self.connections.next_timer().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.connections.settle_due(&mut self.out, self.now);
        }
        self.now = until;
    }

    /// An accepted connection, and the next sequence number of this side.
    fn accepted(&mut self, window: u16) -> (Id, u32) {
        self.come(TcpControl::Syn, 1000, None, window);
        let number = self.connections.slots[0].as_ref().unwrap().numbers().0;
        self.come(TcpControl::None, 1001, Some(number), window);
        (self.connections.accept(self.ends.local).unwrap(), number)
    }
}

/// One whose other side answers each probe of its window, and never opens it, is not kept.
#[test]
fn a_dropped_stream_ends_when_nothing_more_is_acknowledged() {
    let mut bench = Bench::new();
    let (id, number) = bench.accepted(0);
    assert_eq!(bench.connections.get(id).unwrap().write(&[7; 5000]), Some(5000));
    bench.connections.release(id, &mut bench.out, bench.now);
    for _ in 0..11 {
        assert!(!bench.connections.is_empty());
        bench.pass(Duration::from_secs(5));
        bench.come(TcpControl::None, 1001, Some(number), 0);
    }
    bench.pass(Duration::from_secs(6));
    assert!(bench.connections.is_empty());
    assert_eq!((bench.connections.orphans, bench.connections.is_starved()), (0, false));
}

/// It is not given up for what was before.
#[test]
fn a_stream_that_was_idle_for_long_ends_by_a_fin() {
    let mut bench = Bench::new();
    let (id, number) = bench.accepted(60_000);
    bench.pass(Duration::from_secs(3600));
    bench.connections.release(id, &mut bench.out, bench.now);
    // The FIN has a number.
    assert_eq!(bench.connections.get(id).unwrap().numbers().0, number + 1);
    assert_eq!(bench.connections.get(id).unwrap().state(), State::FinWait1);
    bench.come(TcpControl::Fin, 1001, Some(number + 1), 60_000);
    assert!(bench.connections.is_empty());
    let ends = bench.ends;
    assert!(bench.connections.time_wait.contains(&ends, bench.now));
}

/// RFC 9293, Section 3.8.3: it is tried for long enough, and then given up.
#[test]
fn data_that_is_never_acknowledged_ends_a_connection() {
    let mut bench = Bench::new();
    let (id, _) = bench.accepted(60_000);
    assert_eq!(bench.connections.get(id).unwrap().write(b"lost"), Some(4));
    bench.connections.settle(id, &mut bench.out, bench.now);
    bench.pass(Duration::from_secs(100));
    assert_eq!(bench.connections.get(id).unwrap().error, None);
    bench.pass(Duration::from_secs(100));
    assert_eq!(bench.connections.get(id).unwrap().error, Some(ErrorKind::TimedOut));
    bench.connections.release(id, &mut bench.out, bench.now);
    assert!(bench.connections.is_empty());
}

#[test]
fn an_end_that_is_never_acknowledged_ends_it_too() {
    let mut bench = Bench::new();
    let (id, _) = bench.accepted(60_000);
    bench.connections.get(id).unwrap().close();
    bench.connections.settle(id, &mut bench.out, bench.now);
    bench.pass(Duration::from_secs(119));
    assert_eq!(bench.connections.get(id).unwrap().error, None);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.connections.get(id).unwrap().error, Some(ErrorKind::TimedOut));
}

/// With only a FIN on its way, acknowledgments that say nothing new do not keep it from being sent again.
#[test]
fn a_fin_that_was_lost_is_sent_again() {
    let mut bench = Bench::new();
    let (id, number) = bench.accepted(60_000);
    bench.connections.get(id).unwrap().close();
    bench.connections.settle(id, &mut bench.out, bench.now);
    for _ in 0..4 {
        bench.come(TcpControl::None, 1001, Some(number), 60_000);
    }
    let next = bench.connections.next_timer().unwrap();
    assert!(next < bench.now + Duration::from_secs(4).into(), "it is not sent again");
}

impl Bench {
    /// A router says that a packet of the connection was too long, whose segment began with that number.
    fn too_long(&mut self, sequence: u32, mtu: u32, failure: fn(u32) -> Failure) {
        let tuple = |address: SocketAddr| Tuple {
            address: address.ip(),
            protocol: 6,
            port: address.port(),
        };
        let mut quoted = [0; 8];
        quoted[4..].copy_from_slice(&sequence.to_be_bytes());
        let report = Report {
            reporter: [192, 0, 2, 254].into(),
            failure: failure(mtu),
            kind: (3, 4),
            source: tuple(self.ends.local),
            destination: tuple(self.ends.remote),
            quoted: &quoted,
        };
        self.connections.hear(&report, self.now);
        self.connections.settle_touched(&mut self.out, self.now);
    }

    fn mtu(&mut self, id: Id) -> usize {
        self.connections.get(id).unwrap().mtu()
    }
}

/// RFC 1191, Section 6.5, and RFC 5927, Section 4.1.
#[test]
fn packets_become_as_short_as_routers_say_of_what_is_under_way() {
    let too_big = |mtu| Failure::TooBig { mtu };
    let mut bench = Bench::new();
    let (id, number) = bench.accepted(60_000);
    // Nothing is under way.
    bench.too_long(number, 1000, too_big);
    assert_eq!(bench.mtu(id), 1500);
    assert_eq!(bench.connections.get(id).unwrap().write(&[7; 2920]), Some(2920));
    bench.connections.settle(id, &mut bench.out, bench.now);
    assert_eq!(bench.connections.get(id).unwrap().numbers().0, number + 2920);
    for other in [number.wrapping_sub(1), number + 2920, number + 100_000] {
        bench.too_long(other, 1000, too_big);
        assert_eq!(bench.mtu(id), 1500, "a guess");
    }
    bench.too_long(number + 1460, 1000, |_| Failure::Host);
    assert_eq!(bench.mtu(id), 1500, "another error");
    bench.too_long(number + 1460, 9000, too_big);
    assert_eq!(bench.mtu(id), 1500, "longer than before");
    bench.too_long(number + 1460, 1000, too_big);
    assert_eq!(bench.mtu(id), 1000);
    bench.too_long(number, 68, too_big);
    assert_eq!(bench.mtu(id), 576, "shorter than anybody's");
    // It goes on from what was acknowledged, in segments that are as short.
    bench.come(TcpControl::None, 1001, Some(number + 1460), 60_000);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.connections.get(id).unwrap().error, None);
    bench.come(TcpControl::None, 1001, Some(number + 2920), 60_000);
    assert_eq!(bench.connections.get(id).unwrap().write(&[7; 536]), Some(536));
    bench.connections.settle(id, &mut bench.out, bench.now);
    assert_eq!(bench.connections.get(id).unwrap().numbers().0, number + 3456);
}
