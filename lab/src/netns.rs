//! Two network namespaces, which a pair of virtual Ethernet devices may join.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The only device in each namespace besides the loopback.
pub(crate) const DEVICE: &str = "veth0";
/// Where one of these variables says yes, a test that needs namespaces fails without them:
/// continuous integration sets the first, `./test` the second.
const REQUIRED: [&str; 2] = ["CI", "QUICKET_TEST_NAMESPACES"];

/// Which of the two namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// 192.0.2.1
    Left,
    /// 192.0.2.2
    Right,
}

/// Two network namespaces to which nothing is connected.
///
/// They are removed on drop. They are removed as well when this process ends in any other way,
/// even when it is killed: that is done by a shell which waits for the end of a pipe.
#[derive(Debug)]
pub struct Namespaces {
    names: [String; 2],
    janitor: Child,
}

impl Namespaces {
    /// Makes them.
    ///
    /// # Errors
    ///
    /// When it is not permitted or the tool `ip` is missing; the message says so.
    pub fn new() -> Result<Self, NetnsError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("quicket-{}-{number}-{end}", std::process::id());
        let names = [name("left"), name("right")];
        let janitor = start_janitor(&names)?;
        let made = Self { names, janitor };
        for name in &made.names {
            ip(&["netns", "add", name])?;
        }
        Ok(made)
    }

    /// Gives a device of each its address and MTU in bytes, and takes it into use.
    pub(crate) fn set_up(&self, device: &str, mtu: u16) -> Result<(), NetnsError> {
        let mtu = mtu.to_string();
        for end in [End::Left, End::Right] {
            let (name, address) = (self.name(end), format!("{}/30", Self::address(end)));
            ip(&["-n", name, "addr", "add", &address, "dev", device])?;
            ip(&["-n", name, "link", "set", device, "mtu", &mtu, "up"])?;
            self.use_loopback(end)?;
        }
        Ok(())
    }

    /// Takes the loopback of an end into use.
    pub(crate) fn use_loopback(&self, end: End) -> Result<(), NetnsError> {
        ip(&["-n", self.name(end), "link", "set", "lo", "up"])
    }

    /// The address of an end.
    #[must_use]
    pub fn address(end: End) -> IpAddr {
        match end {
            End::Left => Ipv4Addr::new(192, 0, 2, 1).into(),
            End::Right => Ipv4Addr::new(192, 0, 2, 2).into(),
        }
    }

    /// The name of an end's namespace, as `ip netns` lists it.
    #[must_use]
    pub fn name(&self, end: End) -> &str {
        let [left, right] = &self.names;
        match end {
            End::Left => left,
            End::Right => right,
        }
    }

    /// Sets a kernel parameter, such as `net/ipv4/tcp_tw_reuse`, for an end.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_sysctl(&self, end: End, name: &str, value: &str) -> Result<(), NetnsError> {
        let script = format!("echo {value} > /proc/sys/{name}");
        ip(&["netns", "exec", self.name(end), "sh", "-c", &script])
    }

    /// Runs `ip` for an end.
    pub(crate) fn ip(&self, end: End, arguments: &[&str]) -> Result<(), NetnsError> {
        ip(&[&["-n", self.name(end)], arguments].concat())
    }

    /// A command that runs what `command` runs, inside a namespace and with the same process ID.
    #[must_use]
    pub fn inside(&self, end: End, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", self.name(end)]);
        inside.arg(command.get_program()).args(command.get_args());
        inside
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.janitor.stdin = None;
        let _ = self.janitor.wait();
    }
}

/// Two network namespaces joined by virtual Ethernet devices; nothing else is connected to them.
#[derive(Debug)]
pub struct VethPair {
    namespaces: Namespaces,
}

impl VethPair {
    /// Makes them, with the given MTU of the devices in bytes.
    ///
    /// # Errors
    ///
    /// When it is not permitted or the tool `ip` is missing; the message says so.
    pub fn new(mtu: u16) -> Result<Self, NetnsError> {
        let namespaces = Namespaces::new()?;
        let [left, right] = [End::Left, End::Right].map(|end| namespaces.name(end));
        ip(&[
            "-n", left, "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns",
            right,
        ])?;
        namespaces.set_up(DEVICE, mtu)?;
        Ok(Self { namespaces })
    }

    /// The address of an end.
    #[must_use]
    pub fn address(end: End) -> IpAddr {
        Namespaces::address(end)
    }
}

