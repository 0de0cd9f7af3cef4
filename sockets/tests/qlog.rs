//! Logs of a connection over loopback, read back.

mod common;
#[path = "../src/qlog/schema.rs"]
mod schema;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use common::{configs, pair_with};
use quicket::{Qlog, RetryPolicy};
use serde_json::Value;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quicket-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The records of a file (RFC 7464), which fit the schema: the header, then events.
fn read(path: &Path) -> (Value, Vec<Value>) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.starts_with('\u{1e}') && text.ends_with('\n'));
    let mut records = text.split('\u{1e}').skip(1).map(|record| {
        assert_eq!(record.matches('\n').count(), 1, "one record, one line");
        serde_json::from_str(record).unwrap()
    });
    let (header, events): (Value, Vec<Value>) = (records.next().unwrap(), records.collect());
    assert_eq!(schema::check_header(&header), Ok(()), "{header}");
    for event in &events {
        assert_eq!(schema::check_event(event), Ok(()));
    }
    (header, events)
}

fn events<'a>(log: &'a [Value], name: &str) -> Vec<&'a Value> {
    log.iter().filter(|event| event["name"] == name).map(|event| &event["data"]).collect()
}

/// Packet number space and number of the packets of all events of a name.
fn numbers(log: &[Value], name: &str) -> BTreeSet<(String, u64)> {
    events(log, name)
        .into_iter()
        .filter_map(|data| {
            let number = data["header"]["packet_number"].as_u64()?;
            let space = match data["header"]["packet_type"].as_str()? {
                "0RTT" => "1RTT",
                kind => kind,
            };
            Some((space.to_owned(), number))
        })
        .collect()
}

/// A request, an answer of `size` bytes and a close; returns when both sides are logged.
fn exchange(folder: &Folder, size: usize) -> (Vec<Value>, Vec<Value>) {
    let qlog = Qlog::new(&folder.0).unwrap();
    let (server, client) = configs();
    let (client, server) = pair_with((server.qlog(qlog.clone()), client.qlog(qlog.clone())));
    let answering = thread::spawn(move || {
        let mut stream = server.accept_bi().unwrap();
        stream.read_to_end(1000).unwrap();
        std::io::Write::write_all(&mut stream, &vec![7; size]).unwrap();
        stream.finish().unwrap();
        server.closed();
    });
    let mut stream = client.open_bi().unwrap();
    std::io::Write::write_all(&mut stream, b"request").unwrap();
    stream.finish().unwrap();
    assert_eq!(stream.read_to_end(size).unwrap().len(), size);
    client.close(7, b"done");
    answering.join().unwrap();
    drop((client, stream));
    qlog.flush();
    let files = folder.files();
    assert_eq!(files.len(), 2, "{files:?}");
    let client = files.iter().find(|path| path.to_str().unwrap().ends_with("_client.sqlog"));
    let server = files.iter().find(|path| path.to_str().unwrap().ends_with("_server.sqlog"));
    (read(client.unwrap()).1, read(server.unwrap()).1)
}

#[test]
fn both_logs_are_named_after_the_connection() {
    let folder = Folder::new("qlog-names");
    let (client, _) = exchange(&folder, 10);
    // RFC 9000, Section 7.3: the server repeats the client's first connection ID.
    let parameters = events(&client, "quic:parameters_set");
    let remote = parameters.iter().find(|data| data["initiator"] == "remote").unwrap();
    let odcid = remote["original_destination_connection_id"].as_str().unwrap();
    for (path, side) in folder.files().iter().zip(["client", "server"]) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, format!("{odcid}_{side}.sqlog"));
        let (header, _) = read(path);
        assert_eq!(header["trace"]["vantage_point"]["type"], side);
        assert_eq!(header["trace"]["common_fields"]["ODCID"], odcid);
        assert_eq!(header["file_schema"], "urn:ietf:params:qlog:file:sequential");
        assert_eq!(header["serialization_format"], "application/qlog+json-seq");
        // Without these, qvis refuses the file.
        assert_eq!(header["qlog_version"], "0.3");
        assert_eq!(header["qlog_format"], "JSON-SEQ");
    }
}

