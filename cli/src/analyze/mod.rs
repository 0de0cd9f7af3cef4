//! `quicket analyze`: plots of connections out of a qlog or a capture, as one page.

mod capture;
mod connection;
mod document;
mod input;
mod log;
mod page;
mod plot;
mod plots;
mod scale;
mod series;
mod streams;
mod value;

use std::fs;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::args::Analyze;
use crate::exit::{Failure, Kind};
use crate::out::{self, tell};
use input::{Form, RECORD_SEPARATOR, Record, Records};
use log::Log;

/// Reads the file and writes the page.
pub(crate) fn run(args: &Analyze) -> Result<(), Failure> {
    if args.file.is_dir() {
        let file = args.file.display();
        let message = format!("{file} is a directory; name one of the files in it");
        return Err(Failure::new(Kind::Environment, message));
    }
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension("html"));
    let to_stdout = output.as_os_str() == "-";
    if !to_stdout && is_same(&args.file, &output) {
        let message = "the page would be written over the file that is read; name another with -o";
        return Err(Failure::new(Kind::Usage, message));
    }
    let log = read(&args.file)?;
    let name = args.file.file_name().unwrap_or(args.file.as_os_str()).to_string_lossy();
    let page = page::page(&name, &log);
    if to_stdout {
        return out::write(page.as_bytes());
    }
    fs::write(&output, page)
        .map_err(|error| Failure::file(format!("cannot write {}", output.display()), &error))?;
    for note in page::notes(&log) {
        tell!("{name}: {note}");
    }
    tell(&output, &log)
}

fn tell(output: &Path, log: &Log) -> Result<(), Failure> {
    let connections = match log.connections.len() {
        1 => "1 connection".to_owned(),
        count => format!("{count} connections"),
    };
    let events = log.known + log.others;
    out::print(&format!("{}: {connections}, {events} events", output.display()))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| -> Option<PathBuf> { fs::canonicalize(path).ok() };
    one == other || real(one).is_some_and(|one| real(other) == Some(one))
}

/// Reads all events of a file that are there.
fn read(path: &Path) -> Result<Log, Failure> {
    let mut log = Log::default();
    let (input, form) = input::open(path)?;
    let failed =
        |error: &io::Error| Failure::file(format!("cannot read {}", path.display()), error);
    match form {
        Form::Document => {
            if let Err(error) = document::read(input, &mut log) {
                // Of the input, not of what was made of the text of it.
                if error.io_error_kind().is_some_and(|kind| kind != io::ErrorKind::Other) {
                    return Err(failed(&error.into()));
                }
                log.on_unreadable(format!("line {}: {error}", error.line()));
            }
        }
        Form::Sequence => records(input, RECORD_SEPARATOR, &mut log).map_err(|e| failed(&e))?,
        Form::Lines => records(input, b'\n', &mut log).map_err(|error| failed(&error))?,
        Form::Capture => {
            drop(input);
            capture::read(path, &mut log)?;
        }
    }
    if log.known == 0 {
        let first = match &log.first_unreadable {
            Some(first) => first.clone(),
            None if log.others == 0 => "it has no events".into(),
            None => format!("none of its {} events is known", log.others),
        };
        let message = format!(
            "{}: {first}; {}",
            path.display(),
            if form == Form::Capture { capture::NEEDED } else { document::NEEDED }
        );
        return Err(Failure::new(Kind::Environment, message));
    }
    Ok(log)
}

/// Reads records, of which the first, and each that begins another log, is a header.
fn records(input: impl BufRead, end: u8, log: &mut Log) -> io::Result<()> {
    let mut records = Records::new(input, end);
    while let Some((line, record)) = records.next()? {
        let bytes = match record {
            Record::Whole(bytes) => bytes,
            Record::Long => {
                let most = input::MAX_RECORD;
                log.on_unreadable(format!("line {line}: a record of more than {most} bytes"));
                continue;
            }
        };
        let text = bytes.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match serde_json::from_slice::<Value>(text) {
            Ok(record) if record.get("trace").is_some() || record.get("qlog_format").is_some() => {
                log.begin_trace();
                for (field, value) in record["trace"].as_object().into_iter().flatten() {
                    log.on_header(field, value);
                }
            }
            Ok(event) => log.on_event(&event, || format!("line {line}")),
            Err(error) if error.is_eof() => {
                log.on_unreadable(format!("line {line}: the record is cut off"));
            }
            Err(error) => {
                let line = line + error.line().saturating_sub(1) as u64;
                let column = error.column();
                log.on_unreadable(format!("line {line}, column {column}: not JSON"));
            }
        }
    }
    Ok(())
}
