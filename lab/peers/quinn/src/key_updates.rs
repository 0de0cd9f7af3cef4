//! Counts key updates, which quinn tells only to `tracing`.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use quicket_workload::bench::Failure;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// What quinn-proto 0.11 says when it moves on to the next keys, whichever end asked for it.
const MESSAGE: &str = "executing key update";

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Key updates of all connections of this process so far.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Begins to count.
pub fn watch() -> Result<(), Failure> {
    tracing::subscriber::set_global_default(Counter)?;
    Ok(())
}

struct Counter;

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() == Level::TRACE
            && metadata.target() == "quinn_proto::connection"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        if message.0 == MESSAGE {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}
