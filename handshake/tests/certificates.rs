//! Which certificate a server presents.

mod common;

use common::{NAME, Options, identity, server, shake_well};
use quicket_handshake::{Identity, ServerTlsBuilder, TicketKey};

fn keyed_server(identity: &Identity) -> ServerTlsBuilder {
    server(identity).ticket_keys([TicketKey::new(&[9; 32]).unwrap()])
}

#[test]
fn a_name_chooses_the_certificate_and_the_session() {
    let (default, named) = (identity(), Identity::self_signed(["other.test"]).unwrap());
    let server =
        || keyed_server(&default).certificate_for(["other.test"], named.clone()).build().unwrap();
    let client = quicket_handshake::ClientTls::builder()
        .pinned([default.fingerprint(), named.fingerprint()])
        .alpn(["test"])
        .build()
        .unwrap();
    let options = |name| Options { name, ..Options::default() };
    let one = shake_well(&client, &server(), &options(NAME));
    assert_eq!(one.client.summary().peer_certificates, [default.chain().next().unwrap()]);
    let other = shake_well(&client, &server(), &options("other.test"));
    assert_eq!(other.client.summary().peer_certificates, [named.chain().next().unwrap()]);
    let ticket = &other.client.tickets[0];
    let again = Options { resume: Some(ticket), ..options("other.test") };
    assert!(shake_well(&client, &server(), &again).client.summary().resumed);
}

#[test]
fn certificates_are_replaced_while_the_server_runs_and_bad_ones_change_nothing() {
    let (old, new) = (identity(), identity());
    let (named, other) =
        (Identity::self_signed(["other.test"]).unwrap(), Identity::self_signed([NAME]).unwrap());
    let server = keyed_server(&old).build().unwrap();
    let client = quicket_handshake::ClientTls::builder()
        .pinned([&old, &new, &named].map(|identity| identity.fingerprint()))
        .alpn(["test"])
        .build()
        .unwrap();
    let presented = |name| {
        let pair = shake_well(&client, &server, &Options { name, ..Options::default() });
        let (certificates, tickets) =
            (pair.client.summary().peer_certificates.clone(), pair.client.tickets);
        (certificates, tickets)
    };
    let of = |identity: &Identity| [identity.chain().next().unwrap().to_vec()];
    let (certificates, tickets) = presented(NAME);
    assert_eq!(certificates, of(&old));

    // Whoever keeps a clone changes what the server has.
    let kept = server.clone();
    kept.replace_certificates(&new, &[(vec!["other.test".to_owned()], named.clone())]).unwrap();
    assert_eq!(presented(NAME).0, of(&new));
    assert_eq!(presented("other.test").0, of(&named));
    let resumed = Options { resume: Some(&tickets[0]), ..Options::default() };
    assert!(shake_well(&client, &server, &resumed).client.summary().resumed);

    let mixed = Identity::from_der(old.chain().map(<[u8]>::to_vec).collect(), other.key().to_vec());
    assert!(kept.replace_certificates(&mixed.unwrap(), &[]).is_err());
    assert!(kept.replace_certificates(&old, &[(vec!["*".to_owned()], old.clone())]).is_err());
    assert_eq!(presented(NAME).0, of(&new));
}
