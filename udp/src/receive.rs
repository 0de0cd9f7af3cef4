//! Receiving: trains of datagrams, many at a time.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

use quicket_wire::EcnCodepoint;
use quinn_udp::RecvMeta;

use crate::address::{canonical, is_unicast};
use crate::send::ecn_to;
use crate::{Arrival, Port, UdpSocket};

/// Room for one train: what receive offload may join, or the largest datagram.
const TRAIN: usize = 64 << 10;
/// The most trains that one system call may bring.
const MAX_TRAINS: usize = quinn_udp::BATCH_SIZE;
/// How many trains are asked for while they are long, so that they stay in the cache until they
/// are processed, and while they come one by one: to ask for more costs more, also when nothing is there.
const FEW_TRAINS: usize = 4;
/// Trains longer than this on average count as long.
const LONG: usize = 16 << 10;

/// A buffer of its own for one train.
pub type TrainBuffer = Box<[u8]>;

/// After so many batches of which nothing was taken away, buffers that are there for that are given back.
const MOST_UNTAKEN: u32 = 64;

/// Buffers for one call of [`UdpSocket::receive`]; reused for the life of an endpoint.
pub struct ReceiveBuffers {
    bytes: Vec<u8>,
    /// In place of those, for places whose trains are taken away as they are ([`Batch::take`]).
    loose: [Option<TrainBuffer>; MAX_TRAINS],
    meta: [RecvMeta; MAX_TRAINS],
    /// How many trains to ask for next.
    ask: usize,
    /// How many batches have come, one after the other, of which no train was taken away.
    untaken: u32,
}

impl ReceiveBuffers {
    /// Room for the trains of one call. Pages that no train has reached cost nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: vec![0; MAX_TRAINS * TRAIN],
            loose: [const { None }; MAX_TRAINS],
            meta: [RecvMeta::default(); MAX_TRAINS],
            ask: MAX_TRAINS,
            untaken: 0,
        }
    }
}

impl Default for ReceiveBuffers {
    fn default() -> Self {
        Self::new()
    }
}

/// What one system call brought.
pub struct Batch<'a> {
    bytes: &'a mut [u8],
    loose: &'a mut [Option<TrainBuffer>; MAX_TRAINS],
    untaken: &'a mut u32,
    meta: &'a [RecvMeta],
    /// The port that all of it came to.
    port: u16,
    /// True if the socket may hold more.
    pub more: bool,
    /// True if it brought much: whoever waits for it should have it while it is in the cache.
    pub long: bool,
    /// True if it was read from a socket that is lent ([`Port::is_lent`]): it is for anybody at the address.
    pub lent: bool,
}

/// How many errors in a row may be what ICMP says, before one counts as the socket's own.
const MOST_ECHOES: usize = 64;

/// Datagrams of equal size (the last may be shorter) that came from one address to one address
/// with one ECN mark.
pub struct Train<'a> {
    /// The sender.
    pub remote: SocketAddr,
    /// The address of ours that they were sent to, if known.
    pub local: Option<SocketAddr>,
    /// The mark in their IP headers.
    pub ecn: EcnCodepoint,
    /// Size of each datagram but the last.
    pub stride: usize,
    /// Which of its batch it is ([`Batch::take`]).
    pub place: usize,
    /// All of them.
    pub bytes: &'a mut [u8],
}

impl Train<'_> {
    /// What is known of it.
    #[must_use]
    pub const fn arrival(&self) -> Arrival {
        let Self { remote, local, ecn, stride, ref bytes, .. } = *self;
        Arrival { remote, local, ecn, stride, len: bytes.len() }
    }
}

