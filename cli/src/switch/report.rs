//! What people and Prometheus are told of a switch at work.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::control::printable;
use crate::exposition::{Families, Kind, Labels, OTHER_VERSION};

/// The answer of a switch, for people.
pub(super) fn text(report: &Value) -> String {
    let mut out = format!(
        "switch of user {}{}, process {}, for {} s\n",
        report["uid"],
        if report["system"] == true { ", for the system" } else { "" },
        report["pid"],
        report["uptime_seconds"]
    );
    for address in list(&report["addresses"]) {
        let _ = writeln!(out, "{}", word(&address["address"]));
        let _ = writeln!(out, "  {}", kernel(&address["kernel"]));
        let lent = &address["loan"]["to"];
        if lent.is_object() {
            let (generation, worker) = (&lent["generation"], &lent["worker"]);
            let _ =
                writeln!(out, "  the socket is lent to generation {generation}, worker {worker}");
        }
        if let Some(line) = secrets(&address["secrets"]) {
            let _ = writeln!(out, "  {line}");
        }
        for program in list(&address["programs"]) {
            let _ = writeln!(
                out,
                "  {:20} {}pid {:<8} {:9} generation {:<3} workers {:<3} {}: {} connections, {} clients, {} \
                 datagrams, {} lost{}{}",
                word(&program["program"]),
                user(&program["uid"], &report["uid"]),
                // Names that are kept for processes that have yet to come have none.
                program["pid"].as_u64().map_or("-".to_owned(), |pid| pid.to_string()),
                word(&program["state"]),
                program["generation"],
                program["workers"],
                serves(program),
                program["connections"].as_u64().map_or("?".to_owned(), |count| count.to_string()),
                clients(program),
                program["datagrams"],
                program["lost"],
                past_the_switch(program),
                program["drain_seconds_left"]
                    .as_u64()
                    .map_or(String::new(), |left| format!(", {left} s left")),
            );
        }
        for part in ["datagrams", "dropped"] {
            let counters = address[part].as_object().into_iter().flatten();
            let shown: Vec<String> = counters
                .filter(|(_, value)| **value != 0)
                .map(|(name, value)| format!("{} {value}", printable(&name.replace('_', " "))))
                .collect();
            if !shown.is_empty() {
                let _ = writeln!(out, "  {part}: {}", shown.join(", "));
            }
        }
    }
    out.trim_end().to_owned()
}

/// How many clients a program has had.
fn clients(program: &Value) -> u64 {
    let count = |name: &str| program[name].as_u64().unwrap_or_default();
    count("first_packets").saturating_add(count("first_packets_by_kernel"))
}

/// ... and of those that the switch has not seen, in words.
fn past_the_switch(program: &Value) -> String {
    match program["first_packets_by_kernel"].as_u64() {
        None | Some(0) => String::new(),
        Some(count) => format!(", {count} clients by the kernel"),
    }
}

/// Whose a program is, if he is another than the switch's user.
fn user(uid: &Value, own: &Value) -> String {
    if uid == own { String::new() } else { format!("user {uid} ") }
}

/// What the kernel does at an address, in words.
fn kernel(kernel: &Value) -> String {
    let trouble = kernel["trouble"].as_str().map(printable);
    let trouble = trouble.map(|why| format!(": {why}")).unwrap_or_default();
    match kernel["helps"].as_bool() {
        Some(true) => {
            let way = match kernel["brings_first_packets"] == true {
                true => "brings first packets to the only program",
                false => "first packets come through the switch",
            };
            format!("the kernel knows {} workers, {way}{trouble}", kernel["owners"])
        }
        _ => format!("every datagram is forwarded{trouble}"),
    }
}

/// The numbers of a site's secrets, in words; none where keys were drawn at random.
fn secrets(secrets: &Value) -> Option<String> {
    let current = secrets["current"].as_u64().filter(|number| *number != 0)?;
    let accepted: Vec<_> = list(&secrets["accepted"]).map(Value::to_string).collect();
    Some(format!(
        "secrets of number {current}, host {:02x}; accepted: {}",
        secrets["server_id"].as_u64().unwrap_or(0),
        accepted.join(", ")
    ))
}

/// What a program serves, in words.
fn serves(program: &Value) -> String {
    if program["state"] == "joined" {
        return "nothing yet".to_owned();
    }
    let words = |value: &Value| list(value).map(word).collect::<Vec<_>>().join(" ");
    let protocols = Some(words(&program["protocols"])).filter(|words| !words.is_empty());
    let names = Some(words(&program["server_names"])).filter(|words| !words.is_empty());
    let names = names.map(|names| match program["more_server_names"].as_u64() {
        None | Some(0) => names,
        Some(more) => format!("{names} and {more} more"),
    });
    let protocols = protocols.unwrap_or_else(|| "clients without a protocol".to_owned());
    match names {
        Some(names) => format!("{protocols} of {names}"),
        None => protocols,
    }
}

