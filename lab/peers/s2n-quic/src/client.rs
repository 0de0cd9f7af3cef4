//! The client role.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quicket_peer_common::tasks;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ALPN_ECHO, ClientArguments, Event, Facts, emit};
use s2n_quic::Connection;
use s2n_quic::client::{Client as Endpoint, Connect};

use crate::over::Over;
use crate::{provider, tls};

/// Session tickets come after the handshake and nothing tells when; on loopback this is plenty.
const TICKET_WAIT: Duration = Duration::from_millis(300);

pub async fn run(arguments: ClientArguments) -> Result<(), Failure> {
    let local = if arguments.connect.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let endpoint = Endpoint::builder()
        .with_tls(tls::client(&arguments)?)?
        .with_io(local.parse::<SocketAddr>()?)?
        .with_limits(provider::limits()?)?
        .with_datagram(provider::datagrams()?)?
        .start()?;
    let mut client = Client { endpoint, arguments: Arc::new(arguments) };
    client.work().await?;
    client.endpoint.wait_idle().await?;
    emit(&Event::Done);
    Ok(())
}

struct Client {
    endpoint: Endpoint,
    arguments: Arc<ClientArguments>,
}

impl Client {
    async fn work(&self) -> Result<(), Failure> {
        let arguments = &*self.arguments;
        let apart = async |number, path: &[String]| {
            let session = self.connect(number).await?;
            session.download(path).await?;
            session.close();
            Ok(())
        };
        if tasks::download_apart(arguments, apart).await? {
            return Ok(());
        }
        let mut paths = arguments.download.as_slice();
        let mut number = 1;
        if arguments.resume {
            let (first, rest) = paths.split_at_checked(1).unwrap_or((paths, &[]));
            let session = self.connect(number).await?;
            session.download(first).await?;
            tokio::time::sleep(TICKET_WAIT).await;
            session.close();
            (paths, number) = (rest, 2);
        }
        let session = self.connect(number).await?;
        session.download(paths).await?;
        if arguments.alpn == ALPN_ECHO {
            tasks::echo(&session.over(), number, arguments).await?;
        }
        session.close();
        Ok(())
    }

    async fn connect(&self, number: u64) -> Result<Session, Failure> {
        let ClientArguments { connect, server_name, .. } = &*self.arguments;
        let attempt = Connect::new(*connect).with_server_name(server_name.as_str());
        let connection = self.endpoint.connect(attempt).await?;
        let alpn = connection.application_protocol()?;
        let alpn = Some(String::from_utf8_lossy(&alpn).into_owned());
        let facts = Facts { alpn, ..Facts::default() };
        emit(&Event::Connection { connection: number, facts });
        Ok(Session { connection, number, arguments: self.arguments.clone() })
    }
}

/// One connection as seen by the client.
struct Session {
    connection: Connection,
    number: u64,
    arguments: Arc<ClientArguments>,
}

impl Session {
    fn over(&self) -> Over {
        Over(self.connection.handle())
    }

    async fn download(&self, paths: &[String]) -> Result<(), Failure> {
        let over = self.over();
        let get = |path: &str| tasks::get(&over, path);
        tasks::download(&self.arguments, self.number, paths, get).await
    }

    fn close(self) {
        self.connection.close(0_u32.into());
        let facts = Facts::default();
        emit(&Event::Closed { connection: self.number, streams: 0, facts });
    }
}
