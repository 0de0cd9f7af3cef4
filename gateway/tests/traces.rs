//! Spans of requests: a receiver decodes them by OpenTelemetry's own protobuf classes.

mod behind;
mod common;

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use common::{ECHO, Gateway, directory, header, python};
use quicket_testing::{Process, until};
use serde_json::Value;
use tempfile::TempDir;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A receiver, with its scheme.
struct Receiver {
    _process: Process,
    url: String,
}

impl Receiver {
    fn start(certificate: Option<&Path>) -> Self {
        let mut command = behind::python();
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces_receiver.py"));
        if let Some(dir) = certificate {
            command.args([dir.join("cert.pem"), dir.join("cert.key")]);
        }
        let (process, port) = Process::start(&mut command);
        let scheme = if certificate.is_some() { "https" } else { "http" };
        Self { _process: process, url: format!("{scheme}://localhost:{port}") }
    }

    fn spans(&self, gateway: &Gateway) -> Vec<Value> {
        let text = gateway.text(&[&format!("{}/spans", self.url)]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// So many spans, once they are there, those of the gateway's own work first.
    fn wait(&self, gateway: &Gateway, count: usize) -> Vec<Value> {
        until("spans", || self.spans(gateway).len() >= count);
        let mut spans = self.spans(gateway);
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans.sort_by_key(|span| span["kind"] != "SPAN_KIND_SERVER");
        spans
    }
}

fn file(origin: u16, traces: &str) -> String {
    format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{origin}\"]\n\
         [origin.half]\nservers = [\"http://127.0.0.1:1\", \"http://127.0.0.1:{origin}\"]\n\
         [origin.gone]\nservers = [\"http://127.0.0.1:1\"]\nretries = 0\n\
         [[site]]\nnames = [\"localhost\"]\n[[site.route]]\norigin = \"app\"\n\
         [[site.route]]\npath = \"/half\"\norigin = \"half\"\n\
         [[site.route]]\npath = \"/gone\"\norigin = \"gone\"\n\
         [[site.route]]\npath = \"/own\"\nrespond = {{ body = \"own\" }}\n\
         [metrics]\nlisten = \"unix:/DIR/counters.sock\"\n[traces]\n{traces}\n"
    )
}

const TOP: &str = "listen = [\"127.0.0.1:0\"]\naccess_log = \"access.log\"\n";

fn gateway(dir: TempDir, origin: u16, traces: &str) -> Gateway {
    let file = file(origin, traces).replace("/DIR", dir.path().to_str().unwrap());
    Gateway::start_with(dir, TOP, &file)
}

fn reload(gateway: &Gateway, origin: u16, traces: &str) -> Result<(), String> {
    let file = file(origin, traces).replace("/DIR", gateway.dir.path().to_str().unwrap());
    gateway.reload(TOP, &file)
}

/// How many spans were lost.
fn lost(gateway: &Gateway) -> u64 {
    let text = gateway.text(&["--unix-socket", "counters.sock", "http://localhost/metrics"]);
    let line =
        text.lines().find_map(|line| line.strip_prefix("quicket_gateway_traces_lost_total "));
    line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

fn nanoseconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos().try_into().unwrap()
}

fn time(span: &Value, which: &str) -> u64 {
    span[which].as_u64().unwrap()
}

/// How long it took, in milliseconds.
fn took(span: &Value) -> u64 {
    (time(span, "end") - time(span, "start")) / 1_000_000
}

/// The warnings of this process that name `url`.
fn warnings(url: &str) -> Vec<String> {
    let all = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().filter(|warning| warning.contains(url)).cloned().collect()
}

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.level() <= log::Level::Warn {
            let mut all = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

fn listen_to_warnings() {
    let _ = log::set_logger(&Logger);
    log::set_max_level(log::LevelFilter::Warn);
}

#[test]
fn a_request_has_two_spans_and_the_origin_is_told_of_its_own() {
    let (_origin, port) = python(ECHO);
    let receiver = Receiver::start(None);
    let traces =
        format!("endpoint = \"{}/v1/traces\"\nsample = 1\nservice = \"edge\"", receiver.url);
    let gateway = gateway(directory(), port, &traces);
    let before = nanoseconds(SystemTime::now());
    // A stranger's trace is not gone on with, nor told to the origin.
    let url = gateway.url("/secret?sleep=0.3&password=x");
    let asked =
        gateway.asked(&["-H", &format!("traceparent: {PARENT}"), "-H", "tracestate: a=1", &url]);
    let spans = receiver.wait(&gateway, 2);
    let after = nanoseconds(SystemTime::now());
    let [served, call] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!((&served["kind"], &served["name"]), (&"SPAN_KIND_SERVER".into(), &"GET /".into()));
    assert_eq!((&call["kind"], &call["name"]), (&"SPAN_KIND_CLIENT".into(), &"GET".into()));
    assert_eq!((&served["parent"], &call["parent"]), (&"".into(), &served["span"]));
    assert_eq!(served["trace"], call["trace"]);
    assert_ne!(served["trace"], PARENT[3..35]);
    let told = header(&asked, "traceparent");
    let own =
        format!("00-{}-{}-03", served["trace"].as_str().unwrap(), call["span"].as_str().unwrap());
    assert_eq!(told, [own]);
    assert!(header(&asked, "tracestate").is_empty());
    let times = [before, time(served, "start"), time(call, "start"), time(call, "end")];
    let times = [&times[..], &[time(served, "end"), after]].concat();
    assert!(times.is_sorted(), "{times:?}");
    assert!(took(call) >= 300 && took(served) < 20_000, "{spans:#?}");
    let of = |span: &Value, name: &str| span["attributes"][name].clone();
    for (name, value) in [
        ("http.request.method", Value::from("GET")),
        ("http.route", "/".into()),
        ("http.response.status_code", 200.into()),
        ("network.protocol.name", "http".into()),
        ("network.protocol.version", "2".into()),
        ("url.scheme", "https".into()),
        ("server.address", "localhost".into()),
        ("server.port", gateway.port().into()),
        ("error.type", Value::Null),
    ] {
        assert_eq!(of(served, name), value, "{name}");
    }
    for (name, value) in [
        ("http.request.method", Value::from("GET")),
        ("http.response.status_code", 200.into()),
        ("network.protocol.version", "1.1".into()),
        ("server.address", "127.0.0.1".into()),
        ("server.port", port.into()),
        ("quicket.origin", "app".into()),
        ("http.request.resend_count", Value::Null),
        ("error.type", Value::Null),
    ] {
        assert_eq!(of(call, name), value, "{name}");
    }
    assert_eq!(served["resource"]["service.name"], "edge");
    assert_eq!(served["resource"]["telemetry.sdk.language"], "rust");
    assert_eq!((&served["status"], &call["status"]), (&0.into(), &0.into()));
    // Without being asked, they tell neither who the client is nor what it wanted.
    let all = serde_json::to_string(&spans).unwrap();
    for word in ["client.address", "client.port", "url.path", "url.full", "secret", "password"] {
        assert!(!all.contains(word), "{word} is in {all}");
    }
    assert_eq!(lost(&gateway), 0);
}

#[test]
fn trusted_traces_go_on_and_a_reload_changes_what_is_told() {
    let (_origin, port) = python(ECHO);
    let receiver = Receiver::start(None);
    let endpoint = format!("endpoint = \"{}/v1/traces\"\n", receiver.url);
    let trusting = "trust = [\"127.0.0.0/8\"]\n";
    let gateway = gateway(directory(), port, &format!("{endpoint}{trusting}sample = 0"));
    let with = |parent: &str, path: &str| {
        let field = format!("traceparent: {parent}");
        gateway.asked(&["-H", &field, "-H", "tracestate: a=1,b=2", &gateway.url(path)])
    };
    // Sampled by nobody: what the client says passes as it is.
    let not = PARENT.replace("-01", "-00");
    let asked = with(&not, "/not");
    assert_eq!(header(&asked, "traceparent"), [&not]);
    let asked = with(PARENT, "/one");
    let told = header(&asked, "traceparent");
    assert!(told.len() == 1 && told[0].starts_with(&PARENT[..36]) && told[0] != PARENT, "{told:?}");
    assert_eq!(header(&asked, "tracestate"), ["a=1,b=2"]);
    let spans = receiver.wait(&gateway, 2);
    assert_eq!(spans[0]["parent"], PARENT[36..52]);
    assert_eq!(
        (&spans[0]["trace"], &spans[1]["trace"]),
        (&PARENT[3..35].into(), &PARENT[3..35].into())
    );
    assert_eq!(spans[0]["state"], "a=1,b=2");
    assert_eq!(told[0][36..52], *spans[1]["span"].as_str().unwrap());

    reload(&gateway, port, &format!("{endpoint}sample = 1\naddresses = true\npaths = true"))
        .unwrap();
    let asked = with(&not, "/two?password=x");
    assert!(!header(&asked, "traceparent")[0].contains(&PARENT[3..35]), "trusted no longer");
    let spans = receiver.wait(&gateway, 4);
    let told: Vec<&Value> = spans.iter().map(|span| &span["attributes"]).collect();
    let served = told.iter().find(|told| told["url.path"] == "/two").unwrap();
    assert_eq!(served["client.address"], "127.0.0.1");
    let full = format!("http://127.0.0.1:{port}/two");
    assert!(told.iter().any(|told| told["url.full"] == full.as_str()), "{told:#?}");
    assert!(!serde_json::to_string(&spans).unwrap().contains("password"));

    let error = reload(&gateway, port, &format!("{endpoint}service = \"other\"")).unwrap_err();
    assert!(error.contains("traces.service has changed"), "{error}");
    // Without the table, fields pass as they are.
    let file = file(port, "").replace("[traces]\n", "");
    let file = file.replace("/DIR", gateway.dir.path().to_str().unwrap());
    gateway.reload(TOP, &file).unwrap();
    let asked = with(PARENT, "/three");
    assert_eq!(header(&asked, "traceparent"), [PARENT]);
}

#[test]
fn what_goes_wrong_is_in_the_spans() {
    let (_origin, port) = python(ECHO);
    let receiver = Receiver::start(None);
    let traces = format!("endpoint = \"{}/v1/traces\"\nsample = 1", receiver.url);
    let gateway = gateway(directory(), port, &traces);
    let mut count = 0;
    let mut next = |arguments: &[&str], path: &str, more: usize| {
        let before: Vec<Value> = receiver.spans(&gateway);
        gateway.curl(&[arguments, &[&gateway.url(path)]].concat());
        count += more;
        let after = receiver.wait(&gateway, count);
        let is_new = |span: &Value| !before.iter().any(|known| known["span"] == span["span"]);
        after.into_iter().filter(is_new).collect::<Vec<_>>()
    };
    let of = |span: &Value, name: &str| span["attributes"][name].clone();
    let spans = next(&[], "/gone", 2);
    assert_eq!(
        (of(&spans[0], "error.type"), of(&spans[1], "error.type")),
        ("502".into(), "connection".into())
    );
    assert_eq!((&spans[0]["status"], &spans[1]["status"]), (&2.into(), &2.into()));
    assert_eq!(spans[0]["message"], "the origin cannot be reached");
    // One of two servers is down: it is asked first, or the other one is.
    let mut again = Vec::new();
    for _ in 0..2 {
        let spans = next(&[], "/half", 2);
        assert_eq!(of(&spans[0], "http.response.status_code"), 200);
        again.push(of(&spans[1], "http.request.resend_count"));
    }
    assert!(again.contains(&1.into()), "{again:?}");
    let spans = next(&[], "/?status=404", 2);
    assert_eq!(
        (of(&spans[0], "error.type"), of(&spans[1], "error.type")),
        (Value::Null, "404".into())
    );
    let spans = next(&[], "/own", 1);
    assert_eq!(
        (&spans[0]["name"], of(&spans[0], "http.response.body.size")),
        (&"GET /own".into(), 3.into())
    );
    let spans = next(&["-X", "BREW"], "/own", 1);
    assert_eq!(of(&spans[0], "http.request.method"), "_OTHER");
    assert_eq!(of(&spans[0], "http.request.method_original"), "BREW");
    // A name that is not served has no route.
    let spans = next(&["-H", "Host: other.example"], "/", 1);
    assert_eq!(
        (&spans[0]["name"], of(&spans[0], "http.response.status_code")),
        (&"GET".into(), 421.into())
    );
    // A client that does not wait.
    let spans = next(&["--max-time", "0.3"], "/?sleep=3", 2);
    for span in &spans {
        assert_eq!(of(span, "error.type"), "cancelled", "{span}");
    }
    // The end is that of the body.
    let spans = next(&["-o", "/dev/null", "--limit-rate", "4M"], "/?size=16000000", 2);
    assert!(took(&spans[0]) >= 1000 && of(&spans[0], "error.type").is_null(), "{spans:#?}");
    assert!(took(&spans[1]) >= 500 && of(&spans[1], "error.type").is_null(), "{spans:#?}");
    assert_eq!(of(&spans[0], "http.response.body.size"), 16_000_000);
    assert_eq!(lost(&gateway), 0);
}

#[test]
fn a_share_is_sampled_and_the_end_sends_what_is_there() {
    const REQUESTS: usize = 400;
    let (_origin, port) = python(ECHO);
    let dir = directory();
    let receiver = Receiver::start(Some(dir.path()));
    let traces =
        format!("endpoint = \"{}/v1/traces\"\nca = \"cert.pem\"\nsample = 0.5", receiver.url);
    let mut gateway = gateway(dir, port, &traces);
    let urls = gateway.url(&format!("/own?[1-{REQUESTS}]"));
    let answers = gateway.text(&["-w", "%{http_code}\n", &urls]);
    assert_eq!(answers.matches("200").count(), REQUESTS);
    assert_eq!(lost(&gateway), 0);
    // What waits for a batch is sent when the gateway stops.
    let begun = Instant::now();
    gateway.stop();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let spans = receiver.spans(&gateway);
    // Ten times the standard deviation on each side.
    assert!((100..300).contains(&spans.len()), "{}", spans.len());
}

/// OTLP, "Partial Success".
#[test]
fn spans_that_a_receiver_rejects_are_lost_and_told() {
    listen_to_warnings();
    let (_origin, port) = python(ECHO);
    let receiver = Receiver::start(None);
    let partial = format!("{}/partial", receiver.url);
    let gateway = gateway(directory(), port, &format!("endpoint = \"{partial}\"\nsample = 1"));
    let ask = |path: &str, count: usize| {
        gateway.text(&[&gateway.url(&format!("{path}?[1-{count}]"))]);
    };
    ask("/own", 3);
    // Each has two spans: of the request, and of the call that came to nothing.
    ask("/gone", 2);
    until("a loss", || lost(&gateway) == 4);
    receiver.wait(&gateway, 3);
    let told = warnings(&partial);
    assert!(told.iter().any(|words| words.contains("rejected: \"too wrong\"")), "{told:?}");
    // A word without a rejection takes nothing away.
    let warning = format!("{}/warning", receiver.url);
    reload(&gateway, port, &format!("endpoint = \"{warning}\"\nsample = 1")).unwrap();
    ask("/gone", 2);
    receiver.wait(&gateway, 7);
    assert_eq!(lost(&gateway), 4);
}

#[test]
fn a_receiver_that_is_gone_slow_or_another_server_harms_no_request() {
    listen_to_warnings();
    let (_origin, port) = python(ECHO);
    let receiver = Receiver::start(None);
    let gone = "http://127.0.0.1:1/v1/traces";
    let mut gateway = gateway(directory(), port, &format!("endpoint = \"{gone}\"\nsample = 1"));
    let ask = |gateway: &Gateway, count: usize| {
        let urls = gateway.url(&format!("/own?[1-{count}]"));
        let answers = gateway.text(&["-w", "%{http_code}\n", &urls]);
        assert_eq!(answers.matches("200").count(), count);
    };
    for _ in 0..2 {
        let before = lost(&gateway);
        ask(&gateway, 5);
        until("a loss", || lost(&gateway) == before + 5);
    }
    assert_eq!(warnings(gone).len(), 1, "it is told once: {:?}", warnings(gone));
    // A server that says yes to everything is no receiver.
    let html = format!("{}/html", receiver.url);
    reload(&gateway, port, &format!("endpoint = \"{html}\"\nsample = 1")).unwrap();
    ask(&gateway, 5);
    until("a loss", || lost(&gateway) == 15);
    let right = format!("{}/v1/traces", receiver.url);
    reload(&gateway, port, &format!("endpoint = \"{right}\"\nsample = 1")).unwrap();
    ask(&gateway, 5);
    receiver.wait(&gateway, 5);
    until("a word", || !warnings(&right).is_empty());
    assert!(warnings(&right)[0].ends_with("takes spans again"), "{:?}", warnings(&right));
    assert_eq!(lost(&gateway), 15);
    let refuse = format!("{}/refuse", receiver.url);
    reload(&gateway, port, &format!("endpoint = \"{refuse}\"\nsample = 1")).unwrap();
    ask(&gateway, 5);
    until("a loss", || lost(&gateway) == 20);
    assert!(warnings(&refuse)[0].contains("503"), "{:?}", warnings(&refuse));
    // More than the queue holds, of which nothing goes away.
    let slow = format!("{}/slow", receiver.url);
    reload(&gateway, port, &format!("endpoint = \"{slow}\"\nsample = 1")).unwrap();
    let begun = Instant::now();
    ask(&gateway, 2600);
    assert!(lost(&gateway) > 20, "{}", lost(&gateway));
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let begun = Instant::now();
    gateway.stop();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}
