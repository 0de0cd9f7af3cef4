//! What must have happened on the wire. The rules are those of the interop runner where it has the
//! case.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use quicket_engine::crypto::Aead;
use quicket_wire::{
    EcnCodepoint, Frame, PacketKind, Reader, StreamId, TransportParameters, Version,
};

use crate::trace::{Packet, Stray, Trace, tls};

/// A rule, and what is wrong if it was broken.
pub(super) type Check = fn(&Evidence) -> Result<(), String>;

/// What was seen on both sides of the link.
#[derive(Debug)]
pub(super) struct Evidence {
    /// At the client: what it sent, and what came to it.
    pub(super) client: Trace,
    /// At the server.
    pub(super) server: Trace,
    /// Whether the server is ours, which is held to the letter where the runner is lenient.
    pub(super) server_is_ours: bool,
}

/// TLS handshake messages (RFC 8446, Section 4).
const CERTIFICATE: u8 = 11;
const CERTIFICATE_REQUEST: u8 = 13;
const CERTIFICATE_VERIFY: u8 = 15;
const CHACHA20_POLY1305_SHA256: u16 = 0x1303;
/// The most streams that a server of `multiplexing` may permit at first.
const STREAM_LIMIT: u64 = 1000;
/// The least Handshake data, in bytes, that shows that a long chain was sent.
const LONG_CHAIN: usize = 7500;
/// The most 1-RTT data of the client, in bytes, that shows that the requests were early data: half
/// of the names of the files.
const LATE_REQUESTS: usize = 5000;

/// How long after a stateless reset has left the link packets of the client may still come to it.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Data packets for each ACK that show that a client acknowledges less often than is usual, which is
/// every second packet (RFC 9000, Section 13.2.2).
const PACKETS_OF_AN_ACK: usize = 3;

fn ensure(right: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(what()) }
}

/// The server has answered `N` connections with TLS messages, each with a connection ID of its own.
/// What it refuses does not count: a corrupted Initial may seem to have a token that is not valid.
pub(super) fn handshakes<const N: usize>(evidence: &Evidence) -> Result<(), String> {
    let answers = |packet: &&Packet| packet.frames().any(|frame| matches!(frame, Frame::Crypto(_)));
    let initials = evidence.server.of(PacketKind::Initial, false).filter(answers);
    let found = initials.map(|packet| packet.scid).collect::<BTreeSet<_>>().len();
    ensure(found == N, || format!("there were {found} handshakes instead of {N}"))
}

pub(super) fn version_1(evidence: &Evidence) -> Result<(), String> {
    only_version(&evidence.server, PacketKind::Initial, false, Version::V1)
}

fn only_version(
    trace: &Trace,
    kind: PacketKind,
    from_client: bool,
    wanted: Version,
) -> Result<(), String> {
    let versions: BTreeSet<_> = trace.of(kind, from_client).map(|packet| packet.version).collect();
    let end = if from_client { "client" } else { "server" };
    ensure(versions == BTreeSet::from([wanted]), || {
        format!("the {end}'s {kind:?} packets have the versions {versions:?}, not {wanted:?} alone")
    })
}

/// RFC 9368, Section 2.3: compatible version negotiation.
pub(super) fn version_2(evidence: &Evidence) -> Result<(), String> {
    let Evidence { client, server, .. } = evidence;
    let has = |trace: &Trace, from_client, wanted| {
        trace.of(PacketKind::Initial, from_client).any(|packet| packet.version == wanted)
    };
    ensure(has(client, true, Version::V1), || "the client did not start with version 1".into())?;
    ensure(has(server, false, Version::V2), || "the server did not choose version 2".into())?;
    only_version(client, PacketKind::Handshake, true, Version::V2)?;
    only_version(server, PacketKind::Handshake, false, Version::V2)
}

/// RFC 9000, Section 6.1.
pub(super) fn version_negotiation(evidence: &Evidence) -> Result<(), String> {
    let first = evidence.client.packets.first().ok_or("the client sent nothing")?;
    let answers = evidence.client.of(PacketKind::VersionNegotiation, false);
    let answers: Vec<_> = answers.collect();
    ensure(!answers.is_empty(), || "no Version Negotiation packet came".into())?;
    let mirrored = |packet: &&Packet| packet.scid == first.dcid && packet.dcid == first.scid;
    ensure(answers.iter().all(mirrored), || {
        "the Version Negotiation packet does not have the client's connection IDs".into()
    })
}

