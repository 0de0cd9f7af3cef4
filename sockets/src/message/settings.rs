//! What a socket is told before its connection: parameters, and how it behaves.

use std::sync::Arc;
use std::time::Duration;

use quicket_engine::{
    Announced, CongestionAlgorithm, MtuDiscovery, StreamWindows, TransportConfig,
};
use quicket_wire::{TransportParameters, Version};

use super::alpn::Alpn;
use super::errno::Errno;
use super::raw::{Config, TLS_CIPHER_AES_GCM_128, TLS_CIPHER_CHACHA20_POLY1305, TransportParam};
use crate::switched::SwitchConfig;
use quicket_udp::UdpOption;

/// The least of what concerns a path, in bytes.
const MIN_PMTU: u64 = 1200;
/// The most of it.
const MAX_PMTU: u64 = 65_535;
const MAX_UDP_PAYLOAD: u16 = 65_527;
const MAX_STREAMS: u16 = 4096;
const DEFAULT_STREAMS: u16 = 100;
const MAX_ACK_DELAY_EXPONENT: u8 = 20;
const MAX_ACK_DELAY: u32 = 16_384_000;
const MIN_IDLE_TIMEOUT: u32 = 1_000_000;
const MIN_PROBE_INTERVAL: u32 = 5_000_000;
/// A search begins anew after so many intervals.
const RAISE_FACTOR: u32 = 30;
const MIN_KEEPALIVE_INTERVAL: u32 = 1_500_000;
const MIN_RTT: u32 = 1000;
const MAX_RTT: u32 = 6_000_000;
const MAX_DATA: u64 = (i32::MAX / 4) as u64;
const MAX_STREAM_DATA: u64 = (i32::MAX / 8) as u64;
/// How much may wait to be sent by default, in bytes.
const SEND_BUFFER: usize = 4 << 20;
/// How long a handshake may take if there is no idle timeout.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Settings of a socket; a socket that is accepted begins with those of its listener.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) local: TransportParam,
    /// What a client was told of the server for 0-RTT.
    pub(super) remote: Option<TransportParam>,
    pub(super) config: Config,
    pub(super) alpn: Alpn,
    pub(super) send_buffer: usize,
    /// Follows from `local.max_data` unless chosen.
    pub(super) receive_buffer: Option<usize>,
    pub(super) send_timeout: Option<Duration>,
    pub(super) receive_timeout: Option<Duration>,
    pub(super) reuse_port: bool,
    pub(super) workers: usize,
    pub(super) switch: Option<SwitchConfig>,
    pub(super) only_v6: bool,
    /// A client's connection follows this host from network to network.
    pub(super) follow_network: bool,
    /// Of the UDP socket.
    pub(super) udp_options: Vec<UdpOption>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            local: default_param(),
            remote: None,
            config: Config { initial_smoothed_rtt: 333_000, ..Config::default() },
            alpn: Alpn::default(),
            send_buffer: SEND_BUFFER,
            receive_buffer: None,
            send_timeout: None,
            receive_timeout: None,
            reuse_port: false,
            workers: 1,
            switch: None,
            only_v6: false,
            follow_network: false,
            udp_options: Vec::new(),
        }
    }
}

/// The parameters of a new socket.
fn default_param() -> TransportParam {
    TransportParam {
        active_connection_id_limit: 7,
        ack_delay_exponent: 3,
        max_udp_payload_size: MAX_UDP_PAYLOAD,
        max_idle_timeout: 30_000_000,
        max_ack_delay: 25_000,
        max_streams_bidi: DEFAULT_STREAMS,
        max_streams_uni: DEFAULT_STREAMS,
        max_data: MAX_PMTU * 32,
        max_stream_data_bidi_local: MAX_PMTU * 16,
        max_stream_data_bidi_remote: MAX_PMTU * 16,
        max_stream_data_uni: MAX_PMTU * 16,
        ..TransportParam::default()
    }
}

/// Takes what is given and not zero, if all of it is within its range.
fn take<T: Copy + Default + PartialEq>(
    given: T,
    kept: &mut T,
    valid: impl FnOnce(T) -> bool,
) -> Result<(), Errno> {
    if given != T::default() {
        if !valid(given) {
            return Err(Errno::EINVAL);
        }
        *kept = given;
    }
    Ok(())
}

