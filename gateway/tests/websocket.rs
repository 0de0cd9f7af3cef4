//! WebSocket through the gateway: clients by Python's `websockets` (HTTP/1.1), `h2` (HTTP/2, RFC 8441) and
//! `aioquic` (HTTP/3, RFC 9220), servers by `websockets`, by `aioquic` (HTTP/3) and by hand; and both by `ws` of Node.js.

mod behind;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use behind::{Site, folder, python};
use quicket_testing::{Process, until};

fn script(name: &str) -> Command {
    let mut command = python();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name));
    command
}

/// Node.js with the package of `node/package.json`, in a folder of its own.
fn node(arguments: &[&str]) -> Command {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node");
    let folder = FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gateway-node");
        let files = ["package.json", "package-lock.json"];
        let wanted = files.map(|file| fs::read(sources.join(file)).unwrap()).concat();
        let stamp = folder.join("installed");
        if !fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
            fs::create_dir_all(&folder).unwrap();
            for file in files {
                fs::copy(sources.join(file), folder.join(file)).unwrap();
            }
            let mut npm = Command::new("npm");
            let npm = npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(&folder);
            let output = npm.output().unwrap_or_else(|error| panic!("npm: {error}"));
            assert!(output.status.success(), "{output:?}");
            fs::write(stamp, wanted).unwrap();
        }
        folder
    });
    let mut command = Command::new("node");
    command.arg(sources.join("websocket.mjs")).args(arguments).current_dir(folder);
    command
}

