//! Reads scripts: what is used here of packetdrill's syntax (<https://github.com/google/packetdrill>, syntax.md).
//!
//! There is one event on a line. Commands of a shell, other protocols than TCP, and addresses are not known. A segment that is
//! expected without a window may have any.

use super::packet::{ACK, Opt, Packet, flags};

/// Microseconds.
pub(super) type Micros = u64;

/// What is wrong with a script, or with what came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) line: usize,
    pub(super) text: String,
}

/// When something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// `*`: at any time.
    Any,
    /// Between two times, from the script's beginning or from the last event.
    Between { is_relative: bool, from: Micros, to: Micros },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    /// When it returns, from the same time on as its beginning, if it waits.
    pub(super) end: Option<Micros>,
    pub(super) result: i64,
    pub(super) errno: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A segment comes.
    Comes(Packet),
    /// The stack sends a segment.
    Leaves(Packet),
    /// A router says that a segment with this sequence number was too long.
    TooBig {
        mtu: u32,
        sequence: u32,
    },
    Calls(Call),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) line: usize,
    pub(super) when: When,
    pub(super) action: Action,
}

/// What a script says of its surroundings, in lines that begin with `--`. Buffers are not among packetdrill's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) is_v4: bool,
    pub(super) mtu: usize,
    pub(super) tolerance: Micros,
    pub(super) receive_buffer: usize,
    pub(super) send_buffer: usize,
}

#[derive(Debug)]
pub(super) struct Script {
    pub(super) setting: Setting,
    pub(super) events: Vec<Event>,
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    ///
    /// The first line that cannot be understood.
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        let buffer = 256 << 10;
        let setting = Setting {
            is_v4: true,
            mtu: 1500,
            tolerance: 0,
            receive_buffer: buffer,
            send_buffer: buffer,
        };
        let mut this = Self { setting, events: Vec::new() };
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split_once("//").map_or(text, |(before, _)| before).trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            this.line(line, text).map_err(|text| Failure { line, text })?;
        }
        Ok(this)
    }

    fn line(&mut self, line: usize, text: &str) -> Result<(), String> {
        if let Some(option) = text.strip_prefix("--") {
            return self.setting.read(option);
        }
        let mut cursor = Cursor { rest: text };
        let when = cursor.when()?;
        let action = if cursor.eats("<") {
            cursor.comes()?
        } else if cursor.eats(">") {
            Action::Leaves(cursor.packet(true)?)
        } else {
            Action::Calls(cursor.call()?)
        };
        cursor.ends()?;
        self.events.push(Event { line, when, action });
        Ok(())
    }
}

impl Setting {
    fn read(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').ok_or("an option has no value")?;
        let number = || value.trim().parse().map_err(|_| format!("{value} is no number"));
        match (name.trim(), value.trim()) {
            ("ip_version", "ipv4") => self.is_v4 = true,
            ("ip_version", "ipv6") => self.is_v4 = false,
            ("mtu", _) => self.mtu = number()?,
            ("tolerance_usecs", _) => self.tolerance = number()? as Micros,
            ("receive_buffer", _) => self.receive_buffer = number()?,
            ("send_buffer", _) => self.send_buffer = number()?,
            _ => return Err(format!("there is no option {option}")),
        }
        Ok(())
    }
}

