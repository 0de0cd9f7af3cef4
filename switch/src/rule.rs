//! Which users may have what at a switch for the system: the operator's rule.
//!
//! A rule is text. Each line allows something, and what no line allows is refused:
//!
//! ```text
//! # who         ports            at which addresses     for which server names                with which options
//! user alice    ports 443,8443   addresses 192.0.2.1    names alice.example,*.alice.example   options ttl,dscp
//! group web     ports 443
//! user *        ports 1024-65535
//! ```
//!
//! A user or a group is a name or a number; `*` is everybody. Without `addresses` a line is for all of them,
//! the wildcards included. A name that stands in any line is reserved: only who is allowed it by a line of his
//! may serve it. Who is at an address by lines with `names` alone serves those names and no others. All else
//! goes to who asks first. Options of UDP and IP that a line does not name (of [`OptionKind`]) are the switch's own:
//! the socket of an address is common to all who are there.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use nix::unistd::{Group, User};

use crate::options::{OptionKind, SocketOptions};
use crate::registry::{Names, ServerName};

/// The longest rule in bytes.
pub const MAX_RULE: usize = 256 << 10;
/// The first port that everybody may have without a rule.
pub const FIRST_PORT: u16 = 1024;
/// A port of 0 asks for any that is free: the system gives one of these (ip(7)).
const ANY_PORT: u16 = 0;

/// Who a program belongs to, in the words of the system (SO_PEERCRED, SO_PEERGROUPS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The user.
    pub uid: u32,
    /// All groups.
    pub gids: Vec<u32>,
}

/// What users may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    subject: Subject,
    ports: Vec<RangeInclusive<u16>>,
    /// Empty: all.
    addresses: Vec<IpAddr>,
    /// Empty: all that are not reserved.
    names: Vec<ServerName>,
    /// Empty: none.
    options: Vec<OptionKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Everybody,
    User(u32),
    Group(u32),
}

/// What is wrong with a rule, and in which line, the first one being 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    line: usize,
    what: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}: {}; a line is such as: user alice ports 443,8000-8080 addresses 192.0.2.1 names \
             *.alice.example",
            self.line, self.what
        )
    }
}

impl std::error::Error for RuleError {}

impl Default for Rule {
    /// Every user may have the ports that he could bind himself.
    fn default() -> Self {
        let ports = vec![FIRST_PORT..=u16::MAX];
        let (addresses, names, options) = (Vec::new(), Vec::new(), Vec::new());
        Self { lines: vec![Line { subject: Subject::Everybody, ports, addresses, names, options }] }
    }
}

impl Rule {
    /// Reads a rule. Names of users and groups are those of this host.
    ///
    /// # Errors
    ///
    /// When a line is not understood, or names somebody whom the host does not know: a rule that is half
    /// understood is none.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        if text.len() > MAX_RULE {
            let what = format!("a rule has at most {MAX_RULE} bytes");
            return Err(RuleError { line: 1, what });
        }
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let said = line.split('#').next().unwrap_or_default();
            if !said.trim().is_empty() {
                let parsed = Line::parse(said);
                lines.push(parsed.map_err(|what| RuleError { line: number, what })?);
            }
        }
        Ok(Self { lines })
    }

    /// Whether anything is allowed to somebody.
    #[must_use]
    pub fn knows(&self, who: &Who) -> bool {
        self.lines.iter().any(|line| line.is_about(who))
    }

    /// Whether somebody may be at an address; the port may be 0 as long as none is chosen.
    #[must_use]
    pub fn allows(&self, who: &Who, address: SocketAddr) -> bool {
        self.lines_for(who, address).next().is_some()
    }

    /// Which of the names somebody may not serve at an address, in words; `None` if he may.
    #[must_use]
    pub fn refused_name(&self, who: &Who, address: SocketAddr, names: &Names) -> Option<String> {
        let own = || self.lines_for(who, address);
        let granted =
            |name: &ServerName| own().any(|line| line.names.iter().any(|is| is.covers(name)));
        let reserved = |name: &ServerName| {
            self.lines
                .iter()
                .any(|line| line.names.iter().any(|is| is.covers(name) || name.covers(is)))
        };
        let is_free = own().any(|line| line.names.is_empty());
        if names.servers().is_empty() {
            return (!is_free).then(|| "every server name".to_owned());
        }
        let is_refused = |name: &&ServerName| !granted(name) && (!is_free || reserved(name));
        names.servers().iter().find(is_refused).map(ToString::to_string)
    }

    /// Which of the options of a socket somebody may not have at an address; `None` if he may have all.
    #[must_use]
    pub fn refused_option(
        &self,
        who: &Who,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> Option<OptionKind> {
        let granted = |kind: &OptionKind| {
            self.lines_for(who, address).any(|line| line.options.contains(kind))
        };
        options.kinds().find(|kind| !granted(kind))
    }

    fn lines_for(&self, who: &Who, address: SocketAddr) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.is_about(who) && line.has(address))
    }
}

