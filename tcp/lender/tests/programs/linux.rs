//! Programs on a stack here, and Linux at the other end of a pair of virtual devices. These tests need root:
//! without it they say LEFT OUT, and fail where [`quicket_testing::leave_out`] does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use quicket_packets::control::Control;
use quicket_packets::device::Mode;

use crate::common::{Switch, pattern, until};
use crate::lent::{Lent, Program};
use crate::servers::{FORKS, nginx};
use crate::wire::{DEVICE, HERE, THERE, Wire};

/// Whether the system permits what these tests need; says so if not.
fn is_permitted() -> bool {
    let user = rustix::process::geteuid();
    if user.is_root() && quicket_bpf::Tuples::new(1).is_ok() {
        return true;
    }
    quicket_testing::leave_out("network devices need root and BPF");
    false
}

/// A switch whose device leads to the other end, and a folder.
fn attached() -> (Wire, Switch, tempfile::TempDir) {
    let wire = Wire::new("");
    let switch = Switch::start();
    Control::connect(&switch.path).unwrap().attach(DEVICE, Mode::Native).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("large"), pattern(5_000_000)).unwrap();
    fs::write(folder.path().join("small"), "hello\n").unwrap();
    (wire, switch, folder)
}

/// What a program of Linux prints at the other end, which ends well.
fn there(wire: &Wire, program: &str, words: &[&str]) -> Vec<u8> {
    let output = wire.there(|| Command::new(program).args(words).output());
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {words:?}: {output:?}");
    output.stdout
}

/// Waits until somebody listens at the other end.
fn until_listened(wire: &Wire, port: u16) {
    until("somebody listens", || {
        wire.there(|| std::net::TcpStream::connect((THERE[0], port)).is_ok())
    });
}

fn start_there(wire: &Wire, program: &str, words: &[&str]) -> Program {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    wire.there(|| Program::start(&mut command))
}

#[test]
fn nginx_serves_clients_of_linux() {
    if !is_permitted() {
        return;
    }
    let (wire, switch, folder) = attached();
    let lent = Lent::new(&switch);
    let configuration = nginx(folder.path(), "listen 80; listen [::]:80;");
    let mut server = lent.start("nginx", &["-c", &configuration]);
    let urls = HERE.map(|here| match here.contains(':') {
        true => format!("http://[{here}]"),
        false => format!("http://{here}"),
    });
    for url in &urls {
        let words =
            ["-gsS", "--fail", "--retry", "20", "--retry-connrefused", "--retry-delay", "1"];
        let large = format!("{url}/large");
        assert_eq!(there(&wire, "curl", &[&words[..], &[&large]].concat()), pattern(5_000_000));
    }
    // Connections for one request each, and connections that stay.
    for more in [&[][..], &["-k"]] {
        let words = [&["-q", "-n", "1000", "-c", "20"][..], more].concat();
        let url = format!("{}/small", urls[0]);
        let told = there(&wire, "ab", &[&words[..], &[&url]].concat());
        let told = String::from_utf8(told).unwrap();
        let has = |label: &str, value: &str| {
            told.lines()
                .any(|line| line.strip_prefix(label).is_some_and(|rest| rest.trim() == value))
        };
        assert!(has("Complete requests:", "1000") && has("Failed requests:", "0"), "{told}");
        assert!(!told.contains("Non-2xx"), "{told}");
    }
    server.signal("-QUIT");
    server.wait();
    lent.end();
}

#[test]
fn curl_fetches_from_servers_of_linux() {
    if !is_permitted() {
        return;
    }
    let (wire, switch, folder) = attached();
    let lent = Lent::new(&switch);
    let configuration = nginx(folder.path(), "listen 80; listen [::]:80;");
    let server = start_there(&wire, "nginx", &["-c", &configuration]);
    until_listened(&wire, 80);
    for url in [format!("http://{}", THERE[0]), format!("http://[{}]", THERE[1])] {
        let got = lent.output("curl", &["-gsS", "--fail", &format!("{url}/large")]);
        assert!(got.status.success(), "{got:?}");
        assert_eq!(got.stdout, pattern(5_000_000));
        // Many at once, of which curl uses connections again.
        let many = format!("{url}/small?[1-300]");
        let words = ["-sS", "--fail", "-Z", "-w", "%{http_code}\n", "-o", "/dev/null", &many];
        let codes = lent.run("curl", &words);
        assert_eq!(codes.lines().filter(|code| *code == "200").count(), 300);
    }
    // Nobody listens there.
    let refused = lent.output("curl", &["-sS", &format!("http://{}:81/", THERE[0])]);
    assert_eq!(refused.status.code(), Some(7), "{refused:?}");
    drop(server);
    lent.end();
}

/// netcat sends its input and ends that way, prints what comes until that ends, or does both.
#[test]
fn netcat_ends_one_way_and_hears_the_other() {
    if !is_permitted() {
        return;
    }
    let (wire, switch, folder) = attached();
    let lent = Lent::new(&switch);
    let (large, got) = (folder.path().join("large"), folder.path().join("got"));
    let (from, to) = (large.display(), got.display());
    let tried =
        |what: &str| format!("for n in $(seq 100); do {what} && exit; sleep 0.1; done; exit 1");
    let listen = format!("nc -l {} 9000 > {to}", HERE[0]);
    let mut server = lent.start("sh", &["-c", &listen]);
    there(&wire, "sh", &["-c", &tried(&format!("nc -N {} 9000 < {from}", HERE[0]))]);
    server.wait();
    assert_eq!(fs::read(&got).unwrap(), pattern(5_000_000));
    let send = format!("nc -l -N {} 9001 < {from}", HERE[0]);
    let mut server = lent.start("sh", &["-c", &send]);
    let receive = format!("nc -d {} 9001 > {to}", HERE[0]);
    there(&wire, "sh", &["-c", &tried(&receive)]);
    server.wait();
    assert_eq!(fs::read(&got).unwrap(), pattern(5_000_000));
    // A server of Linux that answers when it has heard the end.
    let echo = start_there(&wire, "python3", &["-c", FORKS, "9002"]);
    until_listened(&wire, 9002);
    let ask = format!("nc -N {} 9002 < {from} > {to}", THERE[0]);
    lent.run("sh", &["-c", &ask]);
    assert_eq!(fs::read(&got).unwrap(), pattern(5_000_000));
    drop(echo);
    lent.end();
}
