//! Reading transport parameters, with the checks of RFC 9000, Section 18.2.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use core::ops::RangeInclusive;

use super::{
    MAX_ACK_DELAY_EXPONENT, MAX_ACK_DELAY_LIMIT, MAX_AVAILABLE_VERSIONS,
    MIN_ACTIVE_CONNECTION_ID_LIMIT, MIN_UDP_PAYLOAD_SIZE, ParameterError, PreferredAddress,
    TransportParameters, VersionInformation, id,
};
use crate::{
    ConnectionId, DecodeError, MAX_STREAMS, Reader, Side, StatelessResetToken, Version, varint,
};

impl TransportParameters {
    /// Reads the parameters that `sender` sent. Unknown ones are ignored
    /// (RFC 9000, Section 7.4.2).
    ///
    /// # Errors
    /// A malformed or repeated parameter, a value out of range, or one that only a server can
    /// send in the parameters of a client. The time taken is linear in the input.
    pub fn decode(bytes: &[u8], sender: Side) -> Result<Self, ParameterError> {
        let mut parameters = Self::default();
        let mut seen = Seen::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let (id, value) = next_parameter(&mut reader)?;
            if sender.is_client() && is_server_only(id) {
                // RFC 9000, Section 18.2.
                return Err(ParameterError::new(id, "a client cannot send this parameter"));
            }
            if parameters.set(id, value, sender)? {
                seen.insert(id)?;
            }
        }
        parameters.check_combinations()?;
        Ok(parameters)
    }

    /// Stores one parameter; false if it is unknown.
    fn set(&mut self, id: u64, value: &[u8], sender: Side) -> Result<bool, ParameterError> {
        match id {
            id::ORIGINAL_DESTINATION_CONNECTION_ID => {
                self.original_destination_connection_id = Some(connection_id(id, value)?);
            }
            id::INITIAL_SOURCE_CONNECTION_ID => {
                self.initial_source_connection_id = Some(connection_id(id, value)?);
            }
            id::RETRY_SOURCE_CONNECTION_ID => {
                self.retry_source_connection_id = Some(connection_id(id, value)?);
            }
            id::STATELESS_RESET_TOKEN => {
                let token = value
                    .try_into()
                    .map_err(|_| ParameterError::new(id, "a reset token has 16 bytes"))?;
                self.stateless_reset_token = Some(StatelessResetToken(token));
            }
            id::PREFERRED_ADDRESS => {
                self.preferred_address = Some(Box::new(preferred_address(value)?));
            }
            id::VERSION_INFORMATION => {
                self.version_information = Some(version_information(value, sender)?);
            }
            id::DISABLE_ACTIVE_MIGRATION => self.disable_active_migration = flag(id, value)?,
            id::GREASE_QUIC_BIT => self.grease_quic_bit = flag(id, value)?,
            id::DISABLE_1RTT_ENCRYPTION => self.disable_1rtt_encryption = flag(id, value)?,
            _ => return self.set_integer(id, value),
        }
        Ok(true)
    }

    fn set_integer(&mut self, id: u64, value: &[u8]) -> Result<bool, ParameterError> {
        let any = 0..=varint::MAX;
        let (field, range) = match id {
            id::ACK_DELAY_EXPONENT => {
                let exponent = integer(id, value, 0..=MAX_ACK_DELAY_EXPONENT)?;
                self.ack_delay_exponent = exponent as u8;
                return Ok(true);
            }
            id::MIN_ACK_DELAY => {
                self.min_ack_delay = Some(integer(id, value, any)?);
                return Ok(true);
            }
            id::MAX_IDLE_TIMEOUT => (&mut self.max_idle_timeout, any),
            id::MAX_UDP_PAYLOAD_SIZE => {
                (&mut self.max_udp_payload_size, MIN_UDP_PAYLOAD_SIZE..=varint::MAX)
            }
            id::INITIAL_MAX_DATA => (&mut self.initial_max_data, any),
            id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL => {
                (&mut self.initial_max_stream_data_bidi_local, any)
            }
            id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE => {
                (&mut self.initial_max_stream_data_bidi_remote, any)
            }
            id::INITIAL_MAX_STREAM_DATA_UNI => (&mut self.initial_max_stream_data_uni, any),
            id::INITIAL_MAX_STREAMS_BIDI => (&mut self.initial_max_streams_bidi, 0..=MAX_STREAMS),
            id::INITIAL_MAX_STREAMS_UNI => (&mut self.initial_max_streams_uni, 0..=MAX_STREAMS),
            id::MAX_ACK_DELAY => (&mut self.max_ack_delay, 0..=MAX_ACK_DELAY_LIMIT - 1),
            id::ACTIVE_CONNECTION_ID_LIMIT => {
                (&mut self.active_connection_id_limit, MIN_ACTIVE_CONNECTION_ID_LIMIT..=varint::MAX)
            }
            id::MAX_DATAGRAM_FRAME_SIZE => (&mut self.max_datagram_frame_size, any),
            _ => return Ok(false),
        };
        *field = integer(id, value, range)?;
        Ok(true)
    }

    /// Rules that involve more than one parameter.
    fn check_combinations(&self) -> Result<(), ParameterError> {
        // draft-ietf-quic-ack-frequency, Section 3; the units are microseconds and milliseconds.
        let max_ack_delay = self.max_ack_delay.saturating_mul(1000);
        if self.min_ack_delay.is_some_and(|delay| delay > max_ack_delay) {
            return Err(ParameterError::new(
                id::MIN_ACK_DELAY,
                "min_ack_delay exceeds max_ack_delay",
            ));
        }
        // RFC 9000, Section 18.2: no preferred address without connection IDs.
        if self.preferred_address.is_some()
            && self.initial_source_connection_id == Some(ConnectionId::EMPTY)
        {
            return Err(ParameterError::new(
                id::PREFERRED_ADDRESS,
                "a server with zero-length connection IDs cannot have a preferred address",
            ));
        }
        Ok(())
    }
}

