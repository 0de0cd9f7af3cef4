//! A connection to a gateway, whatever the version of HTTP.

use http::{Request, StatusCode};
use quicket_workload::bench::{Failure, Link, SERVER_NAME};

use super::tcp::{self, One, Two};
use super::three::{self, Three};
use super::{Assignment, Version};

/// Makes connections.
pub(super) enum Dialer {
    Tcp(tcp::Dialer),
    Quic(three::Dialer),
}

impl Dialer {
    pub(super) async fn new(assignment: &Assignment) -> Result<Self, Failure> {
        Ok(match assignment.version {
            Version::Three => Self::Quic(three::Dialer::new(assignment).await?),
            version => Self::Tcp(tcp::Dialer::new(assignment, version)?),
        })
    }

    pub(super) async fn connect(&self) -> Result<Way, Failure> {
        match self {
            Self::Tcp(dialer) => dialer.connect().await,
            Self::Quic(dialer) => Ok(Way::Three(dialer.connect().await?)),
        }
    }
}

/// A connection, or a handle of one: HTTP/2 and HTTP/3 have several requests under way on each.
pub(super) enum Way {
    One(One),
    Two(Two),
    Three(Three),
    /// Its only handle is elsewhere.
    Given,
}

impl Way {
    /// A handle for one request at a time.
    pub(super) fn another(&mut self) -> Result<Self, Failure> {
        Ok(match self {
            Self::Two(two) => Self::Two(two.clone()),
            Self::Three(three) => Self::Three(three.clone()),
            Self::One(_) => std::mem::replace(self, Self::Given),
            Self::Given => return Err("a connection of HTTP/1.1 has one request at a time".into()),
        })
    }

    /// Fetches what is at a path; `came` is shown the body as it comes.
    pub(super) async fn get(
        &mut self,
        (path, length): (&str, usize),
        came: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let mut received = 0;
        let mut count = |bytes: &[u8]| {
            received += bytes.len();
            came(bytes);
        };
        let status = match self {
            Self::One(one) => one.get(request(path)?, &mut count).await?,
            Self::Two(two) => two.get(request(path)?, &mut count).await?,
            Self::Three(three) => three.get(request(path)?, &mut count).await?,
            Self::Given => return Err("the connection is used elsewhere".into()),
        };
        if status != StatusCode::OK {
            return Err(format!("{path}: the gateway answered {status}").into());
        }
        if received != length {
            return Err(format!("{path}: {received} bytes came, and {length} should have").into());
        }
        Ok(())
    }

    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::One(one) => one.is_closed(),
            Self::Two(two) => two.is_closed(),
            Self::Three(three) => three.is_closed(),
            Self::Given => false,
        }
    }

    /// What is known of the packets.
    pub(super) fn link(&self) -> Link {
        match self {
            Self::Three(three) => three.link(),
            _ => Link::default(),
        }
    }
}

/// A request as browsers make them, of middling length.
fn request(path: &str) -> Result<Request<()>, Failure> {
    Ok(Request::get(format!("https://{SERVER_NAME}{path}"))
        .header("user-agent", "quicket-lab")
        .header("accept", "*/*")
        .header("accept-language", "en-GB,en;q=0.9")
        .body(())?)
}
