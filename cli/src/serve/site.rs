//! A server as one of a site: keys that it has in common with others.

use quicket::{EndpointConfig, SiteKeys, SiteSecrets};

use crate::args::Serve;
use crate::exit::{Failure, Kind};

/// What programs of the kind are called: their session tickets are one another's.
const PROGRAM: &str = "quicket-serve";

/// The secrets of a site, and where they are read.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    source: crate::secrets::Source,
    keys: SiteKeys,
    host: u8,
}

impl Site {
    /// What the flags say; `None` if the server is on its own, or behind a balancer with a file of its own.
    pub(crate) fn new(args: &Serve) -> Result<Option<Self>, Failure> {
        let usage = |message: &str| Failure::new(Kind::Usage, message);
        let id = args.behind.server_id;
        let Some(source) = args.secrets.clone() else {
            return match id.filter(|_| args.behind.connection_ids.is_none()) {
                Some(_) => Err(usage("--server-id needs --connection-ids or --secrets")),
                None => Ok(None),
            };
        };
        let host = match id.as_ref().map(|id| id.as_slice()) {
            None => 0,
            Some(&[host]) => host,
            Some(_) => return Err(usage("with --secrets, --server-id has two hexadecimal digits")),
        };
        let keys = SiteKeys::new(&source.read()?, PROGRAM);
        Ok(Some(Self { source, keys, host }))
    }

    /// Has an endpoint use the keys.
    pub(crate) fn configure(&self, config: EndpointConfig) -> EndpointConfig {
        config.site(&self.keys, self.host)
    }

    /// Reads the secrets again, and changes nothing yet.
    pub(crate) fn read(&self) -> Result<SiteSecrets, Failure> {
        self.source.read()
    }

    /// Uses them; says so in words.
    pub(crate) fn take_up(&self, secrets: &SiteSecrets) -> String {
        self.keys.replace(secrets);
        format!(", and secrets of number {}", secrets.current().number())
    }
}
