//! What waits to be written. Connections put it in and wait for nothing but this lock, under which nobody writes; what
//! there is no room for is lost, and counted.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use quicket::{Captured, EcnCodepoint, QlogPlace};

/// What waits of datagrams at most, in bytes.
const MAX_BYTES: usize = 32 << 20;
/// From this on what is oldest is written at once, until half of it is left.
const MUCH: usize = MAX_BYTES / 2;
/// ... of secrets.
const MAX_SECRETS: usize = 4 << 20;
/// ... of qlogs, beside what waits for this.
const MAX_QLOGS: usize = 4 << 20;
/// What a train costs beside its bytes.
const OVERHEAD: usize = 128;
/// How long datagrams wait, so that secrets are written before what they open.
pub(super) const HOLD: Duration = Duration::from_millis(100);
/// How often whoever writes looks.
const LOOK: Duration = Duration::from_millis(20);

/// Datagrams that came or went together.
#[derive(Debug)]
pub(super) struct Train {
    pub(super) at: SystemTime,
    since: Instant,
    pub(super) sent: bool,
    pub(super) remote: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) ecn: EcnCodepoint,
    /// The lengths on the wire: of each but the last, and of all.
    pub(super) segment_size: usize,
    pub(super) len: usize,
    /// How much is kept of each.
    pub(super) keep: usize,
    /// What is kept.
    pub(super) bytes: Vec<u8>,
}

/// A piece of a qlog.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) name: String,
    pub(super) is_new: bool,
    pub(super) bytes: Vec<u8>,
}

/// How much was seen and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) datagrams: u64,
    pub(super) lost: u64,
    pub(super) secrets_lost: u64,
}

/// What is there to be written.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) secrets: Vec<String>,
    pub(super) trains: Vec<Train>,
    pub(super) pieces: Vec<Piece>,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Something changed for whoever puts pieces in.
    room: Condvar,
    /// There is much to write.
    much: Condvar,
}

#[derive(Default)]
struct State {
    trains: VecDeque<Train>,
    bytes: usize,
    secrets: Vec<String>,
    secret_bytes: usize,
    pieces: Vec<Piece>,
    piece_bytes: usize,
    counts: Counts,
    /// Nothing more is to wait for room.
    is_closing: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Datagrams, of each of which so many bytes are kept.
    pub(super) fn datagrams(&self, captured: &Captured<'_>, keep: usize) {
        let Captured { sent, remote, local, ecn, segment_size, bytes } = *captured;
        let number = bytes.len().div_ceil(segment_size);
        let kept = match keep >= segment_size {
            true => bytes.len(),
            false => number * keep,
        };
        let cost = kept + OVERHEAD;
        let is_much;
        {
            let mut state = self.state();
            state.counts.datagrams += number as u64;
            if state.bytes + cost > MAX_BYTES {
                state.counts.lost += number as u64;
                return;
            }
            is_much = state.bytes <= MUCH && state.bytes + cost > MUCH;
            // Before the copy, which takes longer.
            state.bytes += cost;
        }
        let kept: Vec<u8> = match keep >= segment_size {
            true => bytes.to_vec(),
            false => {
                let each = bytes.chunks(segment_size).map(|one| &one[..one.len().min(keep)]);
                each.collect::<Vec<_>>().concat()
            }
        };
        let (at, since, len) = (SystemTime::now(), Instant::now(), bytes.len());
        let bytes = kept;
        let train = Train { at, since, sent, remote, local, ecn, segment_size, len, keep, bytes };
        let mut state = self.state();
        // What was reserved for the kept part that is not there, as the last may be shorter.
        state.bytes -= cost - train.cost();
        state.trains.push_back(train);
        drop(state);
        if is_much {
            self.much.notify_one();
        }
    }

    pub(super) fn secret(&self, line: &str) {
        let mut state = self.state();
        if state.secret_bytes + line.len() > MAX_SECRETS {
            state.counts.secrets_lost += 1;
            return;
        }
        state.secret_bytes += line.len();
        state.secrets.push(line.to_owned());
    }

    pub(super) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Waits a little for something to write. All that there is, once nothing comes any more.
    pub(super) fn take(&self, all: bool) -> Batch {
        let mut state = self.state();
        if !all {
            let is_little = |state: &mut State| state.bytes <= MUCH;
            let waited = self.much.wait_timeout_while(state, LOOK, is_little);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut batch = Batch {
            secrets: std::mem::take(&mut state.secrets),
            pieces: std::mem::take(&mut state.pieces),
            trains: Vec::new(),
        };
        (state.secret_bytes, state.piece_bytes) = (0, 0);
        let now = Instant::now();
        let least = if state.bytes > MUCH { MUCH / 2 } else { MAX_BYTES };
        while let Some(train) = state.trains.front()
            && (all || now.duration_since(train.since) >= HOLD || state.bytes > least)
        {
            state.bytes -= train.cost();
            batch.trains.extend(state.trains.pop_front());
        }
        drop(state);
        self.room.notify_all();
        batch
    }

    /// From now on nobody waits for room.
    pub(super) fn close(&self) {
        self.state().is_closing = true;
        self.room.notify_all();
    }
}

impl Train {
    fn cost(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }

    /// What is kept of each datagram, and how long it was.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let kept = self.keep.min(self.segment_size);
        let lengths = (0..self.len).step_by(self.segment_size);
        let lengths = lengths.map(|at| self.segment_size.min(self.len - at));
        // Each but the last is of one size, and the last no longer.
        self.bytes.chunks(kept.max(1)).zip(lengths)
    }
}

/// Where qlogs go.
pub(super) struct Pieces(pub(super) Arc<Queue>);