impl Line {
    fn parse(said: &str) -> Result<Self, String> {
        let mut words = said.split_whitespace();
        let (kind, whom) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let subject = Subject::parse(kind, whom)?;
        let (mut ports, mut addresses, mut names, mut options) = (None, None, None, None);
        while let Some(word) = words.next() {
            let list = words.next().ok_or_else(|| format!("nothing stands behind \"{word}\""))?;
            let twice = match word {
                "ports" => ports.replace(all(list, port_range)?).is_some(),
                "addresses" => addresses.replace(all(list, address)?).is_some(),
                "names" => names.replace(all(list, name)?).is_some(),
                "options" => options.replace(all(list, option)?).is_some(),
                _ => return Err(format!("\"{word}\" is not ports, addresses, names or options")),
            };
            if twice {
                return Err(format!("\"{word}\" stands there twice"));
            }
        }
        let ports = ports.ok_or_else(|| "there are no ports".to_owned())?;
        let (addresses, names) = (addresses.unwrap_or_default(), names.unwrap_or_default());
        let options = options.unwrap_or_default();
        Ok(Self { subject, ports, addresses, names, options })
    }

    fn is_about(&self, who: &Who) -> bool {
        match self.subject {
            Subject::Everybody => true,
            Subject::User(uid) => uid == who.uid,
            Subject::Group(gid) => who.gids.contains(&gid),
        }
    }

    fn has(&self, address: SocketAddr) -> bool {
        let port = address.port();
        let free = |range: &RangeInclusive<u16>| *range.end() >= FIRST_PORT;
        let port = self
            .ports
            .iter()
            .any(|range| range.contains(&port) || (port == ANY_PORT && free(range)));
        let ip = address.ip().to_canonical();
        port && (self.addresses.is_empty() || self.addresses.contains(&ip))
    }
}

impl Subject {
    fn parse(kind: &str, whom: &str) -> Result<Self, String> {
        let number = whom.parse::<u32>().ok();
        match kind {
            _ if whom.is_empty() => Err("it does not say who".to_owned()),
            "user" if whom == "*" => Ok(Self::Everybody),
            "user" => {
                let found = || User::from_name(whom).ok().flatten().map(|user| user.uid.as_raw());
                let uid = number.or_else(found);
                uid.map(Self::User).ok_or_else(|| format!("there is no user \"{whom}\""))
            }
            "group" => {
                let found =
                    || Group::from_name(whom).ok().flatten().map(|group| group.gid.as_raw());
                let gid = number.or_else(found);
                gid.map(Self::Group).ok_or_else(|| format!("there is no group \"{whom}\""))
            }
            _ => Err(format!("\"{kind}\" is neither user nor group")),
        }
    }
}

fn all<T>(list: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let each = list.split(',');
    each.map(|one| read(one).ok_or_else(|| format!("\"{one}\" is not understood"))).collect()
}

fn port_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first != ANY_PORT && first <= last).then_some(first..=last)
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

fn option(text: &str) -> Option<OptionKind> {
    OptionKind::ALL.into_iter().find(|kind| kind.word() == text)
}