/// The known parameters met so far.
#[derive(Default)]
struct Seen(u32);

impl Seen {
    /// RFC 9000, Section 7.4: no parameter comes twice. Repetitions of unknown ones are not
    /// noticed: remembering them would let the peer decide how much is remembered.
    fn insert(&mut self, id: u64) -> Result<(), ParameterError> {
        let bit = match id {
            0..=0x11 => 1 << id,
            id::MAX_DATAGRAM_FRAME_SIZE => 1 << 18,
            id::GREASE_QUIC_BIT => 1 << 19,
            id::DISABLE_1RTT_ENCRYPTION => 1 << 20,
            id::MIN_ACK_DELAY => 1 << 21,
            _ => 0,
        };
        if self.0 & bit != 0 {
            return Err(ParameterError::new(id, "the parameter is repeated"));
        }
        self.0 |= bit;
        Ok(())
    }
}

fn next_parameter<'a>(reader: &mut Reader<'a>) -> Result<(u64, &'a [u8]), ParameterError> {
    let truncated =
        |id| ParameterError { id, reason: "the parameter extends beyond the end of the extension" };
    let id = reader.varint().map_err(|_| truncated(None))?;
    let value = reader.bytes_with_varint_len().map_err(|_| truncated(Some(id)))?;
    Ok((id, value))
}

const fn is_server_only(id: u64) -> bool {
    matches!(
        id,
        id::ORIGINAL_DESTINATION_CONNECTION_ID
            | id::STATELESS_RESET_TOKEN
            | id::PREFERRED_ADDRESS
            | id::RETRY_SOURCE_CONNECTION_ID
    )
}

fn connection_id(id: u64, value: &[u8]) -> Result<ConnectionId, ParameterError> {
    ConnectionId::new(value).ok_or(ParameterError::new(id, "a connection ID has at most 20 bytes"))
}

fn integer(id: u64, value: &[u8], range: RangeInclusive<u64>) -> Result<u64, ParameterError> {
    let mut reader = Reader::new(value);
    match reader.varint() {
        Ok(value) if reader.is_empty() && range.contains(&value) => Ok(value),
        Ok(_) if reader.is_empty() => Err(ParameterError::new(id, "the value is out of range")),
        _ => Err(ParameterError::new(id, "the length does not match the integer")),
    }
}

fn flag(id: u64, value: &[u8]) -> Result<bool, ParameterError> {
    if value.is_empty() {
        Ok(true)
    } else {
        Err(ParameterError::new(id, "the parameter has to be empty"))
    }
}

fn preferred_address(value: &[u8]) -> Result<PreferredAddress, ParameterError> {
    let error = |reason| ParameterError::new(id::PREFERRED_ADDRESS, reason);
    let mut reader = Reader::new(value);
    let address = read_preferred_address(&mut reader).map_err(|e| error(e.reason()))?;
    if !reader.is_empty() {
        return Err(error("the preferred address is followed by more bytes"));
    }
    // RFC 9000, Section 18.2: the connection ID is not empty.
    if address.connection_id.is_empty() {
        return Err(error("the preferred address needs a connection ID"));
    }
    Ok(address)
}

fn read_preferred_address(reader: &mut Reader<'_>) -> Result<PreferredAddress, DecodeError> {
    let ipv4 = Ipv4Addr::from(*reader.array::<4>()?);
    let port4 = reader.u16()?;
    let ipv6 = Ipv6Addr::from(*reader.array::<16>()?);
    let port6 = reader.u16()?;
    // RFC 9000, Section 18.2: all zeros mean that there is no address of this family. Half of
    // an address cannot be used either.
    let has_ipv4 = !ipv4.is_unspecified() && port4 != 0;
    let has_ipv6 = !ipv6.is_unspecified() && port6 != 0;
    Ok(PreferredAddress {
        ipv4: has_ipv4.then_some(SocketAddrV4::new(ipv4, port4)),
        ipv6: has_ipv6.then_some(SocketAddrV6::new(ipv6, port6, 0, 0)),
        connection_id: ConnectionId::decode_with_len(reader)?,
        stateless_reset_token: StatelessResetToken(*reader.array()?),
    })
}

/// RFC 9368, Sections 3 and 4.
fn version_information(value: &[u8], sender: Side) -> Result<VersionInformation, ParameterError> {
    let error = |reason| Err(ParameterError::new(id::VERSION_INFORMATION, reason));
    let (words, rest) = value.as_chunks::<4>();
    let [chosen, available @ ..] = words else {
        return error("version information without a chosen version");
    };
    if !rest.is_empty() {
        return error("version information is not a list of whole versions");
    }
    if available.len() > MAX_AVAILABLE_VERSIONS {
        return error("version information lists more than 256 versions");
    }
    let version = |bytes: &[u8; 4]| Version(u32::from_be_bytes(*bytes));
    let chosen_version = version(chosen);
    let mut available_versions = Vec::new();
    if available_versions.try_reserve_exact(available.len()).is_err() {
        return error("no memory for the version information");
    }
    available_versions.extend(available.iter().map(version));
    if chosen_version == Version::NEGOTIATION || available_versions.contains(&Version::NEGOTIATION)
    {
        return error("version 0 in version information");
    }
    if sender.is_client() && !available_versions.contains(&chosen_version) {
        return error("the client's chosen version is not among its available versions");
    }
    Ok(VersionInformation { chosen_version, available_versions })
}
