//! `quicket balance status`: questions to balancers at work.

use serde_json::{Value, json};

use super::{PREFIX, report};
use crate::args::Status;
use crate::control::{ask, names};
use crate::exit::{Failure, Kind};
use crate::print;

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
