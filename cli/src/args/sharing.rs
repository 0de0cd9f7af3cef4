//! Flags of programs that share their address with others.

use clap::Args;

/// Sharing the address with other programs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sharing the address (quicket switch --help)")]
pub(crate) struct Sharing {
    /// Share the address with other programs through the switch, which is started where there is none:
    /// they serve other protocols or other server names
    #[arg(long)]
    pub(crate) switch: bool,

    /// Serve clients that ask for this name, or *.NAME for all with one label more; may be given several times. While
    /// the program is alone at its address, those that ask for other names come to it, too: nothing has to be chosen then
    #[arg(long, value_name = "NAME", requires = "switch")]
    pub(crate) server_name: Vec<String>,

    /// What the program is called at the switch: generations of a program have one name, others another
    /// [default: the first of its server names, else that of the command: quicket-serve, quicket-gateway]
    #[arg(long, value_name = "NAME", requires = "switch")]
    pub(crate) program: Option<String>,

    /// Take the place of the program of this name once this one is ready: that one keeps its connections
    /// for as long as it was told (--drain, or the gateway's file), and ends
    #[arg(long, requires = "switch")]
    pub(crate) replace: bool,
}

impl Sharing {
    /// How the address is shared, if it is. `command` is the name of a program that has no other.
    pub(crate) fn config(&self, command: &str) -> Option<quicket::SwitchConfig> {
        let config = quicket::SwitchConfig::new(self.program(command)).replace(self.replace);
        self.switch.then(|| config.server_names(&self.server_name))
    }

    /// Servers of different names are different programs: an upgrade of one leaves the others alone.
    fn program<'a>(&'a self, command: &'a str) -> &'a str {
        let first = self.server_name.iter().map(String::as_str).min();
        let name = self.program.as_deref().or(first).unwrap_or(command);
        // What is at the end of a long name tells it from others.
        let from = name.len().saturating_sub(quicket_switch::protocol::MAX_LABEL);
        name.get(from..).unwrap_or(name)
    }
}
