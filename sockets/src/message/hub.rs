//! Sockets of one process that share an address, and which of them a client reaches.
//!
//! A process binds each UDP address once. Sockets that ask for the same address share its
//! endpoint, which lives as long as any of them or of its connections; listeners on it are told
//! apart by the application protocols that clients ask for.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use quicket_engine::crypto::CryptoProvider;
use quicket_engine::random::Random;
use quicket_engine::time::Time;
use quicket_engine::{ServerConfig, TransportError, TransportErrorCode};
use quicket_handshake::{AwsLcProvider, SystemRandom};

use super::errno::Errno;
use super::mailbox::Mailbox;
use super::settings::Alpn;
use crate::config::{Admission, Decision, EndpointConfig};
use crate::core::{Cell, Conn, Core, CoreRef, Greeter, Interest, ListenOptions, Waiter, Waiters, Wakes};
use crate::ops;

/// How many handshakes may be without a whole ClientHello at a time.
const MAX_GREETINGS: usize = 4096;
/// The alert of a server that speaks none of the client's protocols (RFC 9001, Section 8.1).
const NO_APPLICATION_PROTOCOL: u8 = 120;
/// How long an address that was just given up may still be bound.
const RELEASE_TRIES: u32 = 200;
const RELEASE_PAUSE: Duration = Duration::from_millis(1);

/// An address in use by this process.
struct Place {
    core: Weak<Core>,
    hub: Arc<Hub>,
}

fn registry() -> MutexGuard<'static, HashMap<SocketAddr, Place>> {
    static REGISTRY: Mutex<Option<HashMap<SocketAddr, Place>>> = Mutex::new(None);
    // A map cannot be made in a constant; what holds the lock never sees it empty.
    static MAP: std::sync::OnceLock<Mutex<HashMap<SocketAddr, Place>>> = std::sync::OnceLock::new();
    let _ = &REGISTRY;
    MAP.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket's hold on an address.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) core: CoreRef,
    pub(super) hub: Arc<Hub>,
}
