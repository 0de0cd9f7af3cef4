//! The command line. Each flag is declared here and nowhere else: help, manual pages and shell
//! completion are made from these types.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help for the terminal, where brackets are brackets"
)]

mod analyze;
#[cfg(target_os = "linux")]
mod balance;
#[cfg(target_os = "linux")]
mod becomes;
#[cfg(target_os = "linux")]
mod capture;
#[cfg(target_os = "linux")]
mod connect;
mod demo;
#[cfg(target_os = "linux")]
mod gateway;
mod get;
mod http;
#[cfg(target_os = "linux")]
mod keyd;
mod network;
mod port;
#[cfg(target_os = "linux")]
mod run;
mod serve;
#[cfg(target_os = "linux")]
mod sharing;
#[cfg(target_os = "linux")]
mod switch;
mod transport;
#[cfg(target_os = "linux")]
mod tunnel;
mod words;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

pub(crate) use self::analyze::Analyze;
pub(crate) use self::http::{Http, is_secret};
#[cfg(target_os = "linux")]
pub(crate) use balance::{Balance, BalanceCommand, Status};
#[cfg(target_os = "linux")]
pub(crate) use becomes::Becomes;
#[cfg(target_os = "linux")]
pub(crate) use capture::Capture;
#[cfg(target_os = "linux")]
pub(crate) use connect::Connect;
pub(crate) use demo::Demo;
#[cfg(target_os = "linux")]
pub(crate) use gateway::{Gateway, GatewayCommand, Try};
pub(crate) use get::{Get, Protocol, Trust, parse_url};
#[cfg(target_os = "linux")]
pub(crate) use keyd::{Keyd, KeydCommand};
pub(crate) use network::Network;
pub(crate) use port::PortOf;
#[cfg(target_os = "linux")]
pub(crate) use run::Run;
pub(crate) use serve::{Behind, Retry, Serve};
#[cfg(target_os = "linux")]
pub(crate) use sharing::Sharing;
#[cfg(target_os = "linux")]
pub(crate) use switch::{
    DeviceMode, PacketsName, PacketsWay, SecretsCommand, SecretsShow, Switch, SwitchAttach,
    SwitchCommand, SwitchDetach, SwitchDevices, SwitchDump, SwitchGenerate, SwitchOpen,
    SwitchPackets, SwitchSink, SwitchStatus, WantedTuple, server_id,
};
pub(crate) use transport::{Congestion, Transport};
#[cfg(target_os = "linux")]
pub(crate) use tunnel::{Carrying, PortAction, Show, Tunnel, TunnelCommand};

use crate::exit::CODES;

/// What addresses of sockets look like, for those who have written something else.
const ADDRESS: &str = "give an IP address and a port, such as 127.0.0.1:4433 or [::]:443";

/// Reads the command line of this process.
///
/// # Errors
///
/// What to print instead: what is wrong with it, or the help that it asks for.
pub(crate) fn read() -> Result<Args, clap::Error> {
    Args::try_parse().map_err(|error| words::plain(error, std::env::args_os()))
}

/// QUIC as a socket, and files over HTTP/3.
#[derive(Debug, Parser)]
#[command(
    name = "quicket",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_long_help = CODES,
    after_help = "Run quicket demo to see it work, and quicket COMMAND --help for examples."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do. A further command is a variant here, its flags in a file beside this one, and an
/// arm in `main.rs`. Help says what stands before the flags; a variant with words of its own would hide that.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<Serve>),
    Get(Box<Get>),
    Demo(Demo),
    Analyze(Analyze),
    #[cfg(target_os = "linux")]
    Run(Run),
    /// Carry IP packets in UDP: GUE, FOU and GRE, with the words of ip(8)
    #[cfg(target_os = "linux")]
    Tunnel(Tunnel),
    #[cfg(target_os = "linux")]
    Balance(Balance),
    #[cfg(target_os = "linux")]
    Gateway(Gateway),
    #[cfg(target_os = "linux")]
    Keyd(Box<Keyd>),
    #[cfg(target_os = "linux")]
    Connect(Box<Connect>),
    #[cfg(target_os = "linux")]
    Switch(Switch),
    /// Measure Quicket, and drive it against other implementations
    #[cfg(target_os = "linux")]
    #[command(subcommand)]
    Lab(Box<quicket_lab::command::Command>),
    /// Print the completion script for a shell
    #[command(after_help = "\
Examples:
  quicket completion bash > ~/.local/share/bash-completion/completions/quicket
  quicket completion fish > ~/.config/fish/completions/quicket.fish")]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write the pages of all commands to a directory
    #[command(after_help = "\
Examples:
  quicket man | man -l -
  quicket man ~/.local/share/man/man1")]
    Man {
        /// Where to write the pages; made if it does not exist
        dir: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declarations_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_flag_has_a_help_text() {
        let mut rest = vec![Args::command()];
        while let Some(command) = rest.pop() {
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {argument}", command.get_name());
            }
            rest.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn help_of_a_command_says_more_than_the_list_of_commands() {
        let all = Args::command();
        for command in all.get_subcommands() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty() && about.len() < 90, "{}: {about}", command.get_name());
            if ["tunnel", "lab", "completion", "man"].contains(&command.get_name()) {
                continue;
            }
            let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            assert!(long.starts_with(&about) && long.len() > about.len() + 80, "{long}");
        }
    }

    #[test]
    fn of_contradicting_flags_the_last_one_wins() {
        let parse =
            |flags: &[&str]| match Args::parse_from([&["quicket", "serve", "."], flags].concat())
                .command
            {
                Command::Serve(serve) => serve.early_data(),
                other => panic!("{other:?}"),
            };
        assert!(parse(&[]));
        assert!(!parse(&["--no-0rtt"]));
        assert!(parse(&["--no-0rtt", "--0rtt"]));
    }

    #[test]
    fn trust_is_named_in_one_way_only() {
        let parse = |flags: &[&str]| {
            Args::try_parse_from([&["quicket", "get", "https://a.test/"], flags].concat())
        };
        assert!(parse(&["--ca", "ca.pem"]).is_ok());
        assert!(parse(&["--ca", "ca.pem", "--insecure-no-verify"]).is_err());
        assert!(parse(&["--pin", "sha256:12"]).is_err());
    }
}
