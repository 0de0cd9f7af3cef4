use std::error::Error;

use super::*;

/// As `fn main() -> Result<(), Box<dyn Error>>` prints them.
#[test]
fn errors_that_main_returns_say_what_happened_in_words() {
    let closed = || ConnectionError::PeerApplication { code: 7, reason: b"bye".to_vec() };
    let words = "closed by the peer's application with code 0x7: bye";
    let taken = || io::Error::from_raw_os_error(98);
    let alert = quicket_engine::crypto::Alert(42);
    let refused = HandshakeError { alert, reason: "the certificate is expired".into() };
    let errors: [(Box<dyn Error>, &str, &str); 13] = [
        (Box::new(closed()), words, "ConnectionError::PeerApplication"),
        (Box::new(ConnectError::Lost(closed())), words, "ConnectError::Lost"),
        (Box::new(ConnectError::Handshake(refused)), "is expired", "ConnectError::Handshake"),
        (Box::new(AcceptError::Lost(closed())), words, "AcceptError::Lost"),
        (Box::new(OpenError::TimedOut), "allowed no more streams", "OpenError::TimedOut"),
        (Box::new(ReadError::Reset(5)), "with code 0x5", "ReadError::Reset"),
        (Box::new(ReadToEndError::TooLong(9)), "longer than 9 bytes", "ReadToEndError::TooLong"),
        (Box::new(WriteError::Stopped(5)), "with code 0x5", "WriteError::Stopped"),
        (Box::new(DatagramError::TooLarge { max: 9 }), "9 bytes", "DatagramError::TooLarge"),
        (
            Box::new(MigrateError::Refused(MigrationError::NotClient)),
            "clients",
            "MigrateError::Refused",
        ),
        (Box::new(ListenError::Resolve(taken())), "os error 98", "ListenError::Resolve"),
        (
            Box::new(BindError::new(([127, 0, 0, 1], 443).into(), taken())),
            "127.0.0.1:443",
            "BindError",
        ),
        (Box::new(crate::ConfigError::NoAlpn), "no application protocol", "ConfigError::NoAlpn"),
    ];
    for (error, words, name) in errors {
        let shown = format!("{error:?}");
        assert_eq!(shown, format!("{error} ({name})"));
        assert!(shown.contains(words), "{shown}");
    }
    assert_eq!(format!("{:?}", crate::message::Errno::EPIPE), "the connection is closed (EPIPE)");
    let update = format!("{:?}", crate::KeyUpdateError);
    assert!(update.starts_with("keys can be updated once"), "{update}");
}