impl Settings {
    /// Sets transport parameters; zeros leave them as they are.
    pub(super) fn set_param(&mut self, given: &TransportParam) -> Result<(), Errno> {
        let is_remote = given.remote != 0;
        let base = if is_remote { self.remote } else { Some(self.local) };
        let mut kept = base.unwrap_or_default();
        merge_param(&mut kept, given, is_remote)?;
        kept.remote = u8::from(is_remote);
        if is_remote {
            self.remote = Some(kept);
        } else {
            self.local = kept;
            self.receive_buffer = None;
        }
        Ok(())
    }

    /// Sets behaviour; zeros leave it as it is.
    pub(super) fn set_config(&mut self, given: &Config) -> Result<(), Errno> {
        let mut kept = self.config;
        let flag = |_| true;
        take(given.receive_session_ticket, &mut kept.receive_session_ticket, flag)?;
        take(given.validate_peer_address.min(1), &mut kept.validate_peer_address, flag)?;
        take(given.certificate_request, &mut kept.certificate_request, flag)?;
        take(given.stream_data_nodelay.min(1), &mut kept.stream_data_nodelay, flag)?;
        take(given.payload_cipher_type, &mut kept.payload_cipher_type, |kind| {
            (TLS_CIPHER_AES_GCM_128..=TLS_CIPHER_CHACHA20_POLY1305).contains(&kind)
        })?;
        take(given.version, &mut kept.version, |_| true)?;
        take(given.initial_smoothed_rtt, &mut kept.initial_smoothed_rtt, |rtt| {
            (MIN_RTT..=MAX_RTT).contains(&rtt)
        })?;
        take(given.congestion_control_algo, &mut kept.congestion_control_algo, |algo| algo <= 1)?;
        take(given.plpmtud_probe_interval, &mut kept.plpmtud_probe_interval, |interval| {
            (MIN_PROBE_INTERVAL..=u32::MAX / RAISE_FACTOR).contains(&interval)
        })?;
        take(given.keepalive_probe_interval, &mut kept.keepalive_probe_interval, |interval| {
            interval >= MIN_KEEPALIVE_INTERVAL
        })?;
        self.config = kept;
        Ok(())
    }

    /// How much may wait to be received, in bytes.
    pub(super) fn receive_buffer(&self) -> usize {
        let implied = self.local.max_data.saturating_mul(4);
        self.receive_buffer.unwrap_or_else(|| usize::try_from(implied).unwrap_or(usize::MAX))
    }

    /// The engine's configuration.
    pub(super) fn transport(&self) -> Arc<TransportConfig> {
        let (local, config) = (&self.local, &self.config);
        let windows = [
            local.max_stream_data_bidi_local,
            local.max_stream_data_bidi_remote,
            local.max_stream_data_uni,
        ];
        let widest = windows.into_iter().max().unwrap_or_default();
        let idle = micros(local.max_idle_timeout);
        let takes_datagrams = local.max_datagram_frame_size > 0;
        Arc::new(TransportConfig {
            max_idle_timeout: idle,
            keep_alive: micros(config.keepalive_probe_interval),
            handshake_timeout: if idle.is_zero() { HANDSHAKE_TIMEOUT } else { idle },
            initial_stream_window: widest,
            // What was announced is what there is memory for.
            max_stream_window: widest,
            initial_receive_window: local.max_data,
            max_receive_window: local.max_data,
            max_streams_bidi: u64::from(local.max_streams_bidi),
            max_streams_uni: u64::from(local.max_streams_uni),
            // Programs follow the limit stream by stream.
            max_streams_step: Some(1),
            stream_send_buffer: self.send_buffer,
            send_buffer: self.send_buffer,
            datagram_receive_buffer: if takes_datagrams { self.receive_buffer() } else { 0 },
            datagram_send_buffer: self.send_buffer,
            congestion: match config.congestion_control_algo {
                0 => CongestionAlgorithm::NewReno,
                _ => CongestionAlgorithm::Cubic,
            },
            initial_rtt: micros(config.initial_smoothed_rtt),
            mtu_discovery: Some(mtu_discovery(config.plpmtud_probe_interval)),
            max_ack_delay: micros(local.max_ack_delay),
            active_connection_id_limit: u64::from(local.active_connection_id_limit),
            disable_1rtt_encryption: local.disable_1rtt_encryption != 0,
            announced: Announced {
                stream_windows: StreamWindows {
                    bidi_local: Some(local.max_stream_data_bidi_local),
                    bidi_remote: Some(local.max_stream_data_bidi_remote),
                    uni: Some(local.max_stream_data_uni),
                },
                max_udp_payload_size: Some(local.max_udp_payload_size),
                max_datagram_frame_size: takes_datagrams.then_some(local.max_datagram_frame_size),
                ack_delay_exponent: Some(local.ack_delay_exponent),
                grease_quic_bit: Some(local.grease_quic_bit != 0),
                disable_active_migration: Some(local.disable_active_migration != 0),
                stateless_reset: Some(local.stateless_reset != 0),
                version_information: Some(local.disable_compatible_version == 0),
            },
            ..TransportConfig::default()
        })
    }

