//! The file of a balancer, checked once.

use std::collections::HashSet;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use quicket_gue::GUE_PORT;
use quicket_steering::{HashKey, Maglev, ServerId};

use crate::grammar::{ConfigError, Words, each_line, hex};
use crate::site::Site;

/// The most addresses that datagrams come to.
pub const MAX_LISTEN: usize = 16;
/// The most servers.
pub const MAX_SERVERS: usize = Maglev::MAX_BACKENDS;
/// The most flows that are remembered.
pub const MAX_FLOWS: usize = 1 << 24;

/// The longest name of a server, in octets.
const MAX_NAME: usize = 64;
/// The largest weight: shares of very different servers take long to work out.
const MAX_WEIGHT: u16 = 1000;
const FLOWS: usize = 1 << 18;
const LIFETIME: u32 = 120;
const REPORT_TIMEOUT: u32 = 3;

/// What the file of a balancer says.
///
/// ```text
/// listen 192.0.2.1:443
/// connection-ids /etc/quicket/site
/// server east 10.0.0.1 id 00000001
/// server west 10.0.0.2 id 00000002 weight 2 drain
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The addresses of the site.
    pub listen: Vec<SocketAddr>,
    /// The file of connection IDs; without it all goes by the consistent hash.
    pub connection_ids: Option<PathBuf>,
    /// In the order of the file.
    pub servers: Vec<Server>,
    /// Keys the consistent hash: balancers with the same one choose alike.
    pub hash_key: HashKey,
    /// How many flows are remembered, by all workers together.
    pub flows: usize,
    /// After how many seconds of silence a flow is forgotten.
    pub lifetime: u32,
    /// MTU of the path to the servers, in bytes.
    pub mtu: u16,
    /// Whether packets to the servers may be fragmented.
    pub fragment: bool,
    /// How servers report.
    pub reports: Option<Reports>,
    /// Threads.
    pub workers: usize,
    /// The device on which the kernel forwards what it can.
    pub xdp: Option<Xdp>,
}

/// That the kernel forwards what it can, before it makes datagrams of sockets of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xdp {
    /// The device that datagrams come by.
    pub device: String,
    /// Where in the kernel.
    pub mode: XdpMode,
}

/// Where in the kernel packets are met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// Behind the driver: slower, and of any device.
    #[default]
    Generic,
    /// In the driver. What is for servers behind other devices goes by user space.
    Native,
}

/// How servers report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reports {
    /// Where reports come to.
    pub address: SocketAddr,
    /// After how many seconds of silence a server is down.
    pub timeout: u32,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// What it is called, and hashed by.
    pub name: String,
    /// Where encapsulated packets go.
    pub address: SocketAddr,
    /// What names it in connection IDs.
    pub ids: Vec<ServerId>,
    /// Its share of new connections in relation to the others'.
    pub weight: u16,
    /// What the operator wants of it.
    pub wish: Wish,
    /// Whether it is down unless it reports.
    pub must_report: bool,
}

