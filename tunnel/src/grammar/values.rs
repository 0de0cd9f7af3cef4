//! What values of words mean.

use std::net::{IpAddr, Ipv4Addr};

use quicket_gue::{EcnIngress, Tos, Ttl};

use crate::config::{Encap, Families, FlowLabel, Kind, Prefix};

/// The longest name of a device (IFNAMSIZ, less the zero byte).
const MAX_NAME: usize = 15;

pub(super) fn kind(value: &str) -> Result<Kind, String> {
    match value {
        "ipip" => Ok(Kind::Ipip),
        "sit" => Ok(Kind::Sit),
        "gre" => Ok(Kind::Gre),
        "ip6tnl" => Ok(Kind::Ip6tnl),
        "ip6gre" => Ok(Kind::Ip6gre),
        "gretap" => Ok(Kind::Gretap),
        "ip6gretap" => Ok(Kind::Ip6gretap),
        "erspan" | "ip6erspan" | "vti" | "vti6" => Err("this type is not supported".into()),
        _ => Err("the types are ipip, sit, gre, gretap, ip6tnl, ip6gre and ip6gretap".into()),
    }
}

pub(super) fn mode(value: &str) -> Result<Families, String> {
    let (v4, v6) = match value {
        "any" | "any/ipv4" | "any/ipv6" => (true, true),
        "ipip" | "ip4ip4" | "ipv4/ipv4" | "ipip6" | "ip4ip6" | "ipv4/ipv6" | "ip/ipv6" => {
            (true, false)
        }
        "ip6ip" | "ipv6/ipv4" | "ip6ip6" | "ipv6/ipv6" => (false, true),
        "mplsip" | "mpls/ipv4" | "mplsip6" | "mpls/ipv6" => {
            return Err("MPLS is not supported".into());
        }
        _ => return Err("the modes are any, ip4ip4, ip6ip, ipip6 and ip6ip6".into()),
    };
    Ok(Families { v4, v6 })
}

/// Nothing for none.
pub(super) fn encap(value: &str) -> Result<Option<Encap>, String> {
    match value {
        "none" => Ok(None),
        "fou" => Ok(Some(Encap::Fou)),
        "gue" => Ok(Some(Encap::Gue)),
        _ => Err("the encapsulations are none, fou and gue".into()),
    }
}

pub(super) fn ecn(value: &str) -> Result<EcnIngress, String> {
    match value {
        "copy" => Ok(EcnIngress::Normal),
        "reset-ce" => Ok(EcnIngress::ResetCe),
        "none" => Ok(EcnIngress::Compatibility),
        _ => Err("copy, reset-ce (as Linux does) or none".into()),
    }
}

pub(super) fn address(value: &str) -> Result<Option<IpAddr>, String> {
    let address: IpAddr = match value {
        "any" => return Ok(None),
        _ => value.parse().map_err(|_| "not an IP address".to_owned())?,
    };
    if address.is_multicast() {
        return Err("groups are not supported".into());
    }
    Ok((!address.is_unspecified()).then_some(address))
}

pub(super) fn prefix(value: &str) -> Result<Prefix, String> {
    let (address, len) = match value.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (value, None),
    };
    let wrong = || "not a prefix, such as 10.0.0.0/8".to_owned();
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let len = len.map_or(Ok(max), |len| len.parse::<u8>().map_err(|_| wrong()))?;
    if len > max { Err(wrong()) } else { Ok(Prefix { address, len }) }
}

/// A number as `ip` reads it: decimal, or hexadecimal after 0x.
pub(super) fn number(value: &str, max: u32) -> Result<u32, String> {
    let parsed = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => value.parse(),
    };
    parsed.ok().filter(|number| *number <= max).ok_or_else(|| format!("not a number up to {max}"))
}

pub(super) fn port_number(value: &str) -> Result<u16, String> {
    match number(value, 65535)? {
        0 => Err("a port is 1 to 65535".into()),
        port => Ok(port as u16),
    }
}

pub(super) fn ttl(value: &str) -> Result<Ttl, String> {
    match value {
        "inherit" => Ok(Ttl::Inherit),
        _ => Ok(match number(value, 255)? {
            0 => Ttl::Inherit,
            ttl => Ttl::Fixed(ttl as u8),
        }),
    }
}

pub(super) fn tos(value: &str) -> Result<Tos, String> {
    let digits = value.strip_prefix("0x").unwrap_or(value);
    match (value, u8::from_str_radix(digits, 16)) {
        ("inherit", _) => Ok(Tos::Inherit),
        // In the kernel, too, this bit stands for "inherit".
        (_, Ok(1)) => Ok(Tos::Inherit),
        (_, Ok(tos)) if tos & 0b11 == 0 => Ok(Tos::Fixed(tos)),
        (_, Ok(_)) => Err("the two lowest bits are for ECN".into()),
        _ => Err("inherit, or 00 to fc in hexadecimal".into()),
    }
}

/// A flow label, in hexadecimal; `auto` and 0 leave it to the system.
pub(super) fn flow_label(value: &str) -> Result<FlowLabel, String> {
    match value {
        "auto" => return Ok(FlowLabel::Auto),
        "inherit" => return Ok(FlowLabel::Inherit),
        _ => {}
    }
    let digits = value.strip_prefix("0x").unwrap_or(value);
    match u32::from_str_radix(digits, 16) {
        Ok(0) => Ok(FlowLabel::Auto),
        Ok(label) if label <= 0xf_ffff => Ok(FlowLabel::Fixed(label)),
        _ => Err("auto, inherit, or 1 to fffff in hexadecimal".into()),
    }
}

/// A mark; 0 is none.
pub(super) fn mark(value: &str) -> Result<Option<u32>, String> {
    if value == "inherit" {
        return Err("marks of packets inside are not known here: give a number".into());
    }
    number(value, u32::MAX).map(|mark| (mark != 0).then_some(mark))
}

pub(super) fn key(value: &str) -> Result<u32, String> {
    if value.contains('.') {
        let quad: Ipv4Addr = value.parse().map_err(|_| "a number or 1.2.3.4".to_owned())?;
        return Ok(quad.to_bits());
    }
    number(value, u32::MAX)
}

pub(super) fn device_name(value: &str) -> Result<String, String> {
    let good = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%');
    let fine = (1..=MAX_NAME).contains(&value.len()) && value.bytes().all(good);
    if !fine || matches!(value, "." | "..") {
        return Err(format!(
            "\"{}\" cannot be the name of a device: 1 to {MAX_NAME} characters, without / : %",
            value.chars().take(40).collect::<String>().escape_default()
        ));
    }
    Ok(value.to_owned())
}
