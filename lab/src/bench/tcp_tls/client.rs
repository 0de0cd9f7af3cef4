//! The client of the benchmark.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quicket_workload::bench::{
    Assignment, Client, EXCHANGE_LENGTH, Failure, HEADER_LENGTH, Latencies, Link, Pattern, Request,
    Role, SERVER_NAME, Transfer, Usage, client_config,
};
use rustls::ClientConfig;
use rustls::client::UnbufferedClientConnection;

use super::channel::{Buffers, Channel, Peer};
use super::server::transmit;

type ClientChannel = Channel<UnbufferedClientConnection>;

/// A client over TLS and TCP.
pub(in crate::bench) struct TcpTlsClient {
    config: Arc<ClientConfig>,
    server: SocketAddr,
    buffers: Buffers,
    block: Vec<u8>,
}

impl TcpTlsClient {
    pub(in crate::bench) fn new(assignment: &Assignment) -> Result<Self, Failure> {
        let Role::Client { connect, roots, .. } = &assignment.role else {
            return Err("not told to be a client".into());
        };
        Ok(Self {
            config: Arc::new(client_config(assignment.cipher, roots)?),
            server: *connect,
            buffers: Buffers::default(),
            block: Pattern::new(false).block(),
        })
    }

    /// Sends a request that is only a header and fills `answer`.
    fn ask(
        &mut self,
        channel: &mut ClientChannel,
        request: Request,
        answer: &mut [u8],
    ) -> Result<(), Failure> {
        channel.write(&mut self.buffers, &request.encode())?;
        read(channel, &mut self.buffers, answer)
    }
}

fn establish(
    config: &Arc<ClientConfig>,
    server: SocketAddr,
    buffers: &mut Buffers,
) -> Result<ClientChannel, Failure> {
    let tls = UnbufferedClientConnection::new(config.clone(), SERVER_NAME.try_into()?)?;
    Channel::establish(TcpStream::connect(server)?, tls, buffers)
}

fn read(
    channel: &mut ClientChannel,
    buffers: &mut Buffers,
    answer: &mut [u8],
) -> Result<(), Failure> {
    match channel.read_exact(buffers, answer)? {
        Peer::Open => Ok(()),
        Peer::Closed => Err("the server closed the connection".into()),
    }
}

impl Client for TcpTlsClient {
    type Connection = ClientChannel;

    fn sockets(connections: usize) -> usize {
        connections
    }

    fn connect(&mut self) -> Result<ClientChannel, Failure> {
        establish(&self.config, self.server, &mut self.buffers)
    }

    fn close(&mut self, channel: ClientChannel) -> Result<(), Failure> {
        channel.close(&mut self.buffers)
    }

    fn link(&mut self, channel: &ClientChannel) -> Link {
        channel.link()
    }

    fn upload(&mut self, channel: &mut ClientChannel, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { bytes, unique } = transfer;
        channel.write(&mut self.buffers, &Request::Upload { bytes, unique }.encode())?;
        transmit(channel, &mut self.buffers, bytes, unique, &self.block)?;
        let mut answer = [0; 8];
        read(channel, &mut self.buffers, &mut answer)?;
        if u64::from_be_bytes(answer) == bytes {
            Ok(())
        } else {
            Err("the server confirms another number of bytes".into())
        }
    }

    fn download(&mut self, channel: &mut ClientChannel, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { bytes, unique } = transfer;
        channel.write(&mut self.buffers, &Request::Download { bytes, unique }.encode())?;
        let pattern = Pattern::new(unique);
        channel.read_stream(&mut self.buffers, bytes, |offset, data| pattern.check(offset, data))
    }

    fn exchange_while(
        &mut self,
        channel: &mut ClientChannel,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure> {
        let mut latencies = Latencies::with_capacity(1 << 20);
        let mut number = 0;
        while more(number) {
            let start = Instant::now();
            let message = Request::exchange(number);
            channel.write(&mut self.buffers, &message)?;
            let mut answer = [0; EXCHANGE_LENGTH];
            read(channel, &mut self.buffers, &mut answer)?;
            if answer != message {
                return Err(format!("the answer to exchange {number} differs").into());
            }
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
        let (config, server) = (&self.config, self.server);
        let lane = |buffers: &mut Buffers| {
            let mut latencies = Latencies::default();
            while more(begun.fetch_add(1, Ordering::Relaxed)) {
                let start = Instant::now();
                let channel = establish(config, server, buffers)?;
                latencies.record(start, Instant::now());
                channel.close(buffers)?;
            }
            Ok::<_, Failure>(latencies)
        };
        if concurrency == 1 {
            return lane(&mut self.buffers);
        }
        std::thread::scope(|scope| {
            let lanes: Vec<_> =
                (0..concurrency).map(|_| scope.spawn(|| lane(&mut Buffers::default()))).collect();
            let mut all = Latencies::default();
            for lane in lanes {
                all.merge(lane.join().map_err(|_| "a thread panicked")??);
            }
            Ok(all)
        })
    }

    fn usage(&mut self, channel: &mut ClientChannel) -> Result<Usage, Failure> {
        let mut answer = [0; Usage::LENGTH];
        self.ask(channel, Request::Usage, &mut answer)?;
        Ok(Usage::decode(&answer))
    }

    fn hold(&mut self, channel: &mut ClientChannel) -> Result<(), Failure> {
        self.ask(channel, Request::Hold, &mut [0; HEADER_LENGTH])
    }

    fn rest(&mut self, duration: Duration) {
        std::thread::sleep(duration);
    }
}