/// What an operator wants of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It takes connections.
    Serve,
    /// It keeps those that it has.
    Drain,
    /// It has none.
    Down,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// The line that cannot be understood, or what is missing or contradicts itself.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self {
            listen: Vec::new(),
            connection_ids: None,
            servers: Vec::new(),
            hash_key: HashKey::default(),
            flows: FLOWS,
            lifetime: LIFETIME,
            mtu: 1500,
            fragment: false,
            reports: None,
            workers: 1,
            xdp: None,
        };
        let mut names = HashSet::new();
        let mut ids = HashSet::new();
        each_line(text, |first, words| {
            if first != "server" {
                return config.setting(first, words);
            }
            let server = server(words)?;
            if !names.insert(server.name.clone()) {
                return Err(format!("there are two servers of the name {}", server.name));
            }
            if let Some(id) = server.ids.iter().find(|id| !ids.insert(**id)) {
                return Err(format!("server ID {id} is another server's already"));
            }
            config.servers.push(server);
            Ok(())
        })?;
        config.check().map_err(ConfigError::of_file)?;
        Ok(config)
    }

    fn setting(&mut self, first: &str, words: &mut Words<'_>) -> Result<(), String> {
        match first {
            "listen" => self.listen.push(listen(words.need("the address")?)?),
            "connection-ids" => {
                self.connection_ids = Some(words.need("the name of the file")?.into());
            }
            "hash-key" => self.hash_key = HashKey::new(words.hex("the key of the hash")?),
            "flows" => {
                self.flows = words.number("the number of flows", 1, MAX_FLOWS)?;
                if words.take_if("lifetime") {
                    self.lifetime = words.number("the lifetime in seconds", 1, 86_400)?;
                }
            }
            "mtu" => {
                self.mtu = words.number("the MTU in bytes", 1280, u16::MAX)?;
                self.fragment = words.take_if("fragment");
            }
            "reports" => {
                let address = socket(words.need("the address")?, None)?;
                let timeout = match words.take_if("timeout") {
                    true => words.number("the timeout in seconds", 1, 3600)?,
                    false => REPORT_TIMEOUT,
                };
                self.reports = Some(Reports { address, timeout });
            }
            "xdp" => {
                let device = words.need("the name of the device")?.to_owned();
                // IFNAMSIZ with its zero.
                if device.len() > 15 {
                    return Err(format!("\"{device}\" is no device: names have up to 15 letters"));
                }
                let is_native = words.take_if("native");
                let mode = if is_native { XdpMode::Native } else { XdpMode::Generic };
                if !is_native {
                    words.take_if("generic");
                }
                self.xdp = Some(Xdp { device, mode });
            }
            "workers" => self.workers = words.number("the number of workers", 1, 64)?,
            _ => {
                return Err(format!(
                    "\"{first}\" is not known: lines begin with listen, connection-ids, server, \
                     hash-key, flows, mtu, reports, workers or xdp"
                ));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.listen.is_empty() {
            return Err(
                "no address to listen on: write \"listen ADDRESS:PORT\", with the address \
                        that clients know"
                    .to_owned(),
            );
        }
        if self.listen.len() > MAX_LISTEN {
            let count = self.listen.len();
            return Err(format!("{count} addresses to listen on, and there may be {MAX_LISTEN}"));
        }
        for (at, address) in self.listen.iter().enumerate() {
            if self.listen.iter().skip(at + 1).any(|other| other == address) {
                return Err(format!("\"listen {address}\" is there twice"));
            }
        }
        if self.servers.is_empty() {
            return Err("no server: write \"server NAME ADDRESS id HEX\"".to_owned());
        }
        if self.servers.len() > MAX_SERVERS {
            let count = self.servers.len();
            return Err(format!("{count} servers, and there may be {MAX_SERVERS}"));
        }
        let own = |server: &&Server| self.listen.iter().any(|own| own.ip() == server.address.ip());
        if let Some(server) = self.servers.iter().find(own) {
            return Err(format!(
                "server {} has an address that this balancer listens on: packets would come back. \
                 Give the server's own address",
                server.name
            ));
        }
        if self.xdp.is_some() && self.connection_ids.is_none() {
            return Err(
                "xdp is of no use without \"connection-ids FILE\": the kernel forwards what names \
                 a server"
                    .to_owned(),
            );
        }
        if self.xdp.is_some() && self.fragment {
            return Err(
                "xdp and fragment do not go together: the kernel's program fragments nothing. \
                 Leave one of them out"
                    .to_owned(),
            );
        }
        match self.servers.iter().find(|server| server.must_report) {
            Some(server) if self.reports.is_none() => Err(format!(
                "server {} has to report, and there is no \"reports ADDRESS:PORT\"",
                server.name
            )),
            _ => Ok(()),
        }
    }

    /// Checks what the file and that of connection IDs say together.
    ///
    /// # Errors
    /// What contradicts, and what to do.
    pub fn check_with(&self, site: Option<&Site>) -> Result<(), ConfigError> {
        let named = self.servers.iter().find(|server| !server.ids.is_empty());
        let Some(site) = site else {
            return match named {
                Some(server) => Err(ConfigError::of_file(format!(
                    "server {} has an ID, and there is no \"connection-ids FILE\" that says how \
                     it is written",
                    server.name
                ))),
                None => Ok(()),
            };
        };
        if self.reports.is_some() && site.report_key().is_none() {
            return Err(ConfigError::of_file(
                "servers report, and the file of connection IDs has no \"report-key HEX\": write \
                 one, with 64 digits of openssl rand -hex 32",
            ));
        }
        for server in &self.servers {
            let lens: Vec<_> = server.ids.iter().map(|id| id.as_slice().len()).collect();
            let formats = site.configurations().iter().map(|one| (one.id, one.format));
            for (id, format) in formats {
                if !lens.contains(&format.server_id_len()) {
                    return Err(ConfigError::of_file(format!(
                        "server {} has no ID of {} octets, which configuration {} asks for: add \
                         \"id HEX\" to it",
                        server.name,
                        format.server_id_len(),
                        id.number()
                    )));
                }
            }
        }
        Ok(())
    }

    /// What cannot change while a balancer runs, if it is different in `other`.
    #[must_use]
    pub fn fixed_difference(&self, other: &Self) -> Option<&'static str> {
        let address = |config: &Self| config.reports.map(|reports| reports.address);
        [
            (self.listen != other.listen, "listen"),
            (self.workers != other.workers, "workers"),
            (self.flows != other.flows, "the number of flows"),
            (self.fragment != other.fragment, "fragment"),
            (address(self) != address(other), "the address of reports"),
            (self.xdp != other.xdp, "xdp"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }

    /// The file that says the same, with all that is taken by default. Keys are left out.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            out += &text;
            out.push('\n');
        };
        self.listen.iter().for_each(|address| line(format!("listen {address}")));
        if let Some(file) = &self.connection_ids {
            line(format!("connection-ids {}", file.display()));
        }
        match self.hash_key == HashKey::default() {
            true => line("# no hash-key: anybody can tell where first packets go".to_owned()),
            false => line("# hash-key (secret)".to_owned()),
        }
        line(format!("flows {} lifetime {}", self.flows, self.lifetime));
        let fragment = if self.fragment { " fragment" } else { "" };
        line(format!("mtu {}{fragment}", self.mtu));
        if let Some(Reports { address, timeout }) = self.reports {
            line(format!("reports {address} timeout {timeout}"));
        }
        line(format!("workers {}", self.workers));
        if let Some(Xdp { device, mode }) = &self.xdp {
            let mode = match mode {
                XdpMode::Native => " native",
                XdpMode::Generic => " generic",
            };
            line(format!("xdp {device}{mode}"));
        }
        self.servers.iter().for_each(|server| line(server.shown()));
        out
    }
}

