//! Bytes between two ends, both ways: with their ends, resets, and that nobody reads them any more.
//!
//! An end is a stream of QUIC, a TCP or Unix socket, or standard input and output. What is read is
//! written before more is read: so whoever takes slowly slows down who sends, and one piece in each
//! direction is all that is held here.

pub(crate) mod code;
mod meter;
mod quic;
mod socket;
mod stdio;

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

pub(crate) use self::meter::Meter;
pub(crate) use self::socket::Socket;
pub(crate) use self::stdio::{StandardInput, StandardOutput};
use crate::pace::{self, Flow, Payers};

/// Why a half goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// What was sent has no end, or all of the connection is gone.
    Reset(u64),
    /// The other side reads no more.
    Stopped(u64),
}

/// Where bytes come from.
pub(crate) trait Source: Send {
    /// Some bytes.
    type Data: AsRef<[u8]> + Send;

    /// The next bytes; `None` at their end. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Data>, Broken>> + Send;

    /// Wants no more. Without effect where it has come to its end.
    fn stop(&mut self, code: u64);
}

/// Where bytes go.
pub(crate) trait Sink: Send {
    /// Takes some bytes, at least one; waits until it can. Cancel safe.
    fn write(&mut self, data: &[u8]) -> impl Future<Output = Result<usize, Broken>> + Send;

    /// Waits until no more are wanted. Cancel safe.
    fn stopped(&mut self) -> impl Future<Output = Broken> + Send;

    /// All was written.
    fn finish(&mut self);

    /// Not all was written, and no more will be.
    fn reset(&mut self, code: u64);
}

/// Both halves of one end.
#[derive(Debug)]
pub(crate) struct Ends<R, W> {
    pub(crate) reader: R,
    pub(crate) writer: W,
}

impl<R: Source, W: Sink> Ends<R, W> {
    /// Gives both halves up.
    pub(crate) fn give_up(&mut self, code: u64) {
        self.reader.stop(code);
        self.writer.reset(code);
    }
}

/// How bytes are carried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// How long nothing may come in either direction.
    pub(crate) idle: Duration,
    /// A reset of one direction ends the other, too: TCP knows no other.
    pub(crate) coupled: bool,
}

/// Who pays for what is carried.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    payers: Payers,
    /// How near to far is counted.
    there: Flow,
}

impl Pace {
    /// Nobody does.
    pub(crate) fn none() -> Self {
        Self { payers: Payers::default(), there: Flow::Received }
    }

    /// A client does, who is near.
    pub(crate) const fn of_client(payers: Payers) -> Self {
        Self { payers, there: Flow::Received }
    }

    /// The client is far.
    pub(crate) fn turned(self) -> Self {
        Self { there: self.there.back(), ..self }
    }

    /// Pays for bytes that go from near to far.
    pub(crate) async fn went(&self, len: usize, meter: &Meter) {
        rest(self.payers.pay(self.there, len), meter).await;
    }

    /// Pays for bytes that come from far to near.
    pub(crate) async fn came(&self, len: usize, meter: &Meter) {
        rest(self.payers.pay(self.there.back(), len), meter).await;
    }
}

/// It is no silence.
async fn rest(owed: Duration, meter: &Meter) {
    pace::rest(owed, || meter.touch()).await;
}

/// One direction.
#[derive(Clone, Copy)]
struct Way<'a> {
    meter: &'a Meter,
    pace: &'a Pace,
    is_there: bool,
}

impl Way<'_> {
    fn count(self, len: usize) {
        match self.is_there {
            true => self.meter.went(len),
            false => self.meter.came(len),
        }
    }

    fn pay(self, len: usize) -> Duration {
        let there = self.pace.there;
        self.pace.payers.pay(if self.is_there { there } else { there.back() }, len)
    }
}

/// What became of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// All was passed on, and its end.
    Whole,
    /// Who should take it wanted no more.
    Stopped(u64),
    /// It broke off.
    Reset(u64),
}