/// Node.js and Python, each as client and as server.
#[test]
fn ws_of_node_is_a_client_and_a_server() {
    let (_server, port) = Process::start(&mut node(&["server"]));
    let site = site(&format!("http://127.0.0.1:{port}"), "");
    for version in ["1", "2", "3"] {
        let output = client(&site, &[version, "echo"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            said.trim(),
            "/echo chat; 5 messages, 1 MB; closed 1000",
            "{version}: {output:?}"
        );
    }
    let port = site.address.port().to_string();
    let certificate = site.path("cert.pem").display().to_string();
    let output = node(&["client", &port, &certificate]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // Extensions are for the ends to agree on (RFC 7692).
    let whole = "/echo chat; 5 messages, 1 MB; closed 1000; permessage-deflate";
    assert_eq!(said.trim(), whole, "{output:?}");

    let (_server, site) = echo("");
    let port = site.address.port().to_string();
    let certificate = site.path("cert.pem").display().to_string();
    let output = node(&["client", &port, &certificate]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("/echo chat; 5 messages, 1 MB; closed 1000"), "{output:?}");
}

/// What flows after an upgrade is slowed down as bodies are.
#[test]
fn a_tunnel_flows_as_fast_as_the_file_says() {
    const RATE: u64 = 500_000;
    let (_server, port) = Process::start(&mut script("websocket_server.py"));
    let rest = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\nupgrade_idle_timeout_ms = 900\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n[limits]\n\
         client_bytes_per_s = {RATE}\n"
    );
    // Over HTTP/1.1 this client compresses what it says.
    for version in ["2", "3"] {
        let site = Site::start(folder(), &rest);
        let begun = Instant::now();
        let output = client(&site, &[version, "echo"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            said.trim(),
            "/echo chat; 5 messages, 1 MB; closed 1000",
            "{version}: {output:?}"
        );
        // A megabyte there, and back as it comes; a quarter of a second's worth comes at once.
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(1700), "HTTP/{version}: {took:?}");
    }
}

/// A gateway in front of a server by `websockets` that sends back what it gets, and says its path and
/// protocol first.
fn echo(more: &str) -> (Process, Site) {
    let (server, port) = Process::start(&mut script("websocket_server.py"));
    (server, site(&format!("http://127.0.0.1:{port}"), more))
}

fn site(server: &str, more: &str) -> Site {
    let rest = format!(
        "[origin.app]\nservers = [\"{server}\"]\n{more}\n[[site]]\nnames = [\"*\"]\n\
         [[site.route]]\norigin = \"app\"\n[limits]\ndrain_ms = 1000\n"
    );
    Site::start(folder(), &rest)
}

fn client(site: &Site, arguments: &[&str]) -> Output {
    let mut command = script("websocket_client.py");
    command.arg(site.address.port().to_string()).arg(site.path("cert.pem")).args(arguments);
    command.output().unwrap()
}

#[test]
fn messages_cross_from_every_version_of_http() {
    let (_server, site) = echo("");
    for version in ["1", "2", "3"] {
        let output = client(&site, &[version, "echo"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            said.trim(),
            "/echo chat; 5 messages, 1 MB; closed 1000",
            "{version}: {output:?}"
        );
    }
    let records = site.records(3);
    let statuses: Vec<_> =
        records.iter().map(|record| record["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [101, 200, 200]);
}

/// A WebSocket has a connection to the server for as long as it lasts.
#[test]
fn a_websocket_counts_among_the_connections_to_its_server() {
    let (_server, port) = Process::start(&mut script("websocket_server.py"));
    let dir = folder();
    let rest = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\nmax_connections = 1\n\
         connect_timeout_ms = 300\nmax_failures = 1\n[[site]]\nnames = [\"*\"]\n\
         [[site.route]]\norigin = \"app\"\n[metrics]\nlisten = \"unix:{}\"\n",
        dir.path().join("metrics.sock").display()
    );
    let site = Site::start(dir, &rest);
    let status = || String::from_utf8(client(&site, &["1", "status"]).stdout).unwrap();
    // Nothing is compressed here.
    let output = client(&site, &["2", "echo"]);
    assert!(output.status.success(), "{output:?}");
    // The one before may be there for a moment.
    let mut held = None;
    until("a WebSocket", || {
        let mut command = script("websocket_client.py");
        command.arg(site.address.port().to_string()).arg(site.path("cert.pem"));
        let (process, said) = Process::start(command.args(["1", "idle", "tell"]));
        held = Some(process);
        said == "connected"
    });
    assert_eq!(status().trim(), "503");
    assert_eq!(site.get(&[&site.url("/echo")]).0, "503");
    assert!(site.counter("origin_busy_total", "http") >= 2);
    assert_eq!(site.counter("origin_connections_open", "http"), 1);
    let text = site.curl(&["--unix-socket", "metrics.sock", "http://localhost/metrics"]).stdout;
    let text = String::from_utf8(text).unwrap();
    let count = |series: &str| {
        let start = format!("quicket_gateway_{series} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.and_then(|value| value.parse::<u64>().ok())
            .unwrap_or_else(|| panic!("{series}: {text}"))
    };
    assert_eq!(count("tunnels_open{protocol=\"websocket\"}"), 1);
    assert!(count("tunnels_total{protocol=\"websocket\"}") >= 2);
    for direction in ["received", "sent"] {
        let bytes =
            format!("tunnel_bytes_total{{protocol=\"websocket\",direction=\"{direction}\"}}");
        // A megabyte each way, and little else.
        let carried = count(&bytes);
        assert!((1 << 20..(1 << 20) + 20_000).contains(&carried), "{bytes} {carried}");
    }
    assert_eq!(site.counter("origin_failures_total", "http"), 0);
    drop(held);
    until("its connection has ended", || status().trim() == "101");
}

#[test]
fn what_the_file_does_not_allow_is_no_upgrade() {
    let (_server, site) = echo("upgrade = []");
    // In HTTP/1.1 it is an ordinary request then, which this server answers with 426.
    for (version, status) in [("1", "426"), ("2", "501"), ("3", "501")] {
        let output = client(&site, &[version, "status"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), status, "{version}: {output:?}");
    }
}

#[test]
fn a_server_that_refuses_is_heard() {
    let (_server, site) = echo("");
    for version in ["1", "2", "3"] {
        let output = client(&site, &[version, "refused"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "403", "{version}: {output:?}");
    }
}

/// A server that answers an upgrade with these bytes, and keeps the connection.
fn server(answer: &'static str) -> (Site, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            asked.extend(byte);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        let _ = stream.read_to_end(&mut asked);
        asked
    });
    (site(&format!("http://127.0.0.1:{port}"), "upgrade_idle_timeout_ms = 400"), served)
}

#[test]
fn a_server_that_upgrades_to_something_else_is_not_believed() {
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    ] {
        for version in ["1", "2", "3"] {
            let (site, served) = server(answer);
            let output = client(&site, &[version, "status"]);
            assert_eq!(
                String::from_utf8_lossy(&output.stdout).trim(),
                "502",
                "{version}: {output:?}"
            );
            let asked = String::from_utf8_lossy(&served.join().unwrap()).to_lowercase();
            assert!(asked.contains("connection: upgrade") && asked.contains("upgrade: websocket"));
            assert_eq!(asked.matches("sec-websocket-key: ").count(), 1, "{asked}");
        }
    }
    // 200 to an extended CONNECT would be a tunnel; from a server that ignored the upgrade it is none.
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    for (version, status) in [("1", "200"), ("2", "502"), ("3", "502")] {
        let (site, _served) = server(answer);
        let output = client(&site, &[version, "status"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), status, "{version}: {output:?}");
    }
}

#[test]
fn a_tunnel_ends_when_it_is_idle_and_when_the_gateway_stops() {
    for version in ["1", "2", "3"] {
        let (_server, site) = echo("upgrade_idle_timeout_ms = 400");
        let begun = Instant::now();
        let output = client(&site, &[version, "idle"]);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            "ended",
            "{version}: {output:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    let (_server, mut site) = echo("");
    let mut command = script("websocket_client.py");
    command.arg(site.address.port().to_string()).arg(site.path("cert.pem")).args(["1", "idle"]);
    let (mut waiting, _) = Process::start(command.arg("tell"));
    let took = site.stop();
    assert!((900..3000).contains(&took.as_millis()), "a second is left to tunnels: {took:?}");
    assert!(waiting.0.wait().unwrap().success());
    assert!(TcpStream::connect(site.address).is_err());
}

/// A gateway in front of aioquic's server of HTTP/3, whose SETTINGS allow extended CONNECT or do not, or that allows
/// one stream of a connection.
fn three(allowed: &str, more: &str) -> (Process, Site) {
    let dir = folder();
    let mut command = script("websocket_h3_server.py");
    command.args(["cert.pem", "cert.key", "h3.log", allowed]).current_dir(dir.path());
    let (server, port) = Process::start(&mut command);
    let rest = format!(
        "[origin.app]\nservers = [\"h3://127.0.0.1:{port}\"]\nca = \"cert.pem\"\n\
         server_name = \"localhost\"\n{more}\n[[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n\
         [limits]\ndrain_ms = 1000\nidle_timeout_ms = 500\n"
    );
    (server, Site::start(dir, &rest))
}

fn log(site: &Site) -> String {
    fs::read_to_string(site.path("h3.log")).unwrap()
}

/// RFC 9220, Section 3.
#[test]
fn messages_cross_to_servers_of_http3() {
    let (_server, site) = three("yes", "");
    for version in ["1", "2", "3"] {
        let output = client(&site, &[version, "echo"]);
        let said = String::from_utf8_lossy(&output.stdout);
        let whole = "/echo chat; 5 messages, 1 MB; closed 1000";
        assert_eq!(said.trim(), whole, "{version}: {output:?}");
        for (task, expected) in [("refused", "403"), ("reset", "ended")] {
            let output = client(&site, &[version, task]);
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(said.trim(), expected, "{version}: {output:?}");
        }
        assert_eq!(site.get(&[&site.url("/plain")]), ("200".to_owned(), b"/plain".to_vec()));
    }
    let records = site.records(12);
    let of_echo = records.iter().filter(|record| record["path"] == "/echo");
    let statuses: Vec<_> = of_echo.map(|record| record["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [101, 200, 200]);
    let log = log(&site);
    let connections = log.matches("connection").count();
    assert_eq!(connections, 2, "streams of one connection, beside that of requests: {log}");
    assert_eq!(log.matches("closed").count(), 3, "{log}");
    assert_eq!(log.matches("/echo :method :scheme :authority :path :protocol").count(), 3, "{log}");
}

/// RFC 9220, Section 3: it is not asked for what it has not said that it takes.
#[test]
fn a_server_of_http3_without_extended_connect_is_asked_for_nothing() {
    let (_server, site) = three("no", "max_failures = 1\npause_ms = 60000\n");
    assert_eq!(site.get(&[&site.url("/plain")]).0, "200");
    for version in ["1", "2", "3"] {
        let output = client(&site, &[version, "status"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "502", "{version}: {output:?}");
    }
    // To ask for it is no failure of the server.
    assert_eq!(site.get(&[&site.url("/plain")]).0, "200");
    let records = site.records(5);
    for record in &records[1..4] {
        assert_eq!(record["error"], "the origin cannot do what is asked for", "{record}");
        let detail = record["detail"].as_str().unwrap();
        assert!(detail.ends_with("it speaks HTTP/3, and no extended CONNECT"), "{detail}");
    }
    assert_eq!(log(&site).matches("CONNECT").count() + log(&site).matches(":protocol").count(), 0);
}

/// Each of the server's connections allows a single stream.
#[test]
fn websockets_leave_connections_to_requests_and_no_more_are_asked_for_than_there_is_room() {
    /// As the gateway has it.
    const MAX_UPGRADED: usize = 8;
    let (_server, site) = three("one", "max_failures = 1\npause_ms = 60000\n");
    let mut held = Vec::new();
    for _ in 0..MAX_UPGRADED {
        let mut command = script("websocket_client.py");
        command.arg(site.address.port().to_string()).arg(site.path("cert.pem"));
        held.push(Process::start(command.args(["1", "idle", "tell"])));
    }
    let output = client(&site, &["1", "status"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "503", "{output:?}");
    assert_eq!(log(&site).matches("connection").count(), MAX_UPGRADED);
    assert_eq!(site.get(&[&site.url("/plain")]).0, "200", "it is no failure of the server");
    let records = site.records(MAX_UPGRADED + 2);
    let refused = records.iter().find(|record| record["status"] == 503).unwrap();
    assert_eq!(refused["error"], "the origin has no room for more of this", "{refused}");
}

/// Connections have an idle timeout of 500 ms here, which is not for those with a tunnel.
#[test]
fn a_tunnel_to_a_server_of_http3_ends_when_it_is_idle() {
    let (_server, site) = three("yes", "upgrade_idle_timeout_ms = 1600");
    for (count, version) in ["1", "2", "3"].into_iter().enumerate() {
        let begun = Instant::now();
        let output = client(&site, &[version, "idle"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), "ended", "{version}: {output:?}");
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(1500), "{version}: {took:?}");
        // H3_REQUEST_CANCELLED is what a connection of TCP that is reset is here.
        until("the server hears of it", || log(&site).matches("StreamReset 0x10c").count() > count);
    }
}

/// RFC 9220, Section 3: a stream of the client that is reset is what RST is to TCP, in both directions.
#[test]
fn what_breaks_off_on_one_side_breaks_off_on_the_other() {
    let dir = folder();
    let (server, port) =
        Process::start(script("websocket_raw_server.py").arg(dir.path().join("raw.log")));
    let rest = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\n[[site]]\nnames = [\"*\"]\n\
         [[site.route]]\norigin = \"app\"\n"
    );
    let (_server, site) = (server, Site::start(dir, &rest));
    let log = || fs::read_to_string(site.path("raw.log")).unwrap_or_default();
    // H3_REQUEST_CANCELLED, and no orderly end.
    for (task, said, heard) in [
        ("rst", "hello\nreset 0x10c\nstopped 0x10c", ""),
        ("abort", "hello\nreset 0x10c", "RST\n"),
        ("leave", "hello\nended", "RST\nFIN\n"),
    ] {
        let output = client(&site, &["3", task]);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), said, "{task}: {output:?}");
        until("the server hears of it", || log() == heard);
    }
    // Of a client that reads no more it is heard with what it does not read.
    let (_server, site) = echo("");
    let output = client(&site, &["3", "stop"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), "/echo chat\nreset 0x10c", "{output:?}");
}
