//! `quicket tunnel show`, `change` and `port`: questions to the programs that carry tunnels.

use serde_json::{Value, json};

use super::control::Carrier;
use super::report;
use crate::args::{PortAction, Show};
use crate::control::printable;
use crate::exit::{Failure, Kind};
use crate::print;

/// Shows tunnels, or one of them.
pub(super) fn show(arguments: &Show) -> Result<(), Failure> {
    let carriers = match &arguments.name {
        Some(name) => vec![Carrier::of(name)?],
        None => Carrier::all()?,
    };
    let asked = |tunnel: &&Value| {
        arguments.name.as_ref().is_none_or(|name| tunnel["ifname"].as_str() == Some(name))
    };
    if arguments.prometheus {
        let reports = carriers.iter().map(|carrier| &carrier.report);
        return print(&report::prometheus(reports, arguments.name.as_deref()));
    }
    if arguments.json {
        let of = |carrier: &Carrier| {
            let tunnels: Vec<Value> = carrier.tunnels().filter(asked).cloned().collect();
            let with = |mut tunnel: Value| {
                tunnel["pid"] = carrier.report["pid"].clone();
                if !arguments.statistics
                    && let Some(fields) = tunnel.as_object_mut()
                {
                    fields.remove("counters");
                }
                tunnel
            };
            tunnels.into_iter().map(with).collect::<Vec<_>>()
        };
        let all: Vec<Value> = carriers.iter().flat_map(of).collect();
        return print(&json!(all).to_string());
    }
    let mut lines = Vec::new();
    for carrier in &carriers {
        for tunnel in carrier.tunnels().filter(asked) {
            lines.push(report::tunnel_text(tunnel, arguments.statistics));
        }
        if arguments.statistics && arguments.name.is_none() {
            let strays = report::counters_text(&carrier.report["strays"]);
            // Nothing is sent for no tunnel.
            let strays = strays.lines().find(|line| line.contains("RX:")).unwrap_or_default();
            lines.push(format!("for no tunnel of process {}:\n{strays}", carrier.report["pid"]));
        }
    }
    if lines.is_empty() { Ok(()) } else { print(&lines.join("\n")) }
}

/// Changes a tunnel that is carried.
pub(super) fn change(words: &[String]) -> Result<(), Failure> {
    let (name, rest) = match words {
        [first, name, rest @ ..] if first == "name" => (name, rest),
        [name, rest @ ..] => (name, rest),
        [] => return Err(Failure::new(Kind::Usage, "the name of the tunnel is missing")),
    };
    Carrier::of(name)?.command(&format!("change {name} {}", line(rest)?))
}

/// Adds, removes or shows ports.
pub(super) fn port(action: &PortAction) -> Result<(), Failure> {
    match action {
        PortAction::Add { of, words } => {
            carrier(of.as_deref())?.command(&format!("port add {}", line(&words.words)?))
        }
        PortAction::Del { of, words } => {
            carrier(of.as_deref())?.command(&format!("port del {}", line(&words.words)?))
        }
        PortAction::Show { json } => {
            let carriers = Carrier::all()?;
            let ports = carriers.iter().flat_map(|carrier| carrier.report["ports"].as_array());
            let ports: Vec<&Value> = ports.flatten().collect();
            if *json {
                return print(&json!(ports).to_string());
            }
            let lines = ports.iter().filter_map(|port| port["words"].as_str());
            let lines: Vec<String> =
                lines.map(|line| format!("port {}", printable(line))).collect();
            if lines.is_empty() { Ok(()) } else { print(&lines.join("\n")) }
        }
    }
}

/// The program whose ports are meant.
fn carrier(of: Option<&str>) -> Result<Carrier, Failure> {
    if let Some(name) = of {
        return Carrier::of(name);
    }
    let mut all = Carrier::all()?;
    match (all.pop(), all.pop()) {
        (Some(carrier), None) => Ok(carrier),
        (None, _) => Err(Failure::new(
            Kind::Environment,
            "no program carries tunnels in this network namespace: a port needs one (quicket \
             tunnel add, quicket tunnel run)",
        )),
        (Some(_), Some(_)) => Err(Failure::new(
            Kind::Usage,
            "several programs carry tunnels: say which by --of NAME, the name of a tunnel of it",
        )),
    }
}

/// Words as a line, which they must not end.
fn line(words: &[String]) -> Result<String, Failure> {
    if words.iter().any(|word| word.contains(['\n', '\r'])) {
        return Err(Failure::new(Kind::Usage, "a word has a line break in it"));
    }
    Ok(words.join(" "))
}
