//! The cases: what the two ends are told, what lies between them, and what must have happened.

use std::fmt;
use std::str::FromStr;

use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, ALPN_HQ};

use super::check::{self, Check};

/// The link of most cases, in the words of the interop runner's simulator.
const PLAIN: &str = "simple-p2p --delay=15ms --bandwidth=10Mbps --queue=25";
const FAST: &str = "simple-p2p --delay=15ms --bandwidth=100Mbps --queue=1000";
const LONG_RTT: &str = "simple-p2p --delay=750ms --bandwidth=10Mbps --queue=25";
/// Lets the ClientHello pass and drops what the client sends next.
const AMPLIFICATION: &str =
    "droplist --delay=15ms --bandwidth=10Mbps --queue=25 --drops_to_server=2,3,4,5,6,7";
const BLACKHOLE: &str = "blackhole --delay=15ms --bandwidth=10Mbps --queue=25 --on=5s --off=2s";
const LOSS_30: &str = "drop-rate --delay=15ms --bandwidth=10Mbps --queue=25 --rate_to_server=30 \
     --rate_to_client=30 --burst_to_server=3 --burst_to_client=3";
const LOSS_2: &str = "drop-rate --delay=15ms --bandwidth=10Mbps --queue=25 --rate_to_server=2 \
     --rate_to_client=2 --burst_to_server=3 --burst_to_client=3";
const CORRUPTION_30: &str = "corrupt-rate --delay=15ms --bandwidth=10Mbps --queue=25 \
     --rate_to_server=30 --rate_to_client=30 --burst_to_server=3 --burst_to_client=3";
const CORRUPTION_2: &str = "corrupt-rate --delay=15ms --bandwidth=10Mbps --queue=25 \
     --rate_to_server=2 --rate_to_client=2 --burst_to_server=3 --burst_to_client=3";
const REBIND_PORT: &str =
    "rebind --delay=15ms --bandwidth=10Mbps --queue=25 --first-rebind=1s --rebind-freq=5s";
const REBIND_ADDRESS: &str = "rebind --delay=15ms --bandwidth=10Mbps --queue=25 \
     --first-rebind=1s --rebind-freq=5s --rebind-addr";

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// Names so long that the requests of `zerortt` fill several packets.
const LONG_NAME: usize = 250;
const SHORT_NAME: usize = 10;
/// Connections of `handshakeloss` and `handshakecorruption`.
const ATTEMPTS: usize = 50;

/// Something that two implementations must be able to do together.
#[derive(Debug)]
pub struct Case {
    /// The name, that of the interop runner if it has the case.
    pub name: &'static str,
    /// What must happen, in a sentence.
    pub description: &'static str,
    /// The scenario of the link between both ends.
    pub scenario: &'static str,
    pub(super) alpn: &'static str,
    pub(super) files: Files,
    /// Further options of the client, and of the server.
    pub(super) client: &'static [&'static str],
    pub(super) server: &'static [&'static str],
    /// Whether the server's certificate chain is to be longer than a few datagrams.
    pub(super) long_chain: bool,
    pub(super) ipv6: bool,
    pub(super) arrangement: Arrangement,
    /// It takes so much that it is run only when it is named.
    pub on_request: bool,
    /// It takes so many losses in a row that two implementations without fault can fail in it.
    pub by_chance: bool,
    /// How many seconds the client may take.
    pub(super) patience: u64,
    pub(super) checks: &'static [Check],
}

/// What a case needs of whoever runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// Nothing.
    None,
    /// A certificate for the client.
    ClientCertificate,
    /// A second way to the server, for the address that it prefers.
    PreferredAddress,
    /// The server is killed while the client sends, and started again at the same address; the
    /// client must fail.
    Restart,
}

/// Files to download.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files {
    /// How many there are of each size in bytes.
    pub(super) sizes: &'static [(usize, usize)],
    /// Length of their names.
    pub(super) name: usize,
}

