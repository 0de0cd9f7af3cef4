//! Connections and handshakes of a service, of all clients together: of a site, by the server name of the handshake, or of a private
//! protocol.

use quicket::Hello;

use crate::clients::Exceeded;
use crate::quota::{Over, Quota, Taken};
use crate::snapshot::Snapshot;

/// What a connection is for.
pub(crate) enum Service<'a> {
    Site(&'a Quota),
    Protocol(&'a Quota),
}

impl<'a> Service<'a> {
    /// By the server name and the application protocol that TLS settles; `None` where nobody serves that.
    pub(crate) fn of(snapshot: &'a Snapshot, name: Option<&str>, alpn: &[u8]) -> Option<Self> {
        match alpn == b"h3" {
            true => Self::of_http(snapshot, name),
            false => {
                let protocol = snapshot.protocols.find(alpn, name)?;
                Some(Self::Protocol(&protocol.clients))
            }
        }
    }

    /// That of HTTP, whatever its version.
    pub(crate) fn of_http(snapshot: &'a Snapshot, name: Option<&str>) -> Option<Self> {
        snapshot.sites.of_connection(name).map(|site| Self::Site(&site.clients))
    }

    /// That of a ClientHello over QUIC. TLS takes the first protocol of the gateway's that the client has, too.
    pub(crate) fn asked(snapshot: &'a Snapshot, hello: &Hello<'_>) -> Option<Self> {
        let http = snapshot.has_sites().then_some("h3");
        let mut own = http.into_iter().chain(snapshot.protocols.alpn().iter().map(String::as_str));
        let alpn = own.find(|own| hello.alpn.iter().any(|alpn| alpn == own.as_bytes()))?;
        Self::of(snapshot, hello.server_name, alpn.as_bytes())
    }

    const fn quota(&self) -> &'a Quota {
        match self {
            Self::Site(quota) | Self::Protocol(quota) => quota,
        }
    }

    fn explain(&self, over: Over) -> Exceeded {
        match self {
            Self::Site(_) => over.explain(
                "too many connections of one site",
                "handshakes of one site come too fast",
            ),
            Self::Protocol(_) => over.explain(
                "too many connections of one private protocol",
                "handshakes of one private protocol come too fast",
            ),
        }
    }

    /// Counts a handshake that begins, if there is a place for its connection. The client's address may be made up: so it gets the
    /// place later, by [`Self::connect`].
    pub(crate) fn greet(&self) -> Result<(), Exceeded> {
        let quota = self.quota();
        quota.has_place().and_then(|()| quota.take_turn()).map_err(|over| self.explain(over))
    }

    /// Counts a connection whose handshake is counted.
    pub(crate) fn connect(&self) -> Result<Option<Taken>, Exceeded> {
        self.quota().take_place().map_err(|over| self.explain(over))
    }

    /// Counts a handshake, and its connection.
    pub(crate) fn begin(&self) -> Result<Option<Taken>, Exceeded> {
        self.quota().take().map_err(|over| self.explain(over))
    }
}
