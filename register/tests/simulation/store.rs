//! Stores, as far as a register is concerned.

use std::collections::HashMap;

use quicket_register::{Info, Look, MAX_LAG, SetReply, Ticket, Trailer, WINDOW};

/// What happens to the store, or to the site.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Keys of tickets are rotated; gateways take that up one after the other.
    Rotate,
    RestartEmpty,
    /// It comes up with what it had so long before.
    RestartFromFile {
        lost_ms: u64,
    },
    Down {
        for_ms: u64,
    },
    Slow {
        ms: u64,
        for_ms: u64,
    },
    Flush,
    /// One key in so many.
    Evict {
        part: u64,
    },
    /// Its clock is ahead by so much, until somebody sets it right.
    ClockJump {
        ms: u64,
        for_ms: u64,
    },
    /// So many gateways are started again, and have forgotten what they have seen.
    Restart {
        percent: u64,
    },
    /// So many gateways have no way to it.
    Partition {
        percent: u64,
        for_ms: u64,
    },
    /// A replica becomes the master; so many gateways stay with the old one, which nobody tells, for so long.
    FailOver {
        split_percent: u64,
        for_ms: u64,
    },
}

/// One process.
pub(crate) struct Store {
    pub(crate) info: Info,
    mark: Option<String>,
    /// When each is forgotten, by its own time, and when it was set, by that of the simulation.
    keys: HashMap<Ticket, (u64, u64)>,
    /// Its clock, ahead of the simulation's.
    pub(crate) ahead: u64,
    /// Its replica hears nothing since then.
    pub(crate) alone_since: Option<u64>,
    /// How many there are as long as all of them hear it; one less where the one does not that became the master.
    pub(crate) replicas: usize,
    swept: u64,
}

impl Store {
    pub(crate) fn new(run: u64, ahead: u64) -> Self {
        let info = Info {
            run_id: format!("run{run}"),
            replication_id: format!("history{run}"),
            replicas: 1,
            may_evict: true,
            ..Info::default()
        };
        let (keys, alone_since) = (HashMap::new(), None);
        Self { info, mark: None, keys, ahead, alone_since, replicas: 1, swept: 0 }
    }

    /// Another process with what this one had at a time, of another history or of the same.
    pub(crate) fn copy(&self, run: u64, history: u64, until: u64) -> Self {
        let mut copy = Self::new(run, self.ahead);
        copy.info.replication_id = format!("history{history}");
        copy.replicas = self.replicas;
        copy.mark.clone_from(&self.mark);
        copy.keys =
            self.keys.iter().filter(|(_, at)| at.1 <= until).map(|(key, at)| (*key, *at)).collect();
        copy
    }

    pub(crate) fn time(&self, now: u64) -> u64 {
        now + self.ahead
    }

    pub(crate) fn set(&mut self, now: u64, ticket: Ticket) -> SetReply {
        let time = self.time(now);
        if time > self.swept + WINDOW {
            self.keys.retain(|_, at| at.0 > time);
            self.swept = time;
        }
        match self.keys.get(&ticket) {
            Some(at) if at.0 > time => SetReply::Held,
            _ => {
                self.keys.insert(ticket, (time + WINDOW, now));
                SetReply::Set
            }
        }
    }

    pub(crate) fn trailer(&self, now: u64) -> Trailer<'_> {
        Trailer {
            mark: self.mark.as_ref().map(String::as_bytes),
            time: self.time(now),
            evicted: Some(self.info.evicted),
        }
    }

    pub(crate) fn info(&mut self, now: u64) {
        let keeps_up = self.alone_since.is_none_or(|since| now <= since + MAX_LAG * 1000);
        self.info.replicas = if keeps_up { self.replicas } else { self.replicas.saturating_sub(1) };
    }

    pub(crate) fn look(&self, now: u64, name: u64) -> Look<'_> {
        Look {
            info: &self.info,
            time: self.time(now),
            mark: self.mark.as_ref().map(String::as_bytes),
            denies: true,
            name: name.to_be_bytes(),
        }
    }

    pub(crate) fn write(&mut self, mark: &str) {
        self.mark = Some(mark.to_owned());
    }

    pub(crate) fn flush(&mut self) {
        self.mark = None;
        self.keys.clear();
    }

    pub(crate) fn evict(&mut self, part: u64) {
        let before = self.keys.len();
        self.keys.retain(|ticket, _| u64::from(ticket[11]) % part != 0);
        self.info.evicted += (before - self.keys.len()) as u64;
    }

    /// It has known everything for long enough.
    pub(crate) fn is_old(&mut self, now: u64) {
        if let Some(mark) = &mut self.mark {
            let mut words: Vec<String> = mark.split(' ').map(str::to_owned).collect();
            words[4] = (now + self.ahead - WINDOW).to_string();
            *mark = words.join(" ");
        }
    }
}
