//! Connections that are passed on without being ended here, by the server name in their ClientHello.
//!
//! Over TCP the ClientHello is peeked at (`tls`), and all of the stream copied. Over QUIC whoever receives asks the `relay` about
//! what belongs to no connection of the gateway: first packets are read (`hello`), and `flows` knows whose all others are.

mod address;
mod flows;
mod hello;
mod record;
mod relay;
pub(crate) mod tls;
mod wire;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quicket_steering::{Configurations, ServerId};

pub(crate) use self::address::Address;
pub(crate) use self::relay::Relay;
use crate::names::Names;
use crate::protocol::Place;

/// Where connections with some server names go.
#[derive(Debug)]
pub(crate) struct Pass {
    /// What it is called by: its first name.
    pub(crate) name: String,
    /// Where datagrams of QUIC go.
    pub(crate) quic: Option<Arc<Address>>,
    /// Where connections of TCP with TLS go.
    pub(crate) tls: Option<Place>,
    /// The origin of TCP is told who the client is.
    pub(crate) proxy_protocol: bool,
    /// How long a connection of TCP to the origin may take.
    pub(crate) connect: Duration,
    /// How long nothing may come in either direction.
    pub(crate) idle: Duration,
}

/// Whose connections with a server name are.
#[derive(Debug)]
enum Owner {
    /// The gateway's own.
    Own,
    Passed(Arc<Pass>),
}

/// How origins write their connection IDs, and which of them are here.
#[derive(Debug)]
struct Routable {
    configurations: Configurations,
    servers: HashMap<ServerId, Arc<Pass>>,
}

/// All that are passed on.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    names: Names<Owner>,
    all: Vec<Arc<Pass>>,
    routable: Vec<Routable>,
}

impl Passes {
    /// Passes a name on; false if it is another's already.
    pub(crate) fn add(&mut self, name: &str, pass: &Arc<Pass>) -> bool {
        if self.names.exactly(name).is_some() {
            return false;
        }
        if !self.all.iter().any(|other| Arc::ptr_eq(other, pass)) {
            self.all.push(Arc::clone(pass));
        }
        self.names.add(name, &Arc::new(Owner::Passed(Arc::clone(pass))))
    }

    /// Says that a name is the gateway's own: what is less exact does not count for it. False if it is passed on.
    pub(crate) fn keep(&mut self, name: &str) -> bool {
        match self.names.exactly(name).map(|owner| &**owner) {
            Some(Owner::Passed(_)) => false,
            Some(Owner::Own) => true,
            None => self.names.add(name, &Arc::new(Owner::Own)),
        }
    }

    /// Connection IDs of these configurations lead to these origins.
    pub(crate) fn route(&mut self, by: Configurations, servers: HashMap<ServerId, Arc<Pass>>) {
        self.routable.push(Routable { configurations: by, servers });
    }

    /// Where connections with a name go; nowhere if they are the gateway's own.
    pub(crate) fn find(&self, name: Option<&str>) -> Option<&Arc<Pass>> {
        match &**self.names.find(name)? {
            Owner::Own => None,
            Owner::Passed(pass) => Some(pass),
        }
    }

    /// The origin that a connection ID leads to, with which `octets` begins.
    fn by_id(&self, octets: &[u8]) -> Option<&Arc<Pass>> {
        self.routable.iter().find_map(|it| {
            let id = it.configurations.of(octets)?.server_id(octets)?;
            it.servers.get(&id)
        })
    }

    /// True if anything goes on over QUIC.
    pub(crate) fn has_quic(&self) -> bool {
        self.quic().next().is_some()
    }

    /// True if anything goes on over TCP.
    pub(crate) fn has_tls(&self) -> bool {
        self.all.iter().any(|pass| pass.tls.is_some())
    }

    /// How many origins there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The origins over QUIC.
    fn quic(&self) -> impl Iterator<Item = &Arc<Address>> {
        self.all.iter().filter_map(|pass| pass.quic.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(name: &str) -> Arc<Pass> {
        Arc::new(Pass {
            name: name.to_owned(),
            quic: None,
            tls: None,
            proxy_protocol: false,
            connect: Duration::from_secs(1),
            idle: Duration::from_secs(1),
        })
    }

    #[test]
    fn the_nearest_name_says_whose_a_connection_is() {
        let mut passes = Passes::default();
        assert!(passes.add("*.a.example", &pass("wild")));
        assert!(passes.add("b.example", &pass("b")));
        assert!(passes.keep("own.a.example") && passes.keep("own.a.example"));
        assert!(!passes.keep("b.example"), "it is passed on");
        assert!(!passes.add("own.a.example", &pass("late")), "it is the gateway's own");
        let find = |name| passes.find(name).map(|pass| pass.name.as_str());
        assert_eq!(find(Some("x.a.example")), Some("wild"));
        assert_eq!(find(Some("own.a.example")), None);
        assert_eq!(find(Some("B.example")), Some("b"));
        assert_eq!(find(Some("c.example")), None);
        assert_eq!(find(None), None);
        passes.add("*", &pass("all"));
        assert_eq!(passes.find(None).unwrap().name, "all");
    }
}
