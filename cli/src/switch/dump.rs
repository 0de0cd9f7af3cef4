//! `quicket switch dump`: a port's frames, as tcpdump reads them.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;

use quicket_packets::client::Port;
use quicket_packets::pcap::Writer;
use quicket_packets::{Layout, Reason, Tuple};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

use super::packets::unanswered;
use crate::args::SwitchDump;
use crate::exit::{Failure, Kind};
use crate::out::tell;

/// Room for frames, and the longest that are shown whole, in octets, with what is before them.
const ROOM: u32 = 4096;
const SLOT: u32 = 2048 + 64;
/// The smallest ring, for what is not sent.
const NOTHING: u32 = 16;

/// Writes until the port or the switch ends, or it is told to stop.
pub(super) fn run(args: &SwitchDump) -> Result<(), Failure> {
    let path = super::packets::path(&args.name)?;
    let layout = Layout::new(NOTHING, ROOM, SLOT)
        .ok_or_else(|| Failure::new(Kind::Environment, "there is no such ring"))?;
    let mut port = Port::open(&path, layout).map_err(|error| unanswered(&path, &error))?;
    let (address, number) = (args.port.ip().to_canonical(), args.port.port());
    let tuple = Tuple { address, protocol: args.protocol, port: number };
    port.watch(tuple).map_err(|error| {
        Failure::new(Kind::Environment, format!("cannot show the frames of a port: {error}"))
    })?;
    let cannot = |error| Failure::environment("cannot write what has come", error);
    let to: Box<dyn Write> = match &args.out {
        Some(path) => Box::new(File::create(path).map_err(|error| {
            Failure::environment(format!("cannot write {}", path.display()), error)
        })?),
        None if io::stdout().is_terminal() => {
            let why = "frames are no text for a terminal: write --out FILE, or | tcpdump -n -r -";
            return Err(Failure::new(Kind::Usage, why));
        }
        None => Box::new(io::stdout()),
    };
    let mut writer = Writer::new(BufWriter::new(to), SLOT).map_err(cannot)?;
    // Who reads it sees that it has begun.
    writer.flush().map_err(cannot)?;
    tell!("quicket: the frames of the port with {tuple} are written");
    let result = crate::one_thread()?.block_on(write(&mut port, args.count, &mut writer));
    let (written, lost) = match result {
        // Nobody reads any more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        result => result.map_err(cannot)?,
    };
    // After the last one that was seen some more may have been lost, if the switch can still be asked.
    let lost = port.counters().map_or(lost, |counters| counters.dropped(Reason::Full));
    tell!("quicket: {written} frames were written, {lost} lost as there was no room");
    Ok(())
}

/// Writes frames as they come. Returns how many there were, and how many were lost before the last one.
async fn write(
    port: &mut Port,
    count: Option<u64>,
    writer: &mut Writer<impl Write>,
) -> io::Result<(u64, u64)> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let bell = std::os::unix::net::UnixStream::from(port.as_fd().try_clone_to_owned()?);
    bell.set_nonblocking(true)?;
    let bell = UnixStream::from_std(bell)?;
    let (mut written, mut lost, most) = (0, 0, count.unwrap_or(u64::MAX));
    let mut has_ended = false;
    while written < most {
        let mut result = Ok(());
        let left = u32::try_from(most - written).unwrap_or(u32::MAX);
        let n = port.see(left, |seen| {
            lost = u64::from(seen.lost);
            if result.is_ok() {
                result = writer.frame(seen.time, seen.octets, seen.len);
            }
        })?;
        result?;
        written += u64::from(n);
        if has_ended && n == 0 {
            break;
        }
        let is_idle = !has_ended && port.sleep()?;
        if is_idle {
            writer.flush()?;
        }
        tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            ready = bell.readable(), if is_idle => ready?,
            () = tokio::task::yield_now(), if !is_idle => {}
        }
        // What has rung is heard here, so that the next ring is news.
        while bell.try_read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
        // The port has gone, or the switch has: what it has shown until then is written.
        has_ended = has_ended || port.awake().is_err();
    }
    writer.flush()?;
    Ok((written, lost))
}
