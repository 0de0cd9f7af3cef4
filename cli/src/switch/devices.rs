//! `quicket switch attach`, `detach` and `devices`: network devices of the switch for packets.

use std::fmt::Write;
use std::io;

use quicket_packets::REASONS;
use quicket_packets::control::Control;
use quicket_packets::device::{Attached, Loopback, Mode, Offloads, ServedVlan};
use serde_json::{Map, Value, json};

use super::packets::unanswered;
use crate::args::{DeviceMode, PacketsName, SwitchAttach, SwitchDetach, SwitchDevices};
use crate::control::printable;
use crate::exit::{Failure, Kind};

/// Attaches a device, and says what that has changed.
pub(super) fn attach(args: &SwitchAttach) -> Result<(), Failure> {
    let mode = match args.mode {
        DeviceMode::Best => Mode::Best,
        DeviceMode::Native => Mode::Native,
        DeviceMode::Generic => Mode::Generic,
    };
    let device = connect(&args.name)?.attach(&args.device, mode).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AlreadyExists => {
                "; quicket switch devices shows it, quicket switch detach detaches it"
            }
            io::ErrorKind::Unsupported => without_native(&args.device, mode),
            _ => "",
        };
        refused(&error, advice)
    })?;
    crate::print(&if args.json { report(&device).to_string() } else { text(&device) })
}

/// What to do if a driver cannot do what was asked for.
fn without_native(device: &str, mode: Mode) -> &'static str {
    match (device, mode) {
        ("lo", Mode::Native) => {
            "; lo never has native XDP: attach it with --mode generic, or without --mode"
        }
        (_, Mode::Native) => {
            "; --mode generic does without the driver, and without --mode it is taken where the driver has none"
        }
        (_, Mode::Best | Mode::Generic) => "",
    }
}

/// Detaches a device, and says what is as it was before.
pub(super) fn detach(args: &SwitchDetach) -> Result<(), Failure> {
    let mut control = connect(&args.name)?;
    let devices = control.devices().map_err(|error| refused(&error, ""))?;
    control.detach(&args.device).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => "; quicket switch devices shows which are",
            _ => "",
        };
        refused(&error, advice)
    })?;
    let device = devices.into_iter().find(|device| device.name == args.device);
    let restored = device.map(|device| changed(&device)).unwrap_or_default();
    if args.json {
        return crate::print(&json!({ "device": args.device, "restored": restored }).to_string());
    }
    let again = if restored.is_empty() {
        String::new()
    } else {
        format!("; as before: {}", restored.join(", "))
    };
    crate::print(&format!("{} is detached{again}", printable(&args.device)))
}

/// Shows the devices that are attached.
pub(super) fn list(args: &SwitchDevices) -> Result<(), Failure> {
    let devices = connect(&args.name)?.devices().map_err(|error| refused(&error, ""))?;
    if args.json {
        let devices: Vec<Value> = devices.iter().map(report).collect();
        return crate::print(&json!({ "devices": devices }).to_string());
    }
    if devices.is_empty() {
        return crate::print("no device is attached; quicket switch attach DEVICE attaches one");
    }
    crate::print(&devices.iter().map(text).collect::<Vec<_>>().join("\n"))
}

/// Finds the switch.
fn connect(name: &PacketsName) -> Result<Control, Failure> {
    let path = super::packets::path(&name.name)?;
    Control::connect(&path).map_err(|error| unanswered(&path, &error))
}

/// The switch says what stands in the way, and mostly what to do.
fn refused(error: &io::Error, advice: &str) -> Failure {
    let advice =
        if error.kind() == io::ErrorKind::InvalidData { "; --name says which" } else { advice };
    Failure::new(Kind::Environment, format!("{}{advice}", printable(&error.to_string())))
}

/// What is switched off, as ethtool names it.
fn off(device: &Attached) -> Vec<&'static str> {
    let Offloads { vlan, large_receive } = device.changed;
    named([(vlan, "rx-vlan-offload"), (large_receive, "large-receive-offload")])
}

/// The limit that is lowered, as ip link names it.
fn lowered(device: &Attached) -> Vec<&'static str> {
    named([(device.loopback.segments, "gso_max_segs")])
}

/// What is switched on, as sysctl names it.
fn on(device: &Attached) -> Vec<&'static str> {
    let Loopback { accept_local, route_localnet, .. } = device.loopback;
    named([(accept_local, "accept_local"), (route_localnet, "route_localnet")])
}

/// All that has changed.
fn changed(device: &Attached) -> Vec<&'static str> {
    [off(device), lowered(device), on(device)].concat()
}

