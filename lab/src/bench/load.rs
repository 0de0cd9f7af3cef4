//! Whether other programs had the processor while something was measured.

use std::collections::HashMap;
use std::fs;
use std::time::Instant;

/// Clock ticks of `/proc` in a second: Linux has no other value in its interface to programs.
const TICKS: f64 = 100.0;

/// What programs have used of the processors so far.
pub(super) struct Load {
    at: Instant,
    /// This process.
    own: u32,
    /// Ticks of each process, and its name.
    processes: HashMap<u32, (u64, String)>,
    /// Ticks that the host of a virtual machine has given to others.
    stolen: u64,
}

/// That others had the processor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Disturbance {
    /// Share of a core, in percent.
    pub(super) percent: f64,
    /// Who it was.
    pub(super) who: String,
}

impl Load {
    /// Now.
    pub(super) fn now() -> Self {
        let mut processes = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            let stat = id.and_then(|id| fs::read_to_string(format!("/proc/{id}/stat")).ok());
            if let (Some(id), Some(process)) = (id, stat.as_deref().and_then(parse)) {
                processes.insert(id, process);
            }
        }
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self { at: Instant::now(), own: std::process::id(), processes, stolen: stolen(&stat) }
    }

    /// What has disturbed whoever measured since: processes other than this one, their children
    /// that have ended included, if they had more than so many percent of a core. Whoever measured
    /// has ended, which makes it a part of this process.
    pub(super) fn disturbance_until(&self, now: &Self, tolerated: f64) -> Option<Disturbance> {
        let seconds = now.at.saturating_duration_since(self.at).as_secs_f64().max(0.001);
        let percent = |ticks: u64| ticks as f64 / TICKS / seconds * 100.0;
        let mut total = now.stolen.saturating_sub(self.stolen);
        let mut most = (total, "the host of this virtual machine");
        for (id, (ticks, name)) in &now.processes {
            if *id == self.own {
                continue;
            }
            let before = self.processes.get(id).map_or(0, |(ticks, _)| *ticks);
            let used = ticks.saturating_sub(before);
            total += used;
            if used > most.0 {
                most = (used, name);
            }
        }
        let percent = percent(total);
        (percent > tolerated).then(|| Disturbance { percent, who: most.1.to_owned() })
    }
}

/// Ticks and name of a process that is no part of the kernel, from its line in `/proc`.
fn parse(stat: &str) -> Option<(u64, String)> {
    /// The thread that is the parent of all others of the kernel.
    const KTHREADD: &str = "2";
    // The name may have spaces and parentheses in it.
    let (before, after) = stat.rsplit_once(')')?;
    let (id, name) = before.split_once('(')?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    // proc_pid_stat(5): ppid is field 4; utime, stime, cutime and cstime are 14 to 17; the first
    // here is 3.
    if *fields.get(1)? == KTHREADD || id.trim() == KTHREADD {
        return None;
    }
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Some((ticks, name.to_owned()))
}

/// Ticks of all processors that the host has given to others.
fn stolen(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    line.split_ascii_whitespace().nth(8).and_then(|field| field.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LINE: &str = "77 (a (b) c) R 1 77 77 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 1 0 9 9";

    fn load(at: Instant, processes: &[(u32, u64)], stolen: u64) -> Load {
        let processes = processes.iter().map(|&(id, ticks)| (id, (ticks, format!("p{id}"))));
        Load { at, own: 1, processes: processes.collect(), stolen }
    }

    #[test]
    fn a_line_of_proc_tells_time_and_name_and_the_kernel_is_none_of_it() {
        assert_eq!(parse(LINE), Some((127, "a (b) c".to_owned())));
        assert_eq!(parse(&LINE.replace("R 1 ", "R 2 ")), None);
        assert_eq!(parse("77 (short) R 1"), None);
        assert_eq!(stolen("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1"), 8);
    }

    #[test]
    fn others_disturb_above_what_is_tolerated_and_the_worst_is_named() {
        let start = Instant::now();
        let end = start + Duration::from_secs(2);
        let before = load(start, &[(1, 100), (2, 50)], 7);
        let quiet = load(end, &[(1, 300), (2, 55), (3, 5)], 7);
        assert_eq!(before.disturbance_until(&quiet, 5.0), None, "5 % is tolerated");
        let busy = load(end, &[(1, 300), (2, 150), (3, 60)], 47);
        let found = before.disturbance_until(&busy, 5.0).unwrap();
        assert_eq!(found, Disturbance { percent: 100.0, who: "p2".to_owned() });
        let stolen = load(end, &[(1, 300), (2, 50)], 207);
        let found = before.disturbance_until(&stolen, 5.0).unwrap();
        assert!(found.who.contains("host") && found.percent == 100.0, "{found:?}");
    }

    #[test]
    fn this_process_is_found() {
        assert!(Load::now().processes.contains_key(&std::process::id()));
    }
}
