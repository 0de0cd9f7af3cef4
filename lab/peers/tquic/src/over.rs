//! TQUIC's connections as peers see those whose streams are polled.

use quicket_peer_common::streams::{Connection, Event, Received, Sent, Streams};
use quicket_workload::bench::Failure;
use tquic::h3::connection::Http3Connection;
use tquic::h3::{Header, Http3Config, Http3Error, Http3Event, NameValue};
use tquic::{Error, Shutdown};

pub struct Over<'a> {
    pub conn: &'a mut tquic::Connection,
    pub http3: &'a mut Option<Http3Connection>,
}

impl Over<'_> {
    fn http3(&mut self) -> Result<(&mut Http3Connection, &mut tquic::Connection), Failure> {
        let Self { conn, http3 } = self;
        let session = match http3 {
            Some(session) => session,
            empty => {
                let config = Http3Config::new()?;
                empty.insert(Http3Connection::new_with_quic_conn(conn, &config)?)
            }
        };
        Ok((session, &mut **conn))
    }
}

/// The urgency of all streams, which take turns.
const URGENCY: u8 = 0;

impl Streams for Over<'_> {
    fn open(&mut self, number: u64) -> Result<bool, Failure> {
        match self.conn.stream_bidi_new(URGENCY, true) {
            Ok(id) if id == number * 4 => Ok(true),
            Ok(id) => Err(format!("stream {number} has the ID {id}").into()),
            Err(Error::StreamLimitError) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn readable(&mut self) -> Vec<u64> {
        self.conn.stream_readable_iter().filter(|id| id % 4 == 0).collect()
    }

    fn send(&mut self, id: u64, data: &[u8], ends: bool) -> Result<Sent, Failure> {
        match self.conn.stream_write(id, data.to_vec().into(), ends) {
            Ok(len) => Ok(Sent::Bytes(len)),
            Err(Error::Done) => Ok(Sent::Blocked),
            Err(Error::StreamStopped(_)) => Ok(Sent::Stopped),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self, id: u64, buffer: &mut [u8]) -> Result<Received, Failure> {
        match self.conn.stream_read(id, buffer) {
            Ok((len, end)) => Ok(Received::Bytes(len, end)),
            Err(Error::Done | Error::StreamStateError) => Ok(Received::Nothing),
            Err(Error::StreamReset(code)) => Ok(Received::Reset(code)),
            Err(error) => Err(error.into()),
        }
    }

    fn reset(&mut self, id: u64, code: u64) -> Result<(), Failure> {
        Ok(self.conn.stream_shutdown(id, Shutdown::Write, code)?)
    }

    fn stop(&mut self, id: u64, code: u64) -> Result<(), Failure> {
        Ok(self.conn.stream_shutdown(id, Shutdown::Read, code)?)
    }

    fn is_closed(&self, id: u64) -> bool {
        !self.conn.stream_iter().any(|open| open == id)
    }

    fn send_datagram(&mut self, _: &[u8]) -> Result<(), Failure> {
        Err("TQUIC has no datagrams".into())
    }

    fn receive_datagram(&mut self, _: &mut [u8]) -> Result<Option<usize>, Failure> {
        Ok(None)
    }
}

impl Connection for Over<'_> {
    fn protocol(&self) -> &[u8] {
        self.conn.application_proto()
    }

    fn request(&mut self, headers: &[(&str, &str)]) -> Result<Option<u64>, Failure> {
        let (session, conn) = self.http3()?;
        let id = session.stream_new(conn)?;
        session.send_headers(conn, id, &fields(headers), true)?;
        Ok(Some(id))
    }

    fn poll(&mut self) -> Result<Option<(u64, Event)>, Failure> {
        let (session, conn) = self.http3()?;
        let (id, event) = match session.poll(conn) {
            Ok(next) => next,
            Err(Http3Error::Done) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let event = match event {
            Http3Event::Headers { headers, .. } => Event::headers(headers.iter().map(pair)),
            Http3Event::Data => Event::Data,
            Http3Event::Finished => Event::Finished,
            Http3Event::Reset(_) => Event::Reset,
            Http3Event::GoAway | Http3Event::PriorityUpdate => Event::Other,
        };
        Ok(Some((id, event)))
    }

    fn receive_body(&mut self, id: u64, buffer: &mut [u8]) -> Option<usize> {
        let (session, conn) = self.http3().ok()?;
        session.recv_body(conn, id, buffer).ok()
    }

    fn respond(&mut self, id: u64, status: &str, ends: bool) -> Result<bool, Failure> {
        let (session, conn) = self.http3()?;
        session.send_headers(conn, id, &fields(&[(":status", status)]), ends)?;
        Ok(true)
    }

    fn send_body(&mut self, id: u64, data: &[u8]) -> Result<Option<usize>, Failure> {
        let (session, conn) = self.http3()?;
        match session.send_body(conn, id, data.to_vec().into(), true) {
            Ok(len) => Ok(Some(len)),
            // Headers that had waited have left.
            Err(Http3Error::NoError) => Ok(Some(0)),
            Err(Http3Error::Done | Http3Error::StreamBlocked) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn fields(headers: &[(&str, &str)]) -> Vec<Header> {
    let field = |(name, value): &(&str, &str)| Header::new(name.as_bytes(), value.as_bytes());
    headers.iter().map(field).collect()
}

fn pair(field: &Header) -> (&[u8], &[u8]) {
    (field.name(), field.value())
}
