//! Standard input and output as one stream, for ProxyCommand of ssh and the like.

use std::future::Future;
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
    match (carried, ended) {
        (Ok(()), _) => Ok(()),
        (Err(carry::code::LOST), Some(ended)) => Err(Error::Lost(ended)),
        (Err(code), _) => Err(Error::Broken(code)),
    }
}