impl QlogPlace for Pieces {
    /// Waits while there is no room: events gather in the log meanwhile, which is bounded.
    fn append(&self, name: &str, is_new: bool, bytes: &[u8]) -> std::io::Result<()> {
        let queue = &self.0;
        let is_full = |state: &mut State| !state.is_closing && state.piece_bytes >= MAX_QLOGS;
        let waited = queue.room.wait_while(queue.state(), is_full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.piece_bytes += bytes.len();
        let (name, bytes) = (name.to_owned(), bytes.to_vec());
        state.pieces.push(Piece { name, is_new, bytes });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(bytes: &[u8], segment_size: usize) -> Captured<'_> {
        let (remote, local) = ("192.0.2.7:1".parse().unwrap(), "192.0.2.1:443".parse().unwrap());
        Captured { sent: false, remote, local, ecn: EcnCodepoint::NotEct, segment_size, bytes }
    }

    #[test]
    fn a_flood_is_bounded_and_what_is_lost_is_counted() {
        let queue = Queue::default();
        let train = vec![7; 60_000];
        for _ in 0..1000 {
            queue.datagrams(&captured(&train, 1200), usize::MAX);
        }
        let held: usize = queue.state().trains.iter().map(|train| train.bytes.len()).sum();
        // What trains cost beside their bytes counts, too.
        assert!(held <= MAX_BYTES && held > MAX_BYTES / 100 * 99, "{held}");
        let Counts { datagrams, lost, .. } = queue.counts();
        assert_eq!(datagrams, 50_000);
        assert_eq!(lost, 50_000 - held as u64 / 1200);
        for _ in 0..100_000 {
            queue.secret(&"x".repeat(100));
        }
        assert!(queue.counts().secrets_lost > 50_000);
        // There is room again once it is written.
        let batch = queue.take(true);
        assert_eq!(batch.trains.len() * 60_000, held);
        queue.datagrams(&captured(&train, 1200), usize::MAX);
        assert_eq!(queue.counts().lost, lost);
        assert_eq!(queue.state().bytes, 60_000 + OVERHEAD);
    }

    #[test]
    fn of_each_datagram_as_much_is_kept_as_is_wanted() {
        let queue = Queue::default();
        let bytes: Vec<u8> = (0..25).collect();
        queue.datagrams(&captured(&bytes, 10), 4);
        queue.datagrams(&captured(&bytes, 10), 7);
        queue.datagrams(&captured(&bytes, 10), 100);
        queue.datagrams(&captured(&bytes[..3], 10), 4);
        let batch = queue.take(true);
        let kept = |at: usize| -> Vec<(Vec<u8>, usize)> {
            batch.trains[at].datagrams().map(|(kept, len)| (kept.to_vec(), len)).collect()
        };
        let part = |from: u8, to: u8| (from..to).collect::<Vec<u8>>();
        assert_eq!(kept(0), [(part(0, 4), 10), (part(10, 14), 10), (part(20, 24), 5)]);
        assert_eq!(kept(1), [(part(0, 7), 10), (part(10, 17), 10), (part(20, 25), 5)]);
        assert_eq!(kept(2), [(part(0, 10), 10), (part(10, 20), 10), (part(20, 25), 5)]);
        assert_eq!(kept(3), [(part(0, 3), 3)]);
        assert_eq!(queue.state().bytes, 0);
    }

    #[test]
    fn datagrams_wait_for_secrets_and_qlogs_for_room() {
        let queue = Arc::new(Queue::default());
        queue.datagrams(&captured(&[1], 1), usize::MAX);
        queue.secret("line");
        let now = Instant::now();
        // However busy the machine is.
        queue.state().trains[0].since = now + Duration::from_secs(3600);
        let batch = queue.take(false);
        assert_eq!((batch.trains.len(), batch.secrets.len()), (0, 1));
        queue.state().trains[0].since = now.checked_sub(HOLD).unwrap();
        assert_eq!(queue.take(false).trains.len(), 1);
        let pieces = Pieces(Arc::clone(&queue));
        pieces.append("a", true, &vec![0; MAX_QLOGS]).unwrap();
        let (begins, has_begun) = std::sync::mpsc::channel();
        let waits = std::thread::spawn(move || {
            begins.send(()).unwrap();
            pieces.append("a", false, &[1]).unwrap();
        });
        has_begun.recv().unwrap();
        // Time for a piece that did not wait to get in.
        std::thread::sleep(Duration::from_millis(50));
        let first = queue.take(true).pieces;
        assert_eq!((first.len(), first[0].is_new), (1, true));
        waits.join().unwrap();
        let second = queue.take(true).pieces;
        assert_eq!((second.len(), &second[0].bytes[..]), (1, &[1][..]));
        queue.close();
        Pieces(Arc::clone(&queue)).append("a", false, &vec![0; 2 * MAX_QLOGS]).unwrap();
        Pieces(queue).append("a", false, &[0]).unwrap();
    }

    #[test]
    fn whoever_writes_waits_unless_there_is_much_and_takes_many_then() {
        let queue = Queue::default();
        let fill = |to: usize| {
            while queue.state().bytes <= to {
                queue.datagrams(&captured(&[7; 60_000], 1200), usize::MAX);
            }
            let later = Instant::now() + Duration::from_secs(3600);
            queue.state().trains.iter_mut().for_each(|train| train.since = later);
        };
        fill(MUCH / 2);
        let begun = Instant::now();
        assert!(queue.take(false).trains.is_empty());
        assert!(begun.elapsed() >= LOOK, "it does not try again and again");
        fill(MUCH);
        assert!(queue.take(false).trains.len() > 100);
        assert!(queue.state().bytes <= MUCH / 2);
    }
}