pub(super) fn no_retry(evidence: &Evidence) -> Result<(), String> {
    let retries = evidence.client.of(PacketKind::Retry, false).count();
    ensure(retries == 0, || "the server sent a Retry, unasked".into())
}

/// RFC 9000, Section 17.2.5: the token comes back, and packet numbers go on.
pub(super) fn retry(evidence: &Evidence) -> Result<(), String> {
    let trace = &evidence.client;
    let tokens: Vec<_> = trace.of(PacketKind::Retry, false).map(|retry| &retry.token).collect();
    ensure(tokens.iter().any(|token| !token.is_empty()), || "no Retry with a token came".into())?;
    let mut before = None;
    for packet in trace.of(PacketKind::Initial, true) {
        let number = packet.content.as_ref().map(|content| content.number);
        if packet.token.is_empty() {
            before = before.max(number);
        } else if tokens.contains(&&packet.token) {
            return ensure(number > before, || {
                "the client began packet numbers anew after the Retry".into()
            });
        }
    }
    Err("no Initial of the client has the token of the Retry".into())
}

pub(super) fn client_hello_repeated(evidence: &Evidence) -> Result<(), String> {
    let begins = |packet: &&Packet| {
        packet.frames().any(|frame| matches!(frame, Frame::Crypto(crypto) if crypto.offset == 0))
    };
    let count = evidence.client.of(PacketKind::Initial, true).filter(begins).count();
    ensure(count >= 2, || format!("the client sent {count} ClientHello instead of 2 or more"))
}

pub(super) fn only_chacha20(evidence: &Evidence) -> Result<(), String> {
    let trace = &evidence.client;
    let hello = trace.crypto(0, PacketKind::Initial, true);
    let offered = offered_ciphers(&hello).ok_or("the ClientHello could not be read")?;
    ensure(offered == [CHACHA20_POLY1305_SHA256], || {
        format!("the client offered the ciphers {offered:#06x?}, not 0x1303 alone")
    })?;
    let used = trace.ciphers.first().copied().flatten();
    ensure(used == Some(Aead::ChaCha20Poly1305), || format!("{used:?} was used"))
}

/// The cipher suites of a ClientHello (RFC 8446, Section 4.1.2).
fn offered_ciphers(hello: &[u8]) -> Option<Vec<u16>> {
    let mut reader = Reader::new(hello);
    // Type, length, legacy version, random.
    reader.bytes(1 + 3 + 2 + 32).ok()?;
    let session_id = reader.u8().ok()?;
    reader.bytes(session_id.into()).ok()?;
    let length = reader.u16().ok()?;
    let suites = reader.bytes(length.into()).ok()?;
    Some(suites.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect())
}

/// What the server declares.
fn server_parameters(trace: &Trace) -> Option<TransportParameters> {
    tls::server_parameters(&trace.crypto(0, PacketKind::Handshake, false))
}

pub(super) fn stream_limit(evidence: &Evidence) -> Result<(), String> {
    let parameters = server_parameters(&evidence.client)
        .ok_or("the server's transport parameters could not be read")?;
    let limit = parameters.initial_max_streams_bidi;
    ensure(limit <= STREAM_LIMIT, || format!("the server permitted {limit} streams at first"))
}

/// RFC 8446, Section 4.4.2: who resumes a session needs no certificate.
pub(super) fn resumed(evidence: &Evidence) -> Result<(), String> {
    let trace = &evidence.client;
    let has_certificate = |connection| {
        let bytes = trace.crypto(connection, PacketKind::Handshake, false);
        tls::messages(&bytes).any(|(kind, _)| kind == CERTIFICATE)
    };
    ensure(has_certificate(0), || "the first handshake has no certificate".into())?;
    let opened = trace.of(PacketKind::Handshake, false);
    let second = |packet: &Packet| packet.content.as_ref().is_some_and(|it| it.connection == 1);
    ensure(opened.into_iter().any(second), || "the second handshake could not be read".into())?;
    ensure(!has_certificate(1), || "the second handshake has a certificate".into())
}