impl<'a> Batch<'a> {
    /// Goes through the trains. Datagrams that nobody could answer (from port 0, or to a group)
    /// are left out: RFC 9000 knows no such peers, and sending there fails.
    pub fn trains(&mut self) -> impl Iterator<Item = Train<'_>> {
        let places = self.bytes.chunks_exact_mut(TRAIN).zip(self.loose.iter_mut());
        places.zip(self.meta).enumerate().filter_map(|(place, ((bytes, loose), meta))| {
            let bytes = loose.as_deref_mut().unwrap_or(bytes);
            let remote = canonical(meta.addr);
            let local = meta.dst_ip.map(|ip| canonical(SocketAddr::new(ip, self.port)));
            if remote.port() == 0 || !local.is_none_or(|local| is_unicast(local.ip())) {
                return None;
            }
            Some(Train {
                remote,
                local,
                ecn: ecn_from(meta.ecn),
                stride: meta.stride.max(1),
                place,
                bytes: bytes.get_mut(..meta.len)?,
            })
        })
    }

    /// Takes a train away as it lies, without copying it; but for the first one of each place. What it leaves there for
    /// the next one is `spare`, or a new buffer. The train begins the buffer, which has room for any.
    ///
    /// None for a place that has no train.
    pub fn take(&mut self, place: usize, spare: Option<TrainBuffer>) -> Option<TrainBuffer> {
        let len = self.meta.get(place)?.len;
        *self.untaken = 0;
        let spare = spare.filter(|spare| spare.len() == TRAIN).unwrap_or_else(new_buffer);
        let loose = self.loose.get_mut(place)?;
        if let Some(taken) = loose.replace(spare) {
            return Some(taken);
        }
        let bytes = self.bytes.chunks_exact(TRAIN).nth(place)?.get(..len)?;
        let mut taken = new_buffer();
        taken.get_mut(..len)?.copy_from_slice(bytes);
        Some(taken)
    }
}

impl UdpSocket {
    /// Receives what has arrived, without waiting: `WouldBlock` if there is nothing.
    ///
    /// # Errors
    ///
    /// What the system refuses, beside what concerns an earlier send.
    pub fn receive<'a>(&self, buffers: &'a mut ReceiveBuffers) -> io::Result<Batch<'a>> {
        #[cfg(any(test, feature = "faults"))]
        self.faults.check_receive()?;
        let port = self.local.port();
        let Some(from) = self.port.as_deref() else {
            let came = receive_with(buffers, |slices, meta| self.receive_from_kernel(slices, meta));
            return Ok(came?.of(buffers, port));
        };
        match receive_by(from, buffers) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && from.is_lent() => {
                let came =
                    receive_with(buffers, |slices, meta| self.receive_from_kernel(slices, meta));
                let came = came?;
                from.on_read_lent();
                Ok(Came { lent: true, ..came }.of(buffers, port))
            }
            // The socket is yet to be read.
            Ok(came) => Ok(Came { more: came.more || from.is_lent(), ..came }.of(buffers, port)),
            Err(error) => Err(error),
        }
    }

    /// The same for what comes by the port beside the socket ([`Self::beside`]).
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing, or no such port; what the system refuses.
    pub fn receive_beside<'a>(&self, buffers: &'a mut ReceiveBuffers) -> io::Result<Batch<'a>> {
        let port = self.beside.as_deref().ok_or(io::ErrorKind::WouldBlock)?;
        receive_from_port(port, self.local.port(), buffers)
    }

    fn receive_from_kernel(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> io::Result<usize> {
        let mut receive = || self.state.recv((&self.io).into(), buffers, meta);
        for _ in 0..MOST_ECHOES {
            match receive() {
                Err(error) if self.icmp.explains(&error) => {}
                result => return result,
            }
        }
        receive()
    }
}

/// What came, and lies in the buffers.
struct Came {
    count: usize,
    more: bool,
    long: bool,
    lent: bool,
}

impl Came {
    fn of(self, buffers: &mut ReceiveBuffers, port: u16) -> Batch<'_> {
        let Self { count, more, long, lent } = self;
        let ReceiveBuffers { bytes, loose, meta, untaken, .. } = buffers;
        let meta = meta.get(..count).unwrap_or_default();
        Batch { bytes, loose, untaken, meta, port, more, long, lent }
    }
}

