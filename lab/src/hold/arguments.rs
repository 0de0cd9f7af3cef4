//! The command `quicket lab hold`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use quicket::Fingerprint;
use quicket_sim::units::parse_time;

use super::Options;

const EXAMPLES: &str = "\
Examples:
  quicket lab hold --pin FINGERPRINT 192.0.2.1:443 /who
  quicket lab hold --pin FINGERPRINT --connections 100 --ports 100 --for 60s 192.0.2.1:443 /who
  quicket lab hold --pin FINGERPRINT --connections 10000 --move-every 30s 192.0.2.1:443 /who

Each connection asks for the file over HTTP/0.9 (hq-interop), again and again. The file says who
answers: of a site with several servers each has another one. A line of JSON a second, or every --report-every, has
  open, lost   connections by their first answer; lost after --idle without one
  silent       those that have waited for an answer for longer than twice --every
  refused      those that never had one
  failed       questions without an answer on connections that live on
  answers      ... and strayed, those that were not the first one of their connection
  waits        how long answers took: so many less than so many milliseconds
  reasons      why connections were lost or refused, questions failed, or ports stayed
The exit code after --for is 0 if all connections are open, none is silent, none has strayed and
no question has failed.";

/// Which connections to hold.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct HoldArguments {
    /// The server
    #[arg(value_name = "ADDRESS:PORT")]
    server: SocketAddr,
    /// The file that says who answers
    #[arg(value_name = "PATH", default_value = "/")]
    path: String,
    /// Fingerprint of the server's certificate, as `quicket serve` prints it
    #[arg(long, value_name = "FINGERPRINT")]
    pub(super) pin: Fingerprint,
    /// The name of the server that is asked for, where several share an address
    #[arg(long, value_name = "NAME", default_value = "localhost")]
    server_name: String,
    /// How many connections
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// How many ports they share
    #[arg(long, value_name = "NUMBER", default_value_t = 250)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10_000))]
    ports: u16,
    /// How often each asks
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    every: Duration,
    /// After how long without an answer a connection is lost
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(super) idle: Duration,
    /// Every so often a tenth of the ports, in turn, are exchanged for others
    #[arg(long, value_name = "TIME", value_parser = time)]
    move_every: Option<Duration>,
    /// How often the state is told
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    report_every: Duration,
    /// End after this time; without, at Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    duration: Option<Duration>,
}

fn time(text: &str) -> Result<Duration, String> {
    match parse_time(text).map(|time| Duration::from_nanos(time.as_nanos()))? {
        Duration::ZERO => Err("a time above 0, such as 2s".to_owned()),
        time => Ok(time),
    }
}

impl HoldArguments {
    pub(super) fn options(&self) -> Options {
        let path = self.path.trim_start_matches('/');
        Options {
            server: self.server,
            server_name: self.server_name.clone(),
            request: format!("GET /{path}\r\n").into(),
            connections: self.connections as usize,
            // A port without a connection is of no use.
            ports: usize::from(self.ports).min(self.connections as usize),
            every: self.every,
            move_every: self.move_every,
            report_every: self.report_every,
            duration: self.duration,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        hold: HoldArguments,
    }

    fn parse(words: &str) -> Result<Options, String> {
        let pin = ["--pin", &"00".repeat(32)].map(str::to_owned);
        let words = words.split(' ').map(str::to_owned);
        let program =
            Program::try_parse_from(["hold".to_owned()].into_iter().chain(pin).chain(words));
        program.map(|program| program.hold.options()).map_err(|error| error.to_string())
    }

    #[test]
    fn words_say_what_is_held() {
        let options =
            parse("--connections 10 --every 500ms --move-every 9s --for 60s 192.0.2.1:443 who")
                .unwrap();
        assert_eq!((options.connections, options.ports), (10, 10));
        assert_eq!(&*options.request, "GET /who\r\n");
        assert_eq!(options.every, Duration::from_millis(500));
        assert_eq!(options.move_every, Some(Duration::from_secs(9)));
        assert_eq!(options.duration, Some(Duration::from_secs(60)));
        assert_eq!(options.report_every, Duration::from_secs(1));
        let often = parse("--report-every 100ms 192.0.2.1:443").unwrap();
        assert_eq!(often.report_every, Duration::from_millis(100));
        assert!(parse("--every 0s 192.0.2.1:443").unwrap_err().contains("above 0"));
        assert!(parse("--connections 0 192.0.2.1:443").is_err());
    }
}
