//! A host without a device: answers pings of IPv4 that come through a tunnel whole. It takes no privileges.
//!
//! `cargo run -p quicket-tunnel --example carrier -- tun1 type ipip remote 198.51.100.2 encap gue`
//! answers for all addresses that the other end routes into its tunnel.
#![cfg_attr(not(target_os = "linux"), allow(unused))]

use quicket_gue::{Packet, Sum, protocol};

/// The answer to an echo request of IPv4 (RFC 792), in its place.
fn answer(packet: &mut [u8]) -> Option<()> {
    let parsed = Packet::parse(packet).ok()?;
    let (icmp, len) = (parsed.transport, parsed.bytes.len());
    let request = parsed.is_v4() && parsed.protocol == protocol::ICMP && !parsed.fragment;
    if !request || *packet.get(icmp)? != 8 || len < icmp + 8 {
        return None;
    }
    let (source, destination) = packet.get_mut(12..20)?.split_at_mut(4);
    source.swap_with_slice(destination);
    let message = packet.get_mut(icmp..len)?;
    message[0] = 0;
    message[2..4].fill(0);
    let checksum = Sum::new().bytes(message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use quicket_tunnel::{Carrier, Line, Setup, parse_line};

    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(Line::Tunnel(tunnel)) = parse_line(&format!("add {}", words.join(" ")))? else {
        return Err("which tunnel? NAME type TYPE remote ADDRESS encap {fou|gue} ...".into());
    };
    let carrier = Carrier::open(Setup { tunnels: vec![*tunnel], ports: Vec::new() })?;
    eprintln!("ready, mtu {}", carrier.mtu(0).unwrap_or_default());
    let mut buffer = vec![0; 65_535];
    loop {
        let Some(received) = carrier.recv(&mut buffer, None)? else { continue };
        let packet = &mut buffer[..received.len];
        if answer(packet).is_some()
            && let Err(error) = carrier.send(received.tunnel, packet)
        {
            eprintln!("an answer is lost: {error}");
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {}
