//! The keys of a connection: per level, per direction, per key phase (RFC 9001, Sections 4 to 6).

use alloc::boxed::Box;
use alloc::sync::Arc;

use quicket_wire::{ConnectionId, Side, TransportErrorCode, Version};

use crate::crypto::{CryptoProvider, Direction, HeaderKey, Level, PacketKey, Secret};
use crate::error::TransportError;
use crate::time::Time;

/// AEAD and header protection key of one direction.
pub(crate) struct DirectionKeys {
    pub(crate) header: Box<dyn HeaderKey>,
    pub(crate) packet: Box<dyn PacketKey>,
}

impl DirectionKeys {
    fn derive(crypto: &dyn CryptoProvider, version: Version, secret: &Secret) -> Self {
        Self {
            header: crypto.header_key(version, secret),
            packet: crypto.packet_key(version, secret),
        }
    }
}

/// Both directions of a level before 1-RTT.
#[derive(Default)]
struct LevelKeys {
    receive: Option<DirectionKeys>,
    send: Option<DirectionKeys>,
}

/// Initial keys of one version; a compatible version change needs two sets for a while
/// (RFC 9369, Section 4.1).
struct InitialKeys {
    version: Version,
    receive: DirectionKeys,
    send: DirectionKeys,
}

/// The keys of the levels before 1-RTT.
#[derive(Default)]
struct EarlierKeys {
    initial: [Option<InitialKeys>; 2],
    early: LevelKeys,
    handshake: LevelKeys,
}

impl LevelKeys {
    fn is_empty(&self) -> bool {
        self.receive.is_none() && self.send.is_none()
    }
}

impl EarlierKeys {
    fn is_empty(&self) -> bool {
        self.initial.iter().all(Option::is_none)
            && self.early.is_empty()
            && self.handshake.is_empty()
    }

    fn initial(&self, version: Version) -> Option<&InitialKeys> {
        self.initial.iter().flatten().find(|keys| keys.version == version)
    }
}

/// The 1-RTT secrets of one direction, from which its keys can be derived at any time.
struct OneRttSecrets {
    current: Secret,
    /// That of the first phase, if another is current: the header protection key stays
    /// (RFC 9001, Section 6.1).
    first: Option<Box<Secret>>,
}

impl OneRttSecrets {
    fn new(secret: Secret) -> Self {
        Self { current: secret, first: None }
    }

    fn keys(&self, crypto: &dyn CryptoProvider, version: Version) -> DirectionKeys {
        DirectionKeys {
            header: crypto.header_key(version, self.first.as_deref().unwrap_or(&self.current)),
            packet: crypto.packet_key(version, &self.current),
        }
    }

    /// The AEAD key of the next phase.
    fn next_key(&self, crypto: &dyn CryptoProvider, version: Version) -> Box<dyn PacketKey> {
        crypto.packet_key(version, &crypto.next_secret(version, &self.current))
    }

    /// Goes on to the next phase.
    fn advance(&mut self, crypto: &dyn CryptoProvider, version: Version) {
        let next = crypto.next_secret(version, &self.current);
        let before = core::mem::replace(&mut self.current, next);
        self.first.get_or_insert_with(|| Box::new(before));
    }
}

/// Which AEAD key opens a 1-RTT packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyChoice {
    /// The key of the current phase.
    Current,
    /// The key of the phase before: the packet was reordered across an update.
    Previous,
    /// The key of the next phase: if the packet opens, the peer has updated.
    Next,
}

struct OneRttSend {
    /// `None` while they sleep.
    keys: Option<DirectionKeys>,
    secrets: OneRttSecrets,
    /// Packets sealed with the current key.
    sealed: u64,
    /// The first packet number sent in the current phase.
    first: Option<u64>,
}

struct OneRttReceive {
    /// `None` while they sleep.
    keys: Option<ReceiveKeys>,
    secrets: OneRttSecrets,
    previous: Option<Box<dyn PacketKey>>,
    /// When the previous key is forgotten (RFC 9001, Section 6.5).
    previous_expires: Option<Time>,
    /// The lowest packet number opened with the current key.
    first: Option<u64>,
    /// The highest packet number opened with the previous key.
    last_of_previous: u64,
}