/// What is left of a line.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn eats(&mut self, what: &str) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(what);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expects(&mut self, what: &str) -> Result<(), String> {
        if self.eats(what) {
            Ok(())
        } else {
            Err(format!("{what} is missing before: {}", self.rest))
        }
    }

    fn ends(&mut self) -> Result<(), String> {
        match self.rest.trim() {
            "" => Ok(()),
            rest => Err(format!("this cannot be understood: {rest}")),
        }
    }

    /// The characters that something holds for.
    fn takes(&mut self, holds: impl Fn(char) -> bool) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|char| !holds(char)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn word(&mut self) -> &'a str {
        self.takes(|char| char.is_ascii_alphanumeric() || char == '_')
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let digits = self.takes(|char| char.is_ascii_digit());
        digits.parse().map_err(|_| format!("a number is missing before: {}", self.rest))
    }

    /// Seconds.
    fn time(&mut self) -> Result<Micros, String> {
        let whole = self.takes(|char| char.is_ascii_digit());
        // `...` is not behind a point of a number.
        let has_part = self.rest.starts_with('.') && !self.rest.starts_with("...");
        let part = match has_part && self.eats(".") {
            true => self.takes(|char| char.is_ascii_digit()),
            false => "",
        };
        if (whole.is_empty() && part.is_empty()) || part.len() > 6 {
            return Err(format!("a time is missing before: {}", self.rest));
        }
        let number = |digits: &str| format!("0{digits}").parse::<u32>();
        let (Ok(seconds), Ok(micros)) = (number(whole), number(&format!("{part:0<6}"))) else {
            return Err(format!("{whole} seconds are too many"));
        };
        Ok(Micros::from(seconds) * 1_000_000 + Micros::from(micros))
    }

    fn when(&mut self) -> Result<When, String> {
        if self.eats("*") {
            return Ok(When::Any);
        }
        let is_relative = self.eats("+");
        let from = self.time()?;
        let mut to = from;
        if self.eats("~") {
            if self.eats("+") != is_relative {
                return Err("both times are to be relative, or none".into());
            }
            to = self.time()?;
        }
        if to < from {
            return Err("the end is before the beginning".into());
        }
        Ok(When::Between { is_relative, from, to })
    }

    /// A segment or an error of ICMP that comes.
    fn comes(&mut self) -> Result<Action, String> {
        if !self.eats("icmp") {
            return Ok(Action::Comes(self.packet(false)?));
        }
        self.expects("unreachable")?;
        self.expects("frag_needed")?;
        self.expects("mtu")?;
        let mtu = self.number()?;
        self.expects("[")?;
        let (sequence, _) = self.numbers()?;
        self.expects("]")?;
        Ok(Action::TooBig { mtu, sequence })
    }

    /// `1:1001(1000)`: the first number, and how many octets there are.
    fn numbers(&mut self) -> Result<(u32, u32), String> {
        let sequence: u32 = self.number()?;
        self.expects(":")?;
        let end: u32 = self.number()?;
        self.expects("(")?;
        let len: u32 = self.number()?;
        self.expects(")")?;
        if sequence.wrapping_add(len) != end {
            return Err(format!("from {sequence} to {end} there are not {len} octets"));
        }
        Ok((sequence, len))
    }

    fn packet(&mut self, is_ours: bool) -> Result<Packet, String> {
        let word = self.takes(|char| !char.is_whitespace());
        let flags = flags(word).ok_or_else(|| format!("{word} are no flags"))?;
        let (sequence, len) = self.numbers()?;
        // More does not go into a frame.
        if len > 9000 {
            return Err(format!("{len} octets are too many for a segment"));
        }
        let acknowledgment = if self.eats("ack") { Some(self.number()?) } else { None };
        if acknowledgment.is_some() != (flags & ACK != 0) {
            return Err("a segment has a dot among its flags and `ack`, or neither".into());
        }
        let window = if self.eats("win") { Some(self.number()?) } else { None };
        let options = if self.eats("<...>") && is_ours { None } else { Some(self.options()?) };
        Ok(Packet { flags, sequence, len, acknowledgment, window, options })
    }

    fn options(&mut self) -> Result<Vec<Opt>, String> {
        let mut options = Vec::new();
        if !self.eats("<") {
            return Ok(options);
        }
        loop {
            options.push(match self.word() {
                "mss" => Opt::Mss(self.number()?),
                "wscale" => Opt::Scale(self.number()?),
                "sackOK" => Opt::SackOk,
                "nop" => Opt::Nop,
                "eol" => Opt::Eol,
                "sack" => {
                    let mut blocks = Vec::new();
                    while !self.rest.trim_start().starts_with([',', '>']) {
                        let from = self.number()?;
                        self.expects(":")?;
                        blocks.push((from, self.number()?));
                    }
                    Opt::Sack(blocks)
                }
                "TS" => {
                    self.expects("val")?;
                    let value = self.number()?;
                    self.expects("ecr")?;
                    Opt::Timestamp { value, echo: self.number()? }
                }
                other => return Err(format!("there is no option `{other}` of a segment")),
            });
            // There are 40 octets for them (RFC 9293, Section 3.1).
            if Opt::octets(&options) > 40 {
                return Err("the options are too long".into());
            }
            if self.eats(">") {
                return Ok(options);
            }
            self.expects(",")?;
        }
    }

    fn call(&mut self) -> Result<Call, String> {
        let end = if self.eats("...") { Some(self.time()?) } else { None };
        let name = self.word().to_owned();
        self.expects("(")?;
        let arguments = self.arguments()?;
        self.expects("=")?;
        let sign = if self.eats("-") { -1 } else { 1 };
        let result = sign * i64::from(self.number::<u32>()?);
        let errno = Some(self.word()).filter(|word| !word.is_empty()).map(str::to_owned);
        // What the error means, in words.
        if self.eats("(") {
            self.takes(|char| char != ')');
            self.expects(")")?;
        }
        Ok(Call { name, arguments, end, result, errno })
    }

    /// What stands between parentheses, the first of which is taken.
    fn arguments(&mut self) -> Result<Vec<String>, String> {
        let (mut depth, mut begin, rest) = (0_usize, 0, self.rest);
        let mut arguments = Vec::new();
        for (at, char) in rest.char_indices() {
            match char {
                '(' | '[' | '{' => depth += 1,
                ')' if depth == 0 => {
                    arguments.push(rest[begin..at].trim().to_owned());
                    self.rest = &rest[at + 1..];
                    return Ok(arguments);
                }
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    arguments.push(rest[begin..at].trim().to_owned());
                    begin = at + 1;
                }
                _ => {}
            }
        }
        Err("arguments have no end".into())
    }
}
