//! The page: facts and plots of each connection, in one file.

use std::fmt::Write;
use std::time::Duration;

use super::connection::{Connection, Half};
use super::log::{Log, MAX_CONNECTIONS};
use super::plots::plots;
use crate::html::escape;
use crate::units::{Bytes, Time};

const STYLE: &str = include_str!("page.css");

/// The whole page about a file of this name.
pub(super) fn page(name: &str, log: &Log) -> String {
    let name = escape(name);
    let version = env!("CARGO_PKG_VERSION");
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{name}</title><style>{STYLE}</style></head><body>\n<header><h1>{name}</h1>\
         <p>quicket analyze {version}. Times count from the first event of a connection.</p></header>\n"
    );
    for note in notes(log) {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(&note));
    }
    if log.connections.len() > 1 {
        out.push_str("<nav><ol>");
        for (number, connection) in log.connections.iter().enumerate() {
            let _ = write!(out, "<li><a href=\"#c{number}\">{}</a></li>", heading(connection));
        }
        out.push_str("</ol></nav>\n");
    }
    for (number, connection) in log.connections.iter().enumerate() {
        let title = heading(connection);
        let _ = writeln!(out, "<section id=\"c{number}\"><h2>{title}</h2>");
        facts(connection, &mut out);
        for plot in plots(connection) {
            plot.draw(connection.duration, &mut out);
        }
        parameters(connection, &mut out);
        out.push_str("</section>\n");
    }
    out.push_str("</body></html>\n");
    out
}

/// What a reader should know before he believes the plots.
pub(super) fn notes(log: &Log) -> Vec<String> {
    let mut notes = log.remarks.clone();
    if let Some(first) = &log.first_unreadable {
        let count = log.unreadable;
        notes.push(match count {
            1 => format!("One part of the file cannot be read and is left out: {first}."),
            _ => format!(
                "{count} parts of the file cannot be read and are left out; the first: {first}."
            ),
        });
    }
    if log.events_beyond > 0 {
        let count = log.events_beyond;
        notes.push(format!(
            "The file has more than {MAX_CONNECTIONS} connections; {count} events of the others are left out."
        ));
    }
    for connection in &log.connections {
        let name = &connection.name;
        if connection.events_missing > 0 {
            let count = connection.events_missing;
            notes.push(format!(
                "Connection {name}: the program that was logged left out {count} events; counts are too low."
            ));
        }
        if !connection.is_whole() {
            notes.push(format!(
                "Connection {name}: the log begins later than the connection; stream bytes count from there."
            ));
        }
        if connection.sent.streams.is_full() || connection.received.streams.is_full() {
            notes.push(format!(
                "Connection {name}: there are too many streams to tell of all what was sent twice."
            ));
        }
    }
    notes
}

fn heading(connection: &Connection) -> String {
    let name = if connection.name.is_empty() { "without a name" } else { &connection.name };
    let role = connection.role.as_deref().map(|role| format!(", seen by the {role}"));
    escape(&format!("Connection {name}{}", role.unwrap_or_default()))
}

/// A row of the table; `value` is the number for programs.
fn row(out: &mut String, name: &str, value: Option<u64>, shown: &str) {
    let value = value.map_or_else(String::new, |value| format!(" data-value=\"{value}\""));
    let shown = escape(shown);
    let _ = write!(out, "<tr><th scope=\"row\">{name}</th><td{value}>{shown}</td></tr>");
}

fn facts(connection: &Connection, out: &mut String) {
    out.push_str("<table class=\"facts\"><tbody>");
    let texts = [
        ("Seen by", &connection.role),
        ("Program", &connection.program),
        ("QUIC version", &connection.version),
        ("ALPN", &connection.alpn),
        ("Cipher suite", &connection.cipher),
    ];
    for (name, text) in texts {
        row(out, name, None, text.as_deref().unwrap_or("not in the file"));
    }
    row(out, "Duration", None, &time(connection.duration));
    if let Some(at) = connection.handshake_complete {
        row(out, "Handshake complete after", None, &time(at));
    }
    let closed = connection.closed.as_deref().unwrap_or("not within the file");
    row(out, "Closed", None, closed);
    half(out, "sent", &connection.sent);
    half(out, "received", &connection.received);
    let recovery = &connection.recovery;
    let lost = match recovery.lost_probes {
        0 => recovery.lost.to_string(),
        probes => format!("{}, of which {probes} were probes of the path MTU", recovery.lost),
    };
    row(out, "Packets declared lost", Some(recovery.lost), &lost);
    again(out, "STREAM frames sent again", &connection.sent);
    again(out, "STREAM frames received late or again", &connection.received);
    row(
        out,
        "Packets dropped on arrival",
        Some(connection.packets_dropped),
        &connection.packets_dropped.to_string(),
    );
    row(out, "Events", Some(connection.events), &connection.events.to_string());
    out.push_str("</tbody></table>\n");
}

fn half(out: &mut String, way: &str, half: &Half) {
    let packets = format!("{} ({})", half.packets, Bytes(half.bytes));
    row(out, &format!("Packets {way}"), Some(half.packets), &packets);
    let (streams, total) = (half.streams.count(), half.streams.total());
    let of = if streams == 1 { "1 stream".to_owned() } else { format!("{streams} streams") };
    let bytes = format!("{total} ({}) on {of}", Bytes(total));
    row(out, &format!("Stream bytes {way}"), Some(total), &bytes);
    if half.datagram_frames > 0 {
        let count = half.datagram_frames;
        row(out, &format!("DATAGRAM frames {way}"), Some(count), &count.to_string());
    }
}

fn again(out: &mut String, name: &str, half: &Half) {
    let (frames, bytes) = half.streams.again();
    row(out, name, Some(frames), &format!("{frames} ({})", Bytes(bytes)));
}

fn time(millis: f64) -> String {
    // The times of a file are bounded.
    Time(Duration::from_nanos((millis * 1e6) as u64)).to_string()
}

fn parameters(connection: &Connection, out: &mut String) {
    let Connection { local, remote, .. } = connection;
    if local.is_empty() && remote.is_empty() {
        return;
    }
    out.push_str(
        "<details><summary>Transport parameters</summary><div class=\"wide\"><table class=\"parameters\">\
         <thead><tr><th>name</th><th>this side</th><th>the peer</th></tr></thead><tbody>",
    );
    let only_remote = remote.iter().filter(|(name, _)| !local.iter().any(|(own, _)| own == name));
    for (name, _) in local.iter().chain(only_remote) {
        let of = |side: &[(String, String)]| {
            let value = side.iter().find(|(own, _)| own == name).map(|(_, value)| escape(value));
            value.unwrap_or_else(|| "–".into())
        };
        let name = escape(name);
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{name}</th><td>{}</td><td>{}</td></tr>",
            of(local),
            of(remote)
        );
    }
    out.push_str("</tbody></table></div></details>\n");
}