/// What opens packets of the current and of the next phase. The latter is derived ahead: how long
/// a packet takes must not tell its Key Phase bit (RFC 9001, Section 6.3).
struct ReceiveKeys {
    current: DirectionKeys,
    next: Box<dyn PacketKey>,
}

impl ReceiveKeys {
    fn derive(crypto: &dyn CryptoProvider, version: Version, secrets: &OneRttSecrets) -> Self {
        Self { current: secrets.keys(crypto, version), next: secrets.next_key(crypto, version) }
    }
}

/// All keys of a connection.
///
/// Those of 1-RTT packets take some kilobytes. While nothing is sent or received they can
/// [sleep](Keys::sleep): only the secrets are kept, from which they are derived when needed again.
pub(crate) struct Keys {
    crypto: Arc<dyn CryptoProvider>,
    version: Version,
    /// `None` once all are discarded.
    earlier: Option<Box<EarlierKeys>>,
    send: Option<OneRttSend>,
    receive: Option<OneRttReceive>,
    asleep: bool,
    phase: bool,
    /// True once the peer acknowledged a packet of this phase: only then may we update again
    /// (RFC 9001, Section 6.1).
    phase_acknowledged: bool,
    updates: u64,
    /// Packets that failed to open, over the whole connection (RFC 9001, Section 6.6).
    failures: u64,
    /// Sealed packets after which we update by ourselves.
    update_after: u64,
    /// Server: when 0-RTT keys are forgotten (RFC 9001, Section 4.9.3).
    early_expires: Option<Time>,
    /// 1-RTT packets are not encrypted (negotiated `disable_1rtt_encryption`).
    plain_1rtt: bool,
}

impl Keys {
    pub(crate) fn new(
        crypto: Arc<dyn CryptoProvider>,
        version: Version,
        update_after: u64,
    ) -> Self {
        Self {
            crypto,
            version,
            earlier: None,
            send: None,
            receive: None,
            asleep: false,
            phase: false,
            phase_acknowledged: false,
            updates: 0,
            failures: 0,
            update_after,
            early_expires: None,
            plain_1rtt: false,
        }
    }

    pub(crate) fn crypto(&self) -> &Arc<dyn CryptoProvider> {
        &self.crypto
    }

    /// The version whose labels all later keys are derived with.
    pub(crate) fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Derives Initial keys of `version` (RFC 9001, Section 5.2), keeping those of one other
    /// version.
    pub(crate) fn derive_initial(&mut self, version: Version, dcid: &ConnectionId, side: Side) {
        let (receive, send) = self.crypto.initial_secrets(version, dcid, side);
        let keys = InitialKeys {
            version,
            receive: DirectionKeys::derive(&*self.crypto, version, &receive),
            send: DirectionKeys::derive(&*self.crypto, version, &send),
        };
        let [first, second] = &mut self.earlier().initial;
        match first {
            Some(held) if held.version != version => *second = Some(keys),
            _ => *first = Some(keys),
        }
    }

    /// Forgets all Initial keys, as after a Retry changed the connection ID that they come from.
    pub(crate) fn discard_initial(&mut self) {
        self.discard(|keys| keys.initial = [None, None]);
    }

    pub(crate) fn discard_handshake(&mut self) {
        self.discard(|keys| keys.handshake = LevelKeys::default());
    }

    /// Forgets 0-RTT keys (RFC 9001, Section 4.9.3); false if there were none.
    pub(crate) fn discard_early(&mut self) -> bool {
        let existed = self.earlier.as_ref().is_some_and(|keys| !keys.early.is_empty());
        self.discard(|keys| keys.early = LevelKeys::default());
        existed
    }

    /// Has 0-RTT keys expire at `at`: packets may still be on their way.
    pub(crate) fn expire_early(&mut self, at: Time) {
        self.early_expires = Some(at);
    }

    /// When 0-RTT keys are to be forgotten.
    pub(crate) fn early_expires(&self) -> Option<Time> {
        self.early_expires
    }

