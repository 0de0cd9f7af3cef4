//! The connection IDs of a site: one file, the same on balancers and servers.

use std::fmt;
use std::sync::Arc;

use quicket_steering::{
    BlockCipher, Codec, ConfigId, Configurations, FirstOctet, Format, HashKey, OwnerBits,
};

use crate::grammar::{ConfigError, each_line};

/// Makes AES-128 of a key.
pub type Aes128 = dyn Fn(&[u8; 16]) -> Arc<dyn BlockCipher>;

/// What a file of connection IDs says.
///
/// ```text
/// config 0 server-id 4 nonce 12 key 8f95f09245765f80256934e50c66207f
/// config 1 server-id 4 nonce 12 key 0c66207f8f95f09245765f80256934e5
/// issue 1
/// report-key 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Site {
    /// In the order of the file; at least one.
    configurations: Vec<SiteConfiguration>,
    /// Which of them servers write.
    issue: ConfigId,
    /// What authenticates the reports of servers.
    report_key: Option<[u8; 32]>,
}

/// One configuration of connection IDs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SiteConfiguration {
    /// The number, 0 to 6.
    pub id: ConfigId,
    /// The lengths of the fields.
    pub format: Format,
    /// The key of AES-128; `None` for connection IDs in plain text.
    pub key: Option<[u8; 16]>,
    /// Masks the owner, where the format has one.
    pub mask: HashKey,
}

impl fmt::Debug for SiteConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("configurations", &self.configurations).finish_non_exhaustive()
    }
}

impl SiteConfiguration {
    /// The configuration as a line, without its secrets.
    #[must_use]
    pub fn line(&self) -> String {
        let format = &self.format;
        let mut line = format!(
            "config {} server-id {} nonce {}",
            self.id.number(),
            format.server_id_len(),
            format.nonce_len()
        );
        line += match self.key {
            Some(_) if format.block_len() == 16 => " key (one pass of AES)",
            Some(_) => " key (four passes of AES)",
            None => " plain",
        };
        if format.first_octet() == FirstOctet::Length {
            line += " length";
        }
        if let Some(bits) = format.owner() {
            line += &format!(" owner {} mask (secret)", bits.octets());
        }
        line
    }

    fn codec(&self, aes: &Aes128) -> Codec {
        Codec::new(self.id, self.format, self.key.as_ref().map(aes), self.mask)
    }
}

impl Site {
    /// Reads a file.
    ///
    /// # Errors
    /// The line that cannot be understood, or what is missing.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut configurations: Vec<SiteConfiguration> = Vec::new();
        let (mut issue, mut report_key) = (None, None);
        each_line(text, |first, words| {
            match first {
                "config" => {
                    let read = configuration(words)?;
                    if configurations.iter().any(|other| other.id == read.id) {
                        return Err(format!("configuration {} is there twice", read.id.number()));
                    }
                    configurations.push(read);
                }
                "issue" => issue = Some(config_id(words)?),
                "report-key" => report_key = Some(words.hex("the key of reports")?),
                _ => {
                    return Err(format!(
                        "\"{first}\" is not known: lines begin with config, issue or report-key"
                    ));
                }
            }
            Ok(())
        })?;
        let Some(only) = configurations.first() else {
            return Err(ConfigError::of_file(
                "there is no configuration: write a line such as \"config 0 server-id 4 nonce 12 \
                 key HEX\", with 32 digits of openssl rand -hex 16",
            ));
        };
        let issue = match (issue, configurations.len()) {
            (Some(issue), _) if configurations.iter().any(|one| one.id == issue) => issue,
            (Some(issue), _) => {
                return Err(ConfigError::of_file(format!(
                    "\"issue {0}\", and no \"config {0}\"",
                    issue.number()
                )));
            }
            (None, 1) => only.id,
            (None, _) => {
                return Err(ConfigError::of_file(
                    "there are several configurations: say by \"issue N\" which one servers write",
                ));
            }
        };
        let site = Self { configurations, issue, report_key };
        // Short headers do not say how long a connection ID is.
        site.check_lengths().map_err(ConfigError::of_file)?;
        Ok(site)
    }

    fn check_lengths(&self) -> Result<(), String> {
        let mut lengths = self.configurations.iter().map(|one| one.format.id_len());
        let first = lengths.next();
        match lengths.find(|len| Some(*len) != first) {
            Some(len) => Err(format!(
                "connection IDs have {} octets in one configuration and {len} in another: choose \
                 nonces so that all have the same",
                first.unwrap_or_default()
            )),
            None => Ok(()),
        }
    }

    /// The configurations, in the order of the file.
    #[must_use]
    pub fn configurations(&self) -> &[SiteConfiguration] {
        &self.configurations
    }

    /// The number of that which servers write.
    #[must_use]
    pub const fn issue(&self) -> ConfigId {
        self.issue
    }

    /// What authenticates the reports of servers.
    #[must_use]
    pub const fn report_key(&self) -> Option<&[u8; 32]> {
        self.report_key.as_ref()
    }

    /// What writes connection IDs now.
    #[must_use]
    pub fn issuer(&self, aes: &Aes128) -> Option<Codec> {
        let issued = self.configurations.iter().find(|one| one.id == self.issue)?;
        Some(issued.codec(aes))
    }

    /// What reads the connection IDs of all configurations.
    #[must_use]
    pub fn reader(&self, aes: &Aes128) -> Option<Configurations> {
        let mut codecs = self.configurations.iter().map(|one| one.codec(aes));
        let mut all = Configurations::new(codecs.next()?);
        // The file was checked for what could be wrong here.
        codecs.try_for_each(|codec| all.add(codec)).ok()?;
        all.switch(self.issue).ok()?;
        Some(all)
    }
}

