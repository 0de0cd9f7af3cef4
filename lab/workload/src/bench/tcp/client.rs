//! The client of the benchmark.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Lane, Peer, Protocol, prepare};
use crate::bench::{
    Assignment, Client, Congestion, EXCHANGE_LENGTH, Failure, HEADER_LENGTH, Latencies, Link,
    Pattern, Request, Role, Session, Transfer, Unsupported, Usage,
};

/// What a connection is made with.
struct Dialer<P> {
    protocol: P,
    server: SocketAddr,
    congestion: Congestion,
}

impl<P: Protocol> Dialer<P> {
    fn dial(&self, session: Session, lane: &mut Lane<P>) -> Result<P::Channel, Failure> {
        lane.clear();
        let tcp = TcpStream::connect(self.server)?;
        prepare(&tcp, self.congestion)?;
        self.protocol.connect(tcp, session, &mut lane.buffers)
    }

    /// Makes handshakes on one thread as long as `more` says so.
    fn handshakes(
        &self,
        lane: &mut Lane<P>,
        more: impl Fn() -> bool,
    ) -> Result<Latencies, Failure> {
        let mut latencies = Latencies::default();
        while more() {
            let start = Instant::now();
            let channel = self.dial(Session::None, lane)?;
            latencies.record(start, Instant::now());
            P::close(channel, &mut lane.buffers)?;
        }
        Ok(latencies)
    }
}

/// A client over TCP.
pub struct TcpClient<P: Protocol> {
    dialer: Dialer<P>,
    lane: Lane<P>,
    block: Vec<u8>,
}

impl<P: Protocol> TcpClient<P> {
    /// The client that the assignment asks for.
    ///
    /// # Errors
    ///
    /// When it is no client's, or its files cannot be used.
    pub fn new(assignment: &Assignment) -> Result<Self, Failure> {
        let Role::Client { connect, .. } = &assignment.role else {
            return Err("not told to be a client".into());
        };
        let dialer = Dialer {
            protocol: P::new(assignment)?,
            server: *connect,
            congestion: assignment.conditions.congestion,
        };
        Ok(Self { dialer, lane: Lane::default(), block: Pattern::new(false).block() })
    }

    /// Fills `answer`.
    fn read(&mut self, channel: &mut P::Channel, answer: &mut [u8]) -> Result<(), Failure> {
        match self.lane.read_exact(channel, answer)? {
            Peer::Open => Ok(()),
            Peer::Closed => Err("the server closed the connection".into()),
        }
    }

    /// Sends a request that is only a header and fills `answer`.
    fn ask(
        &mut self,
        channel: &mut P::Channel,
        request: Request,
        answer: &mut [u8],
    ) -> Result<(), Failure> {
        self.lane.write(channel, &request.encode())?;
        self.read(channel, answer)
    }

    fn exchange(&mut self, channel: &mut P::Channel, number: u64) -> Result<(), Failure> {
        let message = Request::exchange(number);
        self.lane.write(channel, &message)?;
        let mut answer = [0; EXCHANGE_LENGTH];
        self.read(channel, &mut answer)?;
        if answer == message {
            Ok(())
        } else {
            Err(format!("the answer to exchange {number} differs").into())
        }
    }
}

impl<P: Protocol> Client for TcpClient<P> {
    type Connection = P::Channel;

    fn sockets(connections: usize) -> usize {
        connections
    }

    fn connect(&mut self) -> Result<P::Channel, Failure> {
        self.dialer.dial(Session::None, &mut self.lane)
    }

    fn close(&mut self, channel: P::Channel) -> Result<(), Failure> {
        P::close(channel, &mut self.lane.buffers)
    }

    fn link(&mut self, channel: &P::Channel) -> Link {
        P::link(channel)
    }

