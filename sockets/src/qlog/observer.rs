//! The observer of one connection: gives each event its time and its place in the log.

use std::sync::Arc;

use quicket_engine::time::Time;
use quicket_engine::{Observation, Observer};
use quicket_wire::{ConnectionId, Side};
use serde::Serialize;

use super::event::{Category, EventsDropped, FileHeader};
use super::json::Millis;
use super::metrics::Gauges;
use super::translate::AckDelayExponents;
use super::writer::{LogSink, Writer};

/// RFC 7464, Section 2.2: what begins each record.
const RECORD_SEPARATOR: u8 = 0x1e;

/// Logs one connection.
pub(super) struct ConnectionLog {
    pub(super) side: Side,
    /// Addresses are left out.
    pub(super) anonymous: bool,
    pub(super) records: Records,
    pub(super) gauges: Gauges,
    /// The last state of `connection_state_updated`.
    pub(super) state: Option<&'static str>,
    /// How many paths the connection has used before the present one.
    pub(super) moves: u64,
    pub(super) ack_delay_exponents: AckDelayExponents,
}

/// Writes records with the time at their head.
pub(super) struct Records {
    sink: LogSink,
    unix_origin: u64,
    /// The time of the next events, in nanoseconds since 1970.
    now: u64,
    /// How many events are missing since the last that was written.
    dropped: u64,
}

/// An event as it stands in the file.
#[derive(Serialize)]
struct Record<'a, D> {
    time: Millis,
    name: &'a str,
    category: Category,
    data: &'a D,
}

impl ConnectionLog {
    /// Begins the log of a connection. `unix_origin` is the origin of the engine's time, in
    /// nanoseconds since 1970.
    pub(super) fn begin(
        writer: &Arc<Writer>,
        unix_origin: u64,
        (now, side, original_dcid): (Time, Side, ConnectionId),
    ) -> Self {
        let odcid = original_dcid.to_string();
        let side_name = if side.is_client() { "client" } else { "server" };
        let sink = writer.log(&format!("{odcid}_{side_name}.sqlog"));
        sink.append(|out| write_record(out, &FileHeader::new(&odcid, side_name)));
        let now = unix_origin.saturating_add(now.as_nanos());
        Self {
            side,
            anonymous: false,
            records: Records { sink, unix_origin, now, dropped: 0 },
            gauges: Gauges::default(),
            state: None,
            moves: 0,
            ack_delay_exponents: AckDelayExponents::default(),
        }
    }
}

impl Observer for ConnectionLog {
    fn observe(&mut self, now: Time, observation: &Observation<'_>) {
        self.records.set_now(now);
        self.translate(observation);
    }
}

impl Records {
    /// Events should be in the order of their times (draft-ietf-quic-qlog-main-schema,
    /// Section 7.1), so time does not go backwards here even if the engine's does.
    fn set_now(&mut self, now: Time) {
        self.now = self.now.max(self.unix_origin.saturating_add(now.as_nanos()));
    }

    /// Writes an event, or counts it if there is no room.
    pub(super) fn write(&mut self, category: Category, name: &str, data: &impl Serialize) {
        let (time, dropped) = (Millis(self.now), self.dropped);
        let written = self.sink.append(|out| {
            if dropped > 0 {
                let data = &EventsDropped { count: dropped };
                let (category, name) = (Category::Quicket, "quicket:events_dropped");
                write_record(out, &Record { time, name, category, data });
            }
            write_record(out, &Record { time, name, category, data });
        });
        self.dropped = if written { 0 } else { dropped + 1 };
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // What is missing at the end is told too, if there is room by now.
        if self.dropped > 0 {
            let (time, category) = (Millis(self.now), Category::Quicket);
            let data = &EventsDropped { count: self.dropped };
            let record = Record { time, name: "quicket:events_dropped", category, data };
            self.sink.append(|out| write_record(out, &record));
        }
    }
}

fn write_record(out: &mut Vec<u8>, record: &impl Serialize) {
    let start = out.len();
    out.push(RECORD_SEPARATOR);
    match serde_json::to_writer(&mut *out, record) {
        Ok(()) => out.push(b'\n'),
        // Cannot happen with records whose keys are names; half a record would spoil the file.
        Err(error) => {
            log::error!("a qlog record cannot be written as JSON: {error}");
            out.truncate(start);
        }
    }
}
