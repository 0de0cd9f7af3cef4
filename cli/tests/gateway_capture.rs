//! `quicket gateway capture`: what a gateway tells of its clients, and whom. Real tshark decrypts it.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::site::Site;
use common::{get, quicket};
use quicket::{ClientConfig, ClientTls, Connection, Endpoint};
use quicket_testing::{signal, until};

/// What the gateway answers.
const BODY: &str = "a-body-that-only-the-secrets-show";
/// What most files allow.
const ALLOWED: &str = "[capture]\nallow = true\n";

impl Site {
    /// One that answers all requests itself.
    fn start(capture: &str) -> Self {
        let (dir, port) = Self::folder();
        fs::write(dir.path().join("first.toml"), file(port, capture)).unwrap();
        symlink("first.toml", dir.path().join("site.toml")).unwrap();
        Self::run(dir, port)
    }

    /// Has the gateway take another file.
    fn reload(&self, capture: &str) {
        fs::write(self.path("site.toml"), file(self.port, capture)).unwrap();
        let before = self.log().matches("Read again").count();
        signal(self.gateway.id(), "-HUP");
        until("the reload", || self.log().matches("Read again").count() > before);
    }

    /// Begins a capture, and waits until it has begun.
    fn capture(&self, arguments: &[&str]) -> Asker {
        let told = self.path("asker.log");
        let mut command = quicket(self.dir.path());
        command.args(["gateway", "capture", "site.toml"]).args(arguments);
        command.stderr(fs::File::create(&told).unwrap());
        let asker = Asker { child: command.spawn().unwrap(), told };
        until("the capture", || asker.told().contains("capturing at the gateway"));
        asker
    }

    /// One that is expected to come to nothing.
    fn refused(&self, arguments: &[&str]) -> Output {
        let mut command = quicket(self.dir.path());
        command.args(["gateway", "capture", "site.toml", "--client", "127.0.0.1"]);
        command.args(arguments).output().unwrap()
    }

    fn get(&self) {
        let url = format!("https://localhost:{}/", self.port);
        let _ = fs::remove_file(self.path("body"));
        let outcome = get(self.dir.path(), &["--ca", "cert.pem", "-o", "body", &url]);
        outcome.assert_code(0);
        assert_eq!(fs::read_to_string(self.path("body")).unwrap(), BODY);
    }

    /// A client that asks nothing, from this address.
    fn client(&self, from: &str) -> Connection {
        let tls = ClientTls::builder().ca_file(self.path("cert.pem")).alpn(["h3"]).build();
        let endpoint = Endpoint::bind((from, 0)).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        endpoint.connect(address, "localhost", &ClientConfig::new(tls.unwrap())).unwrap()
    }
}

/// Who has asked.
struct Asker {
    child: Child,
    told: PathBuf,
}

impl Asker {
    fn told(&self) -> String {
        fs::read_to_string(&self.told).unwrap_or_default()
    }

    /// What it says in the end.
    fn end(mut self) -> (i32, String) {
        signal(self.child.id(), "-INT");
        let code = self.child.wait().unwrap().code().unwrap();
        (code, self.told())
    }

    fn wait(mut self) -> (i32, String) {
        let code = self.child.wait().unwrap().code().unwrap();
        (code, self.told())
    }
}

fn file(port: u16, capture: &str) -> String {
    format!(
        "listen = [\"127.0.0.1:{port}\"]\n\
         [[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{ body = \"{BODY}\" }}\n{capture}"
    )
}

/// The values of a field of all packets; `None` without tshark.
fn tshark(path: &Path, port: u16, more: &[&str], fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-d", &format!("udp.port=={port},quic")]).args(more);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.arg("-r").arg(path).output() {
        Ok(output) => output,
        Err(_) => {
            quicket_testing::leave_out("tshark reads the capture, and is not installed");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !errors.contains("cut short"), "{errors}");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn qlogs(directory: &Path) -> Vec<String> {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        fs::read_to_string(path).unwrap()
    };
    fs::read_dir(directory).unwrap().map(read).collect()
}

