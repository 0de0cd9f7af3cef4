//! Flags of `quicket switch`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::Becomes;
use crate::secrets::Source;

/// Let programs share a UDP address, and be upgraded: by protocol (ALPN) and server name
///
/// Each program serves protocols (ALPN) and server names of its own.
///
/// The switch reads the sockets of addresses and hands each datagram to the program that has its
/// connection, or, if it begins one, to the program that serves what the client asks for. Programs send
/// by themselves. There is one switch for each user and network namespace, and perhaps one for the system
/// (--system). That of a user is started by the first
/// program that needs it, and ends when there has been none for ten seconds; if it is killed, programs
/// start the next one and connections go on. The signal SIGHUP has --secrets and --users read again; without
/// them it says that there is nothing to read.
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
With secrets that other hosts have, too (docs/switch.md):
  quicket switch secrets new /etc/quicket/secrets
  quicket switch --stay --secrets /etc/quicket/secrets --server-id 07
  quicket switch secrets rotate /etc/quicket/secrets && systemctl reload quicket-switch
For programs of several users, by root (docs/switch.md):
  quicket switch --system --users /etc/quicket/users
  QUICKET_SWITCH=system quicket serve /srv/a -l '[::]:4433' --switch
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

    /// Be the switch for programs of all users whom --users names, whom programs find by QUICKET_SWITCH=system: at
    /// /run/quicket-system, unless --name says otherwise. Programs of other users than this one get neither the
    /// sockets of addresses nor the keys of others, and send through the switch. Implies --stay
    #[arg(long)]
    pub(crate) system: bool,

    /// Which users may have which ports, addresses and server names: a file with a line for each, such as "user
    /// alice ports 443,8443 names *.alice.example" or "group web ports 443 addresses 192.0.2.1". Names in it are
    /// reserved; all else goes to who comes first. A line may name options of UDP and IP, too: "options ttl,dscp". The
    /// signal SIGHUP has it read again: programs lose at once what it does not allow any more
    /// [default: "user * ports 1024-65535"]
    #[arg(long, value_name = "FILE", requires = "system")]
    pub(crate) users: Option<PathBuf>,

    /// Forward every datagram, without the kernel's help in choosing among programs; so does the switch that
    /// programs start in its place if it is killed
    #[arg(long, overrides_with = "forward")]
    pub(crate) forward: bool,

    /// The file of the site's secrets, or fd: and the number of a descriptor that it was started with: all
    /// keys of the programs behind the switch are derived from it, as on other hosts with the same file.
    /// The signal SIGHUP has it read again, when it was rotated; programs take that up as they are. Only its
    /// owner, and perhaps the group, may be able to read it [default: QUICKET_SWITCH_SECRETS, or else secrets
    /// that are drawn at random]
    #[arg(long, value_name = "FILE", value_parser = Source::parse)]
    pub(crate) secrets: Option<Source>,

    /// What names this host in connection IDs, towards balancers: two hexadecimal digits [default:
    /// QUICKET_SWITCH_SERVER_ID, or 00]
    #[arg(long, value_name = "HEX", requires = "secrets", value_parser = server_id)]
    pub(crate) server_id: Option<u8>,

    /// Start it in the background and end; if there is one already, that one stays
    #[arg(long)]
    pub(crate) detach: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Name {
    /// The name of the switch, or the path of its local socket, if there is a / in it. A name is that of a
    /// file for this network namespace in /run/quicket (root), or in quicket below $XDG_RUNTIME_DIR or
    /// /run/user/UID, or else in /tmp/quicket-UID. The name system is that of the switch for all users
    /// [default: QUICKET_SWITCH, or switch]
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
    /// Be the switch for packets: stacks of several programs side by side, each with addresses and ports of its own
    ///
    /// A program opens a port of its own, by the library quicket-packets, and registers what sockets of the system are
    /// bound to: an address, a protocol, a port. It exchanges whole frames with the others through shared
    /// memory, sees none of another's, and sends none with another's source (docs/packets.md). This switch is
    /// another process than the one for connections, and runs until SIGTERM or SIGINT, when it says what became of frames.
    #[command(after_help = "\
Examples:
  quicket switch packets
  quicket switch packets --name /run/stacks/packets
  quicket switch packets --name /run/stacks/packets --all-users")]
    Packets(SwitchPackets),
    /// Reserve addresses at the switch for packets for a program that cannot prove them, such as one in a container, and start it
    ///
    /// The program gets a connection to the switch as descriptor 3, whose number is in QUICKET_PACKETS_FD, and needs neither the path
    /// of the switch nor the host's network: quicket run --tcp-by fd:3 has TCP by it, the library opens a port by it, with what
    /// is reserved here. It can neither see other ports nor attach devices. Addresses are reserved until the port ends, or, before there
    /// is one, the last copy of the descriptor is closed. What the port takes of the switch is charged to the user of this command, or to
    /// --user (docs/packets.md).
    #[command(after_help = "\
Examples:
  quicket switch open --tuple tcp:192.0.2.1:80 -- quicket run --tcp-by fd:3 -- ./server 192.0.2.1:80
  quicket switch open --tuple tcp:192.0.2.1:80 --user 20001 -- \\
    podman run --preserve-fds=1 --network=none --env QUICKET_PACKETS_FD IMAGE \\
    quicket run --tcp-by fd:3 -- ./server 192.0.2.1:80
  quicket switch open --tuple 'udp:[2001:db8::1]:7000' -- \\
    quicket switch sink '[2001:db8::1]:7000' --name fd:3")]
    Open(SwitchOpen),
    /// Write the frames of a port at the switch for packets, in both directions, as tcpdump and Wireshark read them
    ///
    /// The port is told by an address that it has. It has to be of the same user; root may see all. The format is pcap,
    /// with nanoseconds. Frames for which there is no room are lost for the dump alone, and counted. It ends with
    /// the port, after --count frames, or by SIGINT or SIGTERM.
    #[command(after_help = "\
Examples:
  quicket switch dump 127.0.0.1:7000 | tcpdump -n -r -
  quicket switch dump '[::1]:7000' --protocol tcp --count 100 --out frames.pcap
  quicket switch dump 192.0.2.1:0 --protocol 89 --out ospf.pcap")]
    Dump(SwitchDump),
    /// Send frames of UDP by a port at the switch for packets, to measure with: at a rate, of a length, so many
    ///
    /// Each frame has its flow, its number there and a check of both, behind right headers and a right checksum, so that quicket switch
    /// sink can tell what became of it. The frames leave by a port of this command's own, to a program with a port there, or
    /// to a host that a network device of the switch leads to. Shown at the end is how many were sent, delivered
    /// and dropped, and why. It ends after --count frames, after --time, or by SIGINT or SIGTERM. If none was delivered, the exit
    /// code is 3.
    #[command(after_help = "\
Why frames are dropped:
  destination  nobody has the address, and no device is attached (quicket switch attach)
  route        nobody has it, and no device that is attached leads there
  neighbour    the device leads there, and who is next has no known address of Ethernet, or not yet
  vlan         the way there is by a VLAN that is not served
  mtu          longer than packets on the way may be: give a smaller --len
  Others are faults of a frame, named in docs/packets.md.

Examples:
  quicket switch generate 127.0.0.1:7000
  quicket switch generate 127.0.0.1:7000 --len 1514 --rate 10k --count 1M
  quicket switch generate 192.0.2.7:9 --from 192.0.2.1:0 --flows 64 --time 10 --name /run/stacks/packets
  quicket switch generate '[::1]:7000' --time 5 -j | jq .frames_per_second")]
    Generate(SwitchGenerate),
    /// Count the frames of generators that come to an address by a port at the switch for packets
    ///
    /// Shown at the end are the rate between the first and the last frame, and how many frames were lost, came late or twice, were
    /// meant for another address, or are no generator's. Frames that a generator has sent before the first one that came, or after the
    /// last, are in its own figures. It ends after --count frames, after --time, or by SIGINT or SIGTERM. Frames that are lost do not
    /// come: give --time beside --count.
    #[command(after_help = "\
Examples:
  quicket switch sink 127.0.0.1:7000
  quicket switch sink 127.0.0.1:7000 --count 1M --time 60
  quicket switch sink 192.0.2.1:9 --queues 4 --time 10 --name /run/stacks/packets
  quicket switch sink '[::1]:7000' --time 5 -j | jq '{received, lost, doubled, misdelivered}'")]
    Sink(SwitchSink),
    /// Attach a network device to the switch for packets: frames for what ports have registered go to them
    ///
    /// Everything else goes to the system's stack as before. What ports send to others leaves by the device where the system's
    /// routes lead there. Shown is what attaching has changed; detaching undoes it, and the end of the switch lets everything
    /// go to the system, too. The switch needs CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON, and this command its
    /// user or root (docs/packets.md).
    ///
    /// VLANs on the device are served, too: with eth0 attached, an address of eth0.100 is reached by frames with the tag 100, and by
    /// no others. Those that are served are shown. A device above others, such as a bridge, does not see tags: with VLANs on it, it is refused, and without,
    /// frames with any tag count as such without (docs/packets.md, "VLANs").
    ///
    /// Programs of this host reach ports by lo, whichever device has the address: attach that for them. Its mode is generic, and
    /// what is set on it meanwhile is shown (gso_max_segs, accept_local, route_localnet).
    ///
    /// Between two switches with a veth, attach it in mode native at both ends: a device in mode generic loses long segments of TCP
    /// that the other end leaves to the device to cut (docs/tcp.md).
    #[command(after_help = "\
Examples:
  quicket switch attach eth0
  quicket switch attach lo
  quicket switch attach eth0 --mode native --name /run/stacks/packets
  quicket switch attach eth0 -j | jq .queues")]
    Attach(SwitchAttach),
    /// Detach a network device from the switch for packets: all its frames go to the system
    #[command(after_help = "\
Examples:
  quicket switch detach eth0
  quicket switch detach eth0 --name /run/stacks/packets")]
    Detach(SwitchDetach),
    /// Show the network devices of the switch for packets, their VLANs that are served, and what became of their frames
    #[command(after_help = "\
Examples:
  quicket switch devices
  quicket switch devices -j | jq '.devices[] | {device, mode, dropped}'
  quicket switch devices -j | jq '.devices[] | {device, vlans: [.vlans[].vlan]}'")]
    Devices(SwitchDevices),
    /// Make, rotate and show the secrets of a site
    #[command(subcommand)]
    Secrets(SecretsCommand),
}

