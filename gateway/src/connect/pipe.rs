//! Standard input and output as one stream, for ProxyCommand of ssh and the like.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::time::timeout;

use super::{Error, PIECE, Say, Server};
use crate::carry::{self, Ends, Meter, Pace, Rules, StandardInput, StandardOutput};

/// How long the last bytes may take to be acknowledged.
const GOODBYE: Duration = Duration::from_secs(10);

/// Carries until both directions have ended, or `stop` is ready.
pub(super) async fn run(
    server: &Server,
    say: &Say,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let mut stop = std::pin::pin!(stop);
    let connection = tokio::select! {
        connected = server.connect(true, say) => connected?,
        () = &mut stop => return Ok(()),
    };
    let lost = |error| match error {
        quicket::OpenError::Lost(error) => Error::Lost(error),
        _ => Error::Broken(carry::code::TOO_MANY),
    };
    let mut stream = connection.open_bi().await.map_err(lost)?;
    // The server may be the one who speaks first.
    let _ = stream.announce();
    let mut near = Ends { reader: StandardInput::new(PIECE), writer: StandardOutput::new() };
    let mut far = Ends::of_stream(stream);
    // The gateway says how long a stream may be silent; and the end of the connection is that of the stream.
    let rules = Rules { idle: Duration::MAX, coupled: true };
    let (meter, pace) = (Meter::new(), Pace::none());
    let carried = tokio::select! {
        carried = carry::carry(&mut near, &mut far, rules, (&meter, &pace)) => carried,
        () = &mut stop => Ok(()),
    };
    if carried.is_ok() {
        // All is delivered, or the server wants no more of it.
        let _ = timeout(GOODBYE, far.writer.stopped()).await;
    }
    let ended = connection.close_reason();
    connection.close(0, b"");
    let carried = here(near.reader.error, near.writer.error, carried)?;
    match (carried, ended) {
        (Ok(()), _) => Ok(()),
        (Err(carry::code::LOST), Some(ended)) => Err(Error::Lost(ended)),
        (Err(code), _) => Err(Error::Broken(code)),
    }
}

/// What came of it, unless standard input or output is why it ended: the code of the stream does not tell.
fn here(
    input: Option<io::Error>,
    output: Option<io::Error>,
    carried: Result<(), u64>,
) -> Result<Result<(), u64>, Error> {
    match (output, input) {
        // Whoever reads has had enough.
        (Some(error), _) if error.kind() == io::ErrorKind::BrokenPipe => match carried {
            Err(carry::code::CLOSED) => Ok(Ok(())),
            carried => Ok(carried),
        },
        (Some(error), _) => Err(Error::Output(error)),
        (None, Some(error)) => Err(Error::Input(error)),
        (None, None) => Ok(carried),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_input_and_output_are_told_from_the_stream() {
        let failed = |kind: io::ErrorKind| Some(io::Error::from(kind));
        let closed = Err(carry::code::CLOSED);
        let full = here(None, failed(io::ErrorKind::StorageFull), closed).unwrap_err();
        assert!(full.to_string().starts_with("cannot write standard output: "), "{full}");
        let directory = here(failed(io::ErrorKind::IsADirectory), None, closed).unwrap_err();
        assert!(directory.to_string().starts_with("cannot read standard input: "), "{directory}");
        let enough = |carried| here(None, failed(io::ErrorKind::BrokenPipe), carried).unwrap();
        assert_eq!(enough(closed), Ok(()));
        let reset = Err(carry::code::RESET);
        assert_eq!((enough(reset), here(None, None, reset).unwrap()), (reset, reset));
    }
}
