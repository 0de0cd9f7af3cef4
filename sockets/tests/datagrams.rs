//! Unreliable datagrams (RFC 9221).

mod common;

use std::thread;
use std::time::Duration;

use common::{configs_with, pair, pair_with};
use quicket::{DatagramError, TransportConfig};

#[test]
fn datagrams_cross_in_both_directions() {
    let (client, server) = pair();
    client.send_datagram(b"there").unwrap();
    assert_eq!(server.recv_datagram().unwrap(), b"there");
    server.send_datagram(b"").unwrap();
    assert_eq!(client.recv_datagram().unwrap(), b"");
    assert_eq!(client.try_recv_datagram(), Err(DatagramError::WouldBlock));
    client.set_timeout(Some(Duration::from_millis(20)));
    assert_eq!(client.recv_datagram(), Err(DatagramError::TimedOut));
}

#[test]
fn a_datagram_of_the_largest_size_arrives_and_a_larger_one_is_refused() {
    let (client, server) = pair();
    let max = client.max_datagram_size().unwrap();
    assert!(max >= 1100, "{max}");
    let data: Vec<u8> = (0..max).map(|i| i as u8).collect();
    client.send_datagram(&data).unwrap();
    server.set_timeout(Some(Duration::from_secs(2)));
    let got = server.recv_datagram();
    assert_eq!(got, Ok(data), "{max}");
    let error = client.send_datagram(&vec![0; 70_000]).unwrap_err();
    assert!(matches!(error, DatagramError::TooLarge { max: now } if now >= max), "{error:?}");
}

#[test]
fn a_peer_that_takes_none_is_respected() {
    let transport = TransportConfig { datagram_receive_buffer: 0, ..TransportConfig::default() };
    let (client, _server) = pair_with(configs_with(transport));
    assert_eq!(client.max_datagram_size(), None);
    assert_eq!(client.send_datagram(b"x"), Err(DatagramError::Unsupported));
}

#[test]
fn many_datagrams_arrive_in_order_on_a_good_path() {
    let (client, server) = pair();
    thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..5000_u32 {
                client.send_datagram(&i.to_be_bytes()).unwrap();
                if i % 100 == 99 {
                    // A word from the reader keeps the queues from overflowing.
                    client.recv_datagram().unwrap();
                }
            }
        });
        for i in 0..5000_u32 {
            assert_eq!(server.recv_datagram().unwrap(), i.to_be_bytes());
            if i % 100 == 99 {
                server.send_datagram(b"go on").unwrap();
            }
        }
    });
}

#[test]
fn the_latest_datagram_makes_room_for_itself() {
    let transport = TransportConfig { datagram_send_buffer: 5000, ..TransportConfig::default() };
    let (client, server) = pair_with(configs_with(transport));
    for i in 0..10_000_u32 {
        client.send_latest_datagram(&[i.to_be_bytes(); 200].concat()).unwrap();
    }
    let mut last = 0;
    while last != 9999 {
        let datagram = server.recv_datagram().unwrap();
        let number = u32::from_be_bytes(datagram[..4].try_into().unwrap());
        assert!(number >= last);
        last = number;
    }
}