#[test]
fn what_begins_meanwhile_is_decrypted_and_older_connections_have_qlogs() {
    let site = Site::start(ALLOWED);
    let older = site.client("127.0.0.1");
    let stranger = site.client("127.0.0.2");
    let asker = site.capture(&["--client", "127.0.0.1", "-o", "c.pcapng", "--qlog", "logs"]);
    // The end of a control stream would be that of its connection (RFC 9114, Section 6.2.1).
    let mut controls = Vec::new();
    for connection in [&older, &stranger] {
        let mut control = connection.open_uni().unwrap();
        control.write_all(&[0, 4, 0]).unwrap();
        controls.push(control);
        assert!(connection.stats().counters.packets_sent > 0);
    }
    // A second one waits for the end of the first.
    let second = site.refused(&["-o", "second.pcapng"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("runs already"), "{second:?}");
    assert!(!site.path("second.pcapng").exists());
    site.get();
    let later = site.client("127.0.0.2");
    later.close(0, b"");
    until("qlogs of both", || {
        fs::read_dir(site.path("logs")).unwrap().count() == 2
            && qlogs(&site.path("logs")).iter().all(|log| log.contains("\"stream\""))
    });
    let (code, told) = asker.end();
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("2 qlogs") && !told.contains("lost"), "{told}");
    let capture = site.path("c.pcapng");
    assert_eq!([mode(&capture), mode(&site.path("logs"))], [0o600, 0o700]);
    // The older connection's qlog tells what it is, and both have frames.
    for log in qlogs(&site.path("logs")) {
        for what in
            ["quic:connection_started", "quic:packet_received", "\"h3\"", "initial_max_data"]
        {
            assert!(log.contains(what), "{what} in {log}");
        }
    }
    let fields =
        ["ip.src", "ip.dst", "quic.stream_data", "quic.decryption_failed", "udp.checksum.status"];
    let more = ["-o", "udp.check_checksum:TRUE"];
    if let Some(lines) = tshark(&capture, site.port, &more, &fields) {
        assert!(lines.iter().any(|line| line.contains(&hex(BODY))), "{lines:?}");
        assert!(lines.iter().all(|line| !line.contains("127.0.0.2")), "{lines:?}");
        assert!(lines.iter().all(|line| line.ends_with("\t1")), "{lines:?}");
    }
    if let Some(lines) = tshark(&capture, site.port, &["-Y", "http3"], &["http3.frame_type"]) {
        // HEADERS is type 1.
        assert!(lines.iter().any(|line| line.contains('1')), "{lines:?}");
    }
    // The older connection is observed again, and what the directory has of it stays.
    let asker = site.capture(&["--client", "127.0.0.1", "--qlog", "logs"]);
    let mut reserved = older.open_uni().unwrap();
    reserved.write_all(&[0x21]).unwrap();
    until("another qlog of it", || {
        let names = fs::read_dir(site.path("logs")).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.any(|name| name.ends_with("-2.sqlog"))
    });
    let (code, told) = asker.end();
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("1 qlogs") && !told.contains("could not"), "{told}");
    older.close(0, b"");
}

