//! The server role.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quicket_peer_common::streams;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, Event, ServerArguments, emit};
use tquic::Connection;

use crate::config;
use crate::drive::{Drive, News};
use crate::http3;
use crate::over::Over;

pub fn run(arguments: &ServerArguments) -> Result<(), Failure> {
    let mut drive = Drive::new(arguments.listen, config::server(arguments)?, true)?;
    emit(&Event::Listening { address: drive.local() });
    let ended = Arc::new(AtomicBool::new(false));
    let end = ended.clone();
    std::thread::spawn(move || {
        // However it ends, it has.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        end.store(true, Ordering::Relaxed);
    });
    let mut served: BTreeMap<u64, Answers> = BTreeMap::new();
    while !ended.load(Ordering::Relaxed) {
        for (&number, answers) in &mut served {
            let Some(conn) = drive.endpoint.conn_get_mut(number) else { continue };
            if let Err(failure) = answers.go_on(conn, arguments.www.as_deref()) {
                emit(&Event::Error { message: format!("connection {number}: {failure}") });
                // Fails if it is closed already.
                let _ = conn.close(true, 1, b"failed");
            }
        }
        drive.turn()?;
        for news in drive.news.try_iter() {
            match news {
                News::Begun(number) => _ = served.insert(number, Answers::default()),
                News::Established => {}
                News::Ended(number, _) => _ = served.remove(&number),
            }
        }
    }
    Ok(())
}

/// What is done over one connection.
#[derive(Default)]
struct Answers {
    streams: streams::Answers,
    http3: Option<http3::Answers>,
}

impl Answers {
    /// Does what can be done now.
    fn go_on(&mut self, conn: &mut Connection, folder: Option<&Path>) -> Result<(), Failure> {
        let ready = conn.is_established() || conn.is_in_early_data();
        if !ready || conn.is_closing() || conn.is_draining() || conn.is_closed() {
            return Ok(());
        }
        if conn.application_proto() == ALPN_H3.as_bytes() {
            let http3 = match &mut self.http3 {
                Some(http3) => http3,
                empty => empty.insert(http3::Answers::new(conn)?),
            };
            http3.go_on(conn, folder)
        } else if conn.application_proto() == ALPN_ECHO.as_bytes() {
            self.streams.echo(&mut Over(conn))
        } else {
            self.streams.serve(&mut Over(conn), folder)
        }
    }
}
