//! Which clients a program took that the kernel brought to it past the switch: memory of both.
//!
//! Where a program is alone at an address, the kernel brings it what begins a connection (`docs/switch.md`), and the
//! switch hears of none of it. When that ends, clients are half-way through their first packets: the rest of what they
//! send to connection IDs of their own choice comes to the switch, which looks here whose they are. Nobody has to be
//! asked, and the program may stand still or be dead.
//!
//! The memory is a sealed memfd, in which the last [`MAX_NOTED`] are written down, one behind the other and round about.
//! It is read and written by calls of the system, so that neither can harm the other: what makes no sense is nobody's.
//! Numbers are in network byte order. Times are of a clock that both sides have and nobody sets (CLOCK_BOOTTIME).
//!
//! | Octets | What |
//! | --- | --- |
//! | 8 | how many clients were noted since the program came |
//! | 32 | 0 |
//! | 40, for each | number of the client, from 1 on (8); when it came, in seconds since the system was started (8); the worker (2); the length of the connection ID (1), and it (20); 0 (1) |

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::time::{ClockId, clock_gettime};
use quicket_wire::ConnectionId;

use crate::pins::PIN_TIME;

/// How many clients are in a ledger: the last ones.
pub const MAX_NOTED: usize = 16_384;
/// Octets of one.
const ENTRY: usize = 40;
/// Octets of all, the head included.
const LEN: usize = (MAX_NOTED + 1) * ENTRY;
/// Nobody cuts off what another one reads.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW);

/// The program's side: it writes.
pub struct Ledger {
    memory: File,
    /// How many there are. Held while one is written: who reads a number finds all up to it.
    noted: Mutex<u64>,
}

/// The switch's side: it reads.
#[derive(Debug)]
pub(crate) struct LedgerReader(File);

impl Ledger {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// When the system has no memory, or no descriptor is left.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let memory = File::from(memfd_create(c"quicket-ledger", flags)?);
        memory.set_len(LEN as u64)?;
        fcntl(&memory, FcntlArg::F_ADD_SEALS(SEALS | SealFlag::F_SEAL_SEAL))?;
        Ok(Self { memory, noted: Mutex::new(0) })
    }

    /// Notes that a worker takes a client now, which sends to this connection ID at first. What the system refuses to
    /// write is not noted: the switch reads the client's name then.
    pub fn note(&self, worker: u16, first: &ConnectionId) {
        self.note_at(uptime_secs(), worker, first);
    }

    fn note_at(&self, secs: u64, worker: u16, first: &ConnectionId) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        *noted += 1;
        let number = *noted;
        let mut entry = [0; ENTRY];
        let id = first.as_slice();
        entry[..8].copy_from_slice(&number.to_be_bytes());
        entry[8..16].copy_from_slice(&secs.to_be_bytes());
        entry[16..18].copy_from_slice(&worker.to_be_bytes());
        entry[18] = id.len() as u8;
        entry[19..19 + id.len()].copy_from_slice(id);
        let at = ENTRY + (number - 1) as usize % MAX_NOTED * ENTRY;
        let written = self.memory.write_all_at(&entry, at as u64);
        let written = written.and_then(|()| self.memory.write_all_at(&number.to_be_bytes(), 0));
        if let Err(error) = written {
            log::debug!("a client is not noted: {error}");
        }
    }
}

impl AsFd for Ledger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("noted", &self.noted).finish_non_exhaustive()
    }
}

impl LedgerReader {
    /// Takes what a program hands over, if it is a ledger. Reading of memory that is sealed never waits.
    pub(crate) fn new(memory: OwnedFd) -> io::Result<Self> {
        let memory = File::from(memory);
        // Fails for all but memory of this kind.
        let seals = fcntl(&memory, FcntlArg::F_GET_SEALS)?;
        let is_sealed = SealFlag::from_bits_truncate(seals).contains(SEALS);
        if !is_sealed || memory.metadata()?.len() != LEN as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no ledger of clients"));
        }
        Ok(Self(memory))
    }

    /// How many clients the program has taken past the switch.
    pub(crate) fn count(&self) -> u64 {
        let mut count = [0; 8];
        self.0.read_exact_at(&mut count, 0).map_or(0, |()| u64::from_be_bytes(count))
    }

    /// The last ones, behind so many others, that may still send to connection IDs of their choice, with their workers.
    pub(crate) fn recent(&self, behind: u64) -> Vec<(ConnectionId, u16)> {
        self.recent_at(uptime_secs(), behind)
    }

    fn recent_at(&self, secs: u64, behind: u64) -> Vec<(ConnectionId, u16)> {
        // A writer is one ahead of what it counts.
        let end = self.count().saturating_add(1);
        let skipped = behind.max(end.saturating_sub(MAX_NOTED as u64));
        let first = (skipped % MAX_NOTED as u64) as usize;
        let entries = end.saturating_sub(skipped) as usize;
        let mut octets = vec![0; entries * ENTRY];
        let until_end = entries.min(MAX_NOTED - first) * ENTRY;
        let (head, tail) = octets.split_at_mut(until_end);
        let read = self.0.read_exact_at(head, (ENTRY + first * ENTRY) as u64);
        if let Err(error) = read.and_then(|()| self.0.read_exact_at(tail, ENTRY as u64)) {
            log::debug!("the clients of a program are not known: {error}");
            return Vec::new();
        }
        let entries = octets.chunks_exact(ENTRY).filter_map(read_entry);
        let is_recent = |entry: &Entry| {
            let age = u128::from(secs.abs_diff(entry.came));
            age * 1_000_000_000 <= PIN_TIME.as_nanos().into()
        };
        let recent = entries.filter(|entry| entry.number > behind && is_recent(entry));
        recent.map(|entry| (entry.id, entry.worker)).collect()
    }
}