    /// The version to begin with, or to prefer.
    pub(super) const fn version(&self) -> Option<Version> {
        match self.config.version {
            0 => None,
            version => Some(Version(version)),
        }
    }

    /// The versions that a client can speak, the first one first. Whether the server may change
    /// to another one without a round trip is a matter of the transport parameters; where it does
    /// not speak the first one, the connection goes on with another one anyway.
    pub(super) fn versions(&self) -> Vec<Version> {
        let first = self.version().unwrap_or(Version::V1);
        let others = Version::SUPPORTED.iter().filter(|version| **version != first);
        std::iter::once(&first).chain(others).copied().collect()
    }
}

fn mtu_discovery(interval: u32) -> MtuDiscovery {
    let defaults = MtuDiscovery::default();
    match interval {
        0 => defaults,
        _ => MtuDiscovery { interval: micros(interval) * RAISE_FACTOR, ..defaults },
    }
}

fn micros(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}

fn merge_param(
    kept: &mut TransportParam,
    given: &TransportParam,
    is_remote: bool,
) -> Result<(), Errno> {
    take(given.max_udp_payload_size, &mut kept.max_udp_payload_size, |size| {
        (MIN_PMTU as u16..=MAX_UDP_PAYLOAD).contains(&size)
    })?;
    take(given.ack_delay_exponent, &mut kept.ack_delay_exponent, |exponent| {
        exponent <= MAX_ACK_DELAY_EXPONENT
    })?;
    take(given.max_ack_delay, &mut kept.max_ack_delay, |delay| delay < MAX_ACK_DELAY)?;
    take(given.active_connection_id_limit, &mut kept.active_connection_id_limit, |limit| {
        (2..=8).contains(&limit)
    })?;
    take(given.max_idle_timeout, &mut kept.max_idle_timeout, |time| time >= MIN_IDLE_TIMEOUT)?;
    take(given.max_datagram_frame_size, &mut kept.max_datagram_frame_size, |size| {
        u64::from(size) >= MIN_PMTU
    })?;
    let within = |most: u64| move |size: u64| size >= MIN_PMTU && (is_remote || size <= most);
    take(given.max_data, &mut kept.max_data, within(MAX_DATA))?;
    let stream = within(MAX_STREAM_DATA);
    take(given.max_stream_data_bidi_local, &mut kept.max_stream_data_bidi_local, stream)?;
    take(given.max_stream_data_bidi_remote, &mut kept.max_stream_data_bidi_remote, stream)?;
    take(given.max_stream_data_uni, &mut kept.max_stream_data_uni, stream)?;
    for (given, kept) in [
        (given.max_streams_bidi, &mut kept.max_streams_bidi),
        (given.max_streams_uni, &mut kept.max_streams_uni),
    ] {
        let bounded = if is_remote { given.min(MAX_STREAMS) } else { given };
        take(bounded, kept, |streams| streams <= MAX_STREAMS)?;
    }
    for (given, kept) in [
        (given.disable_active_migration, &mut kept.disable_active_migration),
        (given.disable_1rtt_encryption, &mut kept.disable_1rtt_encryption),
        (given.disable_compatible_version, &mut kept.disable_compatible_version),
        (given.grease_quic_bit, &mut kept.grease_quic_bit),
        (given.stateless_reset, &mut kept.stateless_reset),
    ] {
        take(given.min(1), kept, |_| true)?;
    }
    Ok(())
}