fn name(text: &str) -> Option<ServerName> {
    ServerName::new(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Protocol;

    fn who(uid: u32, gids: &[u32]) -> Who {
        Who { uid, gids: gids.to_vec() }
    }

    fn names(servers: &[&str]) -> Names {
        let servers = servers.iter().map(|name| ServerName::new(name).unwrap());
        Names::new([Protocol::new(b"h3").unwrap()], servers).unwrap()
    }

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    #[test]
    fn without_a_rule_everybody_has_what_he_could_bind_himself() {
        let rule = Rule::default();
        let anybody = who(1000, &[]);
        assert!(rule.knows(&anybody) && rule.allows(&anybody, at("[::]:1024")));
        assert!(rule.allows(&anybody, at("127.0.0.1:0")));
        assert!(!rule.allows(&anybody, at("127.0.0.1:1023")));
        assert_eq!(rule.refused_name(&anybody, at("[::]:4433"), &names(&[])), None);
    }

    #[test]
    fn a_line_is_for_its_user_or_group_and_for_its_ports_and_addresses() {
        let text = "user 1000 ports 443,8000-8010 addresses 192.0.2.1,::1 # alice\n\n\
                    group 33 ports 80\n";
        let rule = Rule::parse(text).unwrap();
        let (alice, web, other) = (who(1000, &[1000]), who(7, &[7, 33]), who(8, &[8]));
        assert!(rule.allows(&alice, at("192.0.2.1:443")) && rule.allows(&alice, at("[::1]:8010")));
        assert!(rule.allows(&alice, at("[::ffff:192.0.2.1]:443")));
        for not in ["192.0.2.2:443", "0.0.0.0:443", "192.0.2.1:444", "192.0.2.1:80"] {
            assert!(!rule.allows(&alice, at(not)), "{not}");
        }
        assert!(rule.allows(&web, at("[::]:80")) && !rule.allows(&web, at("[::]:443")));
        assert!(!rule.allows(&web, at("[::]:0")), "no port that the system gives");
        assert!(rule.knows(&web) && !rule.knows(&other));
        assert!(Rule::parse("user root ports 1-65535").unwrap().allows(&who(0, &[]), at("[::]:9")));
    }

    #[test]
    fn names_in_a_rule_are_reserved_and_others_are_for_who_comes_first() {
        let text = "user 1 ports 443 names a.example,*.a.example\nuser 2 ports 443,444\n\
                    user 1 ports 444";
        let rule = Rule::parse(text).unwrap();
        let refused = |uid, port: u16, servers: &[&str]| {
            rule.refused_name(&who(uid, &[]), SocketAddr::from(([0; 4], port)), &names(servers))
        };
        assert_eq!(refused(1, 443, &["a.example", "www.a.example", "*.a.example"]), None);
        assert_eq!(refused(1, 443, &["a.example", "b.example"]).unwrap(), "b.example");
        assert_eq!(refused(1, 443, &["x.y.a.example"]).unwrap(), "x.y.a.example");
        assert_eq!(refused(1, 443, &[]).unwrap(), "every server name");
        assert_eq!(refused(2, 443, &["b.example"]), None);
        assert_eq!(refused(2, 443, &[]), None);
        assert_eq!(refused(2, 443, &["WWW.a.example"]).unwrap(), "www.a.example");
        // ... and with a wildcard that would have a reserved name in it.
        assert_eq!(refused(2, 443, &["*.example"]).unwrap(), "*.example");
        assert_eq!(refused(1, 444, &["b.example"]), None);
        assert_eq!(refused(1, 444, &["a.example"]).unwrap(), "a.example", "not at this port");
    }

    #[test]
    fn options_are_for_whom_a_line_names_them() {
        let rule = Rule::parse("user 1 ports 443 options ttl,dscp\nuser * ports 443-444").unwrap();
        let refused = |uid, port: u16, options: &SocketOptions| {
            let refused =
                rule.refused_option(&who(uid, &[]), SocketAddr::from(([0; 4], port)), options);
            refused.map(OptionKind::word)
        };
        let ttl = SocketOptions { hop_limit: Some(3), ..SocketOptions::default() };
        let more = SocketOptions { mark: Some(3), class_v4: Some(8), ..ttl };
        assert_eq!((refused(1, 443, &ttl), refused(1, 443, &more)), (None, Some("mark")));
        assert_eq!((refused(1, 444, &ttl), refused(2, 443, &ttl)), (Some("ttl"), Some("ttl")));
        assert_eq!(refused(2, 443, &SocketOptions::default()), None);
    }

    /// Letters that change, and words that are lost or come twice.
    #[test]
    fn a_damaged_rule_is_refused_with_its_line_or_understood() {
        let whole =
            "user 7 ports 443,8000-8010 addresses 192.0.2.1,::1 names a.example,*.b.example";
        let mut rng = quicket_testing::Rng::new(5);
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut text = whole.as_bytes().to_vec();
            for _ in 0..=rng.index(3) {
                let at = rng.index(text.len());
                match rng.index(3) {
                    0 => text[at] ^= 1 << rng.index(7),
                    1 => drop(text.remove(at)),
                    _ => text.insert(at, text[at]),
                }
            }
            match Rule::parse(&String::from_utf8_lossy(&text)) {
                Ok(rule) => {
                    let _ = rule.allows(&who(7, &[7]), at("192.0.2.1:443"));
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().starts_with("line "), "{error}");
                }
            }
        }
        assert!((5_000..20_000).contains(&refused), "{refused}");
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        for (text, why) in [
            ("alice ports 443", "neither user nor group"),
            ("user", "does not say who"),
            ("user 1", "no ports"),
            ("user 1 ports", "nothing stands behind"),
            ("user 1 ports 0", "\"0\" is not understood"),
            ("user 1 ports 9-8", "not understood"),
            ("user 1 ports 65536", "not understood"),
            ("user 1 ports 1 ports 2", "twice"),
            ("user 1 ports 1 addresses example.org", "not understood"),
            ("user 1 ports 1 names *a", "not understood"),
            ("user 1 ports 1 port 2", "is not ports"),
            ("user 1 ports 1 options device", "\"device\" is not understood"),
            ("user no-such-user-here ports 1", "no user"),
            ("group no-such-group-here ports 1", "no group"),
        ] {
            let error = Rule::parse(&format!("# first\n{text}")).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains(why), "{text}: {error}");
        }
        assert!(!Rule::parse("").unwrap().knows(&who(1, &[])));
        assert!(Rule::parse(&"#".repeat(MAX_RULE + 1)).is_err());
    }
}