impl Files {
    const fn of(sizes: &'static [(usize, usize)]) -> Self {
        Self { sizes, name: SHORT_NAME }
    }

    /// The sizes of all files, one by one.
    pub(super) fn all(self) -> impl Iterator<Item = usize> {
        self.sizes.iter().flat_map(|&(count, size)| std::iter::repeat_n(size, count))
    }
}

impl Case {
    const BASE: Self = Self {
        name: "",
        description: "",
        scenario: PLAIN,
        alpn: ALPN_HQ,
        files: Files::of(&[(1, KIB)]),
        client: &[],
        server: &[],
        long_chain: false,
        ipv6: false,
        arrangement: Arrangement::None,
        on_request: false,
        by_chance: false,
        patience: 60,
        checks: &[check::handshakes::<1>, check::version_1],
    };
}

/// All cases: those of the interop runner, then our own.
pub static CASES: &[Case] = &[
    Case {
        name: "handshake",
        description: "A handshake completes and a file is transferred.",
        checks: &[check::handshakes::<1>, check::version_1, check::no_retry],
        ..Case::BASE
    },
    Case {
        name: "transfer",
        description: "Three files are transferred at once.",
        files: Files::of(&[(1, 2 * MIB), (1, 3 * MIB), (1, 5 * MIB)]),
        ..Case::BASE
    },
    Case {
        name: "longrtt",
        description: "A handshake completes over a round trip of 1.5 s; the ClientHello is repeated.",
        scenario: LONG_RTT,
        checks: &[check::handshakes::<1>, check::version_1, check::client_hello_repeated],
        ..Case::BASE
    },
    Case {
        name: "chacha20",
        description: "ChaCha20-Poly1305 is the only cipher offered, and used.",
        files: Files::of(&[(1, 3 * MIB)]),
        client: &["--chacha20"],
        checks: &[check::handshakes::<1>, check::version_1, check::only_chacha20],
        ..Case::BASE
    },
    Case {
        name: "multiplexing",
        description: "1,999 files over one connection, whose server allows 1,000 streams at first.",
        files: Files::of(&[(1999, 32)]),
        checks: &[check::handshakes::<1>, check::version_1, check::stream_limit],
        ..Case::BASE
    },
    Case {
        name: "retry",
        description: "The server sends a Retry; an Initial with its token continues.",
        files: Files::of(&[(1, 10 * KIB)]),
        server: &["--retry"],
        checks: &[check::handshakes::<1>, check::version_1, check::retry],
        ..Case::BASE
    },
    Case {
        name: "resumption",
        description: "A second connection resumes the session, without certificates.",
        files: Files::of(&[(1, 5 * KIB), (1, 10 * KIB)]),
        client: &["--resume"],
        checks: &[check::handshakes::<2>, check::version_1, check::resumed],
        ..Case::BASE
    },
    Case {
        name: "zerortt",
        description: "The requests of a second connection are sent as early data.",
        files: Files { sizes: &[(40, 32)], name: LONG_NAME },
        client: &["--0rtt"],
        checks: &[check::handshakes::<2>, check::version_1, check::early_data],
        ..Case::BASE
    },
    Case {
        name: "http3",
        description: "Three files over HTTP/3.",
        alpn: ALPN_H3,
        files: Files::of(&[(1, 5 * KIB), (1, 10 * KIB), (1, 500 * KIB)]),
        ..Case::BASE
    },
    Case {
        name: "blackhole",
        description: "A transfer survives two seconds in which everything is lost.",
        scenario: BLACKHOLE,
        files: Files::of(&[(1, 10 * MIB)]),
        ..Case::BASE
    },
    Case {
        name: "keyupdate",
        description: "The client updates the keys, and the server follows.",
        files: Files::of(&[(1, 3 * MIB)]),
        client: &["--key-update"],
        checks: &[check::handshakes::<1>, check::version_1, check::key_update],
        ..Case::BASE
    },
    Case {
        name: "ecn",
        description: "Both ends mark packets with ECT, and report marks in their ACK frames.",
        files: Files::of(&[(1, 100 * KIB)]),
        checks: &[check::handshakes::<1>, check::version_1, check::no_retry, check::ecn],
        ..Case::BASE
    },
    Case {
        name: "amplificationlimit",
        description: "A server with a long certificate chain sends at most three times what came.",
        scenario: AMPLIFICATION,
        files: Files::of(&[(1, 5 * KIB)]),
        long_chain: true,
        checks: &[check::handshakes::<1>, check::version_1, check::amplification],
        ..Case::BASE
    },
    Case {
        name: "handshakeloss",
        description: "50 handshakes where 30 % of the packets are lost.",
        by_chance: true,
        scenario: LOSS_30,
        files: Files::of(&[(ATTEMPTS, KIB)]),
        client: &["--one-by-one"],
        patience: 300,
        checks: &[check::handshakes::<ATTEMPTS>, check::version_1],
        ..Case::BASE
    },
    Case {
        name: "transferloss",
        description: "A transfer where 2 % of the packets are lost.",
        scenario: LOSS_2,
        files: Files::of(&[(1, 2 * MIB)]),
        ..Case::BASE
    },
    Case {
        name: "handshakecorruption",
        description: "50 handshakes where 30 % of the packets are corrupted.",
        by_chance: true,
        scenario: CORRUPTION_30,
        files: Files::of(&[(ATTEMPTS, KIB)]),
        client: &["--one-by-one"],
        patience: 300,
        checks: &[check::handshakes::<ATTEMPTS>, check::version_1],
        ..Case::BASE
    },
    Case {
        name: "transfercorruption",
        description: "A transfer where 2 % of the packets are corrupted.",
        scenario: CORRUPTION_2,
        files: Files::of(&[(1, 2 * MIB)]),
        ..Case::BASE
    },
    Case {
        name: "ipv6",
        description: "A transfer over IPv6.",
        files: Files::of(&[(1, 5 * KIB), (1, 10 * KIB)]),
        ipv6: true,
        checks: &[check::handshakes::<1>, check::version_1, check::only_ipv6],
        ..Case::BASE
    },
    Case {
        name: "v2",
        description: "The client starts with version 1, the server chooses version 2.",
        client: &["--v2"],
        server: &["--v2"],
        checks: &[check::handshakes::<1>, check::version_2],
        ..Case::BASE
    },
    Case {
        name: "rebind-port",
        description: "A transfer survives new ports of the client, each of which is validated.",
        scenario: REBIND_PORT,
        files: Files::of(&[(1, 10 * MIB)]),
        checks: &[check::handshakes::<1>, check::version_1, check::paths_validated],
        ..Case::BASE
    },
    Case {
        name: "rebind-addr",
        description: "A transfer survives new addresses of the client, each of which is validated.",
        scenario: REBIND_ADDRESS,
        files: Files::of(&[(1, 10 * MIB)]),
        checks: &[
            check::handshakes::<1>,
            check::version_1,
            check::addresses_changed,
            check::paths_validated,
        ],
        ..Case::BASE
    },
    Case {
        name: "connectionmigration",
        description: "A transfer goes on at the address that the server prefers, which validates.",
        files: Files::of(&[(1, 2 * MIB)]),
        arrangement: Arrangement::PreferredAddress,
        checks: &[
            check::handshakes::<1>,
            check::version_1,
            check::paths_validated,
            check::client_migrated,
        ],
        ..Case::BASE
    },
    Case {
        name: "migration",
        description: "A transfer goes on from another address of the client, which is validated.",
        files: Files::of(&[(1, 2 * MIB)]),
        client: &["--migrate", "127.0.0.2"],
        checks: &[
            check::handshakes::<1>,
            check::version_1,
            check::paths_validated,
            check::client_migrated,
        ],
        ..Case::BASE
    },
    Case {
        name: "versionnegotiation",
        description: "A version that no server has is answered with Version Negotiation.",
        files: Files::of(&[]),
        client: &["--unknown-version"],
        checks: &[check::version_negotiation],
        ..Case::BASE
    },
    Case {
        name: "streams-2000",
        description: "2,000 echoed streams where the server permits about 100 at once.",
        alpn: ALPN_ECHO,
        files: Files::of(&[]),
        client: &["--streams", "2000"],
        checks: &[check::handshakes::<1>, check::version_1, check::echoed_streams::<2000>],
        ..Case::BASE
    },
    Case {
        name: "datagrams",
        description: "200 echoed datagrams.",
        alpn: ALPN_ECHO,
        files: Files::of(&[]),
        client: &["--datagrams", "200"],
        checks: &[check::handshakes::<1>, check::version_1, check::echoed_datagrams::<200>],
        ..Case::BASE
    },
    Case {
        name: "resets",
        description: "50 streams are given up by RESET_STREAM and STOP_SENDING, which the server \
                      answers; the connection goes on.",
        alpn: ALPN_ECHO,
        files: Files::of(&[]),
        client: &["--resets", "50", "--streams", "10"],
        checks: &[
            check::handshakes::<1>,
            check::version_1,
            check::given_up::<50>,
            check::echoed_streams::<10>,
        ],
        ..Case::BASE
    },
    Case {
        name: "clientauth",
        description: "The server demands a certificate of the client, and gets it.",
        arrangement: Arrangement::ClientCertificate,
        checks: &[check::handshakes::<1>, check::version_1, check::client_certificate],
        ..Case::BASE
    },
    Case {
        name: "statelessreset",
        description: "A server that was killed and started again ends a connection that it has \
                      forgotten by a stateless reset, which silences the client.",
        alpn: ALPN_ECHO,
        files: Files::of(&[]),
        client: &["--streams", "5000"],
        server: &["--reset-key", "interoperability"],
        arrangement: Arrangement::Restart,
        patience: 25,
        checks: &[check::version_1, check::stateless_reset],
        ..Case::BASE
    },
    Case {
        name: "ackfrequency",
        description: "The server asks for fewer ACKs by ACK_FREQUENCY, and the client sends fewer.",
        files: Files::of(&[(1, 3 * MIB)]),
        server: &["--ack-frequency"],
        checks: &[check::handshakes::<1>, check::version_1, check::ack_frequency],
        ..Case::BASE
    },
    Case {
        name: "parallel-64",
        description: "64 connections at once.",
        scenario: FAST,
        files: Files::of(&[(64, 20 * KIB)]),
        client: &["--parallel"],
        patience: 120,
        checks: &[check::handshakes::<64>, check::version_1],
        ..Case::BASE
    },
    Case {
        name: "transfer-4gib",
        description: "8 files of 512 MiB, in each of which the client updates the keys.",
        scenario: "ideal",
        files: Files::of(&[(8, 512 * MIB)]),
        client: &["--key-update"],
        on_request: true,
        patience: 900,
        checks: &[check::handshakes::<1>, check::version_1, check::key_updates::<8>],
        ..Case::BASE
    },
];

impl PartialEq for Case {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// A case on the command line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CaseName(pub &'static Case);

impl FromStr for CaseName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        CASES.iter().find(|known| known.name == name).map(Self).ok_or_else(|| {
            let known: Vec<_> = CASES.iter().map(|case| case.name).collect();
            format!("unknown case {name:?}: expected one of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quicket_sim::scenario::Scenario;

    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_a_scenario_that_parses_and_checks() {
        let names: BTreeSet<_> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        for case in CASES {
            assert!(case.scenario.parse::<Scenario>().is_ok(), "{case}");
            assert!(!case.checks.is_empty() && !case.description.is_empty(), "{case}");
            assert_eq!(case.name.parse(), Ok(CaseName(case)));
        }
        assert!("handshakes".parse::<CaseName>().unwrap_err().contains("streams-2000"));
    }
}