    /// True once, at that time.
    pub(crate) fn take_early_expired(&mut self, now: Time) -> bool {
        self.early_expires.take_if(|at| *at <= now).is_some()
    }

    fn discard(&mut self, forget: impl FnOnce(&mut EarlierKeys)) {
        if let Some(keys) = &mut self.earlier {
            forget(keys);
            if keys.is_empty() {
                self.earlier = None;
            }
        }
    }

    fn earlier(&mut self) -> &mut EarlierKeys {
        self.earlier.get_or_insert_with(Box::default)
    }

    /// 1-RTT packets go unencrypted from now on (negotiated `disable_1rtt_encryption`).
    pub(crate) fn disable_1rtt_encryption(&mut self) {
        self.plain_1rtt = true;
    }

    pub(crate) fn is_1rtt_plain(&self) -> bool {
        self.plain_1rtt
    }

    pub(crate) fn install(&mut self, level: Level, direction: Direction, secret: Secret) {
        if level == Level::OneRtt {
            return self.install_1rtt(direction, secret);
        }
        let keys = DirectionKeys::derive(&*self.crypto, self.version, &secret);
        let earlier = self.earlier();
        let slot = match level {
            Level::EarlyData => &mut earlier.early,
            Level::Handshake => &mut earlier.handshake,
            // Initial secrets come from the connection ID, never from TLS.
            Level::Initial | Level::OneRtt => return,
        };
        match direction {
            Direction::Receive => slot.receive = Some(keys),
            Direction::Send => slot.send = Some(keys),
        }
    }

    fn install_1rtt(&mut self, direction: Direction, secret: Secret) {
        let (crypto, version) = (&*self.crypto, self.version);
        let secrets = OneRttSecrets::new(secret);
        match direction {
            Direction::Send => {
                let keys = Some(secrets.keys(crypto, version));
                self.send = Some(OneRttSend { keys, secrets, sealed: 0, first: None });
            }
            Direction::Receive => {
                self.receive = Some(OneRttReceive {
                    keys: Some(ReceiveKeys::derive(crypto, version, &secrets)),
                    secrets,
                    previous: None,
                    previous_expires: None,
                    first: None,
                    last_of_previous: 0,
                });
            }
        }
    }

    /// True if packets of `level` can be sealed, perhaps after [`Keys::wake`].
    pub(crate) fn can_send(&self, level: Level) -> bool {
        match level {
            Level::OneRtt => self.send.is_some(),
            level => self.sending(level).is_some(),
        }
    }

    /// The keys that packets of `level` are sealed with; `None` if there are none, or they sleep.
    pub(crate) fn sending(&self, level: Level) -> Option<&DirectionKeys> {
        match level {
            Level::OneRtt => self.send.as_ref()?.keys.as_ref(),
            Level::Initial => Some(&self.earlier.as_ref()?.initial(self.version)?.send),
            Level::EarlyData => self.earlier.as_ref()?.early.send.as_ref(),
            Level::Handshake => self.earlier.as_ref()?.handshake.send.as_ref(),
        }
    }

    /// The keys that packets of `level` are opened with; `None` if there are none, or they sleep.
    /// `version` is the packet's own.
    pub(crate) fn receiving(&self, level: Level, version: Version) -> Option<&DirectionKeys> {
        match level {
            Level::OneRtt => self.current_receiving(),
            Level::Initial => Some(&self.earlier.as_ref()?.initial(version)?.receive),
            Level::EarlyData => self.earlier.as_ref()?.early.receive.as_ref(),
            Level::Handshake => self.earlier.as_ref()?.handshake.receive.as_ref(),
        }
    }

    /// The keys of the current phase, for 1-RTT packets that come.
    #[inline]
    pub(crate) fn current_receiving(&self) -> Option<&DirectionKeys> {
        Some(&self.receive.as_ref()?.keys.as_ref()?.current)
    }

    /// Gives up the 1-RTT keys, and keeps their secrets. Not while a key update is under way.
    pub(crate) fn sleep(&mut self) {
        let (Some(send), Some(receive)) = (&mut self.send, &mut self.receive) else { return };
        if receive.previous.is_some() {
            return;
        }
        send.keys = None;
        receive.keys = None;
        self.asleep = true;
    }

