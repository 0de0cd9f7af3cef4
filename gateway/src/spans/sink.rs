//! Where spans go that have ended: into a bounded queue, from which a thread sends them. A receiver that is slow or gone
//! costs spans, which are counted, and no request its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor,
};
use prometheus_client::metrics::counter::Counter;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Receiver;
use super::client::{Client, LIMIT};

/// Spans that wait to be sent, with those that are on their way.
const QUEUE: usize = 2048;
/// Spans in one request.
pub(super) const BATCH: usize = 512;
/// How long the first of a batch waits for others.
const DELAY: Duration = Duration::from_secs(1);

/// Where spans go that have ended.
#[derive(Debug)]
pub(crate) struct Sink {
    processor: BatchSpanProcessor,
    receiver: watch::Sender<Receiver>,
    pub(super) scope: InstrumentationScope,
    waiting: Arc<AtomicUsize>,
    lost: Counter,
    is_over: AtomicBool,
}

impl Sink {
    /// Starts its thread. Requests to the receiver run on `runtime`.
    pub(super) fn new(receiver: Receiver, lost: Counter, runtime: Handle) -> Result<Self, String> {
        let service = receiver.service.clone();
        let url = receiver.url.to_string();
        let receiver = watch::Sender::new(receiver);
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(url)
            .with_timeout(LIMIT)
            .with_http_client(Client::new(receiver.subscribe(), runtime, lost.clone()))
            .build();
        let exporter = exporter.map_err(|error| error.to_string())?;
        let waiting = Arc::new(AtomicUsize::new(0));
        let counting = Counting { exporter, waiting: Arc::clone(&waiting), lost: lost.clone() };
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(DELAY)
            .build();
        let mut processor = BatchSpanProcessor::new(counting, config);
        let version = env!("CARGO_PKG_VERSION");
        let resource = Resource::builder_empty()
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_service_name(service)
            .with_attribute(KeyValue::new("service.version", version))
            .build();
        processor.set_resource(&resource);
        let scope = InstrumentationScope::builder("quicket-gateway").with_version(version).build();
        Ok(Self { processor, receiver, scope, waiting, lost, is_over: AtomicBool::new(false) })
    }

    /// What the gateway is called.
    pub(super) fn is_called(&self, service: &str) -> bool {
        self.receiver.borrow().service == service
    }

    /// From now on somebody else gets spans.
    pub(super) fn replace(&self, receiver: Receiver) {
        self.receiver.send_replace(receiver);
    }

    /// Takes a span that has ended, if there is room.
    pub(super) fn put(&self, span: SpanData) {
        let more = |waiting| (waiting < QUEUE).then_some(waiting + 1);
        // What is over has room for nothing.
        let has_room = !self.is_over.load(Ordering::Relaxed)
            && self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !has_room {
            self.lost.inc();
            return;
        }
        self.processor.on_end(span);
    }

    /// Sends what is there and ends, within `limit`.
    pub(super) fn end(&self, limit: Duration) {
        self.is_over.store(true, Ordering::Relaxed);
        if self.processor.shutdown_with_timeout(limit).is_err() {
            // They are lost once: an export that fails later finds none of them.
            self.lost.inc_by(self.waiting.swap(0, Ordering::Relaxed) as u64);
        }
    }
}

/// Counts what is sent, and what is lost on the way.
#[derive(Debug)]
struct Counting {
    exporter: opentelemetry_otlp::SpanExporter,
    waiting: Arc<AtomicUsize>,
    lost: Counter,
}

impl SpanExporter for Counting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let sent = self.exporter.export(batch).await;
        let fewer = |waiting: usize| Some(waiting.saturating_sub(count));
        let waited = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        if sent.is_err() {
            self.lost.inc_by(waited.unwrap_or_default().min(count) as u64);
        }
        sent
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use opentelemetry::trace::{
        SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
    };
    use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};

    use super::*;
    use crate::origin::Place;

    fn span(sink: &Sink) -> SpanData {
        let (trace, span) = (TraceId::from(1), SpanId::from(1));
        let flags = TraceFlags::SAMPLED;
        let context = SpanContext::new(trace, span, flags, false, TraceState::NONE);
        SpanData {
            span_context: context,
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Server,
            name: "GET".into(),
            start_time: SystemTime::UNIX_EPOCH,
            end_time: SystemTime::UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: sink.scope.clone(),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_comes_after_the_end_is_lost_once_and_does_not_wait() {
        let receiver = Receiver {
            url: "http://127.0.0.1:9/v1/traces".parse().unwrap(),
            place: Place::parse("http://127.0.0.1:9").unwrap(),
            tls: None,
            service: "test".to_owned(),
        };
        let lost = Counter::default();
        let sink = Sink::new(receiver, lost.clone(), Handle::current()).unwrap();
        sink.end(Duration::from_secs(10));
        for _ in 0..3 {
            sink.put(span(&sink));
        }
        assert_eq!((lost.get(), sink.waiting.load(Ordering::Relaxed)), (3, 0));
    }
}
