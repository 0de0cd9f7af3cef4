//! A file as bytes: what kind it is, how far it is read, and records of it that are not too long.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::{Failure, Kind};

/// A record, or what stands between two events, may be so long, in bytes.
pub(super) const MAX_RECORD: usize = 1 << 20;
/// RFC 7464, Section 2.2: what begins each record.
pub(super) const RECORD_SEPARATOR: u8 = 0x1e;
/// Reading that is over sooner shows no bar.
const PATIENCE: Duration = Duration::from_millis(700);
const BUFFER: usize = 1 << 16;

/// How the events stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// JSON text sequences: records begin with a separator.
    Sequence,
    /// A record on each line.
    Lines,
    /// One JSON document.
    Document,
    /// Packets, with secrets that open them (draft-ietf-opsawg-pcapng).
    Capture,
}

/// A file that is read, with a bar on terminals if that takes long.
struct Shown {
    file: File,
    bar: ProgressBar,
    since: Instant,
}

impl Read for Shown {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bar.inc(read as u64);
        if self.bar.is_hidden() && self.since.elapsed() > PATIENCE {
            // Hides itself where standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        Ok(read)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The file, from its beginning, and its form.
pub(super) fn open(path: &Path) -> Result<(impl BufRead, Form), Failure> {
    let failed =
        |error: &io::Error| Failure::file(format!("cannot read {}", path.display()), error);
    let file = File::open(path).map_err(|error| failed(&error))?;
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
    let style =
        ProgressStyle::with_template("reading {bar:30} {decimal_bytes} of {decimal_total_bytes}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let shown = Shown { file, bar, since: Instant::now() };
    let mut input = BufReader::with_capacity(BUFFER, shown);
    // As much as the first line may have: it tells the form.
    let mut beginning = Vec::new();
    let first = (&mut input).take(MAX_RECORD as u64).read_until(b'\n', &mut beginning);
    first.map_err(|error| failed(&error))?;
    let form = form_of(&beginning)
        .map_err(|what| Failure::new(Kind::Environment, format!("{}: {what}", path.display())))?;
    Ok((io::Cursor::new(beginning).chain(input), form))
}

/// Tells the form by the first line, or what is wrong with the file.
fn form_of(beginning: &[u8]) -> Result<Form, String> {
    let packed =
        |name: &str| Err(format!("this is compressed; unpack it with {name} and try again"));
    match beginning {
        // A line ends with the first byte of a capture.
        [0x0a, 0x0d, 0x0d, 0x0a, ..] | [0x0a] => return Ok(Form::Capture),
        [0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d, ..] | [0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1, ..] => {
            return Err("this is a capture of the older format (pcap), which has no room for the secrets that open its packets; \
                        make one of the newer format: editcap --inject-secrets tls,KEYS FILE FILE.pcapng"
                .into());
        }
        [0x1f, 0x8b, ..] => return packed("gunzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return packed("unzstd"),
        [] => return Err("the file is empty: no event was written".into()),
        _ => {}
    }
    let text = beginning.trim_ascii_start();
    match text.first() {
        Some(&RECORD_SEPARATOR) => Ok(Form::Sequence),
        Some(b'{') => {
            // A line that is whole by itself is a record, unless it holds all traces.
            let line = text.trim_ascii_end();
            let whole = beginning.ends_with(b"\n")
                && serde_json::from_slice::<serde_json::Value>(line)
                    .is_ok_and(|record| record.get("traces").is_none());
            Ok(if whole { Form::Lines } else { Form::Document })
        }
        _ => Err("line 1: this is no qlog, which would begin with a record separator (.sqlog) or { (.qlog)"
            .into()),
    }
}

/// Records that end with a byte, and the lines that they begin at.
pub(super) struct Records<R> {
    input: R,
    end: u8,
    line: u64,
}

/// A record of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    Whole(Vec<u8>),
    /// It is longer than may be, and was skipped.
    Long,
}

impl<R: BufRead> Records<R> {
    pub(super) const fn new(input: R, end: u8) -> Self {
        Self { input, end, line: 1 }
    }

    /// The next record, and the line that it begins at.
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, Record)>> {
        let (begin, mut record, mut long, mut any) = (self.line, Vec::new(), false, false);
        loop {
            let part = self.input.fill_buf()?;
            if part.is_empty() {
                let record = if long { Record::Long } else { Record::Whole(record) };
                return Ok(any.then_some((begin, record)));
            }
            any = true;
            let end = part.iter().position(|byte| *byte == self.end);
            let bytes = part.get(..end.unwrap_or(part.len())).unwrap_or(part);
            long |= record.len() + bytes.len() > MAX_RECORD;
            if !long {
                record.extend_from_slice(bytes);
            }
            let used = bytes.len() + usize::from(end.is_some());
            let used_bytes = part.get(..used).unwrap_or(part);
            self.line += used_bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.input.consume(used);
            if end.is_some() {
                let record = if long { Record::Long } else { Record::Whole(record) };
                return Ok(Some((begin, record)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_form() {
        assert_eq!(form_of(b"\x1e{\"a\":1}\n"), Ok(Form::Sequence));
        assert_eq!(form_of(b"{\"qlog_format\":\"NDJSON\"}\n"), Ok(Form::Lines));
        assert_eq!(form_of(b"{\"traces\":[]}\n"), Ok(Form::Document));
        assert_eq!(form_of(b"{\n"), Ok(Form::Document));
        assert_eq!(form_of(b"\x0a"), Ok(Form::Capture));
        for (bytes, words) in [
            (&b"\xd4\xc3\xb2\xa1\0\0"[..], "pcap"),
            (b"\xa1\xb2\x3c\x4d\0\0", "pcap"),
            (b"\x1f\x8b\x08", "gunzip"),
            (b"", "empty"),
            (b"hello\n", "line 1"),
        ] {
            assert!(form_of(bytes).unwrap_err().contains(words), "{bytes:?}");
        }
    }

    #[test]
    fn records_know_their_lines_and_long_ones_are_skipped() {
        let mut file = b"{}\n{\n}\n\x1e".to_vec();
        file.extend(vec![b'x'; MAX_RECORD + 1]);
        file.extend(b"\n\x1e{}");
        let mut records = Records::new(&file[..], RECORD_SEPARATOR);
        let whole = |text: &[u8]| Record::Whole(text.to_vec());
        assert_eq!(records.next().unwrap(), Some((1, whole(b"{}\n{\n}\n"))));
        assert_eq!(records.next().unwrap(), Some((4, Record::Long)));
        assert_eq!(records.next().unwrap(), Some((5, whole(b"{}"))));
        assert_eq!(records.next().unwrap(), None);
    }
}