pub(super) fn early_data(evidence: &Evidence) -> Result<(), String> {
    let trace = &evidence.client;
    // Not every implementation logs the secret of early data.
    let early = trace.of(PacketKind::ZeroRtt, true).map(|packet| packet.len).sum::<usize>();
    let late = trace.of(PacketKind::OneRtt, true).filter_map(|packet| packet.content.as_ref());
    let late = late.map(|content| content.payload.len()).sum::<usize>();
    ensure(early > 0, || "the client sent no early data".into())?;
    ensure(late <= LATE_REQUESTS, || format!("the client sent {late} bytes in 1-RTT packets"))
}

/// RFC 9001, Section 6.
pub(super) fn key_update(evidence: &Evidence) -> Result<(), String> {
    for (trace, from_client, end) in
        [(&evidence.client, true, "client"), (&evidence.server, false, "server")]
    {
        let updated = |packet: &Packet| packet.content.as_ref().is_some_and(|it| it.key_phase);
        ensure(trace.of(PacketKind::OneRtt, from_client).any(updated), || {
            format!("the {end} sent nothing with keys of the second phase")
        })?;
    }
    Ok(())
}

/// Both ends have moved on to other keys `N` times (RFC 9001, Section 6).
pub(super) fn key_updates<const N: usize>(evidence: &Evidence) -> Result<(), String> {
    for (trace, from_client, end) in
        [(&evidence.client, true, "client"), (&evidence.server, false, "server")]
    {
        let mut phase = false;
        let mut updates = 0;
        for packet in trace.of(PacketKind::OneRtt, from_client) {
            if let Some(content) = packet.content.as_ref().filter(|it| it.key_phase != phase) {
                phase = content.key_phase;
                updates += 1;
            }
        }
        ensure(updates == N, || format!("the {end} updated its keys {updates} times, not {N}"))?;
    }
    Ok(())
}

/// RFC 9000, Section 13.4.
pub(super) fn ecn(evidence: &Evidence) -> Result<(), String> {
    for (trace, from_client, end) in
        [(&evidence.client, true, "client"), (&evidence.server, false, "server")]
    {
        let sent = || trace.packets.iter().filter(|packet| packet.from_client == from_client);
        let marked =
            |packet: &Packet| matches!(packet.ecn, EcnCodepoint::Ect0 | EcnCodepoint::Ect1);
        ensure(sent().any(marked), || format!("the {end} marked nothing with ECT"))?;
        ensure(sent().all(|packet| packet.ecn != EcnCodepoint::Ce), || {
            format!("the {end} marked something with CE, which is for routers")
        })?;
        let reports = |packet: &Packet| {
            packet.frames().any(|frame| matches!(frame, Frame::Ack(ack) if ack.ecn.is_some()))
        };
        ensure(sent().any(reports), || format!("the {end} reported no marks in ACK frames"))?;
    }
    Ok(())
}

/// RFC 9000, Section 8.1: until a Handshake packet of the client has come. The runner lets it pass
/// when others send up to four times what came.
pub(super) fn amplification(evidence: &Evidence) -> Result<(), String> {
    let trace = &evidence.server;
    let sent = trace.crypto(0, PacketKind::Handshake, false).len();
    ensure(sent >= LONG_CHAIN, || format!("the server's Handshake data has {sent} bytes only"))?;
    let factor = if evidence.server_is_ours { 3 } else { 4 };
    let (mut received, mut sent) = (0, 0);
    for packet in &trace.packets {
        match (packet.from_client, packet.kind) {
            (true, PacketKind::Handshake) => return Ok(()),
            (true, _) => received += packet.datagram_len,
            (false, PacketKind::VersionNegotiation) => {
                return Err("the server answered with Version Negotiation".into());
            }
            (false, _) => sent += packet.datagram_len,
        }
        ensure(sent <= factor * received, || {
            format!("the server sent {sent} bytes for {received} from an unvalidated address")
        })?;
    }
    Err("the client sent no Handshake packet".into())
}

pub(super) fn only_ipv6(evidence: &Evidence) -> Result<(), String> {
    let right = evidence.server.packets.iter().all(|packet| packet.server.is_ipv6());
    ensure(right, || "there were packets over IPv4".into())
}

pub(super) fn addresses_changed(evidence: &Evidence) -> Result<(), String> {
    let addresses: BTreeSet<_> =
        evidence.server.packets.iter().map(|packet| packet.client.ip()).collect();
    ensure(addresses.len() > 1, || "the server saw one address of the client only".into())
}

