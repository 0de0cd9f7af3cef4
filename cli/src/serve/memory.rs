//! Memory: how many connections fit, and what is given back after a load.

use std::fs;
use std::time::Duration;

use quicket::tokio::Endpoint;

use crate::heap;

/// What clients may send of a stream, and on a connection, before the server has read any of it, in
/// bytes: requests are small, and are read at once.
pub(super) const REQUEST_WINDOW: u64 = 64 << 10;
/// Large pieces of files, of 256 KiB each, that are read before they are sent, on all connections together. A connection
/// has eight at most. Each request holds a small one beside, of 16 KiB.
pub(super) const MAX_PIECES: usize = 1024;
/// What a connection may hold at worst beside the endpoint's budget, in bytes: large pieces of files
/// (2 MiB), a small one for each of 100 requests (16 KiB), the floor of the budget in each direction
/// (64 KiB), keys and tables.
const WORST: u64 = 4 << 20;
/// Connections of which the worst is expected at most.
const MOST: u64 = 10_000;
/// However little memory there is.
const FEWEST: u64 = 100;
/// ... or if it is not known how much there is, in bytes.
const UNKNOWN: u64 = 4 << 30;

/// How many connections a server holds unless it is told: at worst they take half of the memory.
pub(super) fn connections() -> u32 {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let limit = read("/sys/fs/cgroup/memory.max");
    fitting(memory(&read("/proc/meminfo"), &limit))
}

/// The machine's memory, or what a container may have of it, in bytes.
fn memory(meminfo: &str, limit: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let total = total.map_or(UNKNOWN, |kib| kib.saturating_mul(1024));
    // Without a limit it says "max".
    limit.trim().parse().map_or(total, |limit: u64| limit.min(total))
}

fn fitting(memory: u64) -> u32 {
    (memory / 2 / WORST).clamp(FEWEST, MOST) as u32
}

/// How often to look whether there is something to give back.
const LOOK: Duration = Duration::from_secs(5);
/// Less than this is not worth it, in bytes.
const WORTH: u64 = 16 << 20;
/// What a connection takes beside the data of its streams, in bytes: with pieces of files, about.
const EACH: u64 = 64 << 10;
/// What was in vain is tried again after 1, 2, 4, and at last as many looks as this. What a thread keeps for itself comes free
/// when it ends: those that read files end ten seconds after the last one.
const LAST: u32 = 8;

/// Gives free memory back to the system after a load, for as long as it is polled. The allocator alone
/// keeps what lies below something that is in use ([`heap::keep_little`] is for the rest).
pub(super) async fn give_back(endpoint: &Endpoint, connections: impl Fn() -> usize) {
    let Some(mut tide) = resident().map(Tide::new) else { return std::future::pending().await };
    loop {
        tokio::time::sleep(LOOK).await;
        let held = || endpoint.memory_held() as u64 + connections() as u64 * EACH;
        let Some(now) = resident() else { continue };
        if tide.is_out(now, held()) {
            // It locks the heap, for a tenth of a second for each gigabyte.
            let _ = tokio::task::spawn_blocking(heap::give_back).await;
            tide.settle(resident().unwrap_or(now), held());
        }
    }
}

/// What this process has of the machine's memory, in bytes; `None` where the system does not tell.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.saturating_mul(1024))
}

/// Memory that the process has, and that connections do not account for.
#[derive(Debug)]
struct Tide {
    /// What it had before there were any, in bytes.
    before: u64,
    /// What could not be given back.
    stays: u64,
    /// How many looks lie between the last try and the next.
    pause: u32,
    /// Those of them that are left.
    left: u32,
}

impl Tide {
    const fn new(before: u64) -> Self {
        Self { before, stays: 0, pause: 0, left: 0 }
    }

    /// True if there is much to give back, or if it is time to try again with what could not be.
    fn is_out(&mut self, resident: u64, held: u64) -> bool {
        let unheld = resident.saturating_sub(self.before.saturating_add(held));
        self.stays = self.stays.min(unheld);
        if unheld - self.stays >= WORTH {
            self.pause = 1;
            self.left = 1;
            return true;
        }
        if unheld < WORTH || self.left == 0 {
            return false;
        }
        self.left -= 1;
        let again = self.left == 0;
        if again && self.pause < LAST {
            self.pause *= 2;
            self.left = self.pause;
        }
        again
    }

    /// What could be was given back.
    fn settle(&mut self, resident: u64, held: u64) {
        self.stays = resident.saturating_sub(self.before.saturating_add(held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_memory_holds_the_connections() {
        let meminfo = "MemTotal:       16384000 kB\nMemFree:  1 kB\n";
        assert_eq!(memory(meminfo, "max\n"), 16_384_000 << 10);
        assert_eq!(memory(meminfo, "1073741824\n"), 1 << 30);
        assert_eq!(memory("", ""), UNKNOWN);
        assert_eq!(fitting(16 << 30), 2048);
        assert_eq!((fitting(0), fitting(u64::MAX)), (100, 10_000));
        assert!((FEWEST..=MOST).contains(&connections().into()));
    }

    #[test]
    fn memory_that_nobody_holds_is_given_back() {
        const MIB: u64 = 1 << 20;
        let mut tide = Tide::new(10 * MIB);
        assert!(!tide.is_out(200 * MIB, 180 * MIB), "it is held");
        assert!(!tide.is_out(5 * MIB, 0), "less than at first");
        assert!(tide.is_out(200 * MIB, 100 * MIB));
        // 50 MiB could not be.
        tide.settle(160 * MIB, 100 * MIB);
        assert!(tide.is_out(160 * MIB, 80 * MIB), "more is free");
        tide.settle(30 * MIB, 0);
        assert!(tide.is_out(50 * MIB, 0));
        tide.settle(10 * MIB, 0);
        assert!(!tide.is_out(10 * MIB, 0), "all is given back");
        assert!(resident().is_none_or(|bytes| bytes > 100 << 10));
    }

    #[test]
    fn what_could_not_be_given_back_is_tried_again_some_times() {
        const MIB: u64 = 1 << 20;
        let mut tide = Tide::new(10 * MIB);
        let mut tries = |looks: u32, resident: u64| -> Vec<u32> {
            let tried = |_: &u32| {
                let is_out = tide.is_out(resident, 0);
                if is_out {
                    tide.settle(resident, 0);
                }
                is_out
            };
            (0..looks).filter(tried).collect()
        };
        assert_eq!(tries(100, 60 * MIB), [0, 1, 3, 7, 15]);
        // A load that comes on top of that.
        assert_eq!(tries(100, 80 * MIB), [0, 1, 3, 7, 15]);
        // What is left then is not worth it.
        assert_eq!(tries(2, 100 * MIB), [0, 1]);
        assert!(tries(100, 20 * MIB).is_empty());
    }
}