fn named<const N: usize>(all: [(bool, &'static str); N]) -> Vec<&'static str> {
    all.into_iter().filter_map(|(is_there, name)| is_there.then_some(name)).collect()
}

const fn mode(device: &Attached) -> &'static str {
    if device.is_native { "native" } else { "generic" }
}

/// A device, for programs.
fn report(device: &Attached) -> Value {
    let counters = &device.counters;
    let dropped: Map<String, Value> = REASONS
        .iter()
        .map(|reason| (reason.name().to_owned(), counters.dropped(*reason).into()))
        .collect();
    let changed = changed(device);
    let vlan = |vlan: &ServedVlan| json!({ "vlan": vlan.number, "device": vlan.device });
    let vlans: Vec<Value> = device.vlans.iter().map(vlan).collect();
    json!({
        "device": device.name,
        "index": device.index,
        "mode": mode(device),
        "zero_copy": device.is_zero_copy,
        "queues": device.queues,
        "mtu": device.mtu,
        "changed": changed,
        "vlans": vlans,
        "sent": counters.sent,
        "received": counters.received,
        "dropped": dropped,
    })
}

/// A device, for people.
fn text(device: &Attached) -> String {
    let memory =
        if device.is_zero_copy { "without copies (zero copy)" } else { "copied by the kernel" };
    let where_ = if device.is_native { "in the driver" } else { "behind the driver" };
    let mut changed = Vec::new();
    for (words, names) in [
        ("switched off", off(device)),
        ("lowered to 1", lowered(device)),
        ("switched on", on(device)),
    ] {
        if !names.is_empty() {
            changed.push(format!("{words} until it is detached: {}", names.join(", ")));
        }
    }
    if changed.is_empty() {
        changed.push("nothing of it is changed".to_owned());
    }
    if !device.vlans.is_empty() {
        let name = |vlan: &ServedVlan| format!("{} ({})", vlan.number, printable(&vlan.device));
        let vlans: Vec<_> = device.vlans.iter().map(name).collect();
        changed.push(format!("VLANs: {}", vlans.join(", ")));
    }
    let about = changed.join("\n  ");
    let mut out = format!(
        "{}: {} mode ({where_}), frames {memory}, queues {}, MTU {}\n  {about}\n  frames: {} in, {} out",
        printable(&device.name),
        mode(device),
        device.queues,
        device.mtu,
        device.counters.received,
        device.counters.sent,
    );
    for reason in REASONS {
        let n = device.counters.dropped(reason);
        if n > 0 {
            let _ = write!(out, ", {n} dropped: {}", reason.name());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asked_for_what_a_driver_has_not_hears_what_to_do() {
        assert!(without_native("lo", Mode::Native).contains("lo never has native XDP"));
        assert!(without_native("eth0", Mode::Native).contains("--mode generic"));
        assert_eq!(without_native("lo", Mode::Best), "");
    }

    #[test]
    fn people_and_programs_see_what_has_changed() {
        let mut device = Attached {
            name: "eth0".to_owned(),
            index: 2,
            is_native: true,
            is_zero_copy: false,
            queues: 4,
            mtu: 1500,
            changed: Offloads { vlan: true, large_receive: true },
            loopback: Loopback::default(),
            vlans: Vec::new(),
            counters: Default::default(),
        };
        let shown = text(&device);
        for words in [
            "native mode",
            "copied by the kernel",
            "queues 4",
            "MTU 1500",
            "rx-vlan-offload, large",
        ] {
            assert!(shown.contains(words), "{shown}");
        }
        let told = report(&device);
        assert_eq!(told["changed"], json!(["rx-vlan-offload", "large-receive-offload"]));
        assert_eq!((&told["mode"], &told["dropped"]["full"]), (&json!("native"), &json!(0)));
        (device.changed, device.is_native) = (Offloads::default(), false);
        assert!(text(&device).contains("generic mode (behind the driver)"));
        assert!(text(&device).contains("nothing of it is changed"));
        device.loopback = Loopback { segments: true, accept_local: true, route_localnet: false };
        let shown = text(&device);
        assert!(shown.contains("lowered to 1 until it is detached: gso_max_segs\n"), "{shown}");
        assert!(!shown.contains("switched off"), "{shown}");
        assert!(shown.contains("on until it is detached: accept_local\n"), "{shown}");
        assert_eq!(report(&device)["changed"], json!(["gso_max_segs", "accept_local"]));
        assert_eq!(report(&device)["vlans"], json!([]));
        assert!(!text(&device).contains("VLANs"));
        let vlan = |number, device: &str| ServedVlan { number, device: device.to_owned() };
        device.vlans = vec![vlan(100, "eth0.100"), vlan(200, "\u{1b}[2J")];
        let shown = text(&device);
        assert!(shown.contains("\n  VLANs: 100 (eth0.100), 200 ("), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
        let told =
            json!([{ "vlan": 100, "device": "eth0.100" }, { "vlan": 200, "device": "\u{1b}[2J" }]);
        assert_eq!(report(&device)["vlans"], told);
    }
}
