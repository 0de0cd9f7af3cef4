//! The smallest program around the library: carries one tunnel until it is interrupted.
//!
//! `cargo run -p quicket-tunnel --example carry -- tun1 type ipip remote 198.51.100.2 encap gue`
#![cfg_attr(not(target_os = "linux"), allow(unused))]

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use quicket_tunnel::{Line, Setup, Tunnels, parse_line};

    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(Line::Tunnel(tunnel)) = parse_line(&format!("add {}", words.join(" ")))? else {
        return Err("which tunnel? NAME type TYPE remote ADDRESS encap {fou|gue} ...".into());
    };
    let setup = Setup { tunnels: vec![*tunnel], ports: Vec::new() };
    let tunnels = Tunnels::start(setup, 1)?;
    eprintln!("ready, mtu {}", tunnels.mtu(0).unwrap_or_default());
    tunnels.failed(None).map_or(Ok(()), |error| Err(error.into()))
}

#[cfg(not(target_os = "linux"))]
fn main() {}
