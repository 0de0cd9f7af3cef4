//! Flags of `quicket switch`.

use clap::{Args, Subcommand};

/// Lets programs share a UDP address: each serves protocols (ALPN) and server names of its own.
///
/// The switch reads the sockets of addresses and hands each datagram to the program that has its
/// connection, or, if it begins one, to the program that serves what the client asks for. Programs send
/// by themselves. There is one switch for each user and network namespace. It is started by the first
/// program that needs it, and ends when there has been none for ten seconds; if it is killed, programs
/// start the next one and connections go on.
///
/// Programs use it by EndpointConfig::switch in Rust, by QUICKET_SOCKOPT_SWITCH in C, and as they are under
/// quicket run --switch; quicket serve has --switch.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  quicket serve /srv/a -l '[::]:4433' --switch --server-name a.example &
  quicket serve /srv/b -l '[::]:4433' --switch --server-name b.example &
  quicket switch status
  quicket serve /srv/new -l '[::]:4433' --switch --server-name a.example --replace
  quicket switch --stay
Units of systemd are in docs/systemd."
)]
pub(crate) struct Switch {
    #[command(subcommand)]
    pub(crate) command: Option<SwitchCommand>,

    #[command(flatten)]
    pub(crate) name: Name,

    /// Go on when there are no programs
    #[arg(long)]
    pub(crate) stay: bool,

    /// Forward every datagram, without the kernel's help in choosing among programs
    #[arg(long)]
    pub(crate) forward: bool,

    /// Start it in the background and end; if there is one already, that one stays
    #[arg(long)]
    pub(crate) detach: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Name {
    /// The name of the switch, or the path of its local socket, if there is a / in it. A name is that of a
    /// file for this network namespace in /run/quicket (root), or in quicket below $XDG_RUNTIME_DIR or
    /// /run/user/UID, or else in /tmp/quicket-UID [default: QUICKET_SWITCH, or switch]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

impl Name {
    pub(crate) fn get(&self) -> String {
        self.name.clone().unwrap_or_else(quicket_switch::client::default_name)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SwitchCommand {
    /// Show addresses, programs and what became of datagrams
    #[command(after_help = "\
Examples:
  quicket switch status
  quicket switch status -j | jq '.addresses[].programs[] | {program, pid, protocols}'
  quicket switch status --prometheus > /var/lib/node_exporter/quicket-switch.prom")]
    Status(SwitchStatus),
    /// Have programs start their next generation: quicket serve --switch, and those that know how to
    ///
    /// The next generation takes all new connections once it is ready; the one before keeps its own, for
    /// as long as --drain says with quicket serve. If the next one does not come up, nothing changes: its messages are
    /// where the first one's are.
    #[command(after_help = "\
Examples:
  quicket switch upgrade
  quicket switch upgrade --name /run/quicket/switch")]
    Upgrade(Name),
}

#[derive(Args, Debug)]
pub(crate) struct SwitchStatus {
    #[command(flatten)]
    pub(crate) name: Name,
    /// JSON
    #[arg(short, long)]
    pub(crate) json: bool,
    /// The text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
}
