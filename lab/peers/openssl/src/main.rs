//! TLS 1.3 over TCP by OpenSSL as a contender of the benchmark.
//!
//! As a program of its kind does it: blocking sockets, `SSL_write` of whatever there is, its records
//! to the kernel in one call, `SSL_read` with read-ahead, buffers released while a connection is
//! idle.

mod context;
mod socket;

use std::io::Write;
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use openssl::ssl::{ErrorCode, Ssl, SslContext, SslSession, SslStream};
use quicket_workload::bench::tcp::{self, Peer, Protocol, TcpClient};
use quicket_workload::bench::{Assignment, Failure, Link, SERVER_NAME, Session, Unsupported};

use socket::Socket;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("bench") => {
            let assignment = arguments.next().unwrap_or_default();
            let (serve, client) = (tcp::serve::<OpenSsl>, TcpClient::<OpenSsl>::new);
            quicket_workload::bench::run(&assignment, serve, client)
        }
        Some("version") => {
            println!("{}", openssl::version::version());
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: quicket-peer-openssl bench ASSIGNMENT | version");
            ExitCode::FAILURE
        }
    }
}

/// TLS 1.3 by OpenSSL.
struct OpenSsl {
    context: SslContext,
    /// What the last server gave, to resume the session.
    ticket: Arc<Mutex<Option<SslSession>>>,
}

/// What records are decrypted into.
struct Plain(Vec<u8>);

impl Default for Plain {
    fn default() -> Self {
        // The longest record (RFC 8446, Section 5.1).
        Self(vec![0; 1 << 14])
    }
}

impl Protocol for OpenSsl {
    type Channel = SslStream<Socket>;
    type Buffers = Plain;

    fn new(assignment: &Assignment) -> Result<Self, Failure> {
        let ticket = Arc::default();
        Ok(Self { context: context::new(assignment, &ticket)?, ticket })
    }

    fn connect(
        &self,
        tcp: TcpStream,
        session: Session,
        _: &mut Plain,
    ) -> Result<Self::Channel, Failure> {
        let mut ssl = Ssl::new(&self.context)?;
        ssl.set_hostname(SERVER_NAME)?;
        ssl.param_mut().set_host(SERVER_NAME)?;
        match session {
            Session::None => {}
            Session::Early => return Err(Unsupported("no early data over TCP").into()),
            Session::Resumed => {
                let ticket = self.ticket.lock().unwrap_or_else(PoisonError::into_inner).take();
                let ticket = ticket.ok_or("there is no session to resume")?;
                // SAFETY: the session is from a connection of the same context.
                unsafe { ssl.set_session(&ticket) }?;
            }
        }
        let mut stream = SslStream::new(ssl, Socket::new(tcp))?;
        stream.connect()?;
        if session == Session::Resumed && !stream.ssl().session_reused() {
            return Err("the server did not resume the session".into());
        }
        Ok(stream)
    }

    fn accept(&self, tcp: TcpStream, _: &mut Plain) -> Result<Self::Channel, Failure> {
        let mut stream = SslStream::new(Ssl::new(&self.context)?, Socket::new(tcp))?;
        stream.accept()?;
        Ok(stream)
    }

    fn write(stream: &mut Self::Channel, _: &mut Plain, mut data: &[u8]) -> Result<(), Failure> {
        while !data.is_empty() {
            let written = stream.ssl_write(data)?;
            data = &data[written..];
        }
        Ok(stream.get_mut().flush()?)
    }

    fn read(
        stream: &mut Self::Channel,
        plain: &mut Plain,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<Peer, Failure> {
        match stream.ssl_read(&mut plain.0) {
            Ok(length) => {
                sink(&plain.0[..length]);
                Ok(Peer::Open)
            }
            Err(error) if error.code() == ErrorCode::ZERO_RETURN => Ok(Peer::Closed),
            Err(error) => Err(error.into()),
        }
    }

    fn close(mut stream: Self::Channel, _: &mut Plain) -> Result<(), Failure> {
        stream.shutdown()?;
        Ok(stream.get_mut().flush()?)
    }

    fn link(stream: &Self::Channel) -> Link {
        let cipher = stream.ssl().current_cipher().and_then(|cipher| cipher.standard_name());
        Link { cipher: cipher.map(str::to_owned), ..Link::default() }
    }
}
