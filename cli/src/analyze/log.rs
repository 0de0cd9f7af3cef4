//! The connections of a file, whatever its form: headers and events come in, one by one.

use std::collections::HashMap;

use serde_json::Value;

use super::connection::Connection;
use super::value::{cut, float, text};

/// More connections of one file than this are counted and not drawn.
pub(super) const MAX_CONNECTIONS: usize = 32;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) connections: Vec<Connection>,
    /// By trace and group.
    places: HashMap<(usize, String), usize>,
    /// Events of connections beyond the limit.
    pub(super) events_beyond: u64,
    /// Events that are known and were read.
    pub(super) known: u64,
    /// Events that say nothing here.
    pub(super) others: u64,
    /// What cannot be read: how many, and what the first is.
    pub(super) unreadable: u64,
    pub(super) first_unreadable: Option<String>,
    /// What else a reader should know.
    pub(super) remarks: Vec<String>,
    trace: Trace,
}

/// What holds for the events of the present trace.
#[derive(Debug, Default)]
struct Trace {
    number: usize,
    group: Option<String>,
    role: Option<String>,
    program: Option<String>,
    clock: Clock,
}

/// How the times of a trace are meant.
#[derive(Debug)]
struct Clock {
    /// Each counts from the one before.
    deltas: bool,
    /// Milliseconds in a unit.
    unit: f64,
    now: f64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { deltas: false, unit: 1.0, now: 0.0 }
    }
}

impl Log {
    /// The events that follow are of another trace.
    pub(super) fn begin_trace(&mut self) {
        self.trace = Trace { number: self.trace.number + 1, ..Trace::default() };
    }

    /// Something that holds for the trace: a field of it, which may come before or after its events.
    pub(super) fn on_header(&mut self, field: &str, value: &Value) {
        let trace = &mut self.trace;
        match field {
            "vantage_point" => {
                trace.role = text(&value["type"]);
                trace.program = text(&value["name"]);
            }
            "common_fields" => {
                let group = ["ODCID", "group_id"].iter().find_map(|name| text(&value[*name]));
                trace.group = group.or(trace.group.take());
                let format = value["time_format"].as_str();
                // The latter is its name up to draft 02.
                trace.clock.deltas = matches!(format, Some("relative_to_previous_event" | "delta"));
            }
            "configuration" if value["time_units"] == "us" => trace.clock.unit = 1e-3,
            _ => {}
        }
        for ((number, _), place) in &self.places {
            let trace = &self.trace;
            if *number == trace.number
                && let Some(connection) = self.connections.get_mut(*place)
            {
                connection.role = trace.role.clone().or(connection.role.take());
                connection.program = trace.program.clone().or(connection.program.take());
                if connection.name.is_empty() {
                    connection.name = trace.group.clone().unwrap_or_default();
                }
            }
        }
    }

    /// An event; `at` tells where in the file it is.
    pub(super) fn on_event(&mut self, event: &Value, at: impl FnOnce() -> String) {
        let (Some(time), Some(name)) = (float(&event["time"]), event["name"].as_str()) else {
            return self.on_unreadable(format!("{}: no event: it needs a time and a name", at()));
        };
        let clock = &mut self.trace.clock;
        let time = time * clock.unit;
        clock.now = if clock.deltas { clock.now + time } else { time };
        let now = clock.now;
        let Some(connection) = self.connection(&event["group_id"]) else {
            self.events_beyond += 1;
            return;
        };
        if connection.on_event(now, name, &event["data"]) {
            self.known += 1;
        } else {
            self.others += 1;
        }
    }

    /// The connection of that name, unless there are too many.
    pub(super) fn named(&mut self, name: &str) -> Option<&mut Connection> {
        self.connection(&Value::String(name.to_owned()))
    }

    /// Something that is no event.
    pub(super) fn on_unreadable(&mut self, what: String) {
        self.unreadable += 1;
        self.first_unreadable.get_or_insert_with(|| cut(&what));
    }

    /// The connection that an event belongs to, unless there are too many.
    fn connection(&mut self, group: &Value) -> Option<&mut Connection> {
        let trace = &self.trace;
        let own = text(group).or_else(|| trace.group.clone()).unwrap_or_default();
        let key = (trace.number, own);
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None if self.connections.len() >= MAX_CONNECTIONS => return None,
            None => {
                let mut connection = Connection::new(key.1.clone());
                connection.role.clone_from(&trace.role);
                connection.program.clone_from(&trace.program);
                self.connections.push(connection);
                self.places.insert(key, self.connections.len() - 1);
                self.connections.len() - 1
            }
        };
        self.connections.get_mut(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at() -> String {
        "line 1".into()
    }

    #[test]
    fn groups_are_connections_up_to_a_limit() {
        let mut log = Log::default();
        log.begin_trace();
        for group in 0..100 {
            log.on_event(&json!({"time": 1, "name": "a:b", "group_id": group.to_string()}), at);
        }
        assert_eq!(log.connections.len(), MAX_CONNECTIONS);
        assert_eq!(log.events_beyond, 100 - MAX_CONNECTIONS as u64);
    }

    #[test]
    fn a_header_behind_the_events_names_them_too() {
        let mut log = Log::default();
        log.begin_trace();
        log.on_event(&json!({"time": 1, "name": "a:b"}), at);
        log.on_header("common_fields", &json!({"ODCID": "ab"}));
        log.on_header("vantage_point", &json!({"name": "x", "type": "server"}));
        let connection = &log.connections[0];
        assert_eq!((&*connection.name, connection.role.as_deref()), ("ab", Some("server")));
    }

    #[test]
    fn times_from_event_to_event_add_up() {
        let mut log = Log::default();
        log.begin_trace();
        log.on_header("common_fields", &json!({"time_format": "relative_to_previous_event"}));
        for time in [1000.0, 2.0, 3.0] {
            log.on_event(&json!({"time": time, "name": "a:b"}), at);
        }
        assert!((log.connections[0].duration - 5.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_event_is_counted_and_the_first_is_told() {
        let mut log = Log::default();
        for wrong in [json!([1, "transport", "packet_sent", {}]), json!({"time": -1, "name": "a"})]
        {
            log.on_event(&wrong, at);
        }
        assert_eq!(log.unreadable, 2);
        assert!(log.first_unreadable.is_some_and(|first| first.starts_with("line 1: ")));
    }
}
