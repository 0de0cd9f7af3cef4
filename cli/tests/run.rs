//! `quicket run` of the program as Cargo builds it.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::quicket;
use quicket_testing::{Process, free_port, until};
use tempfile::tempdir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quicket");

/// A socket of the protocol IPPROTO_QUIC, which most kernels do not know.
const SOCKET: &str = "import socket; print(socket.socket(socket.AF_INET, 2, 261).getsockname())";

/// Copies a program that is to be started. A process of its own writes it: children of other tests of this one would
/// inherit the descriptor, and the program is busy (ETXTBSY) as long as they have it.
fn copy(from: &str, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

#[test]
fn a_program_that_was_built_by_cargo_and_moved_elsewhere_gives_others_quic_sockets() {
    let home = tempdir().unwrap();
    let moved = home.path().join("moved");
    copy(PROGRAM, &moved);
    let ran = Command::new(&moved)
        .args(["run", "--", "python3", "-c", SOCKET])
        .env("HOME", home.path())
        .env("XDG_CACHE_HOME", home.path())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{err}");
    assert_eq!(out, "('0.0.0.0', 0)\n", "{err}");
}

/// The program has the library as data. Linked to it, the library would stand before the C library
/// in the program itself.
#[test]
fn nothing_of_the_library_is_linked_to_the_program() {
    let listed = Command::new("nm").arg("--defined-only").arg(PROGRAM).output();
    let listed = listed.expect("nm, of binutils");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let symbols = String::from_utf8_lossy(&listed.stdout);
    let names: Vec<_> = symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert!(names.contains(&"main"), "the program has its symbols");
    for interposed in ["read", "write", "close", "socket", "recvmsg", "poll", "quicket_socket"] {
        assert!(!names.contains(&interposed), "{interposed}");
    }
}

#[test]
fn the_library_is_unpacked_to_the_users_cache_once() {
    let home = tempdir().unwrap();
    let cache = |home: &Path| {
        let dir = fs::read_dir(home.join(".cache/quicket")).unwrap();
        dir.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let mut command = quicket(home.path());
        let ran = command.args(["run", "--", "/bin/true"]).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!(cache(home.path()).len(), 1);
    }
}

/// Becomes another user, and starts a program that wants a QUIC socket.
const OTHER_USER: &str = "
import os, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.execv('/proc/self/exe', ['python3', '-c', sys.argv[1]])
";

#[test]
fn a_program_that_becomes_another_user_still_gives_what_it_starts_quic_sockets() {
    if !rustix::process::geteuid().is_root() {
        quicket_testing::leave_out("another user needs root");
        return;
    }
    let home = tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = quicket(home.path());
    command.args(["run", "--", "python3", "-c", OTHER_USER, SOCKET]);
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let ran = command.output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{err}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "('0.0.0.0', 0)\n", "{err}");
}

/// Where the loader would preload nothing, and say nothing.
#[test]
fn a_program_that_gains_privileges_is_refused_and_so_is_its_script() {
    let root = rustix::process::geteuid().is_root();
    let home = tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = home.path().join("program");
    copy("/bin/sh", &program);
    let script = home.path().join("script");
    fs::write(&script, format!("#!{} -e\nexit 7\n", program.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let quicket = home.path().join("quicket");
    copy(PROGRAM, &quicket);
    let run = |path: &Path| {
        let mut command = Command::new("setpriv");
        if root {
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        }
        command.arg(&quicket).args(["run", "--"]).arg(path).current_dir("/");
        command.env("XDG_CACHE_HOME", home.path().join("cache")).output().unwrap()
    };
    let cache = home.path().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let done = run(&script);
    assert_eq!(done.status.code(), Some(7), "{}", String::from_utf8_lossy(&done.stderr));
    if !root {
        quicket_testing::leave_out("privileges of files are given by root");
        return;
    }
    let refused = |why: &str| {
        for path in [&program, &script] {
            let done = run(path);
            let told = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(6), "{told}");
            assert!(told.contains(why) && told.contains("a copy of the program"), "{told}");
        }
    };
    // cap_net_bind_service, effective from the start (capabilities(7), `struct vfs_cap_data`).
    let capabilities = [0x0200_0001u32, 1 << 10, 0, 0, 0].map(u32::to_le_bytes).concat();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&program, "security.capability", &capabilities, flags).unwrap();
    refused("capabilities of its file");
    rustix::fs::removexattr(&program, "security.capability").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    refused("set-user-ID");
}

/// Prints the number and the exit of what is to be the program, and its TCP.
const FETCH: &str = "
import os, sys, urllib.request
print(os.getpid(), urllib.request.urlopen(sys.argv[1]).read().decode().strip())
sys.exit(3)
";

