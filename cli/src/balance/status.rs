//! `quicket balance status`: questions to balancers at work.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{PREFIX, report};
use crate::args::Status;
use crate::control::{ask, names};
use crate::exit::{Failure, Kind};

/// Shows the balancers of this network namespace.
pub(super) fn show(arguments: &Status) -> Result<(), Failure> {
    let all: Vec<Value> = names(PREFIX)?.iter().filter_map(|name| ask(name, "show").ok()).collect();
    if arguments.json {
        return print(&json!(all).to_string());
    }
    if all.is_empty() {
        return Err(Failure::new(
            Kind::Environment,
            "no balancer of yours runs in this network namespace: quicket balance --config FILE \
             starts one",
        ));
    }
    if arguments.prometheus {
        return print(&report::prometheus(&all));
    }
    print(&all.iter().map(report::text).collect::<Vec<_>>().join("\n"))
}

pub(super) fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{text}") {
        // Whoever reads has had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::environment("cannot print", error)),
    }
}