/// RFC 9000, Sections 8.2 and 9.3: the server challenges the client on each new path, and the first
/// challenge that comes is answered.
///
/// The runner wants the challenge in the first packet of the path, as no RFC does
/// (quic-interop-runner, issue 424): ours is held to that. It also counts a challenge that the link
/// has dropped as one without an answer, which is chance: the link's queue is full at times.
pub(super) fn paths_validated(evidence: &Evidence) -> Result<(), String> {
    let mut paths: Vec<Path> = Vec::new();
    for packet in evidence.server.packets.iter().filter(|packet| !packet.from_client) {
        let (from, to) = (packet.server, packet.client);
        let sent = challenges(packet);
        if let Some(known) = paths.iter_mut().find(|path| (path.from, path.to) == (from, to)) {
            known.sent.extend(sent);
            continue;
        }
        ensure(paths.is_empty() || !evidence.server_is_ours || !sent.is_empty(), || {
            format!("the first packet from {from} to {to} contains no PATH_CHALLENGE")
        })?;
        paths.push(Path { from, to, sent });
    }
    ensure(paths.len() > 1, || "the server used one path only".into())?;
    let (from_client, to_client): (Vec<_>, Vec<_>) =
        evidence.client.packets.iter().partition(|packet| packet.from_client);
    let came: BTreeSet<_> = to_client.into_iter().flat_map(challenges).collect();
    let responses: BTreeSet<_> = from_client
        .into_iter()
        .flat_map(Packet::frames)
        .filter_map(|frame| match frame {
            Frame::PathResponse(response) => Some(response.data),
            _ => None,
        })
        .collect();
    for Path { from, to, sent } in paths.iter().skip(1) {
        let first = sent.iter().find(|challenge| came.contains(*challenge));
        let first = first.ok_or_else(|| {
            format!("{} PATH_CHALLENGE went from {from} to {to}, and none came", sent.len())
        })?;
        ensure(responses.contains(first), || {
            format!("a PATH_CHALLENGE from {from} to {to} came and has no PATH_RESPONSE")
        })?;
    }
    Ok(())
}

/// A path of the server, and the data of the challenges that it sent there.
struct Path {
    from: SocketAddr,
    to: SocketAddr,
    sent: Vec<[u8; 8]>,
}

fn challenges(packet: &Packet) -> Vec<[u8; 8]> {
    let challenge = |frame| match frame {
        Frame::PathChallenge(challenge) => Some(challenge.data),
        _ => None,
    };
    packet.frames().filter_map(challenge).collect()
}

/// The server has ended `N` streams of the client with as much data as came on each.
pub(super) fn echoed_streams<const N: usize>(evidence: &Evidence) -> Result<(), String> {
    let ends = |trace: &Trace, from_client| -> BTreeSet<(StreamId, u64)> {
        let packets = trace.packets.iter().filter(|packet| packet.from_client == from_client);
        let end = |frame| match frame {
            Frame::Stream(stream) if stream.fin => {
                Some((stream.id, stream.offset + stream.data.len() as u64))
            }
            _ => None,
        };
        packets.flat_map(Packet::frames).filter_map(end).collect()
    };
    let (asked, echoed) = (ends(&evidence.client, true), ends(&evidence.client, false));
    let whole = asked.intersection(&echoed).count();
    ensure(whole == N, || format!("{whole} streams were echoed instead of {N}"))
}

/// At least `N` datagrams of the client came back.
pub(super) fn echoed_datagrams<const N: usize>(evidence: &Evidence) -> Result<(), String> {
    let datagrams = |from_client| -> BTreeSet<&[u8]> {
        let packets = &evidence.client.packets;
        let packets = packets.iter().filter(|packet| packet.from_client == from_client);
        let data = |frame| match frame {
            Frame::Datagram(datagram) => Some(datagram.data),
            _ => None,
        };
        packets.flat_map(Packet::frames).filter_map(data).collect()
    };
    let echoed = datagrams(true).intersection(&datagrams(false)).count();
    ensure(echoed >= N, || format!("{echoed} datagrams were echoed instead of {N}"))
}

/// RFC 9000, Section 9.5: the first packet of a client on a new path has another connection ID.
pub(super) fn client_migrated(evidence: &Evidence) -> Result<(), String> {
    let mut paths = BTreeSet::new();
    let mut last = None;
    for packet in evidence.client.packets.iter().filter(|packet| packet.from_client) {
        let is_new = paths.insert((packet.client, packet.server));
        ensure(!is_new || last != Some(packet.dcid), || {
            let (from, to) = (packet.client, packet.server);
            format!("the first packet from {from} to {to} has the connection ID of the path before")
        })?;
        last = Some(packet.dcid);
    }
    ensure(paths.len() > 1, || "the client used one path only".into())
}