/// A switch for packets at a path.
fn packets(home: &Path, switch: &str) -> Process {
    let mut packets = quicket(home);
    packets.args(["switch", "packets", "--name", switch]).stderr(Stdio::piped());
    let mut packets = Process(packets.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(packets.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("is ready"), "{line}");
    packets
}

/// Nothing of the host is there but the descriptor: another network without addresses, another file system where the switch's socket was, no
/// capabilities. The client is on the host.
#[test]
fn a_program_in_a_container_serves_by_the_descriptor_that_it_was_handed() {
    if !rustix::process::geteuid().is_root() {
        quicket_testing::leave_out("namespaces need root");
        return;
    }
    let home = tempdir().unwrap();
    let hidden = home.path().join("hidden");
    fs::create_dir(&hidden).unwrap();
    let path = hidden.join("packets");
    let switch = path.to_str().unwrap();
    let _packets = packets(home.path(), switch);
    fs::write(home.path().join("hello"), "hello\n").unwrap();
    let port = free_port().to_string();
    let script = format!(
        "mount -t tmpfs none {} && test ! -e {switch} && exec setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all \
         --no-new-privs {} run --tcp-by fd:$QUICKET_PACKETS_FD -- python3 -u -m http.server {port} --bind 127.0.0.1",
        hidden.display(),
        env!("CARGO_BIN_EXE_quicket"),
    );
    let tuple = format!("tcp:127.0.0.1:{port}");
    let path = std::env::var_os("PATH").unwrap();
    let mut server = quicket(home.path());
    server.args(["switch", "open", "--name", switch, "--tuple", &tuple, "--user", "20001", "--"]);
    // The switch is that of one user: another one's is not let in.
    let refused = server.args(["true"]).env("PATH", &path).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("takes a switch of all users"), "{told}");
    let mut server = quicket(home.path());
    server.args(["switch", "open", "--name", switch, "--tuple", &tuple, "--"]);
    server.args(["unshare", "--net", "--mount", "sh", "-c", &script]).env("PATH", &path);
    let (server, line) = Process::start(server.current_dir(home.path()));
    assert!(line.starts_with("Serving HTTP"), "{line}");
    let fetch = || {
        let url = format!("http://127.0.0.1:{port}/hello");
        let mut client = quicket(home.path());
        client.args(["run", "--tcp-by", switch, "--", "python3", "-c", FETCH, &url]);
        client.env("PATH", &path).output().unwrap()
    };
    let got = fetch();
    let (said, told) = (&got.stdout, String::from_utf8_lossy(&got.stderr));
    assert!(String::from_utf8_lossy(said).ends_with(" hello\n"), "{told}");
    // The address is the container's until it ends.
    let taken = std::net::TcpListener::bind(format!("127.0.0.1:{port}"));
    assert_eq!(taken.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(server);
    let begun = std::time::Instant::now();
    while std::net::TcpListener::bind(format!("127.0.0.1:{port}")).is_err() {
        assert!(begun.elapsed().as_secs() < 90, "the address is still kept");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Says how what is not reserved is refused, listens where it may, and fetches something.
const RESERVED: &str = "
import errno, socket, sys, urllib.request
listener = socket.socket()
try:
    listener.bind(('127.0.0.1', 1))
except OSError as error:
    print(errno.errorcode[error.errno])
listener.bind(('0.0.0.0', 0))
listener.listen()
print(listener.getsockname()[1])
print(urllib.request.urlopen(sys.argv[1]).read().decode().strip())
";

#[test]
fn a_program_has_the_addresses_that_are_reserved_for_it_and_no_others() {
    let home = tempdir().unwrap();
    let path = home.path().join("packets");
    let switch = path.to_str().unwrap();
    let _packets = packets(home.path(), switch);
    fs::write(home.path().join("hello"), "hello\n").unwrap();
    let port = free_port().to_string();
    let path = std::env::var_os("PATH").unwrap();
    let mut server = quicket(home.path());
    server.args(["run", "--tcp-by", switch, "--", "python3", "-u", "-m", "http.server", &port]);
    server.args(["--bind", "127.0.0.1"]).env("PATH", &path);
    let (_server, line) = Process::start(server.current_dir(home.path()));
    assert!(line.starts_with("Serving HTTP"), "{line}");
    let url = format!("http://127.0.0.1:{port}/hello");
    let open = |tuples: &[&str], words: &[&str]| {
        let mut command = quicket(home.path());
        command.args(["switch", "open", "--name", switch]);
        for tuple in tuples {
            command.args(["--tuple", tuple]);
        }
        command.arg("--").args(words).env("PATH", &path).output().unwrap()
    };
    let run = [env!("CARGO_BIN_EXE_quicket"), "run", "--tcp-by", "fd:3", "--"];
    let python = [&run[..], &["python3", "-c", RESERVED, &url]].concat();
    let any = "tcp:127.0.0.1:0";
    let done = open(&[any, any], &python);
    let (said, told) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let [refused, number, got] = said.lines().collect::<Vec<_>>()[..] else {
        panic!("{said} {told}")
    };
    assert_eq!((refused, got), ("EADDRNOTAVAIL", "hello"), "{told}");
    assert!(told.contains(&format!("TCP 127.0.0.1 port {number} is reserved")), "{told}");
    // What somebody has is not reserved, and what is none of TCP is no stack's.
    for (tuple, words, why) in [
        (&*format!("tcp:127.0.0.1:{port}"), &["true"][..], "cannot reserve tcp:"),
        ("udp:127.0.0.1:0", &[&run[..], &["true"]].concat(), "no address of TCP is reserved"),
        // Of documentation (RFC 5737), and nobody's.
        ("tcp:192.0.2.77:80", &["true"], "it is no address of this machine"),
    ] {
        let refused = open(&[tuple], words);
        let told = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && told.contains(why), "{told}");
    }
    let udp = format!("udp:127.0.0.1:{}", free_port());
    let sink = ["switch", "sink", &udp[4..], "--name", "fd:3", "--time", "0.2"];
    let sink = [&[env!("CARGO_BIN_EXE_quicket")][..], &sink].concat();
    let done = open(&[&udp], &sink);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn programs_that_know_nothing_of_it_have_tcp_in_user_space() {
    let home = tempdir().unwrap();
    let path = home.path().join("packets");
    let switch = path.to_str().unwrap();
    let run = |words: &[&str]| {
        let mut command = quicket(home.path());
        command.args([&["run", "--tcp-by", switch, "--"], words].concat());
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command
    };
    let none = run(&["/bin/true"]).output().unwrap();
    let told = String::from_utf8_lossy(&none.stderr);
    assert_eq!(none.status.code(), Some(6), "{told}");
    assert!(told.contains("quicket switch packets starts one"), "{told}");

    let mut packets = quicket(home.path());
    packets.args(["switch", "packets", "--name", switch]).stderr(Stdio::piped());
    let mut packets = Process(packets.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(packets.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("is ready"), "{line}");
    fs::write(home.path().join("hello"), "hello\n").unwrap();
    let port = free_port().to_string();
    let words = ["python3", "-u", "-m", "http.server", &port, "--bind", "127.0.0.1"];
    let (server, line) = Process::start(run(&words).current_dir(home.path()));
    assert!(line.starts_with("Serving HTTP"), "{line}");
    let url = format!("http://127.0.0.1:{port}/hello");
    let mut client = run(&["python3", "-c", FETCH, &url]);
    let client = client.stdout(Stdio::piped()).spawn().unwrap();
    let pid = client.id();
    let got = client.wait_with_output().unwrap();
    // The program is the process that was started, and so is its end.
    assert_eq!(String::from_utf8_lossy(&got.stdout), format!("{pid} hello\n"));
    assert_eq!(got.status.code(), Some(3));
    // The system has no such listener.
    assert!(std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err());
    // The address is given back when the program has ended, and with it the last socket.
    drop(server);
    until("the address is free", || {
        std::net::TcpListener::bind(format!("127.0.0.1:{port}")).is_ok()
    });

    // What a program has left behind still gets sockets, and nobody waits for that who reads what the program says.
    let later = format!("(sleep 0.5; exec {}) >log 2>&1 & echo $!", words.join(" "));
    let left = run(&["sh", "-c", &later]).current_dir(home.path()).output().unwrap();
    let left = Left(String::from_utf8(left.stdout).unwrap().trim().to_owned());
    until("the server answers", || {
        let got = run(&["python3", "-c", FETCH, &url]).output().unwrap();
        got.status.code() == Some(3)
    });
    // A server whose lender was killed does not ask for connections without rest.
    let lenders = fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter(|process| {
        let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        words.contains("--lend-apart") && words.contains(switch)
    });
    let lenders: Vec<_> = lenders.map(|lender| lender.file_name()).collect();
    assert!(!lenders.is_empty());
    let killed = Command::new("kill").arg("-KILL").args(&lenders).status().unwrap();
    assert!(killed.success());
    let before = left.ticks();
    std::thread::sleep(Duration::from_secs(1));
    let spent = left.ticks() - before;
    assert!(spent < 20, "{spent} ticks in a second");
}

/// A process that a program has left behind.
struct Left(String);

impl Left {
    /// Hundredths of a second that it has had a processor.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap();
        // What comes after the name (proc_pid_stat(5)), from the state on.
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        [fields[11], fields[12]].iter().map(|time| time.parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0]).status();
    }
}
