//! What the server does over a connection.

use std::path::Path;

use quiche::Connection;
use quicket_peer_common::streams;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ALPN_H3};

use crate::http3::Answers as Http3;
use crate::over::Over;

/// The streams of one connection.
#[derive(Default)]
pub struct Answers {
    streams: streams::Answers,
    http3: Option<Http3>,
}

impl Answers {
    /// Does what can be done now.
    pub fn go_on(&mut self, conn: &mut Connection, folder: Option<&Path>) -> Result<(), Failure> {
        if conn.application_proto() == ALPN_H3.as_bytes() {
            let http3 = match &mut self.http3 {
                Some(http3) => http3,
                empty => empty.insert(Http3::new(conn)?),
            };
            return http3.go_on(conn, folder);
        }
        if conn.application_proto() == ALPN_ECHO.as_bytes() {
            self.streams.echo(&mut Over(conn))
        } else {
            self.streams.serve(&mut Over(conn), folder)
        }
    }
}
