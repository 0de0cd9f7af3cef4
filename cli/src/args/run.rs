//! Flags of `quicket run`.

use std::path::PathBuf;

use clap::Args;

use super::Becomes;

/// Start a program that knows the kernel's QUIC sockets, with Quicket's
///
/// The program speaks QUIC through the system's socket calls: its
/// socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC) (or AF_INET6, or SOCK_STREAM) works as with the
/// in-kernel QUIC module, on any kernel. Its other sockets and files are not touched. Programs that it starts can do the
/// same. With --tcp-by, its TCP is Quicket's, too.
///
/// The program must be dynamically linked, and must not gain privileges when it starts (set-user-ID, capabilities of its
/// file): the loader preloads nothing into others. The same holds of the interpreter of a script. They are refused.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  quicket run -- ./server 127.0.0.1 4433
  quicket run -- python3 client.py
  quicket run --switch=mail -- python3 mail.py &
  quicket run --switch=chat -- ./chat [::]:443 &
  quicket switch status
  quicket switch packets --name ./ports &
  quicket run --tcp-by ./ports -- python3 -m http.server 8000 --bind 127.0.0.1")]
pub(crate) struct Run {
    /// The library to preload; by default the one within this program, or else
    /// libquicket_preload.so beside it or in ../lib
    #[arg(long, value_name = "FILE", env = "QUICKET_PRELOAD")]
    pub(crate) library: Option<PathBuf>,

    /// Share each address that the program listens on with other programs, through the switch, which is
    /// started where there is none (see quicket switch --help): QUIC_SOCKOPT_ALPN tells their listeners
    /// apart. NAME is what the program is called there, by default the name of its file. Without it, an address is
    /// shared once a child that the program has forked accepts from its listener
    #[cfg(target_os = "linux")]
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_parser = program_name
    )]
    pub(crate) switch: Option<String>,

    /// Give the program TCP in user space: its sockets of TCP, and those of programs that it starts, are of a stack of
    /// its own over a port of the switch for packets of this name, or at this path (quicket switch packets --help).
    /// They reach other programs with ports there, and hosts that its network devices lead to. With fd:3 it is the port of the
    /// connection that quicket switch open has handed over, with the addresses that are reserved. A process beside
    /// the program has the stack, and ends with the last of these sockets
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "NAME", help_heading = "Packets (quicket switch packets --help)")]
    pub(crate) tcp_by: Option<String>,

    /// Be the process that has the stack, for the process of this number
    #[cfg(target_os = "linux")]
    #[arg(long, hide = true, value_name = "PID", requires = "tcp_by", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) lend_to: Option<i32>,

    /// ... which nobody waits for
    #[cfg(target_os = "linux")]
    #[arg(long, hide = true, requires = "lend_to")]
    pub(crate) lend_apart: bool,

    #[command(flatten)]
    pub(crate) program: Becomes,
}

#[cfg(target_os = "linux")]
fn program_name(name: &str) -> Result<String, String> {
    let most = quicket_switch::protocol::MAX_LABEL;
    if name.len() > most || name.chars().any(char::is_control) {
        return Err(format!("a program's name has at most {most} bytes, all of them printable"));
    }
    Ok(name.to_owned())
}
