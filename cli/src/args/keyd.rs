//! Flags of `quicket keyd`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use quicket_keyd::Address;

use super::Status;

/// Have private keys apart from gateways: signs TLS handshakes, and nothing else
///
/// A gateway gives the hash of a handshake's transcript, and keyd signs what a server of TLS 1.3 says with it (RFC 8446,
/// Section 4.4.3). Whoever has taken over a gateway can have handshakes signed as long as it is there, and takes
/// no key away. Keys are found by the certificates: by the SHA-256 of the public key.
///
/// Gateways ask at a Unix socket, where the system says which user asks, or by TCP with TLS 1.3, where both sides show a
/// certificate. The gateway's file has key = { keyd = "unix:/run/quicket/keyd.sock" } in [[certificate]]. Keys are those of
/// files and of tokens (PKCS #11).
///
/// The signal SIGHUP has all keys read again, and the certificates and authorities of TCP, whose connections end then. If
/// anything is wrong with one, all stays as it is, and the reason is told.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true,
          after_help = EXAMPLES)]
pub(crate) struct Keyd {
    #[command(subcommand)]
    pub(crate) command: Option<KeydCommand>,

    /// Where gateways ask: unix:/PATH, or tcp:ADDRESS:PORT with --cert, --cert-key and --client-ca; again for more
    #[arg(long, short, required = true, value_name = "PLACE", value_parser = place)]
    pub(crate) listen: Vec<Address>,

    /// A private key, a file of PEM without a passphrase, which others may not read; again for more. Of a directory, all
    /// files whose names end with .key or .pem
    #[arg(long, short, value_name = "FILE")]
    pub(crate) key: Vec<PathBuf>,

    /// Users who may ask at Unix sockets, by name or number, besides root and the own one; again for more
    #[arg(long, value_name = "USER")]
    pub(crate) user: Vec<String>,

    /// Groups who may ask at Unix sockets, by name or number: those that a program is started in; again for more
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<String>,

    /// The mode of Unix sockets, in octal: who may connect to them [default: 660, or 666 with --user or --group]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<u32>,

    /// The own certificate over TCP, with those that lead to an authority, a file of PEM
    #[arg(long, value_name = "FILE", requires_all = ["cert_key", "client_ca"])]
    pub(crate) cert: Option<PathBuf>,

    /// The key of that certificate, a file of PEM; none of those that sign handshakes
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) cert_key: Option<PathBuf>,

    /// The authorities of gateways' certificates over TCP, a file of PEM. Whoever has a certificate of them may have
    /// handshakes signed: let them issue no others
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) client_ca: Option<PathBuf>,

    /// The PKCS #11 library of a token, such as /usr/lib/softhsm/libsofthsm2.so
    #[arg(long, value_name = "LIBRARY", requires_all = ["token", "pin_file"])]
    pub(crate) pkcs11: Option<PathBuf>,

    /// The label of the token
    #[arg(long, value_name = "LABEL", requires = "pkcs11")]
    pub(crate) token: Option<String>,

    /// The file of the token's PIN, which others may not read. One that the token refuses is not tried again
    #[arg(long, value_name = "FILE", requires = "pkcs11")]
    pub(crate) pin_file: Option<PathBuf>,

    /// A key of the token, by its label; again for more [default: all that sign]
    #[arg(long, value_name = "LABEL", requires = "pkcs11")]
    pub(crate) token_key: Vec<String>,

    /// Signatures that are made at once, from 1 to 256: with keys of files, and as many with those of a token
    /// [default: as many as keyd may use cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,

    /// Connections of gateways at once, from 1 to 65535: at Unix sockets, and as many over TCP
    #[arg(long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) connections: u16,

    /// Signatures in a second for one user, or one certificate over TCP [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,

    /// Read all keys, say which they are, and end: with exit code 2 if one cannot be used, 6 if the token
    /// is not there
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeydCommand {
    /// Show keys and counters of the key processes of this network namespace
    #[command(after_help = "\
Examples:
  quicket keyd status
  quicket keyd status -j | jq '.[].counters.signatures'
  quicket keyd status --prometheus > /var/lib/node_exporter/quicket-keyd.prom")]
    Status(Status),
}

fn place(text: &str) -> Result<Address, String> {
    text.parse()
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "three octal digits, such as 660".to_owned())
}

const EXAMPLES: &str = "\
Examples:
  quicket keyd -l unix:/run/quicket/keyd.sock -k /etc/quicket/keys --user www-data
  quicket keyd -l unix:/run/quicket/keyd.sock -k example.org.key --check
  quicket keyd -l tcp:10.0.0.5:7443 -k example.org.key --cert keyd.pem --cert-key keyd.key --client-ca gateways.pem
  quicket keyd -l unix:/run/quicket/keyd.sock --pkcs11 /usr/lib/softhsm/libsofthsm2.so --token site --pin-file pin
  quicket keyd status
A unit of systemd is in docs/systemd; docs/gateway.md says more.";