    /// Derives again what [`Keys::sleep`] gave up; true if there was anything to derive. Call it
    /// before a packet is looked at: the time that it takes says nothing of the packet then
    /// (RFC 9001, Section 9.5).
    #[inline]
    pub(crate) fn wake(&mut self) -> bool {
        let slept = core::mem::take(&mut self.asleep);
        if slept {
            self.derive_1rtt();
        }
        slept
    }

    #[cold]
    fn derive_1rtt(&mut self) {
        let (crypto, version) = (&*self.crypto, self.version);
        if let Some(send) = &mut self.send {
            send.keys = Some(send.secrets.keys(crypto, version));
        }
        if let Some(receive) = &mut self.receive {
            receive.keys = Some(ReceiveKeys::derive(crypto, version, &receive.secrets));
        }
    }

    /// The key phase bit of packets to send (RFC 9001, Section 6).
    pub(crate) fn phase(&self) -> bool {
        self.phase
    }

    /// How many times the keys were updated.
    pub(crate) fn updates(&self) -> u64 {
        self.updates
    }

    /// Which key a 1-RTT packet with this phase bit and number was sealed with
    /// (RFC 9001, Section 6.3).
    pub(crate) fn choose(&self, phase: bool, packet_number: u64) -> KeyChoice {
        let Some(receive) = &self.receive else { return KeyChoice::Current };
        if phase == self.phase {
            return KeyChoice::Current;
        }
        match receive.first {
            // Updated by us, and the peer has not yet followed: the old phase.
            None if receive.previous.is_some() => KeyChoice::Previous,
            Some(first) if packet_number < first && receive.previous.is_some() => {
                KeyChoice::Previous
            }
            _ => KeyChoice::Next,
        }
    }

    /// The AEAD key for a choice; `None` if it is forgotten, or sleeps.
    pub(crate) fn chosen(&self, choice: KeyChoice) -> Option<&dyn PacketKey> {
        let receive = self.receive.as_ref()?;
        match choice {
            KeyChoice::Current => Some(&*receive.keys.as_ref()?.current.packet),
            KeyChoice::Previous => receive.previous.as_deref(),
            KeyChoice::Next => Some(&*receive.keys.as_ref()?.next),
        }
    }

    /// A 1-RTT packet opened with `choice`; returns true if the peer has updated its keys, in
    /// which case ours are updated too (RFC 9001, Section 6.2).
    pub(crate) fn opened(
        &mut self,
        choice: KeyChoice,
        packet_number: u64,
        forget_previous_at: Time,
    ) -> Result<bool, TransportError> {
        let Some(receive) = &mut self.receive else { return Ok(false) };
        match choice {
            KeyChoice::Current => {
                match receive.first {
                    Some(first) if first <= packet_number => return Ok(false),
                    None if receive.previous.is_some() => {
                        receive.previous_expires = Some(forget_previous_at);
                    }
                    _ => {}
                }
                receive.first = Some(packet_number);
                // RFC 9001, Section 6.4: old keys must not protect higher packet numbers.
                if receive.previous.is_some() && packet_number < receive.last_of_previous {
                    return Err(key_update_error("old keys were used after new ones"));
                }
                Ok(false)
            }
            KeyChoice::Previous => {
                receive.last_of_previous = receive.last_of_previous.max(packet_number);
                if receive.first.is_some_and(|first| packet_number > first) {
                    return Err(key_update_error("old keys were used after new ones"));
                }
                Ok(false)
            }
            KeyChoice::Next => {
                // RFC 9001, Section 6.2: a second update before we acknowledged the first, which
                // shows as an update while our own is unanswered, or while we have sent nothing
                // under the keys of the last one.
                let silent = self.send.as_ref().is_some_and(|send| send.first.is_none());
                if self.updates > 0 && (receive.first.is_none() || silent) {
                    return Err(key_update_error("the peer updated keys twice in a row"));
                }
                self.rotate();
                if let Some(receive) = &mut self.receive {
                    receive.first = Some(packet_number);
                    receive.previous_expires = Some(forget_previous_at);
                }
                Ok(true)
            }
        }
    }