#[derive(Args, Debug)]
pub(crate) struct SwitchPackets {
    /// The path of the local socket where programs find it, if there is a / in it, or the name of a file, where
    /// those of switches are
    #[arg(long, value_name = "NAME", default_value = "packets")]
    pub(crate) name: String,
    /// Let programs of all users open ports: each has what sockets of the system prove. Otherwise those of this
    /// user, and root's. Takes root or CAP_CHOWN, and CAP_NET_BIND_SERVICE for ports below 1024
    #[arg(long)]
    pub(crate) all_users: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SwitchOpen {
    /// What the program may have: tcp:ADDRESS:PORT, udp:ADDRESS:PORT, or NUMBER:ADDRESS of a protocol of IP without ports, which takes
    /// CAP_NET_RAW. An address of IPv6 with a port is in brackets; port 0 is a free one. It may be given up to 256 times
    #[arg(long = "tuple", value_name = "TUPLE", required = true, value_parser = tuple)]
    pub(crate) tuples: Vec<WantedTuple>,
    /// Have the port be this user's at a switch of all users, by his number: what the program takes there is charged to him. Takes
    /// root. Without it, all that the user of this command opens shares his account: a connection gets half of the queues and of the
    /// memory that are left there, at most
    #[arg(long, value_name = "UID")]
    pub(crate) user: Option<u32>,
    #[command(flatten)]
    pub(crate) name: PacketsName,
    #[command(flatten)]
    pub(crate) program: Becomes,
}

/// A tuple that is to be reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedTuple {
    pub(crate) protocol: u8,
    pub(crate) address: IpAddr,
    /// 0 for a free one, and for protocols without ports.
    pub(crate) port: u16,
}

