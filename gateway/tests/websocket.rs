//! WebSocket through the gateway: clients by Python's `websockets` (HTTP/1.1), `h2` (HTTP/2, RFC 8441) and
//! `aioquic` (HTTP/3, RFC 9220), servers by `websockets` and by hand; and both by `ws` of Node.js.

mod behind;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use behind::{Site, folder, python};
use quicket_testing::Process;

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