/// The client has given up `N` streams in both directions, and the server has ended its side of each
/// by RESET_STREAM (RFC 9000, Section 3.5).
pub(super) fn given_up<const N: usize>(evidence: &Evidence) -> Result<(), String> {
    let trace = &evidence.client;
    let streams = |from_client, id: fn(&Frame<'_>) -> Option<StreamId>| -> BTreeSet<StreamId> {
        let packets = trace.packets.iter().filter(|packet| packet.from_client == from_client);
        packets.flat_map(Packet::frames).filter_map(|frame| id(&frame)).collect()
    };
    let reset = |frame: &Frame<'_>| match frame {
        Frame::ResetStream(frame) => Some(frame.id),
        _ => None,
    };
    let stopped = |frame: &Frame<'_>| match frame {
        Frame::StopSending(frame) => Some(frame.id),
        _ => None,
    };
    for (what, found) in [
        ("the client reset", streams(true, reset)),
        ("the client stopped", streams(true, stopped)),
        ("the server reset", streams(false, reset)),
    ] {
        ensure(found.len() == N, || format!("{what} {} streams instead of {N}", found.len()))?;
    }
    Ok(())
}

/// RFC 8446, Sections 4.3.2, 4.4.2 and 4.4.3.
pub(super) fn client_certificate(evidence: &Evidence) -> Result<(), String> {
    let has = |from_client, wanted| {
        let bytes = evidence.client.crypto(0, PacketKind::Handshake, from_client);
        tls::messages(&bytes).any(|(kind, _)| kind == wanted)
    };
    ensure(has(false, CERTIFICATE_REQUEST), || "the server asked for no certificate".into())?;
    ensure(has(true, CERTIFICATE), || "the client sent no certificate".into())?;
    // Without a certificate there is none, even if the message for certificates comes.
    ensure(has(true, CERTIFICATE_VERIFY), || "the client did not prove a certificate".into())
}

/// RFC 9000, Section 10.3: what the server sent last has a token that it gave the client, who says
/// nothing after that.
pub(super) fn stateless_reset(evidence: &Evidence) -> Result<(), String> {
    let trace = &evidence.client;
    let mut tokens = BTreeSet::new();
    if let Some(parameters) = server_parameters(trace) {
        tokens.extend(parameters.stateless_reset_token.map(|token| token.0));
    }
    for packet in trace.packets.iter().filter(|packet| !packet.from_client) {
        for frame in packet.frames() {
            if let Frame::NewConnectionId(new) = frame {
                tokens.insert(new.stateless_reset_token.0);
            }
        }
    }
    let is_reset = |stray: &&Stray| !stray.from_client && tokens.contains(&stray.tail);
    let reset = trace.strays.iter().find(is_reset).ok_or_else(|| {
        format!("no datagram of the server has one of its {} tokens", tokens.len())
    })?;
    let late = trace.packets.iter().filter(|packet| packet.from_client);
    let late = late.filter(|packet| packet.at > reset.at + LAST_WORDS).count();
    ensure(late == 0, || format!("the client sent {late} packets after the stateless reset"))
}

/// draft-ietf-quic-ack-frequency, Section 4: the server's frame has an effect.
pub(super) fn ack_frequency(evidence: &Evidence) -> Result<(), String> {
    let mut asked = false;
    let (mut data, mut acks) = (0_usize, 0_usize);
    for packet in &evidence.client.packets {
        let has = |wanted: fn(&Frame<'_>) -> bool| packet.frames().any(|frame| wanted(&frame));
        if packet.from_client {
            acks += usize::from(asked && has(|frame| matches!(frame, Frame::Ack(_))));
        } else {
            asked |= has(|frame| matches!(frame, Frame::AckFrequency(_)));
            data += usize::from(asked && has(|frame| matches!(frame, Frame::Stream(_))));
        }
    }
    ensure(asked, || "the server sent no ACK_FREQUENCY".into())?;
    ensure(acks * PACKETS_OF_AN_ACK <= data, || {
        format!("the client sent {acks} ACKs for {data} packets after ACK_FREQUENCY")
    })
}