fn new_buffer() -> TrainBuffer {
    vec![0; TRAIN].into_boxed_slice()
}

fn receive_with(
    buffers: &mut ReceiveBuffers,
    receive: impl FnOnce(&mut [IoSliceMut<'_>], &mut [RecvMeta]) -> io::Result<usize>,
) -> io::Result<Came> {
    let ask = buffers.ask;
    if buffers.untaken >= MOST_UNTAKEN {
        buffers.loose.fill_with(|| None);
        buffers.untaken = 0;
    }
    let ReceiveBuffers { bytes, loose, meta, .. } = buffers;
    let count = if ask <= FEW_TRAINS {
        receive(&mut slices::<FEW_TRAINS>(bytes, loose)[..ask], meta)?
    } else {
        receive(&mut slices::<MAX_TRAINS>(bytes, loose)[..ask], meta)?
    };
    let meta = buffers.meta.get(..count).unwrap_or_default();
    let total: usize = meta.iter().map(|m| m.len).sum();
    let long = total > LONG * count;
    buffers.ask = ask_next(ask, count, long);
    buffers.untaken += 1;
    Ok(Came { count, more: count == ask, long, lent: false })
}

/// How many trains to ask for after `count` came of `ask`: a few more than came, and all if there may be
/// more than was asked for.
fn ask_next(ask: usize, count: usize, long: bool) -> usize {
    match count {
        _ if long => FEW_TRAINS,
        _ if count >= ask => MAX_TRAINS,
        _ => (2 * count).clamp(FEW_TRAINS, MAX_TRAINS),
    }
}

/// The first places for trains.
fn slices<'a, const COUNT: usize>(
    bytes: &'a mut [u8],
    loose: &'a mut [Option<TrainBuffer>; MAX_TRAINS],
) -> [IoSliceMut<'a>; COUNT] {
    let mut places = bytes.chunks_exact_mut(TRAIN).zip(loose.iter_mut());
    std::array::from_fn(|_| {
        let place = places.next();
        let place = place.map(|(bytes, loose)| loose.as_deref_mut().unwrap_or(bytes));
        IoSliceMut::new(place.unwrap_or_default())
    })
}

/// Receives what somebody has handed over, without waiting; `local_port` is the one that it came to.
///
/// # Errors
///
/// `WouldBlock` if there is nothing; what the system refuses.
pub fn receive_from_port<'a>(
    port: &dyn Port,
    local_port: u16,
    buffers: &'a mut ReceiveBuffers,
) -> io::Result<Batch<'a>> {
    Ok(receive_by(port, buffers)?.of(buffers, local_port))
}

fn receive_by(port: &dyn Port, buffers: &mut ReceiveBuffers) -> io::Result<Came> {
    receive_with(buffers, |slices, meta| {
        let mut arrivals = [Arrival::default(); MAX_TRAINS];
        let count = port.receive(slices, &mut arrivals)?.min(slices.len());
        for (meta, arrival) in meta.iter_mut().zip(&arrivals).take(count) {
            *meta = RecvMeta::default();
            meta.addr = arrival.remote;
            meta.dst_ip = arrival.local.map(|local| local.ip());
            meta.ecn = ecn_to(arrival.ecn);
            (meta.stride, meta.len) = (arrival.stride, arrival.len);
        }
        Ok(count)
    })
}