fn config_id(words: &mut crate::grammar::Words<'_>) -> Result<ConfigId, String> {
    let number = words.number("the number of the configuration", 0, 6)?;
    ConfigId::new(number).ok_or_else(|| "0 to 6".to_owned())
}

fn configuration(words: &mut crate::grammar::Words<'_>) -> Result<SiteConfiguration, String> {
    let id = config_id(words)?;
    let (mut server_id, mut nonce) = (None, None);
    let (mut key, mut plain, mut mask, mut owner, mut length) = (None, false, None, None, false);
    while let Some(word) = words.take() {
        match word {
            "server-id" => server_id = Some(words.number("the length of server IDs", 1, 15)?),
            "nonce" => nonce = Some(words.number("the length of the nonce", 4, 18)?),
            "key" => key = Some(words.hex("the key")?),
            "plain" => plain = true,
            "length" => length = true,
            "owner" => owner = Some(words.number("the octets of the owner", 1_u8, 2)?),
            "mask" => mask = Some(HashKey::new(words.hex("the mask of the owner")?)),
            _ => {
                return Err(format!(
                    "\"{word}\" is not known: a configuration has server-id N, nonce N, key HEX \
                     or plain, and perhaps length, owner N and mask HEX"
                ));
            }
        }
    }
    let (Some(server_id), Some(nonce)) = (server_id, nonce) else {
        return Err("a configuration needs server-id N and nonce N, in octets".to_owned());
    };
    if key.is_some() == plain {
        return Err("a configuration has either key HEX or plain".to_owned());
    }
    let mut format = Format::new(server_id, nonce).map_err(|error| error.to_string())?;
    if length {
        format = format.with_first_octet(FirstOctet::Length);
    }
    let mask = match (owner, mask) {
        (None, None) => HashKey::default(),
        (Some(octets), Some(mask)) => {
            let bits = if octets == 1 { OwnerBits::ONE_OCTET } else { OwnerBits::TWO_OCTETS };
            format = format.with_owner(bits).map_err(|error| error.to_string())?;
            mask
        }
        _ => return Err("owner N and mask HEX belong together".to_owned()),
    };
    Ok(SiteConfiguration { id, format, key, mask })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::toy_cipher;

    const KEY: &str = "8f95f09245765f80256934e50c66207f";

    #[test]
    fn a_file_says_what_is_written_and_what_is_read() {
        let site = Site::parse(&format!(
            "# rotated in May\nconfig 0 server-id 4 nonce 12 key {KEY}\nconfig 3 server-id 2 nonce \
             14 plain length # the new one\nissue 3\n"
        ))
        .unwrap();
        assert_eq!(site.issue().number(), 3);
        let reader = site.reader(&|key| toy_cipher(*key)).unwrap();
        assert_eq!((reader.id_len(), reader.current().id().number()), (17, 3));
        assert!(reader.of(&[0x1f]).is_some() && reader.of(&[0x20]).is_none());
        assert!(!format!("{site:?}").contains("8f95"), "keys are not printed");
        let one = Site::parse("config 6 server-id 1 nonce 4 plain").unwrap();
        assert_eq!(one.issue().number(), 6);
        let owner =
            Site::parse("config 0 server-id 3 nonce 13 plain owner 2 mask 0011223344556677");
        assert_eq!(owner.unwrap().configurations()[0].format.id_len(), 19);
    }

    #[test]
    fn mistakes_are_named_with_their_line_and_without_the_key() {
        let good = format!("config 0 server-id 4 nonce 12 key {KEY}\n");
        for (text, line, why) in [
            (String::new(), None, "no configuration"),
            (format!("{good}config 1 server-id 4 nonce 11 plain\nissue 0"), None, "17"),
            (format!("{good}config 1 server-id 4 nonce 12 plain"), None, "issue N"),
            (format!("{good}issue 4"), None, "no \"config 4\""),
            (format!("{good}{good}"), Some(2), "twice"),
            ("config 7 server-id 4 nonce 12 plain".to_owned(), Some(1), "0 to 6"),
            ("config 0 server-id 4 nonce 3 plain".to_owned(), Some(1), "4 to 18"),
            ("config 0 server-id 15 nonce 18 plain".to_owned(), Some(1), "34 octets"),
            ("config 0 server-id 4 nonce 12".to_owned(), Some(1), "either key HEX or plain"),
            (format!("{good}config 1 server-id 4 nonce 12 key {KEY}7"), Some(2), "32 hex"),
            ("config 0 server-id 4 nonce 12 plain owner 1".to_owned(), Some(1), "belong together"),
            ("config 0 server-id 4 nonce 12 plain tll".to_owned(), Some(1), "\"tll\" is not known"),
            ("report-key 00".to_owned(), Some(1), "64 hexadecimal"),
            ("issue 0 1".to_owned(), Some(1), "\"1\" is not known"),
            ("serve".to_owned(), Some(1), "lines begin with"),
        ] {
            let error = Site::parse(&text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.message.contains(why), "{text}: {error}");
            assert!(!error.message.contains("8f95"), "{error}");
        }
    }
}
