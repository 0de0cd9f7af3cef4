//! The asker's end.

use std::io::{self, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use quicket_gateway::capture::frame::Frame;
use quicket_gateway::capture::{EndedBy, MAX_CLIENTS, Report, Request};
use quicket_gateway::config::MAX_CAPTURE_MIB;

use super::Question;
use super::bounded::Bounded;
use super::find::{self, Found};
use super::output::Output;
use crate::args::Capture;
use crate::control;
use crate::exit::{Failure, Kind};
use crate::out::tell;
use crate::units::Bytes;

/// How much of a datagram has its headers: connection IDs have 20 bytes each at most.
const HEADERS: u16 = 64;
/// How much longer than the capture the gateway may take to say all, and then whoever reads the output.
const MARGIN: Duration = Duration::from_secs(15);
/// How much more than twice the capture the gateway may say, in bytes: each piece has its name.
const SLACK: u64 = 16 << 20;

/// Asks, and writes what comes.
pub(crate) fn run(args: &Capture) -> Result<(), Failure> {
    if args.client.len() > MAX_CLIENTS {
        let why = format!("a capture has at most {MAX_CLIENTS} of --client: take larger networks");
        return Err(Failure::new(Kind::Usage, why));
    }
    let found = find::find(args)?;
    let mut output = Output::open(args)?;
    let captured = capture(args, &found, &mut output);
    if captured.is_err() {
        output.withdraw();
    }
    captured
}

fn capture(args: &Capture, found: &Found, output: &mut Output) -> Result<(), Failure> {
    let request = request(args);
    let cannot = |error| Failure::environment("cannot ask the gateway", error);
    let stream = connect(found, &request).map_err(cannot)?;
    end_when_told(&stream)?;
    // Whatever has the gateway's name, it neither fills the disk nor goes on for ever.
    let most = request.bytes.unwrap_or(MAX_CAPTURE_MIB << 20);
    let bounded = Bounded::new(&stream, args.time.saturating_add(MARGIN), 2 * most + SLACK);
    let mut frames = BufReader::with_capacity(128 << 10, bounded);
    loop {
        let frame = match Frame::read(&mut frames) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(gone(output, "it has ended")),
            Err(error) => return Err(gone(output, &error.to_string())),
        };
        match frame {
            Frame::Refused(why) => {
                let why = control::printable(&why);
                return Err(Failure::new(Kind::Refused, format!("nothing is captured: {why}")));
            }
            Frame::Begun => tell!(
                "quicket: capturing at the gateway of process {} (user {}), for {} s at most",
                found.pid,
                found.user,
                args.time.as_secs_f64()
            ),
            Frame::File(bytes) => output.capture(&bytes)?,
            Frame::Qlog { name, is_new, bytes } => output.qlog(&name, is_new, &bytes)?,
            Frame::Ended(report) => {
                let report = serde_json::from_slice(&report);
                let report = report.map_err(|error| gone(output, &error.to_string()))?;
                tell!("quicket: {}", told(&report, output));
                return Ok(());
            }
        }
    }
}

fn request(args: &Capture) -> Request {
    Request {
        clients: args.client.clone(),
        one_in: args.one_in,
        milliseconds: u64::try_from(args.time.as_millis()).unwrap_or(u64::MAX),
        bytes: args.max_size.map(|mebibytes| mebibytes << 20),
        datagrams: args.out.is_some(),
        keep: args.headers_only.then_some(HEADERS),
        secrets: args.out.is_some() && !args.no_secrets && !args.headers_only,
        qlog: args.qlog.is_some(),
        anonymous: args.no_addresses,
    }
}

fn connect(found: &Found, request: &Request) -> io::Result<UnixStream> {
    let mut stream = find::connect(found)?;
    stream.set_write_timeout(Some(MARGIN))?;
    let line = serde_json::to_string(&Question::Capture(request.clone()))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    Ok(stream)
}

/// Has the capture end by SIGINT and SIGTERM as by its time. A second one ends the process, and so does the first in the
/// end, as whoever should read the output may do nothing.
fn end_when_told(stream: &UnixStream) -> Result<(), Failure> {
    let cannot = |error| Failure::environment("cannot watch for SIGINT", error);
    let stream = stream.try_clone().map_err(cannot)?;
    let runtime = crate::one_thread()?;
    // Before anybody hears that the capture has begun, and may end it.
    let told = {
        let _context = runtime.enter();
        crate::serve::stop()
    };
    let watch = move || {
        runtime.block_on(async {
            told.await;
            let _ = stream.shutdown(Shutdown::Write);
            let _ = tokio::time::timeout(MARGIN, crate::serve::stop()).await;
        });
        tell!("quicket: interrupted before the end of the capture was written");
        std::process::exit(Kind::Interrupted as i32);
    };
    let thread = std::thread::Builder::new().name("quicket-signals".to_owned());
    thread.spawn(watch).map(drop).map_err(cannot)
}

fn gone(output: &Output, why: &str) -> Failure {
    let what = format!(
        "the gateway says no more ({why}); what it has captured until then is in {}",
        output.places()
    );
    Failure::new(Kind::Connection, what).lasting()
}

/// What a capture has, for people.
fn told(report: &Report, output: &Output) -> String {
    let ended = match report.ended {
        EndedBy::Time => "its time is over",
        EndedBy::Size => "it has as many bytes as it may",
        EndedBy::Asker => "it was told to end",
        EndedBy::File => "the gateway's file does not allow it any more",
        EndedBy::Gateway => "the gateway stops",
    };
    let mut text = format!(
        "the capture has ended ({ended}): {} datagrams, {} lines of secrets and {} qlogs ({}) in {}",
        report.datagrams,
        report.secrets,
        report.qlogs,
        Bytes(report.bytes),
        output.places()
    );
    if report.datagrams_lost + report.secrets_lost > 0 {
        text += &format!(
            "; lost for the capture: {} datagrams, {} lines of secrets",
            report.datagrams_lost, report.secrets_lost
        );
    }
    if report.qlogs_cut > 0 {
        text += &format!("; of {} qlogs a part had no room", report.qlogs_cut);
    }
    if output.qlogs_failed() > 0 {
        text += &format!("; {} qlogs could not be written", output.qlogs_failed());
    }
    if report.superseded {
        text += "; the next generation has taken over meanwhile, whose connections are not in it";
    }
    text
}
