//! `quicket switch packets`: programs with stacks of their own find it, and hear why it is not there.
#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::quicket;
use quicket_packets::client::Port;
use quicket_packets::{Layout, compose};
use quicket_testing::Process;

const LONG: Duration = Duration::from_secs(60);

fn open(path: &std::path::Path) -> (Port, SocketAddr) {
    let mut port = Port::open(path, Layout::new(16, 16, 2048).unwrap()).unwrap();
    let tuple = port.register(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    (port, (tuple.address, tuple.port).into())
}

#[test]
fn stacks_exchange_frames_through_it_and_hear_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets");
    let start = || {
        let mut command = quicket(folder.path());
        command.args(["switch", "packets", "--name"]).arg(&path).stderr(Stdio::piped());
        Process(command.spawn().unwrap())
    };
    let mut switch = start();
    let mut told = BufReader::new(switch.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.contains("is ready"), "{line}");
    let ((mut one, from), (mut other, to)) = (open(&path), open(&path));
    for port in [9, to.port()] {
        let mut frame = Some(SocketAddr::new(to.ip(), port));
        one.send(|slot| compose::udp(slot, from, frame.take()?, b"here")).unwrap();
    }
    assert!(other.wait(Some(LONG)).unwrap());
    let mut came = Vec::new();
    other.receive(1, |frame| came = frame[42..46].to_vec()).unwrap();
    assert_eq!(came, b"here");
    // Another one at that path is told so, and leaves this one alone.
    let mut second = start();
    let mut text = String::new();
    second.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(!second.wait().unwrap().success() && text.contains("a switch runs at"), "{text}");
    assert!(text.contains("choose another --name"), "{text}");
    let pid = switch.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(switch.wait().unwrap().success());
    let mut end = String::new();
    told.read_to_string(&mut end).unwrap();
    assert!(end.contains("1 frame was delivered, 1 dropped: destination"), "{end}");
    assert!(other.wait(Some(LONG)).is_err() && one.counters().is_err(), "nobody was told");
    // What a switch that was killed has left is no obstacle.
    drop((one, other));
    let mut killed = start();
    BufReader::new(killed.stderr.take().unwrap()).read_line(&mut line).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut next = start();
    let mut told = BufReader::new(next.stderr.take().unwrap());
    line.clear();
    told.read_line(&mut line).unwrap();
    assert!(line.contains("is ready"), "{line}");
    open(&path);
}

/// A pipe that is full.
#[test]
fn who_does_not_read_what_it_says_keeps_no_frame_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets");
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut command = quicket(folder.path());
    command.args(["switch", "packets", "--name"]).arg(&path).stderr(writer.try_clone().unwrap());
    let mut switch = Process(command.spawn().unwrap());
    drop(command);
    let mut told = BufReader::new(reader);
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.contains("is ready"), "{line}");
    // The switch has the same flags: its own writes are to wait.
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    while writer.write(b"\n").is_ok() {}
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::empty()).unwrap();
    drop(writer);
    let (one, address) = open(&path);
    let mut watcher = Port::open(&path, Layout::new(16, 16, 2048).unwrap()).unwrap();
    watcher
        .watch(quicket_packets::Tuple { address: address.ip(), protocol: 17, port: address.port() })
        .unwrap();
    // The other one's port ends with it, which is worth a line.
    drop(one);
    assert!(watcher.wait(Some(LONG)).is_err(), "the switch waits for who reads");
    let (mut one, from) = open(&path);
    let mut frame = Some(());
    one.send(|slot| frame.take().and_then(|()| compose::udp(slot, from, from, b"here"))).unwrap();
    assert!(one.wait(Some(LONG)).unwrap());
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        told.read_to_string(&mut text).unwrap();
        text
    });
    let pid = switch.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(switch.wait().unwrap().success());
    let text = reading.join().unwrap();
    assert!(text.contains("port with queue"), "{}", text.trim());
}

