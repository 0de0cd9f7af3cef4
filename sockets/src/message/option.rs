//! Options by number, as getsockopt(2) and setsockopt(2) have them.

use super::errno::Errno;
use super::notification::EventType;
use super::raw::{
    Config, ConnectionClose, ConnectionIdInfo, CryptoSecret, ErrInfo, EventOption, Raw, StreamInfo,
    TransportParam, address_from_bytes,
};
use super::socket::Socket;
use crate::config::Workers;
use crate::switched::SwitchConfig;

/// The longest value of an option, in bytes.
const MAX_VALUE: usize = 4096;

/// Declares the options with their numbers.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// Options of a socket.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum OptionName {
            $($(#[$doc])* $name = $number,)*
        }

        impl OptionName {
            /// The option of a number.
            #[must_use]
            pub const fn from_number(number: i32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its number.
            #[must_use]
            pub const fn number(self) -> i32 {
                self as i32
            }
        }
    };
}

options! {
    /// [`Socket::set_event`], [`Socket::event`]: [`EventOption`].
    Event = 0,
    /// [`Socket::open_stream`]: [`StreamInfo`], to be got.
    StreamOpen = 1,
    /// [`Socket::reset_stream`]: [`ErrInfo`].
    StreamReset = 2,
    /// [`Socket::stop_sending`]: [`ErrInfo`].
    StreamStopSending = 3,
    /// [`Socket::set_connection_id`], [`Socket::connection_id`]: [`ConnectionIdInfo`].
    ConnectionId = 4,
    /// [`Socket::set_connection_close`], [`Socket::connection_close`]: [`ConnectionClose`].
    ConnectionClose = 5,
    /// [`Socket::migrate`]: a `struct sockaddr`.
    ConnectionMigration = 6,
    /// [`Socket::update_keys`]: nothing.
    KeyUpdate = 7,
    /// [`Socket::set_transport_param`], [`Socket::transport_param`]: [`TransportParam`].
    TransportParam = 8,
    /// [`Socket::set_config`], [`Socket::config`]: [`Config`].
    Config = 9,
    /// [`Socket::set_token`], [`Socket::token`]: bytes.
    Token = 10,
    /// [`Socket::set_alpn`], [`Socket::alpn`]: text.
    Alpn = 11,
    /// [`Socket::set_session_ticket`], [`Socket::session_ticket`]: bytes.
    SessionTicket = 12,
    /// [`Socket::set_crypto_secret`]: [`CryptoSecret`].
    CryptoSecret = 13,
    /// [`Socket::set_transport_param_ext`], [`Socket::transport_param_ext`]: bytes.
    TransportParamExt = 14,
    /// [`Socket::set_workers`], [`Socket::workers`]: a 32-bit number, 0 for a worker on each core. Not
    /// an option of the kernel's sockets, hence far from its numbers.
    Workers = 1000,
    /// [`Socket::set_switch`], [`Socket::program`]: the program's name as text, of at most 64 bytes;
    /// empty for that of its file, and got empty where the address is not shared. Not an option of the
    /// kernel's sockets either.
    Switch = 1001,
    /// [`Socket::set_follow_network`], [`Socket::follows_network`]: a 32-bit number, 0 or another. Not an
    /// option of the kernel's sockets either.
    FollowNetwork = 1002,
}

