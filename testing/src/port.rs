use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The lowest port that is given: below are those that services like to have.
const LOWEST: u16 = 10_240;
/// The lowest port that the system gives by itself, where it does not say so.
const USUAL: u16 = 32_768;

/// A port that nobody has, neither for UDP nor for TCP, for a program that is told its port.
///
/// A port that the system chose and that is free again is what somebody else may get next, as a listener or as
/// the near end of a connection. Those given here are below what the system chooses from, no two calls of a
/// process give the same one until all had their turn, and two processes begin at different places.
///
/// # Panics
///
/// If all are taken.
#[track_caller]
pub fn free_port() -> u16 {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    static COUNT: OnceLock<usize> = OnceLock::new();
    let count = *COUNT.get_or_init(|| usize::from(first_of_system().saturating_sub(LOWEST).max(1)));
    // 7,919 is a prime number: neighbours among processes begin far from each other.
    let start = process::id() as usize * 7_919;
    for _ in 0..count {
        let turn = start.wrapping_add(TURN.fetch_add(1, Ordering::Relaxed)) % count;
        let port = LOWEST + u16::try_from(turn).expect("less than the number of ports");
        let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            return port;
        }
    }
    panic!("no port from {LOWEST} is free for both UDP and TCP");
}

/// The lowest port that the system chooses for sockets that name none.
fn first_of_system() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    first.unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice_and_none_that_somebody_has() {
        let taken: Vec<_> = (0..10)
            .map(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, free_port())).unwrap())
            .collect();
        let taken: HashSet<_> = taken.iter().map(|it| it.local_addr().unwrap().port()).collect();
        let given: HashSet<_> = (0..100).map(|_| free_port()).collect();
        assert_eq!((taken.len(), given.len()), (10, 100));
        assert!(taken.is_disjoint(&given));
        assert!(given.iter().all(|&port| (LOWEST..first_of_system()).contains(&port)));
    }
}
