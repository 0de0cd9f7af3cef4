//! The server role.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use quicket_peer_common::input_ended;
use quicket_peer_common::streams::Answers;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{Event, ServerArguments, emit};
use tquic::h3::connection::Http3Connection;

use crate::config;
use crate::drive::{Drive, News, is_ready};
use crate::over::Over;

pub fn run(arguments: &ServerArguments) -> Result<(), Failure> {
    let mut drive = Drive::new(arguments.listen, config::server(arguments)?, true)?;
    emit(&Event::Listening { address: drive.local() });
    let ended = input_ended();
    let mut served: BTreeMap<u64, (Answers, Option<Http3Connection>)> = BTreeMap::new();
    while !ended.load(Ordering::Relaxed) {
        for (&number, (answers, http3)) in &mut served {
            let conn = drive.endpoint.conn_get_mut(number).filter(|conn| is_ready(conn));
            let Some(conn) = conn else { continue };
            if let Err(failure) = answers.go_on(&mut Over { conn, http3 }, arguments.www.as_deref())
            {
                emit(&Event::Error { message: format!("connection {number}: {failure}") });
                // Fails if it is closed already.
                let _ = conn.close(true, 1, b"failed");
            }
        }
        drive.turn()?;
        for news in drive.news.try_iter() {
            match news {
                News::Begun(number) => _ = served.insert(number, Default::default()),
                News::Established => {}
                News::Ended(number, _) => _ = served.remove(&number),
            }
        }
    }
    Ok(())
}
