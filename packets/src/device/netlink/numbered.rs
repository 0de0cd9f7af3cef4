//! The device of a number, and whether it has a program.

use std::io;

use rustix::io::Errno;

use super::{GET_LINK, Link, NEW_LINK, Netlink, Request, attributes, link};

/// IFLA_XDP (linux/if_link.h).
const LINK_XDP: u16 = 43;
/// IFLA_XDP_ATTACHED in there: where a program is attached, or 0.
const XDP_ATTACHED: u16 = 2;

impl Netlink {
    /// The device of a number, and whether a program for XDP is attached to it, whosever that is.
    ///
    /// # Errors
    ///
    /// `ENODEV` when there is none.
    pub(in super::super) fn link_of(&mut self, index: u32) -> io::Result<(Link, bool)> {
        let mut header = [0; 16];
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        let request = Request::new(GET_LINK, &header);
        self.ask(request, 0, |kind, body| {
            (kind == NEW_LINK).then(|| Some((link(body)?, has_program(body))))?
        })
    }
}

/// Whether the system says that there is no such device.
pub(in super::super) fn is_none(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NODEV | Errno::NXIO))
}

fn has_program(body: &[u8]) -> bool {
    let mut all = attributes(body.get(16..).unwrap_or_default());
    let of = all.find(|(kind, _)| *kind == LINK_XDP).map_or(&[][..], |(_, of)| of);
    attributes(of).any(|(kind, value)| kind == XDP_ATTACHED && value != [0])
}
