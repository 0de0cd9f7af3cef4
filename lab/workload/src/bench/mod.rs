//! The loads of the benchmark, and the process that carries one end of them.
//!
//! A benchmarked process is given one [`Assignment`] as a JSON argument. It pins itself to a core,
//! becomes a server or a client, and prints [`Message`]s as JSON lines. All timing, counting and
//! checking is done here; an implementation supplies only [`Client`] and [`serve`-like
//! function](run), so that rows of different implementations mean the same thing.

mod assignment;
mod client;
mod latencies;
mod loads;
mod pattern;
mod process;
mod request;
mod server;
pub mod tasks;
pub mod tcp;
mod tls;
mod usage;

pub use assignment::{
    Asked, Assignment, Carried, Cipher, Conditions, Congestion, Direction, Ids, Payload, Role,
    Scenario, Session,
};
pub use client::{
    Client, FetchWay, Fetched, Flow, Link, Measurement, Outcome, Switched, Unsupported, Way,
};
pub use latencies::{Latencies, Summary};
pub use pattern::{Arrival, Pattern, Transfer};
pub use process::{Message, pin, run};
pub use request::{EXCHANGE_LENGTH, HEADER_LENGTH, Request};
pub use server::{Counters, usage_answer, usage_answer_with, workers};
pub use tls::{client_config, server_config};
pub use usage::{Usage, raise_open_files};

/// The application protocol of the benchmark.
pub const ALPN: &[u8] = b"quicket-bench";
/// The server name in the benchmark's certificate.
pub const SERVER_NAME: &str = "localhost";
/// Flow control window of a connection and of its streams in bytes, for every implementation that
/// can be told: large enough never to be what limits a bulk transfer.
pub const WINDOW: u32 = 16 << 20;
/// The most idle connections that a benchmark holds.
pub const MAX_IDLE_CONNECTIONS: u32 = 50_000;

/// Why a benchmarked process cannot go on.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
