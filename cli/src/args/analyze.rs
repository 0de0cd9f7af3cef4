//! Flags of `quicket analyze`.

use std::path::PathBuf;

use clap::Args;

/// Draw what a qlog tells of connections, as one page
///
/// Drawn is what a qlog or a capture tells of connections: stream bytes over time, congestion window and bytes in flight,
/// round-trip times, losses and what was sent again, rates and pacing, and a table of facts.
///
/// The page is one file that needs nothing else: no script, no network. It reads qlogs as quicket writes
/// them (--qlog of serve, get and gateway capture: .sqlog) and as others do (.qlog, or a record on each
/// line), of drafts 02 and later. Files of any length are drawn in a few thousand points for each plot.
/// What cannot be read, such as the end of a log whose program was killed, is left out, and the page
/// says so.
///
/// Of captures (pcapng) it opens packets with the secrets in the file, as quicket gateway capture writes
/// them, or editcap --inject-secrets tls,KEYS. They tell no congestion windows, and losses are inferred
/// from acknowledgements.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
Examples:
  quicket get --qlog logs https://localhost:4433/file
  quicket analyze logs/0a1b2c3d4e5f6071_client.sqlog
  quicket analyze connection.qlog -o /tmp/page.html
  quicket analyze connection.qlog -o - | less
  quicket gateway capture site.toml --client 192.0.2.7 -o client.pcapng && quicket analyze client.pcapng"
)]
pub(crate) struct Analyze {
    /// The qlog or capture to read
    pub(crate) file: PathBuf,

    /// Where to write the page, - being standard output; by default beside FILE, as .html. What is there
    /// is replaced
    #[arg(long, short, value_name = "PAGE")]
    pub(crate) output: Option<PathBuf>,
}