/// The peer's parameters as the option shows them; counts beyond what an option can say are cut.
pub(super) fn param_of_peer(theirs: &TransportParameters) -> TransportParam {
    let short = |value: u64| u16::try_from(value).unwrap_or(u16::MAX);
    let streams = |value: u64| short(value).min(MAX_STREAMS);
    let micros = |millis: u64| u32::try_from(millis.saturating_mul(1000)).unwrap_or(u32::MAX);
    TransportParam {
        remote: 1,
        disable_active_migration: u8::from(theirs.disable_active_migration),
        grease_quic_bit: u8::from(theirs.grease_quic_bit),
        stateless_reset: u8::from(theirs.stateless_reset_token.is_some()),
        disable_1rtt_encryption: u8::from(theirs.disable_1rtt_encryption),
        disable_compatible_version: u8::from(theirs.version_information.is_none()),
        active_connection_id_limit: u8::try_from(theirs.active_connection_id_limit)
            .unwrap_or(u8::MAX),
        ack_delay_exponent: theirs.ack_delay_exponent,
        max_datagram_frame_size: short(theirs.max_datagram_frame_size),
        max_udp_payload_size: short(theirs.max_udp_payload_size),
        max_idle_timeout: micros(theirs.max_idle_timeout),
        max_ack_delay: micros(theirs.max_ack_delay),
        max_streams_bidi: streams(theirs.initial_max_streams_bidi),
        max_streams_uni: streams(theirs.initial_max_streams_uni),
        max_data: theirs.initial_max_data,
        max_stream_data_bidi_local: theirs.initial_max_stream_data_bidi_local,
        max_stream_data_bidi_remote: theirs.initial_max_stream_data_bidi_remote,
        max_stream_data_uni: theirs.initial_max_stream_data_uni,
    }
}

