//! What the demonstration tells.

use std::process;
use std::time::Duration;

use serde_json::{Value, json};

use super::child::Server;
use super::input::Input;
use crate::exit::{Failure, Kind};
use crate::get::Lost;
use crate::units::{Bytes, Rate, Time};

/// One fetch of everything, as both sides saw it.
#[derive(Debug)]
pub(super) struct Round {
    /// The client's report.
    pub(super) client: Value,
    /// What the server says of the connection.
    pub(super) server: Value,
}

impl Round {
    /// Makes sure that everything came and was verified, and that the second round did what it is
    /// there to show.
    pub(super) fn check(&self, input: &Input, number: usize) -> Result<(), Failure> {
        let files = self.client["files"].as_array().map_or(&[][..], Vec::as_slice);
        let verified = files.iter().filter(|file| file["verified"] == true).count();
        let received = self.client["received"].as_u64();
        if verified != input.items.len() || received != Some(input.size()) {
            let message = format!(
                "{verified} of {} files were verified, {received:?} of {} bytes came",
                input.items.len(),
                input.size()
            );
            return Err(Failure::new(Kind::Content, message));
        }
        let connection = &self.client["connections"][0];
        let (resumed, early) = (&connection["resumed"], &connection["early_data"]);
        if number > 1 && (resumed != true || early != "accepted") {
            let message = format!("the session was not resumed with 0-RTT: {resumed}, {early}");
            return Err(Failure::new(Kind::Connection, message));
        }
        Ok(())
    }

    fn took(&self) -> Duration {
        seconds(&self.client["seconds"])
    }
}

fn seconds(value: &Value) -> Duration {
    Duration::try_from_secs_f64(value.as_f64().unwrap_or_default()).unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What will be sent.
pub(super) fn beginning(input: &Input) -> String {
    let (files, size) = (input.items.len(), Bytes(input.size()));
    let files = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
    format!("Sending {files}, {size}, from {}, over HTTP/3.", input.origin)
}

/// The two processes.
pub(super) fn server(server: &Server) -> String {
    let (server_id, own) = (server.id(), process::id());
    format!(
        "Server: process {server_id} on {}, certificate {}\nClients: processes started by {own}, \
         which trust that certificate only\n",
        server.address, server.pin
    )
}

/// One round.
pub(super) fn round(round: &Round, which: usize) -> String {
    let connection = &round.client["connections"][0];
    let session = if connection["resumed"] == true { "session resumed" } else { "new session" };
    let early = match word(&connection["early_data"]) {
        "accepted" => "requests sent with the first packet (0-RTT)",
        "rejected" => "0-RTT refused",
        _ => "no 0-RTT",
    };
    let received = number(&round.client["received"]);
    let sender = &round.server;
    format!(
        "Connection {which}: {}, {}, {}, {}\n  {session}, {early}; handshake {}\n  {} in {}: {}\n  \
         the server sent {} packets of up to {}, {}\n",
        word(&connection["quic_version"]),
        word(&connection["alpn"]),
        word(&connection["cipher_suite"]),
        word(&connection["key_exchange"]),
        Time(seconds(&connection["handshake_seconds"])),
        Bytes(received),
        Time(round.took()),
        Rate::of(received, round.took()),
        number(&sender["packets_sent"]),
        Bytes(number(&sender["mtu"])),
        Lost(number(&sender["packets_lost"])),
    )
}

/// The result.
pub(super) fn end(input: &Input, rounds: &[Round]) -> String {
    let files = input.items.len();
    let times = rounds.len();
    format!("All {files} files came {times} times, each with the right SHA-256.")
}

/// Everything as JSON.
pub(super) fn json(input: &Input, rounds: &[Round]) -> Result<String, Failure> {
    let rounds: Vec<_> = rounds
        .iter()
        .map(|round| {
            json!({
                "connection": round.client["connections"][0],
                "received": round.client["received"],
                "seconds": round.client["seconds"],
                "bits_per_second": round.client["bits_per_second"],
                "server": round.server,
            })
        })
        .collect();
    let all = json!({ "files": input.items.len(), "bytes": input.size(), "rounds": rounds });
    serde_json::to_string(&all)
        .map_err(|error| Failure::environment("cannot print the summary", error))
}