#[test]
fn without_permission_there_is_none_and_no_more_than_the_file_allows() {
    let site = Site::start("");
    let refusal = |arguments: &[&str], why: &str| {
        let output = site.refused(&[&["-o", "c.pcapng"], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
        assert!(!site.path("c.pcapng").exists());
    };
    refusal(&[], "does not allow captures");
    site.reload("[capture]\nallow = true\nsecrets = false\nmax_s = 60\nmax_mib = 1\n");
    refusal(&[], "--no-secrets");
    refusal(&["--no-secrets", "--for", "61s"], "60 s");
    refusal(&["--no-secrets", "--max-size", "2"], "1 MiB");
    // A file that is there is left alone.
    fs::write(site.path("c.pcapng"), "x").unwrap();
    let output = site.refused(&["-o", "c.pcapng", "--no-secrets"]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert_eq!(fs::read_to_string(site.path("c.pcapng")).unwrap(), "x");
    // Neither payloads nor secrets.
    let asker = site.capture(&["--client", "127.0.0.0/8", "--headers-only", "-o", "h.pcapng"]);
    site.get();
    let len = || fs::metadata(site.path("h.pcapng")).unwrap().len();
    until("the first datagrams", || len() > 1000);
    // A file that allows it no more ends it, and what waits yet is not told.
    site.reload("");
    let (code, told) = asker.wait();
    assert_eq!(code, 0, "{told}");
    assert!(
        told.contains("does not allow it any more") && told.contains(" 0 lines of secrets"),
        "{told}"
    );
    let capture = fs::read(site.path("h.pcapng")).unwrap();
    assert!(!capture.windows(8).any(|part| part == b"_SECRET_" || part == b"_TRAFFIC"));
    if let Some(lines) =
        tshark(&site.path("h.pcapng"), site.port, &[], &["frame.cap_len", "frame.len"])
    {
        let lengths = lines.iter().map(|line| {
            let (kept, len) = line.split_once('\t').unwrap();
            (kept.parse::<u32>().unwrap(), len.parse::<u32>().unwrap())
        });
        assert!(lengths.clone().all(|(kept, _)| kept <= 20 + 8 + 64), "{lines:?}");
        assert!(lengths.clone().any(|(_, len)| len >= 1228), "{lines:?}");
    }
}

#[test]
fn others_are_not_answered() {
    let site = Site::start(ALLOWED);
    if !is_root() {
        quicket_testing::leave_out("another user asks, and this test does not run as root");
        return;
    }
    // The user nobody, in this network namespace.
    let mut script = String::from("import socket,sys\n");
    script +=
        "names=[l.split()[7][1:] for l in open('/proc/net/unix') if '@quicket-gateway-' in l]\n";
    script += "for name in set(names):\n s=socket.socket(socket.AF_UNIX)\n s.connect('\\0'+name)\n";
    script += " try:\n  s.sendall(b'\"who\"\\n')\n  got=s.recv(100)\n except OSError:\n  got=b''\n";
    script += " print(name,len(got))\n";
    let asked = |user: u32| {
        let mut command = Command::new("python3");
        let output = command.args(["-c", &script]).uid(user).gid(user).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let name = format!("quicket-gateway-{}-", site.gateway.id());
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.starts_with(&name)).unwrap().to_owned();
        line.split(' ').nth(1).unwrap().parse::<u32>().unwrap()
    };
    assert!(asked(0) > 0);
    assert_eq!(asked(65_534), 0);
}

#[test]
fn root_is_told_of_another_user_who_says_to_be_the_gateway() {
    if !is_root() {
        quicket_testing::leave_out("another user pretends, and this test does not run as root");
        return;
    }
    let site = Site::start(ALLOWED);
    let path = site.path("first.toml").canonicalize().unwrap();
    let script = format!(
        "import json,socket\ns=socket.socket(socket.AF_UNIX)\ns.bind('\\0quicket-gateway-{}-99')\n\
         s.listen()\nprint('ready',flush=True)\n\
         while True:\n c=s.accept()[0]\n c.recv(999)\n\
         \x20c.sendall(json.dumps({{'file':'{}','serves':True}}).encode())\n c.close()\n",
        site.gateway.id(),
        path.display()
    );
    let mut command = Command::new("python3");
    command.args(["-c", &script]).uid(65_534).gid(65_534).stdout(Stdio::piped());
    let mut impostor = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(impostor.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = site.refused(&["-o", "c.pcapng"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    // By its process it is chosen, whatever others say.
    let pid = site.gateway.id().to_string();
    let asker = site.capture(&["--client", "127.0.0.1", "--pid", &pid, "-o", "c.pcapng"]);
    let (code, ended) = asker.end();
    impostor.kill().unwrap();
    impostor.wait().unwrap();
    assert_eq!(line, "ready\n");
    assert_eq!(output.status.code(), Some(6), "{told}");
    for who in [format!("{pid} (user 0)"), format!("{} (user 65534)", impostor.id())] {
        assert!(told.contains(&who), "{who} in {told}");
    }
    assert_eq!(code, 0, "{ended}");
    assert!(ended.contains(&format!("process {pid} (user 0)")), "{ended}");
}

/// Says to be the gateway with a file, and does something else when it is asked to capture.
fn pretend(file: &Path, instead: impl Fn(UnixStream) + Send + 'static) {
    let file = file.canonicalize().unwrap();
    let name = format!("quicket-gateway-{}-{}", std::process::id(), file.display());
    let listener = UnixListener::bind_addr(
        &UnixAddr::from_abstract_name(&name[..name.len().min(100)]).unwrap(),
    );
    let listener = listener.unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut question = String::new();
            BufReader::new(&stream).read_line(&mut question).unwrap();
            if question == "\"who\"\n" {
                let answer = format!("{{\"file\":\"{}\",\"serves\":true}}\n", file.display());
                stream.write_all(answer.as_bytes()).unwrap();
            } else {
                instead(stream);
            }
        }
    });
}

#[test]
fn what_lies_or_says_nothing_neither_fills_the_disk_nor_leaves_a_file() {
    let ask = |instead: fn(UnixStream)| {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("site.toml"), "").unwrap();
        pretend(&dir.path().join("site.toml"), instead);
        let mut command = quicket(dir.path());
        command.args(["gateway", "capture", "site.toml", "--client", "127.0.0.1", "--for", "60s"]);
        let output = command.args(["--max-size", "1", "-o", "c.pcapng"]).output().unwrap();
        (output, dir)
    };
    let (output, dir) = ask(drop);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(!dir.path().join("c.pcapng").exists());
    let (output, dir) = ask(|mut stream| {
        let mut frame = vec![b'F', 0, 1, 0, 0];
        frame.resize(5 + (1 << 16), 7);
        while stream.write_all(&frame).is_ok() {}
    });
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("says more than it may"), "{told}");
    let len = fs::metadata(dir.path().join("c.pcapng")).unwrap().len();
    assert!((1 << 20..=18 << 20).contains(&len), "{len}");
}

