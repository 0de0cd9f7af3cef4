//! Requests and their answers.

use core::net::SocketAddr;

use crate::address;
use crate::names::TOKEN;

/// What a program sets of a socket, beside what the system keeps for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Setting {
    /// TCP_NODELAY.
    NoDelay = 0,
    /// SO_LINGER for no time: a close is a reset.
    Reset = 1,
    /// IPV6_V6ONLY.
    V6Only = 2,
}

impl Setting {
    const ALL: [Self; 3] = [Self::NoDelay, Self::Reset, Self::V6Only];
}

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A socket, whose end comes with the answer.
    Socket {
        /// For IPv6 (AF_INET6).
        is_v6: bool,
    },
    /// bind(2).
    Bind(SocketAddr),
    /// listen(2).
    Listen {
        /// Connections that wait.
        backlog: u32,
    },
    /// connect(2). Answered at once with EINPROGRESS, or else when it is done. What has come on the socket until then is no
    /// data: it is taken away once the socket is connected, and keeps it from being writable until then.
    Connect {
        /// Where to.
        to: SocketAddr,
        /// The program waits for the answer.
        waits: bool,
    },
    /// What getsockname(2) and getpeername(2) ask.
    Names,
    /// SO_ERROR, also for one that has nothing more to read. It is told once.
    Error,
    /// setsockopt(2).
    Set(Setting, bool),
    /// getsockopt(2).
    Get(Setting),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// That the program was lent sockets.
    pub token: [u8; TOKEN],
    /// The socket; without meaning for [`Call::Socket`].
    pub socket: u64,
    /// What is asked for.
    pub call: Call,
}

impl Request {
    /// Its octets.
    pub const LEN: usize = 56;

    /// Writes it.
    #[must_use]
    pub fn write(&self) -> [u8; Self::LEN] {
        let (code, flags, number, to) = match self.call {
            Call::Socket { is_v6 } => (0, [u8::from(is_v6), 0], 0, None),
            Call::Bind(to) => (1, [0; 2], 0, Some(to)),
            Call::Listen { backlog } => (2, [0; 2], backlog, None),
            Call::Connect { to, waits } => (3, [u8::from(waits), 0], 0, Some(to)),
            Call::Names => (4, [0; 2], 0, None),
            Call::Error => (5, [0; 2], 0, None),
            Call::Set(setting, value) => (6, [setting as u8, u8::from(value)], 0, None),
            Call::Get(setting) => (7, [setting as u8, 0], 0, None),
        };
        let mut octets = [0; Self::LEN];
        let [first, second] = flags;
        octets[..16].copy_from_slice(&self.token);
        octets[16..24].copy_from_slice(&self.socket.to_be_bytes());
        octets[24..28].copy_from_slice(&[code, first, second, 0]);
        octets[28..32].copy_from_slice(&number.to_be_bytes());
        octets[32..52].copy_from_slice(&address::write(to));
        octets
    }

    /// Reads it. None if it is none.
    #[must_use]
    pub fn read(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; Self::LEN] = octets.try_into().ok()?;
        let (token, rest) = octets.split_first_chunk()?;
        let (socket, rest) = rest.split_first_chunk()?;
        let ([code, first, second, _], rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let to = address::read(rest.first_chunk()?)?;
        let number = u32::from_be_bytes(*number);
        let flag = |octet: u8| match octet {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let setting = || Setting::ALL.into_iter().find(|setting| *setting as u8 == *first);
        let call = match code {
            0 => Call::Socket { is_v6: flag(*first)? },
            1 => Call::Bind(to?),
            2 => Call::Listen { backlog: number },
            3 => Call::Connect { to: to?, waits: flag(*first)? },
            4 => Call::Names,
            5 => Call::Error,
            6 => Call::Set(setting()?, flag(*second)?),
            7 => Call::Get(setting()?),
            _ => return None,
        };
        Some(Self { token: *token, socket: u64::from_be_bytes(*socket), call })
    }
}

/// What the lender says to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The number of an error (errno(3)), or 0.
    pub error: i32,
    /// What a setting is, or whether a socket is for IPv6.
    pub value: bool,
    /// Of a socket that has been made, and of one whose names are asked for.
    pub socket: u64,
    /// This side.
    pub local: Option<SocketAddr>,
    /// The other side.
    pub remote: Option<SocketAddr>,
}

