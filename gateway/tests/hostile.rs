//! Clients that attack: requests that two servers would read differently, and those that keep the gateway busy by
//! doing nothing. The client is Python's `ssl`, the origin a socket that keeps every byte it gets.

mod common;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{ECHO, Gateway, directory, python};
use quicket_testing::{Process, until};

/// Keeps what it gets in a file, and answers each header section that has come.
const ORIGIN: &str = "
import socket, sys, threading
listener = socket.create_server(('127.0.0.1', 0), backlog=128)
print(listener.getsockname()[1], flush=True)
lock = threading.Lock()
def hold(peer):
    with peer:
        while data := peer.recv(65536):
            with lock, open(sys.argv[1], 'ab') as kept: kept.write(data)
            for _ in range(data.count(b'\\r\\n\\r\\n') - data.count(b'0\\r\\n\\r\\n')):
                peer.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')
while True:
    threading.Thread(target=hold, args=(listener.accept()[0],), daemon=True).start()
";

/// Sends each line of its input (with Python's escapes) on a connection of its own, and prints the first line of
/// what comes back.
const CLIENT: &str = "
import ast, socket, ssl, sys
context = ssl.create_default_context(cafile='cert.pem')
context.set_alpn_protocols(['http/1.1'])
for line in sys.stdin:
    request = ast.literal_eval('b\"' + line.rstrip('\\n') + '\"')
    with socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10) as plain:
        with context.wrap_socket(plain, server_hostname='localhost') as stream:
            stream.sendall(request)
            try:
                said = stream.recv(65536)
            except OSError:
                said = b''
            print(said.split(b'\\r\\n')[0].decode('latin1') or 'closed', flush=True)
";

fn start(limits: &str) -> (Gateway, Process) {
    let dir = directory();
    let kept = dir.path().join("kept");
    fs::write(&kept, "").unwrap();
    let program = ORIGIN.replace("sys.argv[1]", &format!("{:?}", kept.to_str().unwrap()));
    let (origin, port) = python(&program);
    let file = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\n\
         [[site]]\nnames = [\"localhost\"]\n[[site.route]]\norigin = \"app\"\n\
         [[site.route]]\npath = \"/private/a\"\nrespond = {{ status = 403 }}\n\
         [metrics]\nlisten = \"unix:{}\"\n[limits]\n{limits}\n",
        dir.path().join("counters.sock").display()
    );
    (Gateway::start(dir, &file), origin)
}