#[test]
fn a_link_to_the_file_may_be_turned() {
    let site = Site::start(ALLOWED);
    fs::copy(site.path("first.toml"), site.path("second.toml")).unwrap();
    symlink("second.toml", site.path("next")).unwrap();
    fs::rename(site.path("next"), site.path("site.toml")).unwrap();
    let (code, told) = site.capture(&["--client", "127.0.0.1", "-o", "c.pcapng"]).end();
    assert_eq!(code, 0, "{told}");
}

#[test]
fn a_gateway_that_stops_tells_the_end_of_connections_and_the_report() {
    let mut site = Site::start(ALLOWED);
    let client = site.client("127.0.0.1");
    let asker = site.capture(&["--client", "127.0.0.1", "-o", "c.pcapng", "--qlog", "logs"]);
    signal(site.gateway.id(), "-TERM");
    let (code, told) = asker.wait();
    assert!(site.gateway.wait().unwrap().success());
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("the gateway stops"), "{told}");
    let capture = fs::read(site.path("c.pcapng")).unwrap();
    let tail = String::from_utf8_lossy(&capture[capture.len().saturating_sub(400)..]).into_owned();
    assert!(tail.contains("0 datagrams and 0 lines of secrets were lost"), "{tail}");
    let logs = qlogs(&site.path("logs"));
    assert!(logs.len() == 1 && logs[0].contains("quic:connection_closed"), "{logs:?}");
    drop(client);
}