/// What a client remembers of a server for 0-RTT (RFC 9000, Section 7.4.1).
pub(super) fn remembered(param: &TransportParam) -> TransportParameters {
    let or_default = |value: u64, default: u64| if value == 0 { default } else { value };
    TransportParameters {
        max_udp_payload_size: or_default(u64::from(param.max_udp_payload_size), 65_527),
        active_connection_id_limit: or_default(u64::from(param.active_connection_id_limit), 2),
        max_datagram_frame_size: u64::from(param.max_datagram_frame_size),
        max_idle_timeout: u64::from(param.max_idle_timeout / 1000),
        disable_active_migration: param.disable_active_migration != 0,
        initial_max_data: param.max_data,
        initial_max_stream_data_bidi_local: param.max_stream_data_bidi_local,
        initial_max_stream_data_bidi_remote: param.max_stream_data_bidi_remote,
        initial_max_stream_data_uni: param.max_stream_data_uni,
        initial_max_streams_bidi: u64::from(param.max_streams_bidi),
        initial_max_streams_uni: u64::from(param.max_streams_uni),
        ..TransportParameters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_leave_parameters_as_they_are() {
        let mut settings = Settings::default();
        let before = settings.local;
        settings.set_param(&TransportParam::default()).unwrap();
        assert_eq!(settings.local, before);
        settings.set_param(&TransportParam { max_data: 5000, ..Default::default() }).unwrap();
        assert_eq!(settings.local, TransportParam { max_data: 5000, ..before });
        assert_eq!(settings.receive_buffer(), 20_000);
        settings.receive_buffer = Some(7000);
        settings.set_param(&TransportParam { max_data: 6000, ..Default::default() }).unwrap();
        assert_eq!(settings.receive_buffer(), 24_000, "a new one follows from the parameters");
    }

    #[test]
    fn parameters_out_of_range_are_refused_and_change_nothing() {
        let zero = TransportParam::default();
        for bad in [
            TransportParam { max_udp_payload_size: 1199, ..zero },
            TransportParam { max_udp_payload_size: 65_528, ..zero },
            TransportParam { ack_delay_exponent: 21, ..zero },
            TransportParam { max_ack_delay: 16_384_000, ..zero },
            TransportParam { active_connection_id_limit: 1, ..zero },
            TransportParam { active_connection_id_limit: 9, ..zero },
            TransportParam { max_idle_timeout: 999_999, ..zero },
            TransportParam { max_datagram_frame_size: 1199, ..zero },
            TransportParam { max_data: 1199, ..zero },
            TransportParam { max_data: MAX_DATA + 1, ..zero },
            TransportParam { max_stream_data_bidi_local: MAX_STREAM_DATA + 1, ..zero },
            TransportParam { max_stream_data_bidi_remote: 1, ..zero },
            TransportParam { max_stream_data_uni: MAX_STREAM_DATA + 1, ..zero },
            TransportParam { max_streams_bidi: 4097, ..zero },
            TransportParam { max_streams_uni: 4097, ..zero },
        ] {
            let mut settings = Settings::default();
            let before = settings.local;
            let bad = TransportParam { grease_quic_bit: 1, ..bad };
            assert_eq!(settings.set_param(&bad), Err(Errno::EINVAL), "{bad:?}");
            assert_eq!(settings.local, before);
        }
    }

    #[test]
    fn what_is_remembered_of_the_peer_may_be_larger() {
        let mut settings = Settings::default();
        let given = TransportParam {
            remote: 1,
            max_data: MAX_DATA + 1,
            max_streams_bidi: 5000,
            ..Default::default()
        };
        settings.set_param(&given).unwrap();
        let remote = settings.remote.unwrap();
        assert_eq!((remote.max_data, remote.max_streams_bidi), (MAX_DATA + 1, 4096));
        assert_eq!(settings.local, Settings::default().local);
    }

    #[test]
    fn behaviour_out_of_range_is_refused() {
        let zero = Config::default();
        for bad in [
            Config { initial_smoothed_rtt: 999, ..zero },
            Config { initial_smoothed_rtt: 6_000_001, ..zero },
            Config { congestion_control_algo: 2, ..zero },
            Config { plpmtud_probe_interval: 4_999_999, ..zero },
            Config { plpmtud_probe_interval: u32::MAX / 30 + 1, ..zero },
            Config { keepalive_probe_interval: 1_499_999, ..zero },
            Config { payload_cipher_type: 50, ..zero },
            Config { payload_cipher_type: 55, ..zero },
        ] {
            assert_eq!(Settings::default().set_config(&bad), Err(Errno::EINVAL), "{bad:?}");
        }
        let mut settings = Settings::default();
        let good = Config { version: 0x6b33_43cf, congestion_control_algo: 1, ..zero };
        settings.set_config(&good).unwrap();
        assert_eq!(settings.versions(), [Version::V2, Version::V1]);
        assert_eq!(settings.config.initial_smoothed_rtt, 333_000);
    }

    #[test]
    fn probes_and_timeouts_reach_the_engine() {
        let mut settings = Settings::default();
        assert_eq!(settings.transport().keep_alive, Duration::ZERO);
        let config = Config {
            keepalive_probe_interval: 1_500_000,
            plpmtud_probe_interval: 5_000_000,
            ..Config::default()
        };
        settings.set_config(&config).unwrap();
        let param = TransportParam { max_idle_timeout: 2_000_000, ..Default::default() };
        settings.set_param(&param).unwrap();
        let transport = settings.transport();
        assert_eq!(transport.keep_alive, Duration::from_millis(1500));
        assert_eq!(transport.max_idle_timeout, Duration::from_secs(2));
        assert_eq!(transport.handshake_timeout, Duration::from_secs(2));
        let interval = transport.mtu_discovery.map(|discovery| discovery.interval);
        assert_eq!(interval, Some(Duration::from_secs(150)));
    }

    #[test]
    fn the_engine_gets_what_was_set() {
        let mut settings = Settings::default();
        let param = TransportParam {
            max_stream_data_bidi_local: 2000,
            max_stream_data_bidi_remote: 3000,
            max_stream_data_uni: 4000,
            max_datagram_frame_size: 1400,
            ..Default::default()
        };
        settings.set_param(&param).unwrap();
        let config = settings.transport();
        assert_eq!(config.announced.stream_windows.bidi_local, Some(2000));
        assert_eq!(config.announced.max_datagram_frame_size, Some(1400));
        assert_eq!(config.max_stream_window, 4000);
        assert!(config.datagram_receive_buffer > 0);
        assert_eq!(Settings::default().transport().datagram_receive_buffer, 0);
    }
}