impl Deref for VethPair {
    type Target = Namespaces;

    fn deref(&self) -> &Namespaces {
        &self.namespaces
    }
}

/// Starts the shell that removes the namespaces once its standard input ends.
fn start_janitor(names: &[String; 2]) -> Result<Child, NetnsError> {
    const SCRIPT: &str = "cat; ip netns delete \"$0\"; ip netns delete \"$1\"";
    Command::new("sh")
        .arg("-c")
        .arg(SCRIPT)
        .args(names)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // An interrupt from the terminal is for this process, not for the janitor.
        .process_group(0)
        .spawn()
        .map_err(|error| NetnsError(format!("cannot start a shell: {error}")))
}

fn ip(arguments: &[&str]) -> Result<(), NetnsError> {
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| NetnsError(format!("cannot run ip: {error}; install iproute2")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(NetnsError(format!(
        "`ip {}` failed: {}; network namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)",
        arguments.join(" "),
        said.trim()
    )))
}

/// Why there are no namespaces.
#[derive(Debug, Clone)]
pub struct NetnsError(pub(crate) String);

impl fmt::Display for NetnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NetnsError {}

/// For tests: what could be made, or `None` where this machine permits no namespaces. A test that
/// leaves something out for that has to say so; see [`leave_out`].
///
/// # Panics
///
/// Where namespaces are required.
pub fn unless_denied<T>(made: Result<T, NetnsError>) -> Option<T> {
    made.inspect_err(|error| leave_out(error)).ok()
}

/// For tests: says that the one that runs leaves something out for want of namespaces. Whoever runs
/// them sees it although the test passes.
///
/// # Panics
///
/// Where namespaces are required: in continuous integration, and under `./test`.
pub fn leave_out(reason: &dyn fmt::Display) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let required = are_required(|name| std::env::var(name).ok());
    assert!(!required, "{test} needs network namespaces: {reason}");
    // Not by `eprintln!`, which the test harness keeps to itself; in one piece, as others write too.
    let line = format!("LEFT OUT, in whole or in part: {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn are_required(variable: impl Fn(&str) -> Option<String>) -> bool {
    let no = ["", "0", "false"];
    REQUIRED.iter().filter_map(|name| variable(name)).any(|value| !no.contains(&value.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_required_where_a_variable_says_so() {
        let with = |name: &'static str, value: &'static str| {
            are_required(move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert!(with("CI", "true") && with("CI", "1") && with("QUICKET_TEST_NAMESPACES", "1"));
        assert!(!with("CI", "false") && !with("CI", "") && !with("HOME", "true"));
    }

    fn namespaces() -> String {
        let output = Command::new("ip").args(["netns", "list"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn output_inside(pair: &VethPair, end: End, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments);
        let output = pair.inside(end, &command).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn pair(mtu: u16) -> Option<VethPair> {
        unless_denied(VethPair::new(mtu))
    }

    #[test]
    fn each_end_sees_its_device_with_address_and_mtu() {
        let Some(pair) = pair(1400) else { return };
        for (end, address) in [(End::Left, "192.0.2.1/30"), (End::Right, "192.0.2.2/30")] {
            let told = output_inside(&pair, end, "ip", &["addr", "show", "dev", DEVICE]);
            assert!(told.contains(address) && told.contains("mtu 1400"), "{told}");
        }
    }

    #[test]
    fn the_ends_reach_each_other_and_nothing_else_does() {
        let Some(pair) = pair(1500) else { return };
        let routes = output_inside(&pair, End::Left, "ip", &["route", "get", "192.0.2.2"]);
        assert!(routes.contains(DEVICE), "{routes}");
        let mut command = Command::new("ip");
        command.args(["route", "get", "198.51.100.1"]);
        assert!(!pair.inside(End::Left, &command).output().unwrap().status.success());
    }

    #[test]
    fn they_go_on_drop_and_on_a_panic() {
        let Some(first) = pair(1500) else { return };
        let name = first.name(End::Left).to_owned();
        assert!(namespaces().contains(&name));
        drop(first);
        assert!(!namespaces().contains(&name));

        let name = std::thread::spawn(|| {
            let pair = VethPair::new(1500).unwrap();
            let name = pair.name(End::Right).to_owned();
            std::panic::panic_any(name);
        })
        .join()
        .unwrap_err();
        let name = name.downcast::<String>().unwrap();
        assert!(!namespaces().contains(name.as_str()));
    }
}
