//! Floods of SYNs from addresses that nobody has.

use quicket_packets::{Layout, Memory, halves};
use smoltcp::wire::{IpProtocol, IpRepr, TcpControl, TcpRepr, TcpSeqNumber};

use super::*;
use crate::listening::MAX_HALF_OPEN;
use crate::segment::emit;

const SIZES: Sizes = Sizes { receive: 256 << 10, send: 256 << 10, mtu: 1500 };

fn out() -> Out {
    let layout = Layout::new(1024, 16, 2048).unwrap();
    Out::new(halves(Memory::create(layout).unwrap()).0)
}

fn ends(number: u16) -> Ends {
    let [high, low] = number.to_be_bytes();
    Ends { local: ([127, 0, 0, 1], 80).into(), remote: ([127, 9, high, low], 1024).into() }
}

fn come(connections: &mut Connections, out: &mut Out, ends: Ends, ack: Option<u32>, now: Instant) {
    let tcp = TcpRepr {
        src_port: ends.remote.port(),
        dst_port: ends.local.port(),
        control: if ack.is_none() { TcpControl::Syn } else { TcpControl::None },
        seq_number: TcpSeqNumber(if ack.is_none() { 7 } else { 8 }),
        ack_number: ack.map(|number| TcpSeqNumber(number.cast_signed())),
        window_len: 60_000,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: b"",
    };
    let (source, destination) = (ends.remote.ip().into(), ends.local.ip().into());
    let ip = IpRepr::new(source, destination, IpProtocol::Tcp, tcp.buffer_len(), 64);
    let mut frame = vec![0; 14 + ip.buffer_len()];
    frame[12..14].copy_from_slice(&[8, 0]);
    emit(&ip, &tcp, &mut frame[14..]);
    connections.deliver(&Segment::read(&frame).unwrap(), out, now);
    connections.settle_touched(out, now);
}

/// Each SYN would be four system calls for its buffers, and five to ask how long packets to its address may be. Answers to SYNs are sent
/// again as long as nobody acknowledges them.
#[test]
fn most_syns_of_a_flood_cost_no_system_call() {
    let (mut connections, mut now) = (Connections::new(SIZES), Instant::from_secs(1));
    connections.owned.listen(ends(0).local);
    connections.listen(ends(0).local, 4);
    let mut way_out = out();
    for number in 0..3000 {
        // 100 in a second.
        now += Duration::from_millis(10).into();
        if number % 500 == 0 {
            way_out = out();
        }
        come(&mut connections, &mut way_out, ends(number), None, now);
        connections.settle_due(&mut way_out, now);
    }
    assert_eq!(connections.made, MAX_HALF_OPEN);
    // At once.
    for number in 3000..6000 {
        if number % 500 == 0 {
            way_out = out();
        }
        come(&mut connections, &mut way_out, ends(number), None, now);
    }
    assert_eq!(connections.made, MAX_HALF_OPEN);
    let knows_way =
        |connection: &Connection| matches!(connection.role, Role::HalfOpen { knows_way: true, .. });
    assert!(!connections.slots.iter().flatten().any(|connection| knows_way(connection)));
    // The last one is somebody.
    let last = ends(5999);
    let id = connections.by_ends[&last];
    let number = connections.get(id).unwrap().numbers().0;
    connections.way.learn((last.local.ip(), last.remote.ip()), 1300, now);
    come(&mut connections, &mut way_out, last, Some(number), now);
    let connection = connections.get(id).unwrap();
    assert_eq!((connection.role, connection.mtu()), (Role::Queued, 1300));
    assert_eq!(connection.write(&[7; 3000]), Some(3000));
    way_out.log.clear();
    connections.settle(id, &mut way_out, now);
    let longest = way_out.log.iter().map(Vec::len).max();
    assert!(longest.is_some_and(|longest| longest <= 14 + 1300), "{longest:?}");
}
