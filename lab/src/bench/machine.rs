//! What a measurement was made on.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// What a measurement was made on, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Its cores, as far as this process may use them.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Whether UDP segmentation and receive offload (GSO and GRO) are there.
    pub offloads: String,
    /// Largest receive buffer that a socket may ask for, in bytes (`net.core.rmem_max`).
    pub rmem_max: String,
    /// The day, in UTC.
    pub date: String,
}

impl Machine {
    /// This machine, now. What it does not tell is left empty.
    #[must_use]
    pub fn describe() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib = memory.split_ascii_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: kib.unwrap_or_default() / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            offloads: offloads().to_owned(),
            rmem_max: read("/proc/sys/net/core/rmem_max").trim().into(),
            date: date(seconds),
        }
    }
}

impl Machine {
    /// All of it in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!(
            "{}, {} cores, {} MiB of memory, Linux {}, {}, net.core.rmem_max {}; {}.",
            self.cpu,
            self.cores,
            self.memory_mib,
            self.kernel,
            self.offloads,
            self.rmem_max,
            self.date
        )
    }
}

/// What the kernel takes of the offloads of UDP.
fn offloads() -> &'static str {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
    let Ok(socket) = socket else { return "UDP offloads unknown" };
    let segmentation = setsockopt(&socket, sockopt::UdpGsoSegment, &1200).is_ok();
    let receive = setsockopt(&socket, sockopt::UdpGroSegment, &true).is_ok();
    match (segmentation, receive) {
        (true, true) => "UDP GSO and GRO",
        (true, false) => "UDP GSO without GRO",
        (false, true) => "UDP GRO without GSO",
        (false, false) => "neither UDP GSO nor GRO",
    }
}

/// The value of the first line `name: value`.
fn field(text: &str, name: &str) -> String {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map_or(String::new(), |(_, value)| value.trim().into())
}

/// The day of a moment in seconds since 1970 in UTC, as `2026-01-31`.
fn date(seconds: u64) -> String {
    // Years are counted from March, so that a leap day is a year's last day.
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
    let month =
        if months_since_march < 10 { months_since_march + 3 } else { months_since_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_709_251_199), "2024-02-29");
        assert_eq!(date(1_767_225_600), "2026-01-01");
    }

    #[test]
    fn a_machine_tells_its_kernel_and_memory() {
        let machine = Machine::describe();
        assert!(machine.cores > 0 && machine.memory_mib > 100);
        assert!(machine.kernel.contains('.'), "{}", machine.kernel);
        let sentence = machine.sentence();
        assert!(sentence.contains(&machine.kernel) && sentence.contains("G"), "{sentence}");
    }
}
