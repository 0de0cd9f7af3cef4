//! The flag of commands whose datagrams may go by the switch for packets.

use clap::Args;

/// A port of the switch for packets.
#[derive(Args, Debug)]
#[command(next_help_heading = "Packets (quicket switch packets --help)")]
pub(crate) struct PortOf {
    /// Exchange datagrams by a port of the switch for packets of this name, or at this path, in place of a socket of the
    /// system: with programs that have ports there, and with hosts that its network devices lead to. The
    /// address is one that this host has
    #[arg(long, value_name = "NAME")]
    port_of: Option<String>,
}

impl PortOf {
    /// Whether there is to be one.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.port_of.is_some()
    }

    /// Its switch.
    pub(crate) fn name(&self) -> Option<&str> {
        self.port_of.as_deref()
    }

    /// Has sockets be ports, if they are to be.
    #[cfg(target_os = "linux")]
    pub(crate) fn configure(&self, udp: &mut quicket::UdpConfig) -> Result<(), crate::Failure> {
        let Some(name) = &self.port_of else { return Ok(()) };
        udp.port_of = Some(crate::switch::packets::path(name)?);
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn configure(&self, _: &mut quicket::UdpConfig) -> Result<(), crate::Failure> {
        match self.port_of {
            None => Ok(()),
            Some(_) => Err(crate::Failure::new(
                crate::exit::Kind::Usage,
                "--port-of needs the switch for packets, which is a program of Linux",
            )),
        }
    }
}