const fn ecn_from(ecn: Option<quinn_udp::EcnCodepoint>) -> EcnCodepoint {
    match ecn {
        None => EcnCodepoint::NotEct,
        Some(quinn_udp::EcnCodepoint::Ect0) => EcnCodepoint::Ect0,
        Some(quinn_udp::EcnCodepoint::Ect1) => EcnCodepoint::Ect1,
        Some(quinn_udp::EcnCodepoint::Ce) => EcnCodepoint::Ce,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UdpConfig;

    /// Few are asked for while they come one by one, and all as soon as there are more.
    #[test]
    fn what_is_asked_for_follows_what_comes() {
        let receiver =
            crate::UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpConfig::default());
        let receiver = receiver.unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut buffers = ReceiveBuffers::new();
        let mut receive = |count: u8| {
            // Of different lengths, so that they are not joined.
            let content = [0; 256];
            (1..=count).for_each(|length| {
                sender.send_to(&content[..usize::from(length)], receiver.local_addr()).unwrap();
            });
            let mut came = Vec::new();
            while came.iter().sum::<usize>() < usize::from(count) {
                came.push(receiver.receive(&mut buffers).unwrap().trains().count());
            }
            (came, buffers.ask)
        };
        assert_eq!(receive(1), (vec![1], FEW_TRAINS));
        assert_eq!(receive(1), (vec![1], FEW_TRAINS));
        assert_eq!(receive(10), (vec![FEW_TRAINS, 6], 12));
        assert_eq!(receive(10), (vec![10], 20));
        assert_eq!(receive(1), (vec![1], FEW_TRAINS));
    }

    #[test]
    fn datagrams_that_nobody_could_answer_are_left_out() {
        // The kernel sends none from port 0, so that the check is made on a made-up batch.
        let mut buffers = ReceiveBuffers::new();
        for (i, (remote, local)) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("127.0.0.1:9", "224.0.0.1"),
            ("[::ffff:127.0.0.1]:9", "::ffff:127.0.0.1"),
        ]
        .into_iter()
        .enumerate()
        {
            buffers.meta[i].addr = remote.parse().unwrap();
            buffers.meta[i].dst_ip = Some(local.parse().unwrap());
            buffers.meta[i].len = i + 1;
        }
        let mut batch =
            Came { count: 3, more: false, long: false, lent: false }.of(&mut buffers, 7);
        let kept: Vec<_> = batch.trains().map(|t| (t.remote, t.local, t.bytes.len())).collect();
        let address: SocketAddr = "127.0.0.1:9".parse().unwrap();
        assert_eq!(kept, [(address, Some(SocketAddr::new(address.ip(), 7)), 3)]);
    }

    /// Trains are whole where they are taken away, and the places are there for the next ones; other trains stay.
    #[test]
    fn trains_are_taken_away_as_they_lie() {
        let receiver =
            crate::UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpConfig::default());
        let receiver = receiver.unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut buffers = ReceiveBuffers::new();
        let mut spare = None;
        for round in 0..5_u8 {
            // Of different lengths, so that they are not joined.
            for train in 0..3_u8 {
                let content = vec![16 * round + train; 1000 + usize::from(train)];
                sender.send_to(&content, receiver.local_addr()).unwrap();
            }
            let mut batch = receiver.receive(&mut buffers).unwrap();
            let places: Vec<_> = batch.trains().map(|train| train.place).collect();
            assert_eq!(places, [0, 1, 2]);
            let had = spare.as_ref().map(|spare: &TrainBuffer| spare.as_ptr());
            for place in [0, 2] {
                let taken = batch.take(place, spare.take()).unwrap();
                assert_eq!(taken.len(), TRAIN);
                let content = vec![16 * round + place as u8; 1000 + place];
                assert_eq!(taken[..content.len()], content, "{round}");
                spare = Some(taken);
            }
            let left = batch.trains().find(|train| train.place == 1).unwrap();
            assert_eq!(left.bytes, [16 * round + 1; 1001]);
            assert!(had.is_none() || buffers.loose[0].as_ref().map(|at| at.as_ptr()) == had);
            let mut batch =
                Came { count: 3, more: false, long: false, lent: false }.of(&mut buffers, 7);
            assert!(batch.take(3, None).is_none());
            // A buffer that is too short is none.
            assert_eq!(batch.take(1, Some(Box::default())).map(|taken| taken.len()), Some(TRAIN));
            assert_eq!(buffers.loose[1].as_ref().map(|buffer| buffer.len()), Some(TRAIN));
        }
    }
}
