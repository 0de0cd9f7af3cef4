//! TLS secrets in the format of `SSLKEYLOGFILE` (RFC 9850).

use std::collections::HashMap;

/// Identifies a TLS session: the random bytes of its first ClientHello.
pub(super) type ClientRandom = [u8; 32];

/// The traffic secrets of a session, those that were logged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Secrets {
    pub(super) client_early: Option<Vec<u8>>,
    pub(super) client_handshake: Option<Vec<u8>>,
    pub(super) server_handshake: Option<Vec<u8>>,
    pub(super) client_application: Option<Vec<u8>>,
    pub(super) server_application: Option<Vec<u8>>,
}

/// The secrets of all sessions in a log. Lines that are something else are left out.
pub(super) fn parse(text: &str) -> HashMap<ClientRandom, Secrets> {
    let mut sessions = HashMap::<ClientRandom, Secrets>::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(label), Some(random), Some(secret)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (Some(random), Some(secret)) =
            (bytes(random).and_then(|bytes| bytes.try_into().ok()), bytes(secret))
        else {
            continue;
        };
        let secrets = sessions.entry(random).or_default();
        let place = match label {
            "CLIENT_EARLY_TRAFFIC_SECRET" => &mut secrets.client_early,
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET" => &mut secrets.client_handshake,
            "SERVER_HANDSHAKE_TRAFFIC_SECRET" => &mut secrets.server_handshake,
            "CLIENT_TRAFFIC_SECRET_0" => &mut secrets.client_application,
            "SERVER_TRAFFIC_SECRET_0" => &mut secrets.server_application,
            _ => continue,
        };
        // Both ends may write to one file: they say the same.
        place.get_or_insert(secret);
    }
    sessions
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
        let sessions = parse(&log);
        let expected = Secrets {
            client_early: Some(vec![1, 2]),
            server_application: Some(vec![3, 4]),
            ..Secrets::default()
        };
        assert_eq!(sessions, HashMap::from([([10; 32], expected)]));
    }
}
