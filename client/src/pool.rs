//! Connections that are shared by who goes to the same server with the same protocol.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quicket::ClientConfig;
use quicket::tokio::Connection;
use tokio::sync::Mutex as Turn;
use tokio::time::timeout;

use crate::dial::{Dialer, HEAD_START};
use crate::http3::Http3;
use crate::origin::Origin;
use crate::{Config, Error};

/// Servers, times protocols, to which connections are kept. The one that was used least lately makes room.
pub const MAX_CONNECTIONS: usize = 256;

/// The name of HTTP/3 among application protocols (RFC 9114, Section 3.1).
const HTTP3: &[u8] = b"h3";

/// A server, and what is spoken with it.
type Key = (Origin, Vec<u8>);

/// A place for a connection. Who makes it has the turn; others wait for it.
#[derive(Default)]
struct Place {
    link: Turn<Option<Link>>,
}

#[derive(Clone)]
enum Link {
    Http3(Http3),
    Other(Connection),
}

struct Known {
    place: Arc<Place>,
    used: Instant,
}

/// The connections.
pub(crate) struct Pool {
    config: Config,
    places: Mutex<HashMap<Key, Known>>,
    /// Of each protocol, since sessions are kept with it.
    clients: Mutex<HashMap<Vec<u8>, ClientConfig>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, places: Mutex::default(), clients: Mutex::default() }
    }

    fn place(&self, origin: &Origin, protocol: &[u8]) -> Arc<Place> {
        let mut places = lock(&self.places);
        let key = (origin.clone(), protocol.to_vec());
        let now = Instant::now();
        if !places.contains_key(&key) && places.len() >= MAX_CONNECTIONS {
            let oldest = places.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| key);
            if let Some(oldest) = oldest.cloned() {
                places.remove(&oldest);
            }
        }
        let known = places.entry(key).or_insert_with(|| Known { place: Arc::default(), used: now });
        known.used = now;
        Arc::clone(&known.place)
    }

    /// How connections with a protocol are made. A server names few protocols, and a program too.
    async fn dialer(&self, protocol: &[u8]) -> Result<Dialer, Error> {
        let known = lock(&self.clients).get(protocol).cloned();
        let client = match known {
            Some(client) => client,
            None => {
                // Files are read, and the program's own code runs.
                let (config, name) = (self.config.clone(), protocol.to_vec());
                let made = tokio::task::spawn_blocking(move || config.client(&name)).await;
                let made = made.map_err(|error| Error::Store(std::io::Error::other(error)))??;
                let mut clients = lock(&self.clients);
                if clients.len() >= MAX_CONNECTIONS {
                    clients.clear();
                }
                // Somebody may have been faster: sessions are kept in one place.
                clients.entry(protocol.to_vec()).or_insert(made).clone()
            }
        };
        let (endpoint, hosts) = (self.config.endpoint.clone(), Arc::clone(&self.config.hosts));
        Ok(Dialer { endpoint, hosts, client })
    }

    /// Returns when a connection that has begun is not answered for a while.
    pub(crate) async fn is_late(&self, connection: &Connection) {
        let established = timeout(HEAD_START, connection.wait_established()).await;
        if established.is_ok() {
            std::future::pending::<()>().await;
        }
    }

    /// The same with a complete handshake, or HTTP/3 with another address of the server's if that answers first.
    pub(crate) async fn settled(&self, origin: &Origin, http3: Http3) -> Result<Http3, Error> {
        let waiting = http3.connection().wait_established();
        if let Ok(outcome) = timeout(HEAD_START, waiting).await {
            return Ok(outcome.map(|()| http3)?);
        }
        let place = self.place(origin, HTTP3);
        let mut link = place.link.lock().await;
        if let Some(Link::Http3(known)) = &*link
            && !known.is_same(&http3)
            && known.is_open()
        {
            // Somebody else has found it.
            return Ok(known.clone());
        }
        let dialer = self.dialer(HTTP3).await?;
        let begun = http3.connection().clone();
        let Some(connection) = dialer.instead_of(origin, begun).await? else { return Ok(http3) };
        let other = Http3::open(connection).await?;
        *link = Some(Link::Http3(other.clone()));
        Ok(other)
    }

    /// A connection of another protocol with a complete handshake: the one that has begun, or one to another address of the
    /// server's if that answers first, or the first fails.
    pub(crate) async fn settled_connection(
        &self,
        origin: &Origin,
        protocol: &[u8],
        begun: Connection,
    ) -> Result<Connection, Error> {
        let waiting = begun.wait_established();
        if let Ok(Ok(())) = timeout(HEAD_START, waiting).await {
            return Ok(begun);
        }
        let place = self.place(origin, protocol);
        let mut link = place.link.lock().await;
        if let Some(Link::Other(known)) = &*link
            && known.close_reason().is_none()
            && let Ok(Ok(())) = timeout(Duration::ZERO, known.wait_established()).await
        {
            // Somebody else has found it, or it is answered now.
            return Ok(known.clone());
        }
        let dialer = self.dialer(protocol).await?;
        let Some(other) = dialer.instead_of(origin, begun.clone()).await? else {
            return Ok(begun);
        };
        *link = Some(Link::Other(other.clone()));
        Ok(other)
    }

    /// HTTP/3 with a server. If `early`, its handshake may be under way.
    pub(crate) async fn http3(&self, origin: &Origin, early: bool) -> Result<Http3, Error> {
        let place = self.place(origin, HTTP3);
        let mut link = place.link.lock().await;
        if let Some(Link::Http3(http3)) = &*link
            && http3.is_open()
        {
            return Ok(http3.clone());
        }
        let early = early && self.config.allows_early_data();
        let connection = self.dialer(HTTP3).await?.dial(origin, early).await?;
        let http3 = Http3::open(connection).await?;
        *link = Some(Link::Http3(http3.clone()));
        Ok(http3)
    }

    /// A connection of another protocol. If `early`, its handshake may be under way.
    pub(crate) async fn connection(
        &self,
        origin: &Origin,
        protocol: &[u8],
        early: bool,
    ) -> Result<Connection, Error> {
        let place = self.place(origin, protocol);
        let mut link = place.link.lock().await;
        if let Some(Link::Other(connection)) = &*link
            && connection.close_reason().is_none()
        {
            return Ok(connection.clone());
        }
        let early = early && self.config.allows_early_data();
        let connection = self.dialer(protocol).await?.dial(origin, early).await?;
        *link = Some(Link::Other(connection.clone()));
        Ok(connection)
    }

    /// Keeps a connection no more: it ends with those who use it.
    pub(crate) async fn forget(&self, origin: &Origin, http3: &Http3) {
        let place = self.place(origin, HTTP3);
        let mut link = place.link.lock().await;
        if matches!(&*link, Some(Link::Http3(known)) if known.is_same(http3)) {
            *link = None;
        }
    }
}