impl fmt::Display for WantedTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, address, port } = self;
        match protocol {
            6 => write!(f, "tcp:{}", SocketAddr::new(*address, *port)),
            17 => write!(f, "udp:{}", SocketAddr::new(*address, *port)),
            _ => write!(f, "{protocol}:{address}"),
        }
    }
}

/// Reads a tuple that is to be reserved.
fn tuple(text: &str) -> Result<WantedTuple, &'static str> {
    let wrong =
        "write tcp:ADDRESS:PORT, udp:ADDRESS:PORT or NUMBER:ADDRESS, such as tcp:192.0.2.1:80";
    let (of, rest) = text.split_once(':').ok_or(wrong)?;
    let protocol = protocol(of).map_err(|_| wrong)?;
    if matches!(protocol, 6 | 17) {
        let address: SocketAddr = rest.parse().map_err(|_| wrong)?;
        return Ok(WantedTuple { protocol, address: address.ip(), port: address.port() });
    }
    Ok(WantedTuple { protocol, address: rest.parse().map_err(|_| wrong)?, port: 0 })
}

#[derive(Args, Debug)]
pub(crate) struct SwitchDump {
    /// An address and a port of UDP or TCP that the port has; port 0 with protocols that have none
    #[arg(value_name = "PORT")]
    pub(crate) port: SocketAddr,
    /// Of which protocol that is: udp, tcp, or a number of IP's
    #[arg(long, value_name = "PROTOCOL", default_value = "udp", value_parser = protocol)]
    pub(crate) protocol: u8,
    /// The name of the switch for packets, or the path of its local socket
    #[arg(long, value_name = "NAME", default_value = "packets")]
    pub(crate) name: String,
    /// Where it is written [default: standard output, if that is no terminal]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// End after so many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct SwitchGenerate {
    /// To which address and port of UDP
    #[arg(value_name = "TO")]
    pub(crate) to: SocketAddr,
    /// From which address and port of this host, the first one of --flows; port 0 is a free one [default: the address from
    /// which the system would send there, and free ports]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) from: Option<SocketAddr>,
    /// Octets of a frame, from the header of Ethernet on and without its checksum: 62 or more with IPv4, 82 with IPv6
    /// [default: 64, or 82]
    #[arg(long, value_name = "OCTETS",
          value_parser = clap::value_parser!(u16).range(62..=16_384))]
    pub(crate) len: Option<u16>,
    /// Frames in a second, with k or M for thousands and millions [default: as many as go]
    #[arg(long, value_name = "RATE", value_parser = number)]
    pub(crate) rate: Option<u64>,
    /// End after so many frames, with k or M for thousands and millions
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) count: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = super::http::seconds)]
    pub(crate) time: Option<Duration>,
    /// Sources, each with a port of UDP of its own; frames are of each in turn
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) flows: u16,
    #[command(flatten)]
    pub(crate) name: PacketsWay,
    /// JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SwitchSink {
    /// The address and port of UDP that this has, of this host; port 0 is a free one, which is said
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: SocketAddr,
    /// End after so many frames, with k or M for thousands and millions
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) count: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = super::http::seconds)]
    pub(crate) time: Option<Duration>,
    /// The longest frame that there is room for, in octets
    #[arg(long, value_name = "OCTETS", default_value_t = 2048,
          value_parser = clap::value_parser!(u16).range(128..=16_384))]
    pub(crate) longest: u16,
    /// Queues of the port, each with a thread of its own: flows are spread over them
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) queues: u16,
    #[command(flatten)]
    pub(crate) name: PacketsWay,
    /// JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// Which switch for packets.