impl Server {
    fn shown(&self) -> String {
        let mut line = format!("server {} {}", self.name, self.address);
        for id in &self.ids {
            let _ = write!(line, " id {id}");
        }
        let _ = write!(line, " weight {}", self.weight);
        line += match self.wish {
            Wish::Serve => "",
            Wish::Drain => " drain",
            Wish::Down => " down",
        };
        line + if self.must_report { " report" } else { "" }
    }
}

fn server(words: &mut Words<'_>) -> Result<Server, String> {
    let name = words.need("the name of the server")?;
    if name.len() > MAX_NAME || !name.bytes().all(|octet| octet.is_ascii_graphic()) {
        return Err(format!("the name of a server is up to {MAX_NAME} letters of ASCII"));
    }
    let address = socket(words.need("the address of the server")?, Some(GUE_PORT))?;
    let mut server = Server {
        name: name.to_owned(),
        address,
        ids: Vec::new(),
        weight: 1,
        wish: Wish::Serve,
        must_report: false,
    };
    while let Some(word) = words.take() {
        match word {
            "id" => {
                let id = words.need("the server ID")?;
                let octets = hex(id).and_then(|octets| ServerId::new(&octets));
                server.ids.push(octets.ok_or_else(|| {
                    format!("the server ID is \"{id}\", and has to be 2 to 30 hexadecimal digits")
                })?);
            }
            "weight" => server.weight = words.number("the weight", 0, MAX_WEIGHT)?,
            "drain" => server.wish = Wish::Drain,
            "down" => server.wish = Wish::Down,
            "report" => server.must_report = true,
            _ => {
                return Err(format!(
                    "\"{word}\" is not known: a server has id HEX, weight N, drain or down, and \
                     report"
                ));
            }
        }
    }
    Ok(server)
}

