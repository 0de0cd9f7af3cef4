//! What a store says of itself: the answer to INFO.

use alloc::string::String;
use core::fmt;

use crate::MAX_LAG;

/// The longest answer that is read, in bytes.
const MAX_LEN: usize = 1 << 16;
/// The longest name of a run or of a history, in bytes.
const MAX_NAME: usize = 64;

/// What a store says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The process.
    pub run_id: String,
    /// The history of its data: another one where a replica has become the master.
    pub replication_id: String,
    /// It is the replica of another store.
    pub is_replica: bool,
    /// Replicas that keep up.
    pub replicas: usize,
    /// Keys that were evicted since it has counted.
    pub evicted: u64,
    /// It may evict keys.
    pub may_evict: bool,
}

/// Why the answer tells too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoError {
    /// It is no text, or too long.
    NotText,
    /// This field is missing, or is not as Redis has it.
    Field(&'static str),
}

impl fmt::Display for InfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotText => f.write_str("the store's answer to INFO is no text"),
            Self::Field(name) => {
                write!(f, "the store's answer to INFO has no {name} as Redis has it")
            }
        }
    }
}

impl core::error::Error for InfoError {}

impl Info {
    /// Reads the answer to INFO.
    ///
    /// # Errors
    /// If a field is missing of which something depends.
    pub fn parse(answer: &[u8]) -> Result<Self, InfoError> {
        let text = core::str::from_utf8(answer).ok().filter(|text| text.len() <= MAX_LEN);
        let text = text.ok_or(InfoError::NotText)?;
        let field = |name: &'static str| {
            let value =
                |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().into());
            let found: Option<String> = text.lines().find_map(value);
            found.ok_or(InfoError::Field(name))
        };
        let name = |name: &'static str| {
            let value = field(name)?;
            let is_name = !value.is_empty()
                && value.len() <= MAX_NAME
                && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if is_name { Ok(value) } else { Err(InfoError::Field(name)) }
        };
        let number = |name: &'static str| -> Result<u64, InfoError> {
            field(name)?.parse().map_err(|_| InfoError::Field(name))
        };
        let limit = number("maxmemory")?;
        let policy = field("maxmemory_policy")?;
        Ok(Self {
            run_id: name("run_id")?,
            replication_id: name("master_replid")?,
            is_replica: field("role")? != "master",
            replicas: text.lines().filter(|line| keeps_up(line)).count(),
            evicted: number("evicted_keys")?,
            may_evict: limit != 0 && policy != "noeviction",
        })
    }

    /// How many keys were evicted, in an answer to INFO that may have nothing else.
    #[must_use]
    pub fn evicted(answer: &[u8]) -> Option<u64> {
        let text = core::str::from_utf8(answer).ok().filter(|text| text.len() <= MAX_LEN)?;
        text.lines().find_map(|line| line.strip_prefix("evicted_keys:")?.trim().parse().ok())
    }
}

/// `slave0:ip=10.0.0.2,port=6379,state=online,offset=14,lag=1`.
fn keeps_up(line: &str) -> bool {
    let Some((name, fields)) = line.split_once(':') else { return false };
    let number = name.strip_prefix("slave").or_else(|| name.strip_prefix("replica"));
    if number.is_none_or(|number| number.parse::<u32>().is_err()) {
        return false;
    }
    let field = |name: &str| {
        let mut all = fields.trim().split(',').filter_map(|field| field.split_once('='));
        all.find(|field| field.0 == name).map(|field| field.1)
    };
    let lag = field("lag").and_then(|lag| lag.parse::<u64>().ok());
    field("state") == Some("online") && lag.is_some_and(|lag| lag <= MAX_LAG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const ANSWER: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:0a1b\r\n\r\n# Memory\r\nmaxmemory:0\r\n\
        maxmemory_policy:allkeys-lru\r\n# Stats\r\nevicted_keys:3\r\n# Replication\r\nrole:master\r\n\
        connected_slaves:3\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=14,lag=1\r\n\
        slave1:ip=10.0.0.3,port=6379,state=online,offset=14,lag=11\r\n\
        slave2:ip=10.0.0.4,port=6379,state=wait_bgsave,offset=0,lag=0\r\n\
        master_failover_state:no-failover\r\nmaster_replid:9f8e\r\nmaster_replid2:00\r\n";

    #[test]
    fn all_that_matters_is_read() {
        let expected = Info {
            run_id: "0a1b".into(),
            replication_id: "9f8e".into(),
            is_replica: false,
            replicas: 1,
            evicted: 3,
            may_evict: false,
        };
        assert_eq!(Info::parse(ANSWER.as_bytes()), Ok(expected));
        let replica = ANSWER.replace("role:master", "role:slave");
        assert!(Info::parse(replica.as_bytes()).unwrap().is_replica);
        let limited = ANSWER.replace("maxmemory:0", "maxmemory:1000000");
        assert!(Info::parse(limited.as_bytes()).unwrap().may_evict);
        let kept = limited.replace("allkeys-lru", "noeviction");
        assert!(!Info::parse(kept.as_bytes()).unwrap().may_evict);
        assert_eq!(Info::evicted(b"# Stats\r\nevicted_keys:12\r\n"), Some(12));
        assert_eq!(Info::evicted(b"evicted_keys:x"), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        for name in
            ["run_id", "master_replid", "role", "evicted_keys", "maxmemory", "maxmemory_policy"]
        {
            let without = ANSWER.replace(&(name.to_string() + ":"), "x:");
            assert_eq!(Info::parse(without.as_bytes()), Err(InfoError::Field(name)));
        }
        let odd = ANSWER.replace("run_id:0a1b", "run_id:a b");
        assert_eq!(Info::parse(odd.as_bytes()), Err(InfoError::Field("run_id")));
        assert_eq!(Info::parse(b"\xff"), Err(InfoError::NotText));
    }
}