#[derive(Args, Debug)]
pub(crate) struct PacketsName {
    /// The name of the switch for packets, or the path of its local socket
    #[arg(long, value_name = "NAME", default_value = "packets")]
    pub(crate) name: String,
}

/// The same, or a connection that there is.
#[derive(Args, Debug)]
pub(crate) struct PacketsWay {
    /// The name of the switch for packets, or the path of its local socket; fd:3 is the connection that quicket switch open
    /// has handed over
    #[arg(long, value_name = "NAME", default_value = "packets")]
    pub(crate) name: String,
}

/// Where a device's frames are met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DeviceMode {
    /// In the driver, if it can, else behind it
    #[default]
    Best,
    /// In the driver, or not at all
    Native,
    /// Behind the driver: slower, with any device
    Generic,
}

#[derive(Args, Debug)]
pub(crate) struct SwitchAttach {
    /// The device, as ip link names it in the switch's network namespace
    #[arg(value_name = "DEVICE")]
    pub(crate) device: String,
    /// Where the program is that tells frames apart
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    pub(crate) mode: DeviceMode,
    #[command(flatten)]
    pub(crate) name: PacketsName,
    /// JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SwitchDetach {
    /// The device
    #[arg(value_name = "DEVICE")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) name: PacketsName,
    /// JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SwitchDevices {
    #[command(flatten)]
    pub(crate) name: PacketsName,
    /// JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// A number of frames, perhaps with k or M.
fn number(text: &str) -> Result<u64, &'static str> {
    let (digits, times) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(times));
    number.filter(|number| *number > 0).ok_or("give a number above 0, such as 500, 10k or 2M")
}

