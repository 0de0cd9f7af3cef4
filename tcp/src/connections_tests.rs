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

/// A way out with room for so many frames.
fn out(frames: u32) -> Out {
    let layout = Layout::new(frames, 16, 2048).unwrap();
    Out::new(halves(Memory::create(layout).unwrap()).0)
}

impl Bench {
    fn new() -> Self {
        Self::with(SIZES)
    }

    fn with(sizes: Sizes) -> Self {
        let ends =
            Ends { local: ([192, 0, 2, 1], 80).into(), remote: ([192, 0, 2, 2], 1024).into() };
        let mut connections = Connections::new(sizes);
        connections.owned.listen(ends.local);
        connections.listen(ends.local, 4);
        Self { connections, out: out(1024), now: Instant::from_secs(1), ends }
    }

    /// A segment comes.
    fn come(
        &mut self,
        control: TcpControl,
        sequence: u32,
        acknowledgment: Option<u32>,
        window: u16,
    ) {
        self.bring(control, sequence, acknowledgment, window, b"");
        self.connections.settle_touched(&mut self.out, self.now);
    }

    /// The same with data, before the connection is looked at.
    fn bring(
        &mut self,
        control: TcpControl,
        sequence: u32,
        acknowledgment: Option<u32>,
        window: u16,
        payload: &[u8],
    ) {
        let number = |number: u32| TcpSeqNumber(number.cast_signed());
        let tcp = TcpRepr {
            src_port: self.ends.remote.port(),
            dst_port: self.ends.local.port(),
            control,
            seq_number: number(sequence),
            ack_number: acknowledgment.map(number),
            window_len: window,
            window_scale: Some(0).filter(|_| control == TcpControl::Syn),
            max_seg_size: Some(1460).filter(|_| control == TcpControl::Syn),
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload,
        };
        let (source, destination) = (self.ends.remote.ip().into(), self.ends.local.ip().into());
        let ip = IpRepr::new(source, destination, IpProtocol::Tcp, tcp.buffer_len(), 64);
        let mut frame = vec![0; 14 + ip.buffer_len()];
        frame[12..14].copy_from_slice(&[8, 0]);
        emit(&ip, &tcp, &mut frame[14..]);
        let segment = Segment::read(&frame).unwrap();
        self.connections.deliver(&segment, &mut self.out, self.now);
    }

    /// What was sent since it was asked last: where data begins and how long it is, and whether there is a FIN.
    fn sent(&mut self) -> Vec<(u32, u32, bool)> {
        let of = |frame: Vec<u8>| {
            let header = Segment::read(&frame).unwrap().header;
            let len = header.end().wrapping_sub(header.sequence) - u32::from(header.is_fin());
            (header.sequence, len, header.is_fin())
        };
        std::mem::take(&mut self.out.log).into_iter().map(of).collect()
    }