#[test]
fn a_second_signal_ends_an_asker_whose_output_nobody_reads() {
    let site = Site::start(ALLOWED);
    let told = site.path("asker.log");
    let mut command = quicket(site.dir.path());
    command.args(["gateway", "capture", "site.toml", "--client", "127.0.0.1", "-o", "-"]);
    command.stderr(fs::File::create(&told).unwrap()).stdout(Stdio::piped());
    let mut asker = command.spawn().unwrap();
    until("the capture", || fs::read_to_string(&told).unwrap().contains("capturing at"));
    let pipe = asker.stdout.take().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Pages of a pipe that is full need not be: no more gets in, however much there is to tell.
    let mut seen = (0, Instant::now());
    until("a full pipe", || {
        for _ in 0..10 {
            let _ = socket.send_to(&[0x40; 1200], ("127.0.0.1", site.port));
        }
        let waiting = rustix::io::ioctl_fionread(&pipe).unwrap();
        if waiting != seen.0 {
            seen = (waiting, Instant::now());
        }
        waiting > 8192 && seen.1.elapsed() > Duration::from_secs(2)
    });
    let mut ended = None;
    until("its end", || {
        signal(asker.id(), "-INT");
        ended = asker.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(130));
    drop(pipe);
    // The gateway is unharmed.
    site.get();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_gateway() {
    let site = Site::start(ALLOWED);
    let program = quicket(site.dir.path()).get_program().to_owned();
    let mut command = Command::new("sh");
    // Files of more than 16 KiB cannot be written.
    let line = "trap '' XFSZ; ulimit -f 32; exec \"$0\" gateway capture site.toml --client 127.0.0.1 -o c.pcapng";
    command.arg("-c").arg(line).arg(program).current_dir(site.dir.path());
    command.env("HOME", site.dir.path()).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut asker = command.spawn().unwrap();
    until("a file", || fs::metadata(site.path("c.pcapng")).is_ok_and(|it| it.len() > 0));
    let mut ended = None;
    until("a full disk", || {
        site.get();
        ended = asker.try_wait().unwrap();
        ended.is_some()
    });
    let mut told = String::new();
    asker.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(ended.unwrap().code(), Some(6), "{told}");
    assert!(told.contains("cannot write c.pcapng"), "{told}");
    assert!(fs::metadata(site.path("c.pcapng")).unwrap().len() <= 16 << 10);
    // What is there is whole.
    let _ = tshark(&site.path("c.pcapng"), site.port, &[], &["frame.len"]);
    site.get();
    until("the gateway's word", || site.log().contains("has ended"));
    // The next one may begin.
    let (code, told) = site.capture(&["--client", "127.0.0.1", "-o", "next.pcapng"]).end();
    assert_eq!(code, 0, "{told}");
}

#[test]
fn a_flood_meanwhile_is_bounded_and_requests_go_on() {
    let site = Site::start("[capture]\nallow = true\nmax_mib = 4\n");
    let over = Arc::new(AtomicBool::new(false));
    let flood = {
        let (over, port) = (Arc::clone(&over), site.port);
        std::thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut datagram = [0x40; 1200];
            let mut sent = 0_u64;
            while !over.load(Ordering::Relaxed) {
                datagram[1..9].copy_from_slice(&sent.to_be_bytes());
                sent += u64::from(socket.send_to(&datagram, ("127.0.0.1", port)).is_ok());
            }
            sent
        })
    };
    let asker = site.capture(&["--client", "127.0.0.1", "-o", "c.pcapng"]);
    site.get();
    let (code, told) = asker.wait();
    over.store(true, Ordering::Relaxed);
    assert!(flood.join().unwrap() > 3000);
    assert_eq!(code, 0, "{told}");
    assert!(
        told.contains("as many bytes as it may") && told.contains("lost for the capture"),
        "{told}"
    );
    assert!(fs::metadata(site.path("c.pcapng")).unwrap().len() <= (4 << 20) + 4096);
    site.get();
    // The file tells how many are missing.
    let fields = ["frame.len"];
    if let Some(lines) = tshark(&site.path("c.pcapng"), site.port, &[], &fields) {
        assert!(lines.len() > 1000, "{}", lines.len());
    }
    let capture = fs::read(site.path("c.pcapng")).unwrap();
    let tail = String::from_utf8_lossy(&capture[capture.len() - 400..]).into_owned();
    assert!(tail.contains("datagrams and") && tail.contains("were lost"), "{tail}");
}