fn send(gateway: &Gateway, requests: &[String]) -> Vec<String> {
    let mut command = Command::new("python3");
    command.args(["-c", CLIENT, &gateway.port().to_string()]).current_dir(gateway.path(""));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all((requests.join("\n") + "\n").as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(ToOwned::to_owned).collect()
}

/// The sum of all refusals that were counted.
fn refused(gateway: &Gateway) -> u64 {
    let url = "http://localhost/metrics.json";
    let text = gateway.text(&["--unix-socket", "counters.sock", url]);
    let counters: serde_json::Value = serde_json::from_str(&text).unwrap();
    let all = counters["quicket_gateway_refused_total"].as_array();
    all.map_or(0, |all| all.iter().map(|entry| entry["value"].as_u64().unwrap()).sum())
}

/// Requests that must not get through, as Python writes bytes.
fn corpus() -> Vec<String> {
    let begin = r"POST / HTTP/1.1\r\nHost: localhost\r\n";
    let inner = r"GET /inner HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Header fields that leave it open where the body ends.
    let framings = [
        r"Content-Length: 4\r\nContent-Length: 5\r\n",
        r"Content-Length: 5, 6\r\n",
        r"Content-Length: +5\r\n",
        r"Content-Length: -1\r\n",
        r"Content-Length: 0x5\r\n",
        r"Content-Length: 5 5\r\n",
        r"Content-Length: 99999999999999999999999\r\n",
        r"Content-Length: \r\n",
        r"Content-Length : 5\r\n",
        r"Content-\xc4\xbcength: 5\r\n",
        r"Transfer-Encoding: xchunked\r\n",
        r"Transfer-Encoding: identity\r\n",
        r"Transfer-Encoding: gzip, chunked\r\n",
        r"Transfer-Encoding: chunked, identity\r\n",
        r"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        r"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        r"Transfer-Encoding : chunked\r\n",
        r"Transfer-Encoding: \x0bchunked\r\n",
        r"Transfer-Encoding: \x00chunked\r\n",
        r"Transfer-Encoding: chunk\r\n",
        r" Transfer-Encoding: chunked\r\n",
        r"X: a\r\n Transfer-Encoding: chunked\r\n",
        r"X: a\x00b\r\n",
        r"X: a\rTransfer-Encoding: chunked\r\n",
        r"X\x00: a\r\n",
        r": a\r\n",
        r"no colon\r\n",
    ];
    let mut all: Vec<String> =
        framings.iter().map(|framing| format!(r"{begin}{framing}\r\n0\r\n\r\n{inner}")).collect();
    // Targets and versions.
    all.extend(
        [
            r"GET / HTTP/1.1\r\n\r\n",
            r"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
            r"GET / HTTP/1.1\r\nHost: localhost, other\r\n\r\n",
            r"GET / HTTP/1.1\r\nHost: user@localhost\r\n\r\n",
            r"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n",
            r"GET http://other/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET / HTTP/1.1 \r\nHost: localhost\r\n\r\n",
            r"GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET / HTTP/1.2\r\nHost: localhost\r\n\r\n",
            r"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n",
            r"GET / http/1.1\r\nHost: localhost\r\n\r\n",
            r"G\x00T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /../a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /%2e%2e/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /..;/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /..\\a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /%%32e%%32e/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /a%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /a%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            // Another route's, to some.
            r"GET //private/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /private///a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /private%2fa HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /%2Fprivate/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /private%5Ca HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /private;x/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /private/a%3Bx HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET /;x/private/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n",
            r"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            r"PRI * HTTP/1.1\r\nHost: localhost\r\n\r\nSM\r\n\r\n",
        ]
        .map(ToOwned::to_owned),
    );
    all
}

#[test]
fn what_could_be_read_in_two_ways_is_refused_counted_and_goes_no_further() {
    let (gateway, _origin) = start("");
    for request in corpus() {
        let before = refused(&gateway);
        let said = send(&gateway, std::slice::from_ref(&request)).concat();
        let is_refused = ["HTTP/1.1 4", "HTTP/1.1 5", "HTTP/1.0 4", "HTTP/1.0 5", "closed"];
        assert!(is_refused.iter().any(|begin| said.starts_with(begin)), "{request}: {said}");
        until(&format!("a count of {request}"), || refused(&gateway) > before);
        let kept = fs::read(gateway.path("kept")).unwrap();
        assert!(kept.is_empty(), "{request} came through: {}", kept.escape_ascii());
    }
}

/// Sends each line of its input over HTTP/2, on a connection of its own, and prints what comes of it. A line has fields of a
/// request as JSON, data if it has any, and the bytes of another frame, in hexadecimal digits, that goes first.
const TWO: &str = "
import json, socket, ssl, sys
context = ssl.create_default_context(cafile='cert.pem')
context.set_alpn_protocols(['h2'])
def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + payload
def outcome(incoming):
    while len(head := incoming.read(9)) == 9:
        payload = incoming.read(int.from_bytes(head[:3], 'big'))
        if head[3] == 1: return 'answer'
        if head[3] == 3: return f'reset {payload[3]}'
        if head[3] == 7 and payload[7]: return f'closed {payload[7]}'
    return 'closed'
for line in sys.stdin:
    fields, data, first = json.loads(line)
    section = b''.join(b'\\x10' + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in fields)
    request = b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' + frame(4, 0, 0, b'') + bytes.fromhex(first)
    request += frame(1, 4 if data else 5, 1, section) + (frame(0, 1, 1, data.encode()) if data else b'')
    with socket.create_connection(('127.0.0.1', int(sys.argv[1])), 20) as plain:
        with context.wrap_socket(plain, server_hostname='localhost') as stream:
            stream.sendall(request)
            try:
                print(outcome(stream.makefile('rb')), flush=True)
            except OSError:
                print('closed', flush=True)
";

/// RFC 9113, Sections 5.4, 8.1.1, 8.2 and 8.3: what h2 finds is counted as what the gateway finds, once.
#[test]
fn what_is_malformed_over_http2_is_counted_once_by_its_reason() {
    let good =
        [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")];
    let with = |more: &[(&str, &str)], data: &str, first: &str| {
        let fields = [&good[..], more].concat();
        serde_json::json!([fields, data, first])
    };
    let but = |name: &str, value: Option<&str>| {
        let fields = good
            .iter()
            .filter_map(|&(other, was)| Some((other, if other == name { value? } else { was })));
        serde_json::json!([fields.collect::<Vec<_>>(), "", ""])
    };
    let length = |length: &str, data: &str| with(&[("content-length", length)], data, "");
    let cases = [
        (with(&[], "", ""), "answer"),
        (length("5", "hello"), "answer"),
        (but(":method", None), "reset 1"),
        (but(":scheme", None), "reset 1"),
        (with(&[(":path", "/")], "", ""), "reset 1"),
        // What h2 cannot decode ends the connection.
        (with(&[("Upper", "x")], "", ""), "closed"),
        (with(&[("x", "a\nb")], "", ""), "closed"),
        (length("5", ""), "reset 1"),
        (length("5", "hell"), "reset 1"),
        (length("4", "hello"), "reset 1"),
        (length("0", "hello"), "reset 1"),
        // DATA of no stream, a push, and a header block that is none.
        (with(&[], "", "0000010000000000004a"), "closed"),
        (with(&[], "", "00000405040000000100000002"), "closed"),
        (with(&[], "", "000001010500000001ff"), "closed"),
        (but(":scheme", Some("ftp")), "answer"),
        (but(":scheme", Some("")), "answer"),
        (with(&[("connection", "close")], "", ""), "reset 1"),
        (with(&[], "", ""), "answer"),
    ];
    let (gateway, _origin) = start("");
    let mut command = Command::new("python3");
    command.args(["-c", TWO, &gateway.port().to_string()]).current_dir(gateway.path(""));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for (case, _) in &cases {
        writeln!(input, "{case}").unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let said: Vec<&str> = said.lines().collect();
    for ((case, expected), said) in cases.iter().zip(&said) {
        assert!(said.starts_with(expected), "{case}: {said}");
    }
    assert_eq!(said.len(), cases.len());
    until("all are counted", || refused(&gateway) >= 15);
    let url = "http://localhost/metrics";
    let text = gateway.text(&["--unix-socket", "counters.sock", url]);
    let count = |reason: &str| {
        let start = format!("quicket_gateway_refused_total{{reason=\"{reason}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&start));
        value.and_then(|value| value.parse::<u64>().ok()).unwrap_or_default()
    };
    assert_eq!(
        [count("malformed HTTP/2"), count("a scheme that is not HTTP's"), refused(&gateway)],
        [13, 2, 15],
        "{text}"
    );
    let kept = String::from_utf8(fs::read(gateway.path("kept")).unwrap()).unwrap();
    assert_eq!(
        kept.matches("GET / HTTP/1.1").count() - kept.matches("ength: ").count(),
        2,
        "{kept}"
    );
}

#[test]
fn what_comes_through_is_made_anew() {
    let (gateway, _origin) = start("");
    let both = r"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\
                 Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n";
    let said = send(&gateway, &[both.replace("\\\n                 ", "")]);
    assert_eq!(said, ["HTTP/1.1 200 OK"]);
    let kept = String::from_utf8(fs::read(gateway.path("kept")).unwrap()).unwrap().to_lowercase();
    assert!(kept.starts_with("post /a http/1.1\r\n") && !kept.contains("content-length"), "{kept}");
    assert!(kept.ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{kept}");
    assert_eq!(kept.matches("transfer-encoding: chunked\r\n").count(), 1, "{kept}");
}

/// Opens a connection with TLS, says what `sys.argv[2]` says, and then a byte in each `sys.argv[3]` seconds; prints
/// for how long it was let.
const SLOW: &str = "
import ast, socket, ssl, sys, time
context = ssl.create_default_context(cafile='cert.pem')
context.set_alpn_protocols(['http/1.1'])
begun = time.monotonic()
plain = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10)
stream = context.wrap_socket(plain, server_hostname='localhost')
stream.settimeout(float(sys.argv[3]))
stream.sendall(ast.literal_eval('b\"' + sys.argv[2] + '\"'))
while time.monotonic() - begun < 30:
    try:
        if not stream.recv(65536): break
        continue
    except TimeoutError:
        pass
    except OSError:
        break
    try:
        stream.sendall(b'x')
    except OSError:
        break
print(time.monotonic() - begun)
";

fn let_for(gateway: &Gateway, request: &str, pause: &str) -> f64 {
    let mut command = Command::new("python3");
    command.args(["-c", SLOW, &gateway.port().to_string(), request, pause]);
    let output = command.current_dir(gateway.path("")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().parse().unwrap_or_else(|_| panic!("{:?}", String::from_utf8(output.stderr)))
}

#[test]
fn a_header_section_that_never_ends_has_a_deadline() {
    let (gateway, _origin) = start("header_timeout_ms = 1000");
    let took = let_for(&gateway, r"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", "0.1");
    assert!((0.9..10.0).contains(&took), "{took} s, with a byte in each 100 ms");
    assert!(let_for(&gateway, "", "40") < 10.0, "it says nothing at all");
}

#[test]
fn a_body_that_stops_has_a_deadline() {
    let gateway = before_python("body_timeout_ms = 1000");
    let (gateway, _python) = &gateway;
    let request = r"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n";
    let took = let_for(gateway, request, "40");
    assert!((0.9..20.0).contains(&took), "{took} s");
}

fn before_python(limits: &str) -> (Gateway, Process) {
    let (python, port) = python(ECHO);
    let file = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\n\
         [[site]]\nnames = [\"localhost\"]\n[[site.route]]\norigin = \"app\"\n[limits]\n{limits}\n"
    );
    (Gateway::start(directory(), &file), python)
}

/// Asks for something large by HTTP/2 (`curl`) or HTTP/1.1, and takes nothing of it.
#[test]
fn who_takes_nothing_is_closed() {
    let (gateway, _python) = before_python("body_timeout_ms = 1000");
    for version in ["--http1.1", "--http2"] {
        let mut command = Command::new("curl");
        let url = gateway.url("/?size=50000000");
        command.args(["-sS", version, "--cacert", "cert.pem", &url]).current_dir(gateway.path(""));
        // Nobody reads the pipe: curl stops to read from its connection.
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let connections = || {
            let table = fs::read_to_string("/proc/net/tcp").unwrap();
            let local = format!("0100007F:{:04X} ", gateway.port());
            let of_ours = |line: &&str| {
                let mut words = line.split_whitespace().skip(1);
                let is_ours = words.next().is_some_and(|word| format!("{word} ") == local);
                is_ours && words.nth(1) == Some("01")
            };
            table.lines().filter(of_ours).count()
        };
        until("a connection", || connections() == 1);
        let begun = Instant::now();
        until("the end", || connections() == 0);
        assert!(begun.elapsed() > Duration::from_millis(500), "{version}");
        drop(child.stdout.take());
        let _ = child.wait();
    }
}