fn listen(word: &str) -> Result<SocketAddr, String> {
    let address = socket(word, None)?;
    if address.ip().is_unspecified() || address.port() == 0 {
        return Err(format!(
            "\"{word}\" is no address that clients know: packets to the servers carry it, so give \
             the address and port of the site, such as 192.0.2.1:443"
        ));
    }
    Ok(address)
}

/// An address with a port, or alone where there is a port by default.
fn socket(word: &str, port: Option<u16>) -> Result<SocketAddr, String> {
    let bare = word.parse::<IpAddr>().ok().zip(port).map(SocketAddr::from);
    let with_port = || word.parse().ok().filter(|address: &SocketAddr| address.port() != 0);
    let address = bare.or_else(with_port).ok_or_else(|| {
        let bare = port.map_or("", |_| " (or the address alone)");
        format!("\"{word}\" is no address: write 10.0.0.1:PORT or [2001:db8::1]:PORT{bare}")
    })?;
    match address.ip() {
        ip if ip.is_multicast() => Err(format!("{ip} is a group and not one host")),
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => {
            Err(format!("\"{word}\" is an address of IPv4: write it as one"))
        }
        _ => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
        listen 192.0.2.1:443
        listen [2001:db8::1]:443   # of IPv6, too
        connection-ids /etc/quicket/site
        hash-key 0011223344556677
        flows 1000 lifetime 30
        mtu 9000
        reports 10.0.0.9:6081 timeout 5
        workers 4
        xdp eth0 generic
        server east 10.0.0.1 id 00000001 id 01 report
        server west [2001:db8::7]:6090 id 00000002 weight 2 drain";

    #[test]
    fn a_file_is_read_and_shown_as_one_that_says_the_same() {
        let config = Config::parse(FILE).unwrap();
        assert_eq!((config.flows, config.lifetime, config.workers), (1000, 30, 4));
        assert_eq!(config.servers[0].address, "10.0.0.1:6080".parse().unwrap());
        assert_eq!(config.servers[0].ids.len(), 2);
        let west = &config.servers[1];
        assert_eq!((west.weight, west.wish, west.must_report), (2, Wish::Drain, false));
        let shown = config.shown();
        assert!(!shown.contains("0011"), "{shown}");
        let again = Config { hash_key: config.hash_key, ..Config::parse(&shown).unwrap() };
        assert_eq!(again, config);
        let text = FILE.replace("xdp eth0 generic", "xdp eth0");
        assert_eq!(Config::parse(&text).unwrap(), config, "generic is the default");
        let text = text.replace("mtu 9000", "mtu 9000 fragment").replace("xdp eth0", "");
        assert!(Config::parse(&text).unwrap().shown().contains("mtu 9000 fragment\n"));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let good = "listen 192.0.2.1:443\nserver a 10.0.0.1\n";
        for (text, line, why) in [
            ("", None, "no address to listen on"),
            ("listen 192.0.2.1:443", None, "no server"),
            ("listen 0.0.0.0:443", Some(1), "no address that clients know"),
            ("listen 192.0.2.1", Some(1), "192.0.2.1\" is no address"),
            ("listen [::ffff:192.0.2.1]:443", Some(1), "of IPv4: write it as one"),
            ("listen 192.0.2.1:443 dev eth0", Some(1), "\"dev\" is not known here"),
            ("server", Some(1), "the name of the server is missing"),
            ("xdp", Some(1), "the name of the device is missing"),
            ("xdp a-name-beyond-16", Some(1), "up to 15 letters"),
            ("xdp eth0 offload", Some(1), "\"offload\" is not known here"),
            (&format!("{good}xdp eth0"), None, "without \"connection-ids"),
            ("xdp eth0 native generic", Some(1), "\"generic\" is not known here"),
            ("xdp eth0 generic native", Some(1), "\"native\" is not known here"),
            (
                &format!("{good}connection-ids x\nxdp eth0\nmtu 9000 fragment"),
                None,
                "do not go together",
            ),
            ("server a 10.0.0.1 id 0", Some(1), "2 to 30 hexadecimal"),
            ("server a 10.0.0.1 id", Some(1), "the server ID is missing"),
            ("server a 10.0.0.1 weight 1001", Some(1), "0 to 1000"),
            ("server a 224.0.0.1", Some(1), "not one host"),
            ("mtu 1279", Some(1), "1280 to 65535"),
            ("flows 0", Some(1), "1 to 16777216"),
            ("hash-key 00", Some(1), "16 hexadecimal digits"),
            ("tunnel", Some(1), "lines begin with"),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.message.contains(why), "{text}: {error}");
        }
        for (more, line, why) in [
            ("listen 192.0.2.1:443", None, "there twice"),
            ("server a 10.0.0.2", Some(3), "two servers of the name a"),
            ("server b 10.0.0.2 id 01\nserver c 10.0.0.3 id 01", Some(4), "another server's"),
            ("server b 192.0.2.1:7000", None, "packets would come back"),
            ("server b 10.0.0.2 report", None, "no \"reports"),
        ] {
            let error = Config::parse(&format!("{good}{more}")).unwrap_err();
            assert_eq!(error.line, line, "{more}: {error}");
            assert!(error.message.contains(why), "{more}: {error}");
        }
        let listen: String = (1..=17).map(|n| format!("listen 192.0.2.1:{n}\n")).collect();
        assert!(Config::parse(&format!("{good}{listen}")).is_err());
    }

    #[test]
    fn the_file_and_that_of_connection_ids_have_to_agree() {
        let site = Site::parse("config 0 server-id 4 nonce 12 plain\n").unwrap();
        let config = Config::parse(FILE).unwrap();
        let error = config.check_with(None).unwrap_err();
        assert!(error.message.contains("no \"connection-ids"), "{error}");
        let error = config.check_with(Some(&site)).unwrap_err();
        assert!(error.message.contains("report-key"), "{error}");
        let text = format!("config 0 server-id 4 nonce 12 plain\nreport-key {}", "00".repeat(32));
        assert_eq!(config.check_with(Some(&Site::parse(&text).unwrap())), Ok(()));
        let text = text.replace("server-id 4 nonce 12", "server-id 1 nonce 15");
        let error = config.check_with(Some(&Site::parse(&text).unwrap())).unwrap_err();
        assert!(error.message.contains("server west has no ID of 1 octets"), "{error}");
    }

    #[test]
    fn what_cannot_change_at_work_is_named() {
        let config = Config::parse(FILE).unwrap();
        let changed = |from: &str, to: &str| {
            let other = Config::parse(&FILE.replace(from, to)).unwrap();
            config.fixed_difference(&other)
        };
        assert_eq!(changed("workers 4", "workers 5"), Some("workers"));
        assert_eq!(changed("192.0.2.1:443", "192.0.2.1:444"), Some("listen"));
        assert_eq!(changed("timeout 5", "timeout 6"), None);
        assert_eq!(changed("drain", ""), None);
    }
}
