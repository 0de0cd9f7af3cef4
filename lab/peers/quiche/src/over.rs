//! quiche's connections as peers see those whose streams are polled.

use quiche::h3::{self, Header, NameValue};
use quiche::{Error, Shutdown};
use quicket_peer_common::files;
use quicket_peer_common::streams::{Connection, Event, Received, Sent, Streams};
use quicket_workload::bench::Failure;

pub struct Over {
    pub conn: quiche::Connection,
    http3: Option<h3::Connection>,
}

impl Over {
    /// A connection, whose secrets are logged where that is wanted.
    pub fn new(mut conn: quiche::Connection) -> Result<Self, Failure> {
        if let Some(file) = files::key_log()? {
            conn.set_keylog(Box::new(file));
        }
        Ok(Self { conn, http3: None })
    }

    fn http3(&mut self) -> Result<(&mut h3::Connection, &mut quiche::Connection), Failure> {
        let Self { conn, http3 } = self;
        let session = match http3 {
            Some(session) => session,
            empty => empty.insert(h3::Connection::with_transport(conn, &h3::Config::new()?)?),
        };
        Ok((session, conn))
    }
}

impl Streams for Over {
    fn open(&mut self, _: u64) -> Result<bool, Failure> {
        // A stream begins with what is sent on it.
        Ok(self.conn.peer_streams_left_bidi() > 0)
    }

    fn readable(&mut self) -> Vec<u64> {
        self.conn.readable().filter(|id| id % 4 == 0).collect()
    }

    fn send(&mut self, id: u64, data: &[u8], ends: bool) -> Result<Sent, Failure> {
        match self.conn.stream_send(id, data, ends) {
            Ok(len) => Ok(Sent::Bytes(len)),
            Err(Error::Done) => Ok(Sent::Blocked),
            Err(Error::StreamStopped(_)) => Ok(Sent::Stopped),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self, id: u64, buffer: &mut [u8]) -> Result<Received, Failure> {
        match self.conn.stream_recv(id, buffer) {
            Ok((len, end)) => Ok(Received::Bytes(len, end)),
            Err(Error::Done | Error::InvalidStreamState(_)) => Ok(Received::Nothing),
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
        self.conn.stream_closed(id)
    }

    fn send_datagram(&mut self, data: &[u8]) -> Result<(), Failure> {
        Ok(self.conn.dgram_send(data)?)
    }

    fn receive_datagram(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Failure> {
        match self.conn.dgram_recv(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(Error::Done) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Connection for Over {
    fn protocol(&self) -> &[u8] {
        self.conn.application_proto()
    }

    fn request(&mut self, headers: &[(&str, &str)]) -> Result<Option<u64>, Failure> {
        let (session, conn) = self.http3()?;
        match session.send_request(conn, &fields(headers), true) {
            Ok(id) => Ok(Some(id)),
            Err(h3::Error::StreamBlocked | h3::Error::TransportError(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn poll(&mut self) -> Result<Option<(u64, Event)>, Failure> {
        let (session, conn) = self.http3()?;
        let (id, event) = match session.poll(conn) {
            Ok(next) => next,
            Err(h3::Error::Done) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let event = match event {
            h3::Event::Headers { list, .. } => Event::headers(list.iter().map(pair)),
            h3::Event::Data => Event::Data,
            h3::Event::Finished => Event::Finished,
            h3::Event::Reset(_) => Event::Reset,
            _ => Event::Other,
        };
        Ok(Some((id, event)))
    }

    fn receive_body(&mut self, id: u64, buffer: &mut [u8]) -> Option<usize> {
        let (session, conn) = self.http3().ok()?;
        session.recv_body(conn, id, buffer).ok()
    }

    fn respond(&mut self, id: u64, status: &str, ends: bool) -> Result<bool, Failure> {
        let (session, conn) = self.http3()?;
        match session.send_response(conn, id, &fields(&[(":status", status)]), ends) {
            Ok(()) => Ok(true),
            Err(h3::Error::StreamBlocked) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn send_body(&mut self, id: u64, data: &[u8]) -> Result<Option<usize>, Failure> {
        let (session, conn) = self.http3()?;
        match session.send_body(conn, id, data, true) {
            Ok(len) => Ok(Some(len)),
            Err(h3::Error::Done) => Ok(None),
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
