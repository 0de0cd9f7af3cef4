//! Runs a case by h3i's client.

use std::panic;

use h3i::actions::h3::Action;
use h3i::client::connection_summary::ConnectionSummary;
use h3i::client::sync_client;
use h3i::config::Config;
use h3i::frame::H3iFrame;
use h3i::quiche::ConnectionError;
use h3i::quiche::h3::NameValue as _;

use crate::case::{
    CONTROL, CONTROL_TYPE, Case, NEXT_REQUEST, NO_ERROR, Outcome, REQUEST, Server, answered,
    get_next, open, send, settings,
};

/// The idle timeout, in milliseconds: whatever a server does about a case it does at once.
const PATIENCE: u64 = 5000;

/// Runs a case at the server of this port.
///
/// # Errors
///
/// What came of it, if that is not what is demanded, or if the server does not go on.
pub fn run(port: u16, server: Server, case: &Case) -> Result<(), Outcome> {
    let ends = matches!(case.expected, Outcome::Closed(_));
    let mut actions = case.actions.clone();
    if !ends {
        // An error of a stream leaves the connection alone (RFC 9114, Section 8).
        actions.extend([answered(REQUEST), get_next(), answered(NEXT_REQUEST), close()]);
    }
    let summary = connect(port, actions)?;
    let outcome = outcome(&summary, REQUEST);
    if outcome != case.expected {
        return Err(outcome);
    }
    let next = if ends { ask(port)? } else { summary };
    match self::outcome(&next, NEXT_REQUEST) {
        Outcome::Answered(status) if status == server.status() => Ok(()),
        other => Err(Outcome::Other(format!("{outcome}, but the next request was {other}"))),
    }
}

/// A request on a connection of its own.
fn ask(port: u16) -> Result<ConnectionSummary, Outcome> {
    let begun = [open(CONTROL, CONTROL_TYPE), send(CONTROL, settings(&[]))];
    let rest = [get_next(), answered(NEXT_REQUEST), close()];
    connect(port, begun.into_iter().chain(rest).collect())
}

fn close() -> Action {
    let error = ConnectionError { is_app: true, error_code: NO_ERROR, reason: Vec::new() };
    Action::ConnectionClose { error }
}

fn connect(port: u16, actions: Vec<Action>) -> Result<ConnectionSummary, Outcome> {
    let config = Config::new()
        .with_host_port("localhost:443".to_owned())
        .with_connect_to(format!("127.0.0.1:{port}"))
        .verify_peer(false)
        .with_idle_timeout(PATIENCE)
        .build()
        .map_err(|error| Outcome::Other(error.to_string()))?;
    // h3i panics where it cannot send.
    match panic::catch_unwind(|| sync_client::connect(config, actions, None)) {
        Ok(Ok(summary)) => Ok(summary),
        Ok(Err(error)) => Err(Outcome::Other(format!("{error:?}"))),
        Err(_) => Err(Outcome::Other("h3i panicked".to_owned())),
    }
}

/// What came of the connection, and of the request on this stream.
fn outcome(summary: &ConnectionSummary, stream_id: u64) -> Outcome {
    match summary.conn_close_details.peer_error() {
        Some(error) if !error.is_app => return Outcome::ClosedByQuic(error.error_code),
        Some(error) => return Outcome::Closed(error.error_code),
        None => {}
    }
    for frame in summary.stream_map.stream(stream_id) {
        match frame {
            H3iFrame::ResetStream(reset) => return Outcome::Reset(reset.error_code),
            H3iFrame::Headers(headers) => {
                let status = headers.headers().iter().find(|header| header.name() == b":status");
                let status = status.and_then(|status| std::str::from_utf8(status.value()).ok());
                if let Some(status) = status.and_then(|status| status.parse().ok()) {
                    return Outcome::Answered(status);
                }
            }
            H3iFrame::QuicheH3(_) => {}
        }
    }
    Outcome::Other(format!("nothing ({:?})", summary.conn_close_details))
}
