//! Servers whose address several share: workers of one program, or programs behind the switch.

use quicket::steering::{
    Codec, ConfigId, Format, HashKey, Owner, OwnerBits, Place, RoutableConnectionIds, ServerId,
};
use quicket::{EndpointConfig, SwitchConfig, Workers};
use quicket_workload::bench::Failure;

/// With whom a server shares its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Sharing {
    /// With nobody.
    Nothing,
    /// With another worker; the kernel chooses by connection ID.
    Workers,
    /// With other workers; the kernel chooses by address, wrongly once a client has moved.
    HandedOn,
    /// The same, and connection IDs are not enciphered.
    HandedOnPlain,
    /// With what other programs the switch has; the kernel chooses among them.
    Switch,
    /// The same, and every datagram goes through the switch.
    Forwarded,
    /// With nobody; both ends have ports of a switch for packets ([`super::port`]).
    Port,
}

/// As many that a client which has moved is hardly ever with its own by chance.
const MANY_WORKERS: usize = 16;

impl Sharing {
    /// Whether clients move after the handshake.
    pub(super) fn moves(self) -> bool {
        matches!(self, Self::HandedOn | Self::HandedOnPlain)
    }

    /// How the server's endpoint is made.
    pub(super) fn endpoint(self) -> EndpointConfig {
        let mut config = EndpointConfig::default();
        match self {
            Self::Nothing | Self::Port => config,
            Self::Workers => config.workers(Workers::Count(2)),
            Self::HandedOn | Self::HandedOnPlain => {
                config.udp.route_by_connection_id = false;
                let config = config.workers(Workers::Count(MANY_WORKERS));
                if self == Self::HandedOn { config } else { config.connection_ids(plain_ids()) }
            }
            Self::Switch | Self::Forwarded => {
                config.udp.route_by_connection_id = self == Self::Switch;
                config.switch(SwitchConfig::new("bench").named(switch_name()))
            }
        }
    }

    /// CPU time of the processes that work for the server beside it, in nanoseconds.
    pub(super) fn others_cpu_ns(self) -> Result<u64, Failure> {
        if !matches!(self, Self::Switch | Self::Forwarded) {
            return Ok(0);
        }
        let status = quicket_switch::client::status(&switch_name())?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        let pid = status["pid"].as_u64().ok_or("the switch does not say which process it is")?;
        let mut total = 0;
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let times = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            total += times.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
        Ok(total)
    }
}

/// Connection IDs as workers have them by themselves, but for the cipher: twelve octets, one for the owner.
fn plain_ids() -> RoutableConnectionIds {
    let bits = OwnerBits::new(0, 8).expect("eight bits");
    let format = Format::new(1, 9).and_then(|format| format.with_owner(bits));
    let id = ConfigId::new(0).expect("below seven");
    let codec = Codec::new(id, format.expect("twelve octets"), None, HashKey::default());
    let server_id = ServerId::new(&[0]).expect("one octet");
    let owner = Some(Owner { generation: 0, worker: 0 });
    RoutableConnectionIds::new(codec, Place { server_id, owner }).expect("it fits")
}

/// The switch of this process, apart from any that the machine has.
fn switch_name() -> String {
    format!("quicket-bench-{}", std::process::id())
}