fn protocol(text: &str) -> Result<u8, String> {
    match text {
        "udp" => Ok(17),
        "tcp" => Ok(6),
        number => {
            number.parse().map_err(|_| "write udp, tcp, or a number from 0 to 255".to_owned())
        }
    }
}

/// What is done with the secrets of a site.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Draw secrets at random, into a new file that only its owner can read
    #[command(after_help = "\
Examples:
  quicket switch secrets new /etc/quicket/secrets")]
    New {
        /// The file
        file: PathBuf,
    },
    /// Rotate: next becomes current, current becomes previous, and a new next is drawn
    ///
    /// The file is replaced as a whole. Whoever uses it reads it again at SIGHUP. Hosts may do so one after
    /// the other, as each accepts what is made with the next secret already; all should have done so before
    /// the next rotation.
    #[command(after_help = "\
Examples:
  quicket switch secrets rotate /etc/quicket/secrets
  systemctl reload quicket-switch")]
    Rotate {
        /// The file
        file: PathBuf,
    },
    /// Show numbers and ages, and no secret
    #[command(after_help = "\
Examples:
  quicket switch secrets show /etc/quicket/secrets
  quicket switch secrets show /etc/quicket/secrets --balancer /etc/quicket/site")]
    Show(SecretsShow),
}

#[derive(Args, Debug)]
pub(crate) struct SecretsShow {
    /// The file
    pub(crate) file: PathBuf,
    /// JSON
    #[arg(short, long)]
    pub(crate) json: bool,
    /// Write the keys of connection IDs into this file of a balancer, too, which has them in place of those
    /// that it had; only its owner can read it then, and its other lines stay
    #[arg(long, value_name = "OUT")]
    pub(crate) balancer: Option<PathBuf>,
}

/// Reads the number of a host.
pub(crate) fn server_id(text: &str) -> Result<u8, &'static str> {
    let is_hex = text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let id = u8::from_str_radix(text, 16).ok().filter(|_| is_hex);
    id.ok_or("give two hexadecimal digits, such as 07")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_read_as_they_are_shown() {
        for text in ["tcp:192.0.2.1:80", "udp:[2001:db8::1]:0", "47:192.0.2.1", "89:2001:db8::1"] {
            assert_eq!(tuple(text).unwrap().to_string(), text);
        }
        assert_eq!(tuple("6:192.0.2.1:80").unwrap().to_string(), "tcp:192.0.2.1:80");
        for text in [
            "192.0.2.1:80",
            "tcp:192.0.2.1",
            "tcp:2001:db8::1:80",
            "47:192.0.2.1:1",
            "300:192.0.2.1",
        ] {
            assert!(tuple(text).is_err(), "{text}");
        }
    }
}
