//! What this system lacks for a connection: no fault of the server that it was to lead to.

use std::error::Error;
use std::io;

use rustix::io::Errno;

/// Why there is no connection, if that is the system's own affair.
pub(super) fn of(error: &io::Error) -> Option<&'static str> {
    let mut at: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = at {
        let io = error.downcast_ref::<io::Error>();
        if let Some(lacking) = io.and_then(of_system) {
            return Some(lacking);
        }
        // The source of an error of I/O is that of the one within, which is left out.
        let within = io.and_then(io::Error::get_ref).map(|within| within as &(dyn Error + 'static));
        at = within.or_else(|| error.source());
    }
    None
}

/// EADDRNOTAVAIL is not among them: it is of one server's address, to which no port is left, or for which this system has no address of
/// its own. Another server can do better.
fn of_system(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::MFILE | Errno::NFILE => Some("no descriptor is left for a connection to the origin"),
        Errno::NOBUFS | Errno::NOMEM => Some("no memory is left for a connection to the origin"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_lacks_is_found_wherever_it_is_said() {
        let lack = || io::Error::from(Errno::MFILE);
        assert!(of(&lack()).is_some());
        assert!(of(&io::Error::other(lack())).is_some());
        assert!(of(&io::Error::other(io::Error::other(lack()))).is_some());
        for of_server in [
            Errno::CONNREFUSED,
            Errno::TIMEDOUT,
            Errno::HOSTUNREACH,
            Errno::NOENT,
            Errno::ADDRNOTAVAIL,
        ] {
            assert_eq!(of(&io::Error::other(io::Error::from(of_server))), None);
        }
        assert_eq!(of(&io::Error::other("a server of HTTP/3 without a name or TLS")), None);
    }
}