/// One client.
struct Entry {
    number: u64,
    came: u64,
    id: ConnectionId,
    worker: u16,
}

/// How long ago the system was started, the time included in which it was suspended. Unlike the time of day it goes
/// neither back nor ahead, and unlike the beginning of a program it is the same for the switch.
fn uptime_secs() -> u64 {
    // Fails on no system that has the clock, which all with sealed memory have.
    let since = clock_gettime(ClockId::CLOCK_BOOTTIME);
    since.ok().and_then(|since| u64::try_from(since.tv_sec()).ok()).unwrap_or_default()
}

/// `None` where none is written.
fn read_entry(entry: &[u8]) -> Option<Entry> {
    let (number, rest) = entry.split_first_chunk()?;
    let (came, rest) = rest.split_first_chunk()?;
    let (worker, rest) = rest.split_first_chunk()?;
    let (len, rest) = rest.split_first()?;
    let id = ConnectionId::new(rest.get(..usize::from(*len))?).filter(|id| !id.is_empty())?;
    let (number, came) = (u64::from_be_bytes(*number), u64::from_be_bytes(*came));
    Some(Entry { number, came, id, worker: u16::from_be_bytes(*worker) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ConnectionId {
        ConnectionId::new(&number.to_be_bytes()).unwrap()
    }

    fn reader(ledger: &Ledger) -> LedgerReader {
        LedgerReader::new(ledger.as_fd().try_clone_to_owned().unwrap()).unwrap()
    }

    #[test]
    fn the_last_clients_are_known_as_long_as_they_may_send_to_their_own_connection_id() {
        let ledger = Ledger::new().unwrap();
        let reader = reader(&ledger);
        assert_eq!((reader.count(), reader.recent_at(1000, 0)), (0, Vec::new()));
        ledger.note_at(1000, 0, &id(1));
        ledger.note_at(1030, 7, &ConnectionId::new(&[9; 20]).unwrap());
        let both = vec![(id(1), 0), (ConnectionId::new(&[9; 20]).unwrap(), 7)];
        assert_eq!((reader.count(), reader.recent_at(1030, 0)), (2, both.clone()));
        assert_eq!(reader.recent_at(1060, 0), both);
        assert_eq!(reader.recent_at(1061, 0), both[1..]);
        assert_eq!(reader.recent_at(1091, 0), []);
        // It is noted a moment after the switch has looked at the clock.
        assert_eq!(reader.recent_at(1029, 0), both);
    }

    /// Both sides read one clock.
    #[test]
    fn who_is_noted_now_is_recent() {
        let ledger = Ledger::new().unwrap();
        let reader = reader(&ledger);
        ledger.note(2, &id(1));
        assert_eq!(reader.recent(0), [(id(1), 2)]);
    }

    #[test]
    fn whoever_reads_a_count_finds_all_up_to_it_and_it_does_not_go_back() {
        let ledger = Ledger::new().unwrap();
        let reader = reader(&ledger);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let ledger = &ledger;
                scope.spawn(move || (0..500).for_each(|number| ledger.note(worker, &id(number))));
            }
            let mut before = 0;
            while before < 2000 {
                let count = reader.count();
                assert!(count >= before, "{before} {count}");
                assert!(reader.recent(0).len() as u64 >= count, "{count}");
                before = count;
            }
        });
    }

    #[test]
    fn it_is_bounded_and_the_oldest_make_room() {
        let ledger = Ledger::new().unwrap();
        let reader = reader(&ledger);
        let last = MAX_NOTED as u64 + 10;
        (1..=last).for_each(|number| ledger.note_at(5, 3, &id(number)));
        let mut known: Vec<_> = reader.recent_at(5, 0).into_iter().map(|(id, _)| id).collect();
        known.sort_unstable();
        let expected: Vec<_> = (11..=last).map(id).collect();
        assert!(known == expected, "{}", known.len());
        // Those that came since others were looked at.
        for seen in [last - 3, MAX_NOTED as u64 - 2, last, last + 5] {
            let since: Vec<_> = reader.recent_at(5, seen).into_iter().map(|(id, _)| id).collect();
            assert_eq!(since, (seen + 1..=last).map(id).collect::<Vec<_>>());
        }
        assert_eq!(reader.count(), last);
    }

    /// A program may write there what it likes.
    #[test]
    fn what_makes_no_sense_is_nobodys() {
        let ledger = Ledger::new().unwrap();
        let reader = reader(&ledger);
        ledger.memory.write_all_at(&[0xff; LEN], 0).unwrap();
        assert_eq!(reader.recent_at(5, 0), []);
        assert_eq!(reader.count(), u64::MAX);
        assert!(ledger.memory.set_len(0).is_err() && ledger.memory.set_len(1 << 30).is_err());
    }

    #[test]
    fn what_is_no_ledger_is_refused() {
        let open = memfd_create(c"open", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        assert!(LedgerReader::new(open).is_err(), "it could be cut off");
        let (pipe, _other) = io::pipe().unwrap();
        assert!(LedgerReader::new(pipe.into()).is_err());
        let short = File::from(memfd_create(c"short", MFdFlags::MFD_ALLOW_SEALING).unwrap());
        short.set_len(LEN as u64 - 1).unwrap();
        fcntl(&short, FcntlArg::F_ADD_SEALS(SEALS)).unwrap();
        assert!(LedgerReader::new(short.into()).is_err());
    }
}
