//! Flags of `quicket gateway capture`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;
use quicket_gateway::config::MAX_CAPTURE_MIB;

/// Captures what a client does over QUIC at a gateway that runs: datagrams, secrets and qlogs.
///
/// The file of the gateway must allow it: [capture] with allow = true. Only its user and root may ask. FILE is a pcapng
/// that Wireshark and tshark decrypt by themselves, as far as connections began during the capture; with --qlog older
/// ones, too, have what they do from now on written down. Whoever reads FILE can read these connections: it is made for its
/// owner alone. Only QUIC is captured, and not HTTP/2 and HTTP/1.1 over TCP. Headers of IP and UDP are made for FILE, as the
/// gateway needs no right to see packets.
///
/// It ends after --for, at --max-size, or by SIGINT or SIGTERM; a second signal does not wait for what is still to be
/// written. Datagrams that are not written in time are lost for the capture alone, and counted.
#[derive(Args, Debug)]
pub(crate) struct Capture {
    /// The file of the gateway
    #[arg(value_name = "SITE.toml")]
    pub(crate) file: PathBuf,

    /// An address or a network of clients, such as 192.0.2.7 or 2001:db8::/32; may be repeated, up to 64 in all
    #[arg(long, value_name = "NET", required = true, value_parser = network)]
    pub(crate) client: Vec<IpNet>,

    /// How long: 30s, 5m, 500ms
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) time: Duration,

    /// Where datagrams and secrets are written; - is standard output. It must not be there yet
    #[arg(long, short, value_name = "FILE", required_unless_present = "qlog")]
    pub(crate) out: Option<PathBuf>,

    /// Write qlogs of connections into this directory, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,

    /// Of N addresses and ports of the clients capture one, at random
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) one_in: u32,

    /// End once so many MiB are written, qlogs included [default: what the file allows]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=MAX_CAPTURE_MIB))]
    pub(crate) max_size: Option<u64>,

    /// Keep the first 64 bytes of each datagram: times, sizes and headers, and nothing to decrypt. Implies --no-secrets
    #[arg(long)]
    pub(crate) headers_only: bool,

    /// Capture no secrets: nobody can decrypt the file
    #[arg(long)]
    pub(crate) no_secrets: bool,

    /// Leave addresses out of qlogs
    #[arg(long, requires = "qlog")]
    pub(crate) no_addresses: bool,

    /// Ask the gateway with this number of a process, where several have the file
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map(|network| network.trunc()).map_err(|_| {
        "an address or a network, such as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32".to_owned()
    })
}

/// A time with a unit, in whole milliseconds.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "a time such as 30s, 5m or 500ms".to_owned();
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" | "" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    match number.checked_mul(milliseconds) {
        None | Some(0) => Err(wrong()),
        Some(milliseconds) => Ok(Duration::from_millis(milliseconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_clients_are_addresses_or_networks() {
        assert_eq!(time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(time("2"), Ok(Duration::from_secs(2)));
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        for wrong in
            ["", "s", "0s", "-1s", "1.5s", "1d", "99999999999999999999s", "18446744073709551615h"]
        {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(network("192.0.2.7").unwrap().to_string(), "192.0.2.7/32");
        assert_eq!(network("192.0.2.7/24").unwrap().to_string(), "192.0.2.0/24");
        assert_eq!(network("2001:db8::/32").unwrap().to_string(), "2001:db8::/32");
        for wrong in ["", "a", "192.0.2.7/33", "192.0.2"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }
}