/// Carries bytes both ways until both are done; what went wrong, if anything did.
pub(crate) async fn carry<R1: Source, W1: Sink, R2: Source, W2: Sink>(
    near: &mut Ends<R1, W1>,
    far: &mut Ends<R2, W2>,
    rules: Rules,
    (meter, pace): (&Meter, &Pace),
) -> Result<(), u64> {
    let way = |is_there| Way { meter, pace, is_there };
    let (mut there, mut back) = (None, None);
    let code = {
        let mut out = pin!(copy(&mut near.reader, &mut far.writer, way(true)));
        let mut home = pin!(copy(&mut far.reader, &mut near.writer, way(false)));
        let mut idle = pin!(meter.idle(rules.idle));
        loop {
            let ended = tokio::select! {
                ended = &mut out, if there.is_none() => *there.insert(ended),
                ended = &mut home, if back.is_none() => *back.insert(ended),
                () = &mut idle => break Some(code::IDLE),
            };
            match ended {
                Ended::Reset(code) if rules.coupled => break Some(code),
                _ if there.is_some() && back.is_some() => break None,
                _ => {}
            }
        }
    };
    if let Some(code) = code {
        if there.is_none() {
            near.reader.stop(code);
            far.writer.reset(code);
        }
        if back.is_none() {
            far.reader.stop(code);
            near.writer.reset(code);
        }
        return Err(code);
    }
    let broken = [there, back].into_iter().flatten().find_map(|ended| match ended {
        Ended::Whole => None,
        Ended::Stopped(code) | Ended::Reset(code) => Some(code),
    });
    broken.map_or(Ok(()), Err)
}

/// Carries bytes one way, from near to far; what went wrong, if anything did.
pub(crate) async fn carry_one_way(
    source: &mut impl Source,
    sink: &mut impl Sink,
    limit: Duration,
    (meter, pace): (&Meter, &Pace),
) -> Result<(), u64> {
    let ended = tokio::select! {
        ended = copy(source, sink, Way { meter, pace, is_there: true }) => ended,
        () = meter.idle(limit) => {
            source.stop(code::IDLE);
            sink.reset(code::IDLE);
            return Err(code::IDLE);
        }
    };
    match ended {
        Ended::Whole => Ok(()),
        Ended::Stopped(code) | Ended::Reset(code) => Err(code),
    }
}

async fn copy(source: &mut impl Source, sink: &mut impl Sink, way: Way<'_>) -> Ended {
    // What others have carried before is paid for first.
    let mut owed = way.pay(0);
    loop {
        let next = async {
            rest(owed, way.meter).await;
            source.next().await
        };
        let next = tokio::select! {
            biased;
            next = next => next,
            broken = sink.stopped() => Err(broken),
        };
        let broken = match next {
            Ok(Some(data)) => match write_all(sink, data.as_ref(), |len| way.count(len)).await {
                Ok(()) => {
                    owed = way.pay(data.as_ref().len());
                    continue;
                }
                Err(broken) => broken,
            },
            Ok(None) => {
                sink.finish();
                return Ended::Whole;
            }
            Err(broken) => broken,
        };
        return match broken {
            Broken::Stopped(code) => {
                source.stop(code);
                Ended::Stopped(code)
            }
            // Each is without effect on the half that says so.
            Broken::Reset(code) => {
                source.stop(code);
                sink.reset(code);
                Ended::Reset(code)
            }
        };
    }
}

async fn write_all(
    sink: &mut impl Sink,
    mut data: &[u8],
    count: impl Fn(usize),
) -> Result<(), Broken> {
    while !data.is_empty() {
        let written = sink.write(data).await?;
        count(written);
        data = data.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Writes what goes before all else; false if it cannot be written.
pub(crate) async fn begin_with(sink: &mut impl Sink, data: &[u8]) -> bool {
    write_all(sink, data, |_| {}).await.is_ok()
}