    /// Whether a key update may start now (RFC 9001, Section 6.1 and 6.5).
    pub(crate) fn may_update(&self, confirmed: bool) -> bool {
        confirmed
            && !self.plain_1rtt
            && self.send.is_some()
            && self.receive.as_ref().is_some_and(|receive| receive.previous.is_none())
            && (self.updates == 0 || self.phase_acknowledged)
    }

    /// After how many packets the keys are updated.
    pub(crate) fn set_update_after(&mut self, packets: u64) {
        self.update_after = packets;
    }

    /// Starts a key update. Only if [`Keys::may_update`].
    pub(crate) fn update(&mut self) {
        self.rotate();
    }

    fn rotate(&mut self) {
        self.wake();
        let (crypto, version) = (&*self.crypto, self.version);
        let (Some(send), Some(receive)) = (&mut self.send, &mut self.receive) else { return };
        let (Some(sending), Some(receiving)) = (&mut send.keys, &mut receive.keys) else { return };
        // The header protection keys stay (RFC 9001, Section 6.1).
        send.secrets.advance(crypto, version);
        sending.packet = crypto.packet_key(version, &send.secrets.current);
        send.sealed = 0;
        send.first = None;

        receive.secrets.advance(crypto, version);
        let after = receive.secrets.next_key(crypto, version);
        let next = core::mem::replace(&mut receiving.next, after);
        receive.previous = Some(core::mem::replace(&mut receiving.current.packet, next));
        receive.previous_expires = None;
        receive.last_of_previous = 0;
        receive.first = None;

        self.phase = !self.phase;
        self.phase_acknowledged = false;
        self.updates = self.updates.saturating_add(1);
    }

    /// When the previous phase's key is to be forgotten.
    pub(crate) fn previous_expires(&self) -> Option<Time> {
        self.receive.as_ref().and_then(|receive| receive.previous_expires)
    }

    pub(crate) fn forget_previous(&mut self) {
        if let Some(receive) = &mut self.receive {
            receive.previous = None;
            receive.previous_expires = None;
        }
    }

    /// Counts `count` 1-RTT packets to be sealed, from number `first` on.
    pub(crate) fn sealing_1rtt(&mut self, first: u64, count: u64) {
        let Some(send) = &mut self.send else { return };
        send.sealed = send.sealed.saturating_add(count);
        send.first.get_or_insert(first);
    }

    /// True if so many packets are sealed with the current key that another should follow.
    pub(crate) fn is_update_due(&self) -> bool {
        let Some(send) = &self.send else { return false };
        let limit = send.secrets.current.aead().confidentiality_limit();
        send.sealed >= self.update_after.min(limit / 2).max(1)
    }

    /// True when the AEAD may seal no further packet (RFC 9001, Section 6.6).
    pub(crate) fn is_exhausted(&self) -> bool {
        self.send
            .as_ref()
            .is_some_and(|send| send.sealed >= send.secrets.current.aead().confidentiality_limit())
    }

    /// The peer acknowledged 1-RTT packets up to `largest`.
    pub(crate) fn acknowledged_1rtt(&mut self, largest: u64) {
        if let Some(send) = &self.send
            && send.first.is_some_and(|first| largest >= first)
        {
            self.phase_acknowledged = true;
        }
    }

    /// Counts a packet that did not open (RFC 9001, Section 6.6).
    pub(crate) fn open_failed(&mut self) -> Result<(), TransportError> {
        self.failures = self.failures.saturating_add(1);
        let limit = self
            .receive
            .as_ref()
            .map_or(1 << 36, |receive| receive.secrets.current.aead().integrity_limit());
        if self.failures > limit {
            return Err(TransportError::new(
                TransportErrorCode::AEAD_LIMIT_REACHED,
                "too many packets failed authentication",
            ));
        }
        Ok(())
    }
}

const fn key_update_error(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::KEY_UPDATE_ERROR, reason)
}
