//! The blocks of a capture file (draft-ietf-opsawg-pcapng).

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use pcap_parser::{
    DecryptionSecretsBlock, EnhancedPacketBlock, InterfaceDescriptionBlock,
    InterfaceStatisticsBlock, Linktype, OptionCode, PcapNGOption, SecretsType, SectionHeaderBlock,
    ToVec,
};
use quicket_trace::headers;

use super::queue::Train;

/// LINKTYPE_RAW: packets begin with their headers of IP.
const RAW: Linktype = Linktype(101);
/// Times are in nanoseconds: ten to the power of minus this many seconds.
const NANOSECONDS: u8 = 9;
/// `epb_flags`, whose lowest bits tell the direction.
const FLAGS: OptionCode = OptionCode(2);
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// The longest text of an option, in characters.
const MAX_TEXT: usize = 1024;

/// Writes blocks.
#[derive(Default)]
pub(super) struct Blocks {
    packet: Vec<u8>,
}

impl Blocks {
    /// What a file begins with.
    pub(super) fn begin(&self, out: &mut Vec<u8>, comment: &str) {
        let application = concat!("quicket ", env!("CARGO_PKG_VERSION"), " gateway capture");
        let mut section = SectionHeaderBlock {
            block_type: 0,
            block_len1: 0,
            bom: 0,
            major_version: 1,
            minor_version: 0,
            // Not known.
            section_len: -1,
            options: vec![
                text(OptionCode::ShbUserAppl, application),
                text(OptionCode::Comment, comment),
            ],
            block_len2: 0,
        };
        put(out, &mut section);
        let description = "datagrams of the gateway's QUIC sockets, with headers of IP and UDP made for this file";
        let mut interface = InterfaceDescriptionBlock {
            block_type: 0,
            block_len1: 0,
            linktype: RAW,
            reserved: 0,
            snaplen: 0,
            options: vec![
                text(OptionCode::IfName, "quicket"),
                text(OptionCode::IfDescription, description),
            ],
            block_len2: 0,
            if_tsresol: NANOSECONDS,
            if_tsoffset: 0,
        };
        put(out, &mut interface);
    }

    /// Lines of SSLKEYLOGFILE (RFC 9850).
    pub(super) fn secrets(&self, out: &mut Vec<u8>, lines: &[String]) {
        let mut all = lines.join("\n");
        all.push('\n');
        let mut block = DecryptionSecretsBlock {
            block_type: 0,
            block_len1: 0,
            secrets_type: SecretsType::TlsKeyLog,
            secrets_len: u32::try_from(all.len()).unwrap_or(u32::MAX),
            data: all.as_bytes(),
            options: Vec::new(),
            block_len2: 0,
        };
        put(out, &mut block);
    }

    /// Datagrams. Returns how many.
    pub(super) fn datagrams(&mut self, out: &mut Vec<u8>, train: &Train) -> u64 {
        let (ts_high, ts_low) = timestamp(train.at);
        let (addresses, direction) = match train.sent {
            true => ((train.local, train.remote), OUTBOUND),
            false => ((train.remote, train.local), INBOUND),
        };
        let mut number = 0;
        for (kept, len) in train.datagrams() {
            let whole = headers::write(&mut self.packet, addresses, train.ecn, kept, len);
            let length = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
            let mut block = EnhancedPacketBlock {
                block_type: 0,
                block_len1: 0,
                if_id: 0,
                ts_high,
                ts_low,
                caplen: length(self.packet.len()),
                origlen: length(whole),
                data: &self.packet,
                options: vec![option(FLAGS, direction.to_le_bytes().to_vec())],
                block_len2: 0,
            };
            put(out, &mut block);
            number += 1;
        }
        number
    }

    /// What a file ends with.
    pub(super) fn end(
        &self,
        out: &mut Vec<u8>,
        (from, to): (SystemTime, SystemTime),
        (received, lost): (u64, u64),
        comment: &str,
    ) {
        let (ts_high, ts_low) = timestamp(to);
        let time = |time| {
            let (high, low) = timestamp(time);
            [high.to_le_bytes(), low.to_le_bytes()].concat()
        };
        let mut block = InterfaceStatisticsBlock {
            block_type: 0,
            block_len1: 0,
            if_id: 0,
            ts_high,
            ts_low,
            options: vec![
                text(OptionCode::Comment, comment),
                option(OptionCode::IsbStartTime, time(from)),
                option(OptionCode::IsbEndTime, time(to)),
                option(OptionCode::IsbIfRecv, received.to_le_bytes().to_vec()),
                option(OptionCode::IsbIfDrop, lost.to_le_bytes().to_vec()),
            ],
            block_len2: 0,
        };
        put(out, &mut block);
    }
}

fn put(out: &mut Vec<u8>, block: &mut impl ToVec) {
    match block.to_vec() {
        Ok(bytes) => out.extend(bytes),
        // Memory takes all.
        Err(error) => log::error!("a block of a capture cannot be written: {error}"),
    }
}

fn timestamp(at: SystemTime) -> (u32, u32) {
    let nanos = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
    ((nanos >> 32) as u32, nanos as u32)
}

fn option(code: OptionCode, value: Vec<u8>) -> PcapNGOption<'static> {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    PcapNGOption { code, len, value: Cow::Owned(value) }
}

fn text(code: OptionCode, text: &str) -> PcapNGOption<'static> {
    option(code, text.chars().take(MAX_TEXT).collect::<String>().into_bytes())
}
