//! The generator of load.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::serve::octet;
use super::transport::{Dialer, Stream};

/// How long a fetch may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is to be fetched.
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) size: usize,
    pub(crate) threads: usize,
    pub(crate) time: Duration,
}

/// What was.
#[derive(Default)]
pub(crate) struct Fetched {
    /// How long each fetch took, in order of length.
    pub(crate) times: Vec<Duration>,
    pub(crate) time: Duration,
    pub(crate) octets: u64,
}

impl Load {
    /// Fetches as often as is possible, each time with a connection.
    pub(crate) fn run<D: Dialer>(&self, dialer: &D) -> io::Result<Fetched> {
        // Nobody has to wait for what is done once.
        self.fetch(dialer, &mut Vec::new())?;
        let all = Mutex::new(Fetched::default());
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|_| scope.spawn(|| self.repeat(dialer, begun, &all)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
            })
        })?;
        let mut all = all.into_inner().map_err(|_| io::Error::other("a thread has panicked"))?;
        all.time = begun.elapsed();
        all.times.sort_unstable();
        Ok(all)
    }

    fn repeat<D: Dialer>(
        &self,
        dialer: &D,
        begun: Instant,
        all: &Mutex<Fetched>,
    ) -> io::Result<()> {
        let (mut times, mut octets, mut answer) = (Vec::new(), 0, Vec::new());
        while begun.elapsed() < self.time {
            let fetched = Instant::now();
            octets += self.fetch(dialer, &mut answer)? as u64;
            times.push(fetched.elapsed());
        }
        if let Ok(mut all) = all.lock() {
            all.times.extend(times);
            all.octets += octets;
        }
        Ok(())
    }

    /// Fetches once. Returns how long the answer was.
    fn fetch<D: Dialer>(&self, dialer: &D, answer: &mut Vec<u8>) -> io::Result<usize> {
        let mut stream = dialer.connect(self.address, PATIENCE)?;
        stream.set_timeout(PATIENCE)?;
        let request = format!("GET /{} HTTP/1.1\r\nhost: {}\r\n\r\n", self.size, self.address);
        stream.write_all(request.as_bytes())?;
        answer.clear();
        stream.read_to_end(answer)?;
        let body = answer.windows(4).position(|end| end == b"\r\n\r\n").map(|at| &answer[at + 4..]);
        let last = self.size.checked_sub(1);
        match body {
            Some(body) if body.len() == self.size && body.last().copied() == last.map(octet) => {
                Ok(answer.len())
            }
            _ => Err(io::Error::new(ErrorKind::InvalidData, "another answer than was asked for")),
        }
    }
}
