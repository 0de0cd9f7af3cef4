//! TLS secrets in the format of `SSLKEYLOGFILE` (RFC 9850).

use std::collections::HashMap;

/// Sessions of a log that are kept.
const MAX_SESSIONS: usize = 1 << 16;
/// The longest secret of TLS 1.3, in bytes: that of SHA-512.
const MAX_SECRET: usize = 64;

/// Identifies a TLS session: the random bytes of its first ClientHello.
pub(crate) type ClientRandom = [u8; 32];

/// The traffic secrets of a session, those that were logged.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Secrets {
    pub(crate) client_early: Option<Vec<u8>>,
    pub(crate) client_handshake: Option<Vec<u8>>,
    pub(crate) server_handshake: Option<Vec<u8>>,
    pub(crate) client_application: Option<Vec<u8>>,
    pub(crate) server_application: Option<Vec<u8>>,
}

/// The secrets of the sessions in a log.
#[derive(Clone, Default)]
pub struct KeyLog(HashMap<ClientRandom, Secrets>);

impl KeyLog {
    /// Takes lines of a log; those that are something else are left out, and those of more sessions than 65,536, too.
    pub fn add(&mut self, text: &str) {
        for line in text.lines() {
            self.add_line(line);
        }
    }

    fn add_line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        let (label, random, secret) = (words.next()?, words.next()?, words.next()?);
        let random: ClientRandom = bytes(random)?.try_into().ok()?;
        let secret = bytes(secret).filter(|secret| secret.len() <= MAX_SECRET)?;
        if self.0.len() >= MAX_SESSIONS && !self.0.contains_key(&random) {
            return None;
        }
        let secrets = self.0.entry(random).or_default();
        let place = match label {
            "CLIENT_EARLY_TRAFFIC_SECRET" => &mut secrets.client_early,
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET" => &mut secrets.client_handshake,
            "SERVER_HANDSHAKE_TRAFFIC_SECRET" => &mut secrets.server_handshake,
            "CLIENT_TRAFFIC_SECRET_0" => &mut secrets.client_application,
            "SERVER_TRAFFIC_SECRET_0" => &mut secrets.server_application,
            _ => return None,
        };
        // Both ends may write to one file: they say the same.
        place.get_or_insert(secret);
        Some(())
    }

    /// Those of a session.
    pub(crate) fn get(&self, random: &ClientRandom) -> Option<&Secrets> {
        self.0.get(random)
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.0.len()
    }
}

impl std::fmt::Debug for KeyLog {
    /// Secrets are not shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyLog").field("sessions", &self.0.len()).finish_non_exhaustive()
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_by_the_client_random_and_the_rest_is_left_out() {
        let random = "0a".repeat(32);
        let log = format!(
            "# a comment of three words\n\
             CLIENT_EARLY_TRAFFIC_SECRET {random} 0102\n\
             SERVER_TRAFFIC_SECRET_0 {random} 0304\n\
             SERVER_TRAFFIC_SECRET_0 {random} 0304\n\
             EXPORTER_SECRET {random} 0506\n\
             CLIENT_TRAFFIC_SECRET_0 {random} xy\n"
        );
        let mut sessions = KeyLog::default();
        sessions.add(&log);
        let expected = Secrets {
            client_early: Some(vec![1, 2]),
            server_application: Some(vec![3, 4]),
            ..Secrets::default()
        };
        assert_eq!(sessions.sessions(), 1);
        assert!(sessions.get(&[10; 32]) == Some(&expected));
    }

    #[test]
    fn a_log_of_any_length_is_kept_in_part() {
        let mut log = KeyLog::default();
        for session in 0..MAX_SESSIONS + 10 {
            log.add(&format!("CLIENT_TRAFFIC_SECRET_0 {session:064x} 00\n"));
        }
        assert_eq!(log.sessions(), MAX_SESSIONS);
        log.add(&format!("SERVER_TRAFFIC_SECRET_0 {:064x} {}", 0, "0".repeat(1 << 20)));
        assert!(log.get(&[0; 32]).is_some_and(|secrets| secrets.server_application.is_none()));
    }
}