    /// The connection writes.
    fn write(&mut self, id: Id, data: &[u8]) {
        assert_eq!(self.connections.get(id).unwrap().write(data), Some(data.len()));
        self.connections.settle(id, &mut self.out, self.now);
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

/// RFC 9293, Section 3.8.6.1: a probe carries the last octet and the FIN, and the window stays closed.
#[test]
fn who_acknowledges_the_end_and_has_no_room_is_sent_nothing_more() {
    let mut bench = Bench::new();
    let (id, number) = bench.accepted(9);
    bench.write(id, &[7; 10]);
    assert_eq!(bench.sent().last(), Some(&(number, 9, false)));
    bench.come(TcpControl::None, 1001, Some(number + 9), 0);
    bench.connections.get(id).unwrap().close();
    bench.connections.settle(id, &mut bench.out, bench.now);
    bench.sent();
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.sent(), [(number + 9, 1, true)]);
    bench.come(TcpControl::None, 1001, Some(number + 11), 0);
    assert_eq!(bench.connections.get(id).unwrap().state(), State::FinWait2);
    bench.pass(Duration::from_secs(30));
    assert_eq!((bench.sent(), bench.connections.is_starved()), (vec![], false));
}

/// A connection with a scaled window whose reader has not read, and whose other side has sent all but the last 804 octets of what has
/// room. The window is said in steps of eight octets, and so the last four of them have none any more.
fn nearly_full() -> (Bench, Id, u32, u32) {
    const ROOM: usize = 256 << 10;
    let mut bench = Bench::with(Sizes { receive: ROOM, ..SIZES });
    let (id, number) = bench.accepted(60_000);
    let mut next = 1001;
    for _ in 0..ROOM / 1460 {
        bench.bring(TcpControl::Psh, next, Some(number), 60_000, &[1; 1460]);
        bench.connections.settle_touched(&mut bench.out, bench.now);
        next += 1460;
    }
    bench.pass(Duration::from_secs(1));
    (bench, id, number, next)
}

/// RFC 9293, Section 3.10.7.4: the end is behind all data.
#[test]
fn a_fin_whose_data_had_no_room_is_no_end_yet() {
    let (mut bench, id, number, next) = nearly_full();
    bench.bring(TcpControl::Fin, next, Some(number), 60_000, &[2; 804]);
    let mut all = vec![0; 1 << 20];
    let connection = bench.connections.get(id).unwrap();
    assert_eq!(connection.state(), State::Established);
    assert_eq!(connection.read(&mut all, false), Some((256 << 10) - 4));
    assert_eq!(connection.read(&mut all, false), Some(0), "more comes");
    bench.connections.settle(id, &mut bench.out, bench.now);
    // The same again: what is missing of it now has room.
    bench.bring(TcpControl::Fin, next, Some(number), 60_000, &[2; 804]);
    let connection = bench.connections.get(id).unwrap();
    assert_eq!(connection.state(), State::CloseWait);
    assert_eq!(connection.read(&mut all, false), Some(4));
    assert_eq!(connection.read(&mut all, false), None);
}

#[test]
fn a_fin_whose_data_just_has_room_is_the_end() {
    let (mut bench, id, number, next) = nearly_full();
    bench.bring(TcpControl::Fin, next, Some(number), 60_000, &[2; 800]);
    let connection = bench.connections.get(id).unwrap();
    assert_eq!(connection.state(), State::CloseWait);
    let mut all = vec![0; 1 << 20];
    assert_eq!(connection.read(&mut all, false), Some((256 << 10) - 4));
    assert_eq!(connection.read(&mut all, false), None);
}

/// RFC 5681, Section 3.2.
#[test]
fn what_is_lost_while_the_way_out_is_full_is_sent_again_when_it_is_not() {
    let mut bench = Bench::new();
    let (id, number) = bench.accepted(60_000);
    bench.out = out(16);
    bench.write(id, &[7; 5840]);
    assert_eq!(bench.sent().len(), 4);
    while bench.out.has_room() {
        bench.out.reply(&bench.ends, Reply::Reset { sequence: 0, acknowledgment: None });
    }
    for _ in 0..3 {
        bench.come(TcpControl::None, 1001, Some(number), 60_000);
    }
    assert!(bench.connections.is_starved());
    bench.out = out(16);
    bench.connections.settle_starved(&mut bench.out, bench.now);
    assert_eq!(bench.sent(), [(number, 1460, false)]);
}

/// RFC 9293, Section 3.8.6.1.
#[test]
fn a_window_that_closes_over_data_in_flight_is_probed() {
    let mut bench = Bench::new();
    let (id, number) = bench.accepted(60_000);
    bench.write(id, &[7; 1000]);
    bench.come(TcpControl::None, 1001, Some(number), 0);
    bench.sent();
    // The answers to probes are lost.
    bench.pass(Duration::from_secs(30));
    let sent = bench.sent();
    assert!((2..8).contains(&sent.len()), "{sent:?}");
    assert!(sent.iter().all(|sent| *sent == (number, 1, false)), "{sent:?}");
    bench.come(TcpControl::None, 1001, Some(number), 60_000);
    assert_eq!(bench.sent(), [(number, 1000, false)]);
}

#[test]
fn what_a_closed_window_has_cut_off_is_sent_again_when_it_opens() {
    for closes in [false, true] {
        let mut bench = Bench::new();
        let (id, number) = bench.accepted(60_000);
        bench.write(id, &[7; 2920]);
        if closes {
            bench.connections.get(id).unwrap().close();
            bench.connections.settle(id, &mut bench.out, bench.now);
        }
        bench.come(TcpControl::None, 1001, Some(number + 1460), 0);
        bench.come(TcpControl::None, 1001, Some(number + 1460), 60_000);
        bench.sent();
        bench.pass(Duration::from_millis(1500));
        assert_eq!(bench.sent(), [(number + 1460, 1460, closes)]);
        // From there on, smoltcp has a timer.
        bench.pass(Duration::from_secs(2));
        assert_eq!(bench.sent().first().map(|sent| sent.0), Some(number + 1460));
        bench.come(TcpControl::None, 1001, Some(number + 2920), 60_000);
        assert_eq!(bench.connections.get(id).unwrap().times.again(), None);
    }
}

impl Bench {
    /// A connection of this side's begins. Returns its next sequence number, too.
    fn connect(&mut self) -> (Id, u32) {
        let id = self.connections.connect(self.ends, &mut self.out, self.now).unwrap();
        (id, self.connections.get(id).unwrap().numbers().0)
    }
}

/// RFC 9293, Section 3.10.7.3: it is of a connection that the other side still has from before.
#[test]
fn an_acknowledgment_of_what_was_not_sent_means_nothing_before_the_handshake() {
    let mut bench = Bench::new();
    let (id, number) = bench.connect();
    bench.come(TcpControl::None, 700, Some(number.wrapping_add(1 << 30)), 1000);
    bench.come(TcpControl::Syn, 5000, Some(number), 60_000);
    bench.write(id, &[7; 2920]);
    // RFC 5927, Section 4.1.
    bench.too_long(number.wrapping_add(1 << 31), 1000, |mtu| Failure::TooBig { mtu });
    assert_eq!(bench.mtu(id), 1500);
    bench.too_long(number, 1000, |mtu| Failure::TooBig { mtu });
    assert_eq!(bench.mtu(id), 1000);
}

/// RFC 5961, Section 3.2.
#[test]
fn data_that_comes_with_the_handshake_counts() {
    let mut bench = Bench::new();
    let (id, number) = bench.connect();
    bench.bring(TcpControl::Syn, 5000, Some(number), 60_000, b"");
    bench.bring(TcpControl::Psh, 5001, Some(number), 60_000, b"abc");
    bench.connections.settle_touched(&mut bench.out, bench.now);
    assert_eq!(bench.connections.get(id).unwrap().state(), State::Established);
    // The first acknowledgment stands for both.
    bench.pass(Duration::from_secs(1));
    bench.come(TcpControl::Rst, 5004, Some(number), 0);
    assert_eq!(bench.connections.get(id).unwrap().error, Some(ErrorKind::ConnectionReset));
}

/// RFC 9293, Section 3.8.6.1: it is probed for as long as that is answered, also where the other side has ended first.
#[test]
fn a_window_that_stays_closed_behind_the_other_sides_end_is_probed() {
    let mut bench = Bench::new();
    let (id, number) = bench.accepted(1000);
    bench.come(TcpControl::Fin, 1001, Some(number), 1000);
    bench.write(id, &[7; 3000]);
    bench.come(TcpControl::None, 1002, Some(number + 1000), 0);
    bench.connections.get(id).unwrap().close();
    bench.connections.settle(id, &mut bench.out, bench.now);
    assert_eq!(bench.connections.get(id).unwrap().write(b"more"), None);
    assert!(bench.connections.get(id).unwrap().is_writable());
    bench.sent();
    for _ in 0..10 {
        bench.pass(Duration::from_secs(60));
        let sent = bench.sent();
        assert!(sent.contains(&(number + 1000, 1, false)), "{sent:?}");
        bench.come(TcpControl::None, 1002, Some(number + 1000), 0);
        assert_eq!(bench.connections.get(id).unwrap().error, None);
    }
    bench.come(TcpControl::None, 1002, Some(number + 1000), 60_000);
    let sent = bench.sent();
    assert_eq!(
        sent,
        [(number + 1000, 1460, false), (number + 2460, 540, false), (number + 3000, 0, true)]
    );
    bench.come(TcpControl::None, 1002, Some(number + 3001), 60_000);
    assert!(bench.connections.get(id).unwrap().is_over());
    assert_eq!(bench.connections.get(id).unwrap().error, None);
}

/// A listener whose windows are scaled by three bits.
fn scaled() -> (Bench, Id, u32) {
    let mut bench = Bench::with(Sizes { receive: 256 << 10, ..SIZES });
    let (id, number) = bench.accepted(60_000);
    (bench, id, number)
}

/// RFC 7323, Section 2.2; RFC 5961, Section 4.
#[test]
fn a_challenge_says_the_scaled_window_also_before_anything_else_is_sent() {
    let (mut bench, ..) = scaled();
    let windows = |bench: &mut Bench| -> Vec<u16> {
        let log = std::mem::take(&mut bench.out.log);
        log.iter().map(|frame| Segment::read(frame).unwrap().header.window).collect()
    };
    assert_eq!(windows(&mut bench), [u16::MAX], "that of a SYN is not scaled");
    bench.come(TcpControl::Syn, 1000, None, 60_000);
    assert_eq!(windows(&mut bench), [u16::MAX >> 3]);
}

/// RFC 7323, Section 2.2: the window of a SYN is not scaled, and smoltcp takes it for one that is. A reset that answers a wrong
/// number during the handshake says nothing of a window.
#[test]
fn data_beyond_the_window_of_the_syn_is_not_taken() {
    let offsets = [65_536 - 99, 200_000, 262_144, 300_000, 524_180];
    for (beyond, is_reset) in offsets.into_iter().flat_map(|at| [(at, false), (at, true)]) {
        let mut bench = Bench::with(Sizes { receive: 256 << 10, ..SIZES });
        bench.come(TcpControl::Syn, 1000, None, 60_000);
        let number = bench.connections.slots[0].as_ref().unwrap().numbers().0;
        if is_reset {
            let before = bench.out.log.len();
            bench.come(TcpControl::None, 1001, Some(number.wrapping_add(7)), 60_000);
            let answer = Segment::read(bench.out.log.last().unwrap()).unwrap();
            assert!(bench.out.log.len() > before && answer.header.is_rst());
        }
        bench.come(TcpControl::None, 1001, Some(number), 60_000);
        let id = bench.connections.accept(bench.ends.local).unwrap();
        bench.bring(TcpControl::Psh, 1001 + beyond, Some(number), 60_000, &[7; 100]);
        bench.connections.settle_touched(&mut bench.out, bench.now);
        let mut next = 1001;
        for _ in 0..180 {
            bench.bring(TcpControl::Psh, next, Some(number), 60_000, &[1; 1400]);
            next += 1400;
        }
        bench.connections.settle_touched(&mut bench.out, bench.now);
        let connection = bench.connections.get(id).unwrap();
        assert_eq!(connection.error, None, "{beyond}");
        let mut all = vec![0; 1 << 20];
        // What comes before the first acknowledgment has room there.
        let read = connection.read(&mut all, false).unwrap();
        assert_eq!(read, 46 * 1400, "{beyond}");
        assert!(all[..read].iter().all(|octet| *octet == 1));
    }
}

/// RFC 9293, Section 3.10.7.4: an older acknowledgment is ignored, and the data with it is not.
#[test]
fn data_that_others_have_overtaken_is_taken() {
    let mut bench = Bench::new();
    let (id, number) = bench.accepted(60_000);
    bench.write(id, b"question");
    bench.come(TcpControl::None, 1001, Some(number + 8), 60_000);
    bench.bring(TcpControl::Psh, 1001, Some(number), 1, b"answer");
    let mut all = [0; 9];
    assert_eq!(bench.connections.get(id).unwrap().read(&mut all, false), Some(6));
    // Its window counts no more than that.
    bench.sent();
    bench.write(id, &[7; 100]);
    assert_eq!(bench.sent(), [(number + 8, 100, false)]);
}

/// The other side ends first, and is then gone.
#[test]
fn data_that_is_never_acknowledged_is_told_behind_the_other_sides_end() {
    let mut bench = Bench::new();
    let (id, number) = bench.accepted(60_000);
    bench.come(TcpControl::Fin, 1001, Some(number), 60_000);
    assert_eq!(bench.connections.get(id).unwrap().read(&mut [0; 9], false), None);
    bench.write(id, b"lost");
    bench.pass(Duration::from_secs(200));
    assert_eq!(bench.connections.get(id).unwrap().error, Some(ErrorKind::TimedOut));
}
