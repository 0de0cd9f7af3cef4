//! Packets that come before their keys (RFC 9001, Section 5.7).

use quicket_engine::Side;
use quicket_sim::attack::{Duel, DuelOptions, Stage};

use crate::memory::growth;
use crate::support::KIB;

/// Nothing about such packets is authenticated: few bytes of them are kept.
#[test]
fn packets_without_keys_are_kept_in_small_numbers_and_sizes() {
    for side in [Side::Client, Side::Server] {
        for size in [60, 1_200, 9_000, 16_000, 60_000] {
            let mut duel = Duel::new(DuelOptions::new(side), Stage::First);
            let mut templates = Vec::new();
            for first in [0xd0, 0xe0, 0x40_u8] {
                let mut packet = vec![first];
                if first != 0x40 {
                    packet.extend([0, 0, 0, 1, duel.forge.dcid.len() as u8]);
                }
                packet.extend(duel.forge.dcid.as_slice());
                if first != 0x40 {
                    packet.push(0);
                    let rest = (size - packet.len() - 4) as u32 | 0x8000_0000;
                    packet.extend(rest.to_be_bytes());
                }
                packet.resize(size, 0x33);
                templates.push(packet);
            }
            let grown = growth(&mut duel, |duel| {
                for n in 0..300 {
                    duel.deliver(&mut templates[n % 3].clone());
                }
            });
            assert!(grown < 96 * KIB, "{grown} bytes in packets of {size}");
        }
    }
}