/// The answer of a switch in the text format of Prometheus.
pub(super) fn prometheus(report: &Value) -> String {
    let mut families = Families::default();
    for address in list(&report["addresses"]) {
        let site = Labels::default();
        let site = site.with("address", address["address"].as_str().unwrap_or_default());
        of_address(&mut families, &site, address);
        for program in list(&address["programs"]) {
            of_program(&mut families, &site, program);
        }
    }
    families.text()
}

fn of_address(families: &mut Families, site: &Labels, address: &Value) {
    for (name, value) in address["datagrams"].as_object().into_iter().flatten() {
        let help = DATAGRAMS.iter().find_map(|(each, help)| (each == name).then_some(*help));
        let help = help.unwrap_or(OTHER_VERSION);
        let name = format!("quicket_switch_datagrams_{name}_total");
        families.add(Kind::Counter, &name, help, site, value);
    }
    let loans = &address["loan"]["count"];
    let help = "How often the address's socket was lent to a worker";
    families.add(Kind::Counter, "quicket_switch_loans_total", help, site, loans);
    for (reason, value) in address["dropped"].as_object().into_iter().flatten() {
        let (name, help) =
            ("quicket_switch_datagrams_dropped_total", "Datagrams that were dropped");
        families.add(Kind::Counter, name, help, &site.with("reason", reason), value);
    }
    let kernel = &address["kernel"];
    let is = |value: bool| json!(u8::from(value));
    let mut gauge = |name: &str, help: &str, value: &Value| {
        families.add(Kind::Gauge, &format!("quicket_switch_{name}"), help, site, value);
    };
    gauge(
        "kernel_helps",
        "1 where the kernel brings datagrams to workers",
        &is(kernel["helps"] == true),
    );
    gauge(
        "kernel_brings_first_packets",
        "1 where the kernel brings first packets to the only program",
        &is(kernel["brings_first_packets"] == true),
    );
    gauge("kernel_owners", "Workers that the kernel knows", &kernel["owners"]);
    gauge("kernel_sockets", "Sockets that the kernel brings datagrams to", &kernel["sockets"]);
    gauge(
        "socket_lent",
        "1 while the address's socket is lent to a worker",
        &is(address["loan"]["to"].is_object()),
    );
    gauge(
        "secrets_current",
        "The number of the secret that is used for what is new",
        &address["secrets"]["current"],
    );
    let dead = &address["generations_known_dead"];
    gauge("generations_known_dead", "Generations that have ended, and are remembered", dead);
}

fn of_program(families: &mut Families, site: &Labels, program: &Value) {
    let word = |name: &str| program[name].as_str().unwrap_or_default();
    let labels = site
        .with("program", word("program"))
        .with("user", &program["uid"].to_string())
        .with("pid", &program["pid"].to_string())
        .with("generation", &program["generation"].to_string());
    for state in STATES {
        let name = "quicket_switch_program_state";
        let help = "1 for the state that the program is in, 0 for the others";
        let is = json!(u8::from(word("state") == state));
        families.add(Kind::Gauge, name, help, &labels.with("state", state), &is);
    }
    for (name, help) in [
        ("workers", "Workers of the program"),
        ("connections", "Connections that the program has, as it has said last"),
        ("drain_seconds_left", "Seconds until the program is to have ended its connections"),
    ] {
        let family = format!("quicket_switch_program_{name}");
        families.add(Kind::Gauge, &family, help, &labels, &program[name]);
    }
    for (name, help) in [
        ("first_packets", "First packets of clients that the program got from the switch"),
        (
            "first_packets_by_kernel",
            "First packets of clients that the kernel brought to the program",
        ),
        ("datagrams", "Datagrams that the program got from the switch"),
        ("lost", "Datagrams that were lost, as the program was slow"),
    ] {
        let family = format!("quicket_switch_program_{name}_total");
        families.add(Kind::Counter, &family, help, &labels, &program[name]);
    }
}

/// What a program may do at an address. It is no label of counters, whose series would end whenever it changes.
const STATES: [&str; 5] = ["joined", "preparing", "serving", "waiting", "draining"];

