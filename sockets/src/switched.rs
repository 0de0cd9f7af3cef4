//! Sharing an address with other programs, through the switch.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quicket_switch::client::{Family, Options};
use quicket_switch::protocol::Attention;

/// That an endpoint shares its address with other programs, which the switch tells apart by the
/// protocols (ALPN) and server names that clients ask for: for
/// [`EndpointConfig::switch`](crate::EndpointConfig::switch).
///
/// The switch is a small process, `quicket switch`, one for each user and network namespace, which is
/// started where there is none, and ends by itself. It reads the address's socket and hands datagrams to
/// the program that has their connection, or serves what a new client wants; programs send by
/// themselves. What a program serves are the protocols of its
/// [`ServerConfig`](crate::ServerConfig), for all server names that nobody else has, or for those of
/// [`server_names`](Self::server_names).
///
/// ```no_run
/// use quicket::{Endpoint, EndpointConfig, Identity, ServerConfig, SwitchConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = EndpointConfig::default().switch(SwitchConfig::new("chat"));
/// let endpoint = Endpoint::bind_with("[::]:443", config)?;
/// // Another program may serve "h3" there at the same time.
/// let identity = Identity::self_signed(["example.org"])?;
/// let listener = endpoint.listen(ServerConfig::with_identity(identity, ["chat/1"])?)?;
/// for connection in listener.incoming() {
///     println!("{}", connection?.path().remote);
/// }
/// // A newer generation of the program has taken over: connections go on.
/// endpoint.wait_idle();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SwitchConfig {
    pub(crate) options: Options,
    pub(crate) server_names: Vec<String>,
    pub(crate) share_names: bool,
    pub(crate) replace: bool,
    pub(crate) drain: Option<Duration>,
    pub(crate) upgrade: Option<Arc<dyn Fn() + Send + Sync>>,
    pub(crate) superseded: Option<Arc<dyn Fn() + Send + Sync>>,
    /// A listener that processes have from one another over fork(2) shares what it serves with theirs.
    pub(crate) family: Option<(Family, Attention)>,
}

impl fmt::Debug for SwitchConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchConfig")
            .field("options", &self.options)
            .field("server_names", &self.server_names)
            .field("share_names", &self.share_names)
            .field("replace", &self.replace)
            .field("drain", &self.drain)
            .finish_non_exhaustive()
    }
}

impl Default for SwitchConfig {
    /// For a program that is called as its file.
    fn default() -> Self {
        Self {
            options: Options::default(),
            server_names: Vec::new(),
            share_names: false,
            replace: false,
            drain: None,
            upgrade: None,
            superseded: None,
            family: None,
        }
    }
}

impl SwitchConfig {
    /// The environment variable of [`Self::from_env`].
    pub const LISTENERS_VARIABLE: &str = "QUICKET_SWITCH_LISTENERS";

    /// For a program of this name, of at most 64 bytes: it is shown, and generations of a program have
    /// the same.
    pub fn new(program: impl Into<String>) -> Self {
        let mut config = Self::default();
        config.options.label = program.into();
        config
    }

    /// The same; an empty name stands for that of the program's file.
    #[must_use]
    pub fn called(program: &str) -> Self {
        if program.is_empty() { Self::default() } else { Self::new(program) }
    }

    /// What the environment asks for (`QUICKET_SWITCH_LISTENERS`): that listeners share their address,
    /// and what the program is called, which may be empty; `None` if it does not. Sockets for C begin
    /// with it. A program with more rights than its caller (set-user-ID, file capabilities) does not look
    /// there.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        let name = quicket_switch::environment::variable(Self::LISTENERS_VARIABLE)?;
        Some(Self::called(&name.to_string_lossy()))
    }

    /// For processes that have the listener from this one.
    pub(crate) fn for_heirs(self, options: Options) -> Self {
        Self { options, replace: false, upgrade: None, superseded: None, ..self }
    }

    pub(crate) fn has_valid_name(&self) -> bool {
        let name = &self.options.label;
        name.len() <= quicket_switch::protocol::MAX_LABEL && !name.chars().any(char::is_control)
    }

    /// Serves clients that ask for one of these names, and no others: host names, or `*.example.org`
    /// for all with one label more.
    #[must_use]
    pub fn server_names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.server_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Shares its names with other programs of the user that do so, too, and have the same ones:
    /// clients are divided among them (SO_REUSEPORT).
    #[must_use]
    pub const fn share_names(mut self, shared: bool) -> Self {
        self.share_names = shared;
        self
    }

    /// Takes the place of the generation of this program that is there, if there is one, as soon as it
    /// listens: that one gets no new clients, keeps its connections, and its listener ends with
    /// [`AcceptError::Superseded`](crate::AcceptError::Superseded) once those that were on their way
    /// have been accepted. If this one does not come as far as listening, nothing has changed.
    #[must_use]
    pub const fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// How long this generation keeps its connections once another one has taken its place, in whole
    /// seconds, rounded up; as long as they last unless said otherwise. Then those that are left are closed
    /// with the code 0. The application protocol may tell peers before (GOAWAY of HTTP/3, RFC 9114,
    /// Section 5.2), from [`AcceptError::Superseded`](crate::AcceptError::Superseded) on.
    ///
    /// Five seconds later the switch itself ends what goes on: peers get stateless resets.
    #[must_use]
    pub const fn drain(mut self, time: Option<Duration>) -> Self {
        self.drain = time;
        self
    }

    /// Starts the next generation when somebody asks for it (`quicket switch upgrade`): a program that
    /// [replaces](Self::replace) this one. Called on a thread that hears the switch and should not wait; it
    /// has all signals blocked, which a process that it starts inherits.
    #[must_use]
    pub fn on_upgrade(mut self, start: impl Fn() + Send + Sync + 'static) -> Self {
        self.upgrade = Some(Arc::new(start));
        self
    }

    /// Called as soon as a newer generation has taken over, before those clients have been accepted that
    /// were on their way and the listener ends with
    /// [`AcceptError::Superseded`](crate::AcceptError::Superseded): whoever looks after the program may be
    /// told. On the same thread as [`on_upgrade`](Self::on_upgrade), and should not wait either. What earlier calls gave is
    /// called before.
    #[must_use]
    pub fn on_superseded(mut self, heed: impl Fn() + Send + Sync + 'static) -> Self {
        let before = self.superseded.take();
        self.superseded = Some(Arc::new(move || {
            before.iter().for_each(|heed| heed());
            heed();
        }));
        self
    }

    /// The same for an endpoint at a further address of a program, which has one for each address behind the switch: the first of
    /// them starts the next generation.
    #[must_use]
    pub fn at_further_address(self) -> Self {
        Self { upgrade: None, ..self }
    }

    /// Uses the switch of this name instead of that of `QUICKET_SWITCH` or the one that all use: a path of
    /// a local socket (unix(7)), if there is a `/` in it, or else the name of a file in the user's runtime
    /// directory, which belongs to the network namespace.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Starts this program where there is no switch, with `switch --detach --name PATH`, instead of
    /// `quicket` or what `QUICKET_SWITCH_PROGRAM` names; `None`: nothing is started.
    #[must_use]
    pub fn started_by(mut self, program: Option<PathBuf>) -> Self {
        self.options.program = program;
        self
    }
}