impl Socket {
    /// Sets the option of a number. Structures may be cut short; what is missing counts as zero.
    ///
    /// # Errors
    ///
    /// ENOPROTOOPT if there is no such option to set; EINVAL for more than 4096 bytes; else what
    /// the option's own function says.
    pub fn set_option(&self, number: i32, value: &[u8]) -> Result<(), Errno> {
        if value.len() > MAX_VALUE {
            return Err(Errno::EINVAL);
        }
        match OptionName::from_number(number).ok_or(Errno::ENOPROTOOPT)? {
            OptionName::Event => {
                let option = EventOption::from_bytes(value);
                self.set_event(event_type(option.kind)?, option.on != 0);
                Ok(())
            }
            OptionName::StreamReset => self.reset_stream(ErrInfo::from_bytes(value)),
            OptionName::StreamStopSending => self.stop_sending(ErrInfo::from_bytes(value)),
            OptionName::ConnectionId => self.set_connection_id(ConnectionIdInfo::from_bytes(value)),
            OptionName::ConnectionClose => {
                self.set_connection_close(&ConnectionClose::from_bytes(value));
                Ok(())
            }
            OptionName::ConnectionMigration => {
                self.migrate(address_from_bytes(value).ok_or(Errno::EINVAL)?)
            }
            OptionName::KeyUpdate => self.update_keys(),
            OptionName::TransportParam => {
                self.set_transport_param(&TransportParam::from_bytes(value))
            }
            OptionName::Config => self.set_config(&Config::from_bytes(value)),
            OptionName::Token => self.set_token(value),
            OptionName::Alpn => self.set_alpn(value),
            OptionName::SessionTicket => self.set_session_ticket(value),
            OptionName::CryptoSecret => self.set_crypto_secret(&CryptoSecret::from_bytes(value)),
            OptionName::TransportParamExt => self.set_transport_param_ext(value),
            OptionName::Workers => {
                let count = value.first_chunk().ok_or(Errno::EINVAL)?;
                let count = u32::from_ne_bytes(*count) as usize;
                self.set_workers(if count == 0 { Workers::PerCore } else { Workers::Count(count) })
            }
            OptionName::Switch => {
                let name = std::str::from_utf8(value).map_err(|_| Errno::EINVAL)?;
                self.set_switch(SwitchConfig::called(name))
            }
            OptionName::FollowNetwork => {
                let follow = value.first_chunk().ok_or(Errno::EINVAL)?;
                self.set_follow_network(u32::from_ne_bytes(*follow) != 0)
            }
            OptionName::StreamOpen => Err(Errno::ENOPROTOOPT),
        }
    }

    /// Gets the option of a number into `value`, which some options also read; returns its
    /// length. Structures are cut to the room that there is.
    ///
    /// # Errors
    ///
    /// ENOPROTOOPT if there is no such option to get; EINVAL if there is no room for what cannot
    /// be cut; else what the option's own function says.
    pub fn get_option(&self, number: i32, value: &mut [u8]) -> Result<usize, Errno> {
        let structure = match OptionName::from_number(number).ok_or(Errno::ENOPROTOOPT)? {
            OptionName::Event => {
                let kind = EventOption::from_bytes(value).kind;
                let on = u8::from(self.event(event_type(kind)?));
                EventOption { kind, on }.to_bytes()
            }
            OptionName::StreamOpen => self.open_stream(StreamInfo::from_bytes(value))?.to_bytes(),
            OptionName::ConnectionId => {
                let dest = ConnectionIdInfo::from_bytes(value).dest;
                self.connection_id(dest != 0)?.to_bytes()
            }
            OptionName::ConnectionClose => self.connection_close().to_bytes(),
            OptionName::TransportParam => {
                let remote = TransportParam::from_bytes(value).remote;
                self.transport_param(remote != 0).to_bytes()
            }
            OptionName::Config => self.config().to_bytes(),
            OptionName::Workers => (self.workers() as u32).to_ne_bytes().to_vec(),
            OptionName::FollowNetwork => u32::from(self.follows_network()).to_ne_bytes().to_vec(),
            OptionName::Switch => {
                return whole(value, self.program().unwrap_or_default().as_bytes(), 0);
            }
            OptionName::Token => return whole(value, &self.token()?, 0),
            // Room is asked for as for the list of TLS, which has a length before each name.
            OptionName::Alpn => return whole(value, &self.alpn(), 1),
            OptionName::SessionTicket => return whole(value, &self.session_ticket()?, 0),
            OptionName::TransportParamExt => return whole(value, &self.transport_param_ext()?, 0),
            OptionName::StreamReset
            | OptionName::StreamStopSending
            | OptionName::ConnectionMigration
            | OptionName::KeyUpdate
            | OptionName::CryptoSecret => return Err(Errno::ENOPROTOOPT),
        };
        Ok(copy(value, &structure))
    }
}

fn event_type(number: u8) -> Result<EventType, Errno> {
    EventType::from_number(number).ok_or(Errno::EINVAL)
}

fn copy(value: &mut [u8], bytes: &[u8]) -> usize {
    for (to, from) in value.iter_mut().zip(bytes) {
        *to = *from;
    }
    value.len().min(bytes.len())
}

/// Copies what cannot be cut.
fn whole(value: &mut [u8], bytes: &[u8], more: usize) -> Result<usize, Errno> {
    if !bytes.is_empty() && value.len() < bytes.len() + more {
        return Err(Errno::EINVAL);
    }
    Ok(copy(value, bytes))
}