fn line(child: &mut Child) -> String {
    let mut told = BufReader::new(child.stderr.as_mut().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    line
}

/// What tshark, which knows the format and the protocols, has to say of a capture.
fn read_capture(path: &std::path::Path) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-o", "udp.check_checksum:TRUE", "-T", "fields", "-E", "separator=/s"]);
    for field in ["udp.srcport", "udp.dstport", "udp.checksum.status", "frame.len", "frame.cap_len"]
    {
        command.args(["-e", field]);
    }
    let output = command.arg("-r").arg(path).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn a_dump_has_the_frames_of_both_directions_and_of_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("packets"), folder.path().join("frames.pcap"));
    let mut command = quicket(folder.path());
    command.args(["switch", "packets", "--name"]).arg(&path).stderr(Stdio::piped());
    let mut switch = Process(command.spawn().unwrap());
    assert!(line(&mut switch).contains("is ready"));
    let ((mut one, from), (mut other, to)) = (open(&path), open(&path));
    let dump = |what: SocketAddr| {
        let mut command = quicket(folder.path());
        command.args(["switch", "dump", &what.to_string(), "--name"]).arg(&path);
        command.arg("--out").arg(&file).stderr(Stdio::piped());
        command
    };
    let mut first = Process(dump(from).spawn().unwrap());
    let told = line(&mut first);
    assert!(told.contains("are written"), "{told}");
    for (what, why) in
        [(from, "watches that port already"), (SocketAddr::new(from.ip(), 9), "no port")]
    {
        let refused = dump(what).output().unwrap();
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && text.contains(why), "{text}");
    }
    let send = |port: &mut Port, from, to, payload: &[u8]| {
        let mut once = Some(());
        let write = |slot: &mut [u8]| compose::udp(slot, from, once.take().map(|()| to)?, payload);
        assert_eq!(port.send(write).unwrap(), 1);
    };
    // There, back, to the other one from itself, and one that is dropped.
    send(&mut one, from, to, b"there");
    assert!(other.wait(Some(LONG)).unwrap());
    other.receive(9, |_| ()).unwrap();
    send(&mut other, to, to, b"not seen");
    send(&mut other, to, from, &[7; 1900]);
    assert!(one.wait(Some(LONG)).unwrap());
    one.receive(9, |_| ()).unwrap();
    send(&mut one, to, from, b"forged");
    // It is written when the port ends.
    while one.counters().unwrap().dropped(quicket_packets::Reason::Source) == 0 {}
    drop(one);
    assert!(first.wait().unwrap().success());
    let mut end = String::new();
    first.stderr.take().unwrap().read_to_string(&mut end).unwrap();
    assert!(end.contains("2 frames were written, 0 lost"), "{end}");
    let (from, to) = (from.port(), to.port());
    match read_capture(&file) {
        Some(seen) => {
            let there = format!("{from} {to} 1 60 60");
            let back = format!("{to} {from} 1 1942 1942");
            assert_eq!(seen, [there, back]);
        }
        None => eprintln!("left out: tshark reads the capture, and is not installed"),
    }
}