    fn upload(&mut self, channel: &mut P::Channel, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { bytes, unique, .. } = transfer;
        let lane = &mut self.lane;
        lane.write(channel, &Request::Upload { bytes, unique }.encode())?;
        transfer.send(&self.block, |piece| lane.write(channel, piece))?;
        let mut answer = [0; 8];
        self.read(channel, &mut answer)?;
        if u64::from_be_bytes(answer) == bytes {
            Ok(())
        } else {
            Err("the server confirms another number of bytes".into())
        }
    }

    fn download(&mut self, channel: &mut P::Channel, transfer: Transfer) -> Result<(), Failure> {
        self.lane.write(channel, &Request::download(transfer).encode())?;
        self.lane.receive(channel, transfer)
    }

    fn exchange_while(
        &mut self,
        channel: &mut P::Channel,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        let mut latencies = Latencies::with_capacity(1 << 20);
        let mut number = 0;
        while more(number) {
            let start = Instant::now();
            self.exchange(channel, number)?;
            latencies.record(start, Instant::now());
            number += 1;
        }
        Ok(latencies)
    }

    fn handshake_while(
        &mut self,
        concurrency: usize,
        more: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Latencies, Failure> {
        let begun = AtomicU64::new(0);
        let more = || more(begun.fetch_add(1, Ordering::Relaxed));
        let dialer = &self.dialer;
        if concurrency == 1 {
            return dialer.handshakes(&mut self.lane, more);
        }
        Latencies::of_threads(concurrency, || dialer.handshakes(&mut Lane::default(), more))
    }

    fn first_byte_while(
        &mut self,
        session: Session,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        let mut latencies = Latencies::default();
        let mut begun = 0;
        while more(begun) {
            let start = Instant::now();
            let mut channel = self.dialer.dial(session, &mut self.lane)?;
            // The whole answer is in one segment.
            self.exchange(&mut channel, begun)?;
            latencies.record(start, Instant::now());
            P::close(channel, &mut self.lane.buffers)?;
            begun += 1;
        }
        Ok(latencies)
    }

    fn streams_while(
        &mut self,
        _: &mut P::Channel,
        _: usize,
        _: Transfer,
        _: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        Err(Unsupported("TCP has no streams").into())
    }

    fn connections_while(
        &mut self,
        channels: &mut [P::Channel],
        transfer: Transfer,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        let request = Request::download(transfer).encode();
        let mut latencies = Latencies::default();
        let mut begun = 0;
        let mut under_way = VecDeque::with_capacity(channels.len());
        for (index, channel) in channels.iter_mut().enumerate() {
            if more(begun) {
                begun += 1;
                under_way.push_back((index, Instant::now()));
                self.lane.write(channel, &request)?;
            }
        }
        // Each that ends is followed by the next one on its connection at once.
        while let Some((index, start)) = under_way.pop_front() {
            let channel = &mut channels[index];
            self.lane.receive(channel, transfer)?;
            latencies.record(start, Instant::now());
            if more(begun) {
                begun += 1;
                under_way.push_back((index, Instant::now()));
                self.lane.write(channel, &request)?;
            }
        }
        Ok(latencies)
    }

    fn flow(
        &mut self,
        channel: &mut P::Channel,
        more: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), Failure> {
        let endless = Request::download(Transfer::new(u64::MAX));
        // What is left in it in the end is none of the next connection's business.
        let mut lane = Lane::<P>::default();
        lane.write(channel, &endless.encode())?;
        lane.count(channel, more)
    }

    fn usage(&mut self, channel: &mut P::Channel) -> Result<Usage, Failure> {
        let mut answer = [0; Usage::LENGTH];
        self.ask(channel, Request::Usage, &mut answer)?;
        Ok(Usage::decode(&answer))
    }

    fn hold(&mut self, channel: &mut P::Channel) -> Result<(), Failure> {
        self.ask(channel, Request::Hold, &mut [0; HEADER_LENGTH])
    }

    fn rest(&mut self, duration: Duration) {
        std::thread::sleep(duration);
    }
}
