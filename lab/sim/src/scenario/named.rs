//! Scenarios that have a name.

use super::Scenario;

/// Name, description and text of each.
const TABLE: &[(&str, &str, &str)] = &[
    ("ideal", "no delay, no limits", ""),
    (
        "simple-p2p",
        "15 ms each way, 10 Mbit/s, a queue of 25 packets: the base of the QUIC interop runner",
        SIMPLE,
    ),
    (
        "droplist",
        "simple-p2p that loses the second packet from the client and the third from the server",
        "simple-p2p; up drop=2; down drop=3",
    ),
    ("drop-rate", "simple-p2p with 2 % loss", "simple-p2p; loss=2%"),
    ("corrupt-rate", "simple-p2p that flips bits in 2 % of the packets", "simple-p2p; corrupt=2%"),
    (
        "blackhole",
        "simple-p2p that loses everything for 2 s out of 7 s",
        "simple-p2p; every 7s from 5s blackhole=2s",
    ),
    (
        "rebind-port",
        "simple-p2p behind a NAT that takes another port every 5 s, first after 1 s",
        "simple-p2p; every 5s from 1s rebind=port",
    ),
    (
        "rebind-addr",
        "simple-p2p behind a NAT that takes another address every 5 s, first after 1 s",
        "simple-p2p; every 5s from 1s rebind=address",
    ),
    (
        "dsl",
        "16 Mbit/s down, 1 Mbit/s up, a deep queue",
        "delay=12ms jitter=1ms queue=64kB mtu=1492; down rate=16mbit; up rate=1mbit",
    ),
    (
        "cable",
        "100 Mbit/s down, 10 Mbit/s up",
        "delay=8ms jitter=2ms queue=256kB loss=0.01%; down rate=100mbit; up rate=10mbit",
    ),
    (
        "lte",
        "a rate that swings between 30 and 4 Mbit/s, jitter, hand-overs of 150 ms",
        "delay=25ms jitter=8ms queue=200kB mtu=1428; down rate=30mbit; up rate=8mbit; \
         every 6s from 3s down rate=4mbit; every 6s down rate=30mbit; every 20s blackhole=150ms",
    ),
    (
        "satellite",
        "geostationary: 300 ms each way, 20 Mbit/s down, 2 Mbit/s up, 1 % loss",
        "delay=300ms jitter=3ms queue=500kB loss=1%; down rate=20mbit; up rate=2mbit",
    ),
    (
        "bad-wifi",
        "bursts of loss, reordering, duplicates and much jitter",
        "delay=5ms jitter=4ms rate=20mbit queue=100 burst-loss=0.5%,20% reorder=1%,8ms \
         duplicate=0.5% corrupt=0.01%",
    ),
    (
        "data-centre",
        "50 us each way, 10 Gbit/s, jumbo frames, CE marks above 65 packets",
        "delay=50us rate=10gbit queue=1000 mtu=9000 mark-above=65",
    ),
    (
        "loss-1",
        "100 Mbit/s, 15 ms each way, a queue of one bandwidth-delay product, 1 % random loss",
        "delay=15ms rate=100mbit queue=375kB mtu=1500 loss=1%",
    ),
    ("loss-5", "loss-1 with 5 % loss", "loss-1; loss=5%"),
    ("loss-10", "loss-1 with 10 % loss", "loss-1; loss=10%"),
    (
        "shallow",
        "50 Mbit/s, 15 ms each way, a queue of a tenth of the bandwidth-delay product",
        "delay=15ms rate=50mbit queue=19kB mtu=1500",
    ),
    (
        "bufferbloat",
        "10 Mbit/s, 15 ms each way, a queue of 800 ms",
        "delay=15ms rate=10mbit queue=1000kB mtu=1500",
    ),
];

const SIMPLE: &str = "delay=15ms rate=10mbit queue=25 mtu=1500";

impl Scenario {
    /// The names of all named scenarios.
    pub const NAMES: &'static [&'static str] = &{
        let mut names = [""; TABLE.len()];
        let mut i = 0;
        while i < TABLE.len() {
            names[i] = TABLE[i].0;
            i += 1;
        }
        names
    };

    /// The scenario of that name.
    pub fn named(name: &str) -> Option<Self> {
        let (_, _, text) = TABLE.iter().find(|(n, _, _)| *n == name)?;
        Some(text.parse().expect("the table holds scenarios that parse"))
    }

    /// What the scenario of that name is like, in a few words.
    pub fn description(name: &str) -> Option<&'static str> {
        TABLE.iter().find(|(n, _, _)| *n == name).map(|(_, description, _)| *description)
    }
}