impl Answer {
    /// Its octets.
    pub const LEN: usize = 56;

    /// One that says nothing but an error, or none.
    #[must_use]
    pub fn error(error: i32) -> Self {
        Self { error, ..Self::default() }
    }

    /// Writes it.
    #[must_use]
    pub fn write(&self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        octets[..4].copy_from_slice(&self.error.to_be_bytes());
        octets[4] = u8::from(self.value);
        octets[8..16].copy_from_slice(&self.socket.to_be_bytes());
        octets[16..36].copy_from_slice(&address::write(self.local));
        octets[36..].copy_from_slice(&address::write(self.remote));
        octets
    }

    /// Reads it. None if it is none.
    #[must_use]
    pub fn read(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; Self::LEN] = octets.try_into().ok()?;
        let (error, rest) = octets.split_first_chunk()?;
        let ([value, _, _, _], rest) = rest.split_first_chunk()?;
        let (socket, rest) = rest.split_first_chunk()?;
        let (local, rest) = rest.split_first_chunk()?;
        Some(Self {
            error: i32::from_be_bytes(*error),
            value: *value == 1,
            socket: u64::from_be_bytes(*socket),
            local: address::read(local)?,
            remote: address::read(rest.first_chunk()?)?,
        })
    }
}

/// What a listener carries with the descriptor of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The other side, as programs see it: in a socket for IPv6, an address of IPv4 is mapped.
    pub remote: SocketAddr,
}

impl Accepted {
    /// Its octets.
    pub const LEN: usize = 20;

    /// Writes it.
    #[must_use]
    pub fn write(&self) -> [u8; Self::LEN] {
        address::write(Some(self.remote))
    }

    /// Reads it. None if it is none.
    #[must_use]
    pub fn read(octets: &[u8; Self::LEN]) -> Option<Self> {
        let remote = address::read(octets)??;
        Some(Self { remote })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        let v4 = "192.0.2.1:80".parse().unwrap();
        let v6 = "[2001:db8::1]:65535".parse().unwrap();
        let calls = [
            Call::Socket { is_v6: true },
            Call::Bind(v4),
            Call::Listen { backlog: u32::MAX },
            Call::Connect { to: v6, waits: false },
            Call::Names,
            Call::Error,
            Call::Set(Setting::NoDelay, true),
            Call::Set(Setting::V6Only, false),
            Call::Get(Setting::Reset),
        ];
        for call in calls {
            let request = Request { token: [7; TOKEN], socket: 1 << 40, call };
            let octets = request.write();
            assert_eq!(Request::read(&octets), Some(request));
            assert_eq!(Request::read(&octets[1..]), None);
            let mut wrong = octets;
            wrong[24] = 8;
            assert_eq!(Request::read(&wrong), None);
            wrong = octets;
            wrong[32] = 5;
            assert_eq!(Request::read(&wrong), None, "a version of IP");
        }
        let without = Request { token: [0; TOKEN], socket: 0, call: Call::Bind(v4) };
        let mut octets = without.write();
        octets[32] = 0;
        assert_eq!(Request::read(&octets), None, "no address");
        for answer in [
            Answer::error(111),
            Answer { value: true, socket: 9, local: Some(v4), remote: Some(v6), error: 0 },
        ] {
            assert_eq!(Answer::read(&answer.write()), Some(answer));
            assert_eq!(Answer::read(&answer.write()[..55]), None);
        }
        let accepted = Accepted { remote: v6 };
        assert_eq!(Accepted::read(&accepted.write()), Some(accepted));
        assert_eq!(Accepted::read(&[0; Accepted::LEN]), None);
    }
}
