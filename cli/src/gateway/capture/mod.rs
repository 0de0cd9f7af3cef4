//! `quicket gateway capture`: both ends of the question.
//!
//! A gateway with a file has a socket of the network namespace ([`crate::control`]). Root and its own user may send a line of
//! JSON: [`Question`]. To the first it answers with a line, to the second with frames.

mod answer;
mod ask;
mod bounded;
mod find;
mod output;

use std::path::PathBuf;

use quicket_gateway::capture::Request;
use serde::{Deserialize, Serialize};

pub(super) use answer::listen;
pub(super) use ask::run;

/// What names of gateways' sockets begin with.
const PREFIX: &str = "quicket-gateway-";
/// The longest question, in bytes.
const MAX_QUESTION: u64 = 16 << 10;

/// What a gateway is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Question {
    /// Which file it has.
    Who,
    /// To capture.
    Capture(Request),
}

/// Which gateway it is. Its process and user the system tells, and not the gateway.
#[derive(Debug, Serialize, Deserialize)]
struct Identity {
    /// Where its file is now, without symbolic links.
    file: PathBuf,
    /// It takes new connections: no next generation has taken over.
    serves: bool,
}