#[test]
fn time_does_not_go_backwards_and_both_logs_agree_about_it() {
    let folder = Folder::new("qlog-time");
    let (client, server) = exchange(&folder, 100_000);
    let mut first = Vec::new();
    for log in [&client, &server] {
        let times: Vec<f64> = log.iter().map(|event| event["time"].as_f64().unwrap()).collect();
        assert!(times.is_sorted(), "{times:?}");
        first.push(times[0]);
    }
    assert!(first[0] < first[1], "the client begins: {first:?}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_secs_f64() * 1000.0 - first[0];
    assert!((0.0..60_000.0).contains(&age), "began {age} ms ago");
}

/// Packet number space and number of the packets that the peer has acknowledged.
fn acknowledged(log: &[Value]) -> BTreeSet<(String, u64)> {
    let mut all = BTreeSet::new();
    for data in events(log, "quic:packet_received") {
        let space = data["header"]["packet_type"].as_str().unwrap();
        let frames = data["frames"].as_array().unwrap().iter();
        for frame in frames.filter(|frame| frame["frame_type"] == "ack") {
            for range in frame["acked_ranges"].as_array().unwrap() {
                let range = range.as_array().unwrap();
                let first = range.first().unwrap().as_u64().unwrap();
                let last = range.last().unwrap().as_u64().unwrap();
                all.extend((first..=last).map(|number| (space.to_owned(), number)));
            }
        }
    }
    all
}

/// The system may drop packets and the end of the connection may cross others, so that not all
/// that was sent arrives or is taken for lost.
#[test]
fn both_logs_agree_about_packets() {
    let folder = Folder::new("qlog-packets");
    let (client, server) = exchange(&folder, 1_000_000);
    for (sender, receiver) in [(&client, &server), (&server, &client)] {
        let sent = numbers(sender, "quic:packet_sent");
        let received = numbers(receiver, "quic:packet_received");
        let acknowledged = acknowledged(sender);
        assert!(acknowledged.len() > 10);
        let unknown: Vec<_> = received.difference(&sent).collect();
        assert!(unknown.is_empty(), "received and never sent: {unknown:?}");
        let missing: Vec<_> = acknowledged.difference(&received).collect();
        assert!(missing.is_empty(), "acknowledged and never received: {missing:?}");
        let unsent: Vec<_> =
            numbers(sender, "quic:packet_lost").difference(&sent).cloned().collect();
        assert!(unsent.is_empty(), "lost and never sent: {unsent:?}");
    }
}

#[test]
fn a_connection_is_told_from_its_start_to_its_end() {
    let folder = Folder::new("qlog-story");
    let (client, server) = exchange(&folder, 1000);
    for (log, initiator) in [(&client, "local"), (&server, "remote")] {
        assert_eq!(log[0]["name"], "quic:connection_started");
        let states: Vec<_> = events(log, "quic:connection_state_updated")
            .into_iter()
            .map(|data| data["new"].as_str().unwrap())
            .collect();
        assert_eq!(states, ["attempted", "handshake_complete", "handshake_confirmed", "closed"]);
        let closed = events(log, "quic:connection_closed");
        assert_eq!(closed.len(), 1);
        assert_eq!(closed[0]["initiator"], initiator);
        assert_eq!(closed[0]["error_code"], 7);
        assert_eq!(closed[0]["reason"], "done");
        let alpn = events(log, "quic:alpn_information");
        assert_eq!(alpn[0]["chosen_alpn"]["string_value"], "test");
        let initiators: BTreeSet<_> = events(log, "quic:parameters_set")
            .into_iter()
            .filter_map(|data| data["initiator"].as_str())
            .collect();
        assert_eq!(initiators, BTreeSet::from(["local", "remote"]));
        for name in [
            "quic:version_information",
            "quic:key_updated",
            "quic:key_discarded",
            "quic:recovery_parameters_set",
            "quic:recovery_metrics_updated",
            "recovery:metrics_updated",
            "quic:congestion_state_updated",
            "quic:ecn_state_updated",
            "quic:mtu_updated",
        ] {
            assert!(!events(log, name).is_empty(), "no {name}");
        }
    }
}

#[test]
fn frames_say_what_was_transferred() {
    let folder = Folder::new("qlog-frames");
    let (client, server) = exchange(&folder, 50_000);
    for (log, name) in [(&server, "quic:packet_sent"), (&client, "quic:packet_received")] {
        let mut end = 0;
        for data in events(log, name) {
            for frame in data["frames"].as_array().unwrap() {
                if frame["frame_type"] == "stream" && frame["stream_id"] == 0 {
                    let length = frame["raw"]["payload_length"].as_u64().unwrap();
                    assert_eq!(frame["length"].as_u64(), Some(length));
                    end = end.max(frame["offset"].as_u64().unwrap() + length);
                }
            }
        }
        assert_eq!(end, 50_000, "{name}");
    }
}

/// Types of the frames in all packets of a log.
fn frame_types(log: &[Value]) -> BTreeSet<&str> {
    let sent = events(log, "quic:packet_sent").into_iter();
    let packets = sent.chain(events(log, "quic:packet_received"));
    let frames = packets.filter_map(|data| data["frames"].as_array()).flatten();
    frames.filter_map(|frame| frame["frame_type"].as_str()).collect()
}

#[test]
fn all_that_a_lively_connection_does_fits_the_schema() {
    let folder = Folder::new("qlog-lively");
    let qlog = Qlog::new(&folder.0).unwrap();
    let (server, client) = configs();
    let server = server.retry(RetryPolicy::Always).qlog(qlog.clone());
    let (client, server) = pair_with((server, client.qlog(qlog.clone())));
    let answering = thread::spawn(move || {
        let mut stopped = server.accept_uni().unwrap();
        stopped.stop(9).unwrap();
        let mut stream = server.accept_bi().unwrap();
        let request = stream.read_to_end(2_000_000).unwrap();
        server.send_datagram(&server.recv_datagram().unwrap()).unwrap();
        stream.write_all(&request).unwrap();
        stream.finish().unwrap();
        server.closed();
    });
    let mut reset = client.open_uni().unwrap();
    reset.write_all(b"unwanted").unwrap();
    let mut stream = client.open_bi().unwrap();
    stream.write_all(&vec![7; 500_000]).unwrap();
    // Not before the handshake is confirmed (RFC 9001, Section 6).
    while client.update_keys().is_err() {
        assert_eq!(client.close_reason(), None);
        thread::sleep(Duration::from_millis(1));
    }
    client.migrate("127.0.0.1:0".parse().unwrap()).unwrap();
    client.send_datagram(b"datagram").unwrap();
    stream.write_all(&vec![8; 500_000]).unwrap();
    stream.finish().unwrap();
    assert_eq!(client.recv_datagram().unwrap(), b"datagram");
    assert_eq!(stream.read_to_end(1_000_000).unwrap().len(), 1_000_000);
    client.close(7, b"done");
    answering.join().unwrap();
    drop((client, stream, reset));
    qlog.flush();
    // Nothing is logged of what the server did before the client came back with its token.
    let files = folder.files();
    let side = |side: &str| files.iter().find(|path| path.to_str().unwrap().contains(side));
    for log in [side("_client").unwrap(), side("_server").unwrap()].map(|path| read(path).1) {
        let types = frame_types(&log);
        for name in [
            "padding",
            "ack",
            "crypto",
            "new_token",
            "stream",
            "stop_sending",
            "reset_stream",
            "max_data",
            "datagram",
            "new_connection_id",
            "path_challenge",
            "path_response",
            "handshake_done",
            "connection_close",
        ] {
            assert!(types.contains(name), "no {name} in {types:?}");
        }
        let phases = events(&log, "quic:key_updated").into_iter();
        assert!(phases.filter_map(|data| data["key_phase"].as_u64()).any(|phase| phase == 1));
    }
    let (_, client) = read(side("_client").unwrap());
    let received = events(&client, "quic:packet_received");
    assert!(received.iter().any(|data| data["header"]["packet_type"] == "retry"));
}

#[test]
fn nothing_is_written_unless_asked_for() {
    let folder = Folder::new("qlog-off");
    let qlog = Qlog::new(&folder.0).unwrap();
    let (client, server) = pair_with(configs());
    client.close(0, b"");
    server.closed();
    qlog.flush();
    assert_eq!(folder.files(), Vec::<PathBuf>::new());
}
