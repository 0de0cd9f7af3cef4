//! qlog as one JSON document, read event by event: `{"traces": [{"common_fields": …, "events": […]}]}`.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::input::MAX_RECORD;
use super::log::Log;

/// What files must have that are no captures.
pub(super) const NEEDED: &str =
    "a qlog is needed, with the events of draft 02 of its schema or later";

/// Lets so many bytes through until the next event is there.
struct Metered<R> {
    input: R,
    used: Rc<Cell<usize>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let used = self.used.get().saturating_add(read);
        self.used.set(used);
        if used > MAX_RECORD {
            return Err(io::Error::other(format!("an event of more than {MAX_RECORD} bytes")));
        }
        Ok(read)
    }
}

/// Reads a document. The error says where it is wrong; what came before that is in `log`.
pub(super) fn read(input: impl BufRead, log: &mut Log) -> Result<(), serde_json::Error> {
    let used = Rc::new(Cell::new(0));
    let metered = Metered { input, used: Rc::clone(&used) };
    let mut json = serde_json::Deserializer::from_reader(metered);
    File { log, used }.deserialize(&mut json)
}

/// The whole.
struct File<'a> {
    log: &'a mut Log,
    used: Rc<Cell<usize>>,
}

/// The list of traces.
struct Traces<'a>(File<'a>);
/// One of them.
struct Trace<'a, 'b>(&'b mut File<'a>);
/// The list of its events.
struct Events<'a, 'b>(&'b mut File<'a>);

impl<'de> DeserializeSeed<'de> for File<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for File<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a qlog file with its traces")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut any = false;
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "traces" => {
                    any = true;
                    let File { log, used } = &mut self;
                    map.next_value_seed(Traces(File { log, used: Rc::clone(used) }))?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if any { Ok(()) } else { Err(A::Error::custom("no \"traces\": this is no qlog")) }
    }
}

impl<'de> DeserializeSeed<'de> for Traces<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Traces<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of traces")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Trace(&mut self.0))?.is_some() {}
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Trace<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.log.begin_trace();
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Trace<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "events" => map.next_value_seed(Events(self.0))?,
                field => {
                    let value: Value = map.next_value()?;
                    self.0.log.on_header(field, &value);
                }
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Events<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let File { log, used } = self.0;
        let mut number = 0u64;
        used.set(0);
        while let Some(event) = list.next_element::<Value>()? {
            number += 1;
            log.on_event(&event, || format!("event {number}"));
            used.set(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_in_any_order_and_up_to_where_it_is_cut() {
        let text = r#"{"qlog_version": "0.3", "x": {"y": [1, {}]}, "traces": [
            {"events": [{"time": 1, "name": "transport:packet_sent", "data": {}},
                        {"time": 2, "name": "transport:packet_sent", "data": {}}],
             "vantage_point": {"type": "server"}, "common_fields": {"ODCID": "a"}},
            {"events": [{"time": 1, "name": "transport:packet_sent", "data": {}}]}]}"#;
        let mut log = Log::default();
        read(text.as_bytes(), &mut log).unwrap();
        assert_eq!((log.connections.len(), log.known), (2, 3));
        assert_eq!(log.connections[0].role.as_deref(), Some("server"));
        let mut log = Log::default();
        let cut = &text[..text.find("{\"time\": 2").unwrap() + 5];
        let error = read(cut.as_bytes(), &mut log).unwrap_err();
        assert!(error.is_eof() && error.line() == 3, "{error}");
        assert_eq!(log.known, 1);
    }

    #[test]
    fn deep_and_endless_values_are_refused() {
        let mut log = Log::default();
        let deep = format!("{{\"traces\": {}", "[".repeat(1_000_000));
        assert!(read(deep.as_bytes(), &mut log).is_err());
        let deep = format!("{{\"x\": {}", "[".repeat(100_000));
        assert!(read(deep.as_bytes(), &mut log).is_err());
        let event = r#"{"traces": [{"events": [{"time": 1, "name": ""#;
        let endless = event.as_bytes().chain(io::repeat(b'a'));
        let error = read(io::BufReader::new(endless), &mut log).unwrap_err();
        assert!(error.to_string().contains("1048576"), "{error}");
    }
}