/// A number of a report.
fn number(report: &serde_json::Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn a_generator_and_a_sink_agree_about_what_has_come() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets");
    let command = |words: &[&str]| {
        let mut command = quicket(folder.path());
        command.args(words).arg("--name").arg(&path);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let refused = command(&["switch", "sink", "127.0.0.1:0"]).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("switch packets starts one"), "{text}");
    let mut switch = Process(command(&["switch", "packets"]).spawn().unwrap());
    assert!(line(&mut switch).contains("is ready"));
    for (address, len) in [("127.0.0.1", "64"), ("[::1]", "1514")] {
        let words = ["switch", "sink", &format!("{address}:0"), "--queues", "3", "-j"];
        let mut sink = Process(command(&words).spawn().unwrap());
        let told = line(&mut sink);
        let to = told.split_whitespace().find(|word| word.starts_with(address)).unwrap();
        // Slower than what the sink has room for.
        let words =
            ["switch", "generate", to, "--len", len, "--rate", "20k", "--flows", "32", "-j"];
        let sent = command(&[&words[..], &["--count", "5k"]].concat()).output().unwrap();
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        let sent: serde_json::Value = serde_json::from_slice(&sent.stdout).unwrap();
        assert_eq!(number(&sent, "written"), 5000);
        assert!(sent["frames_per_second"].as_f64().unwrap() < 21_000.0, "{sent}");
        assert!(Command::new("kill").arg(sink.id().to_string()).status().unwrap().success());
        let came: serde_json::Value = serde_json::from_reader(sink.stdout.take().unwrap()).unwrap();
        assert!(sink.wait().unwrap().success());
        let [received, lost, full] = ["received", "lost", "full"].map(|name| number(&came, name));
        assert_eq!((received, received + full), (number(&sent, "delivered"), 5000), "{came}");
        // Those that were lost last are behind what the sink knows.
        assert!(lost <= full, "{came}");
        assert_eq!(number(&came, "octets"), received * len.parse::<u64>().unwrap());
        assert_eq!(number(&came, "flows"), 32);
        for none in ["late", "doubled", "misdelivered", "foreign", "untold", "errors"] {
            assert_eq!(number(&came, none), 0, "{none}: {came}");
        }
    }
    // To nobody, and what can be no frames.
    let words = ["switch", "generate", "127.0.0.1:9", "--count", "10"];
    let sent = command(&words).output().unwrap();
    let text = String::from_utf8(sent.stdout).unwrap();
    assert!(
        text.contains("0 were delivered") && text.contains("10 dropped: destination"),
        "{text}"
    );
    assert_eq!(sent.status.code(), Some(3), "nothing was delivered");
    for (words, why) in [
        (["[::1]:9", "--len", "64"], "82 octets at least"),
        (["127.0.0.1:9", "--from", "[::1]:0"], "another family"),
        (["127.0.0.1:9", "--rate", "0"], "above 0"),
    ] {
        let refused = command(&[&["switch", "generate"], &words[..]].concat()).output().unwrap();
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && text.contains(why), "{words:?}: {text}");
    }
    // A generator whose switch ends says what it knows, and what not. There is one once its frames come.
    let mut sink =
        Process(command(&["switch", "sink", "127.0.0.1:0", "--count", "1k"]).spawn().unwrap());
    let told = line(&mut sink);
    let to = told.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap();
    let words = ["switch", "generate", to, "--rate", "20k", "--time", "600", "-j"];
    let mut generator = Process(command(&words).spawn().unwrap());
    assert!(sink.wait().unwrap().success());
    // A sink whose switch ends says what has come, and fails.
    let mut sink = Process(command(&["switch", "sink", "127.0.0.1:0", "-j"]).spawn().unwrap());
    line(&mut sink);
    switch.kill().unwrap();
    switch.wait().unwrap();
    let came: serde_json::Value = serde_json::from_reader(sink.stdout.take().unwrap()).unwrap();
    assert_eq!(number(&came, "received"), 0);
    assert!(!sink.wait().unwrap().success());
    let sent: serde_json::Value =
        serde_json::from_reader(generator.stdout.take().unwrap()).unwrap();
    assert_eq!(generator.wait().unwrap().code(), Some(6));
    let dropped: u64 =
        sent["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    let [written, delivered, unknown] =
        ["written", "delivered", "unknown"].map(|name| number(&sent, name));
    assert!(written >= 1000 && written == delivered + dropped + unknown, "{sent}");
    assert!(sent["without_room"].is_null() && sent["waiting"].is_null(), "{sent}");
}

/// What is wrong with the name of a switch is said, and what to do.
#[test]
fn who_names_something_else_hears_so() {
    let folder = tempfile::tempdir().unwrap();
    let (packets, connections) = (folder.path().join("packets"), folder.path().join("switch"));
    let command = |words: &[&str], path: &std::path::Path| {
        let mut command = quicket(folder.path());
        command.args(words).arg("--name").arg(path);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let start = |words: &[&str], path| {
        let mut switch = Process(command(words, path).spawn().unwrap());
        let told = line(&mut switch);
        assert!(told.contains("is ready"), "{told}");
        switch
    };
    let _switches =
        [start(&["switch", "packets"], &packets), start(&["switch", "--stay"], &connections)];
    let streams = folder.path().join("streams");
    let _streams = std::os::unix::net::UnixListener::bind(&streams).unwrap();
    let nowhere = folder.path().join("nowhere").join("packets");
    let fd = std::path::Path::new("fd:3");
    let wrong: [(&[&str], &std::path::Path, i32, &str); 9] = [
        (&["switch", "devices"], &connections, 6, "--name says which"),
        (&["switch", "devices"], &streams, 6, "something else"),
        (&["switch", "sink", "127.0.0.1:0"], &connections, 6, "--name says which"),
        (&["switch", "status"], &packets, 6, "something else"),
        (&["switch", "status"], &streams, 6, "something else"),
        (&["switch", "upgrade"], &packets, 6, "something else"),
        (&["switch", "packets"], &nowhere, 6, "make the folder"),
        (&["switch", "packets"], fd, 2, "name the switch, or its path"),
        (&["switch", "devices"], fd, 2, "name the switch, or its path"),
    ];
    for (words, path, code, why) in wrong {
        let refused = command(words, path).output().unwrap();
        let text = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {text}");
        assert!(text.contains(why), "{words:?}: {text}");
    }
    let mut command = quicket(folder.path());
    command.args(["run", "--tcp-by", "fd:63", "--", "/bin/true"]);
    let refused = command.output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(6) && text.contains("is closed; quicket"), "{text}");
}