/// What is counted of an address's datagrams that were not dropped.
const DATAGRAMS: [(&str, &str); 16] = [
    ("received", "Datagrams that came to the switch's socket"),
    ("forwarded", "Datagrams that were handed to programs"),
    ("lost", "Datagrams that were lost, as their program was slow"),
    ("handed_back", "Datagrams that programs handed back, to whose own sockets they had come"),
    ("sent_for_programs", "Datagrams that were sent for programs without a socket of the address"),
    (
        "not_sent",
        "Datagrams that were not sent for programs: from another's address, or more than a burst may have",
    ),
    ("by_owner", "Datagrams that were delivered by their connection ID"),
    ("by_pin", "Datagrams that were delivered by a pin"),
    (
        "remainder",
        "Datagrams that were delivered to the endpoint that had the address to itself before",
    ),
    ("first_packets", "Datagrams that were delivered as first packets"),
    (
        "ahead_of_first_packets",
        "Datagrams with early data or of unknown versions that were delivered ahead of their first packet",
    ),
    ("held", "Datagrams that were held until their ClientHello was whole"),
    ("waited", "Datagrams that waited until a program of the family accepted"),
    ("stateless_resets", "Datagrams that were answered with a stateless reset"),
    ("version_negotiations", "Datagrams that were answered with Version Negotiation"),
    (
        "refusals",
        "Datagrams that were answered with a close: nobody serves what the client asks for",
    ),
];

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Value {
        json!({
            "pid": 7, "uid": 1000, "uptime_seconds": 5,
            "addresses": [{
                "address": "[::]:443",
                "programs": [
                    { "program": "a\"b", "pid": 9, "generation": 3, "state": "draining", "workers": 2,
                      "protocols": ["h3"], "server_names": ["a.example"], "more_server_names": 7,
                      "connections": 2, "drain_seconds_left": 9,
                      "first_packets": 4, "first_packets_by_kernel": 3, "datagrams": 50, "lost": 0 },
                    { "program": "c\u{1b}", "pid": 10, "generation": 4, "state": "joined",
                      "workers": 1, "protocols": [], "server_names": [],
                      "first_packets": 0, "datagrams": 0, "lost": 0 },
                ],
                "generations_known_dead": 1,
                "secrets": { "current": 4, "accepted": [4, 5, 3], "server_id": 196 },
                "kernel": { "helps": true, "brings_first_packets": true, "owners": 3, "sockets": 4, "trouble": null },
                "datagrams": { "received": 60, "by_pin": 0 },
                "dropped": { "too_short": 2, "dead": 0 },
            }],
        })
    }

    #[test]
    fn people_see_programs_and_what_is_not_zero() {
        let text = text(&report());
        let first = "h3 of a.example and 7 more: 2 connections, 7 clients, 50 datagrams, 0 lost, 3 clients by the kernel, 9 s left";
        assert!(text.contains(first), "{text}");
        assert!(
            text.contains("nothing yet: ? connections")
                && text.contains("datagrams: received 60\n"),
            "{text}"
        );
        assert!(text.contains("dropped: too short 2") && !text.contains("dead"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(
            text.contains(
                "[::]:443\n  the kernel knows 3 workers, brings first packets to the only program\n"
            ),
            "{text}"
        );
        assert!(text.contains("\n  secrets of number 4, host c4; accepted: 4, 5, 3\n"), "{text}");
        assert_eq!(secrets(&json!({ "current": 0, "accepted": [0], "server_id": 0 })), None);
        let off = json!({ "helps": false, "owners": 0, "sockets": 0, "trouble": "no" });
        assert_eq!(kernel(&off), "every datagram is forwarded: no");
    }

    #[test]
    fn prometheus_gets_each_family_once_with_escaped_labels() {
        let text = prometheus(&report());
        let family = "# TYPE quicket_switch_program_datagrams_total counter";
        assert_eq!(text.matches(family).count(), 1, "{text}");
        assert!(
            text.contains("program=\"a\\\"b\",user=\"null\",pid=\"9\",generation=\"3\""),
            "{text}"
        );
        let datagrams = "quicket_switch_program_datagrams_total{address=\"[::]:443\",program=\"a\\\"b\",\
                         user=\"null\",pid=\"9\",generation=\"3\"} 50";
        assert!(text.contains(datagrams), "{text}");
        assert!(text.contains("generation=\"3\",state=\"draining\"} 1"), "{text}");
        assert!(text.contains("generation=\"3\",state=\"serving\"} 0"), "{text}");
        let received = "quicket_switch_datagrams_received_total{address=\"[::]:443\"} 60";
        assert!(text.contains(received), "{text}");
        assert!(text.contains("quicket_switch_secrets_current{address=\"[::]:443\"} 4"), "{text}");
        assert!(text.contains("quicket_switch_kernel_helps{address=\"[::]:443\"} 1"), "{text}");
        let brings = "quicket_switch_kernel_brings_first_packets{address=\"[::]:443\"} 1";
        assert!(text.contains(brings), "{text}");
    }
}
