//! What all connections of a process are configured with.

use std::sync::{Arc, Mutex, PoisonError};

use openssl::error::ErrorStack;
use openssl::ssl::{
    AlpnError, SslContext, SslContextBuilder, SslFiletype, SslMethod, SslMode, SslSession,
    SslSessionCacheMode, SslVerifyMode, SslVersion, select_next_proto,
};
use quicket_workload::bench::{ALPN, Assignment, Failure, Role};

/// TLS 1.3, one cipher suite, X25519, full verification; `ticket` takes what a server gives.
pub fn new(
    assignment: &Assignment,
    ticket: &Arc<Mutex<Option<SslSession>>>,
) -> Result<SslContext, Failure> {
    let mut context = SslContext::builder(SslMethod::tls())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_ciphersuites(assignment.conditions.cipher.name())?;
    context.set_groups_list("X25519")?;
    context.set_mode(SslMode::RELEASE_BUFFERS | SslMode::AUTO_RETRY);
    context.set_read_ahead(true);
    let tickets = assignment.conditions.tickets;
    match &assignment.role {
        Role::Server { certificate, key, .. } => {
            context.set_certificate_chain_file(certificate)?;
            context.set_private_key_file(key, SslFiletype::PEM)?;
            serve(&mut context, tickets)?;
        }
        Role::Client { roots, .. } => {
            context.set_ca_file(roots)?;
            context.set_verify(SslVerifyMode::PEER);
            context.set_alpn_protos(&protocols())?;
            if tickets {
                let ticket = ticket.clone();
                context.set_session_cache_mode(
                    SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL,
                );
                context.set_new_session_callback(move |_, session| {
                    *ticket.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
                });
            }
        }
    }
    Ok(context.build())
}

fn serve(context: &mut SslContextBuilder, tickets: bool) -> Result<(), ErrorStack> {
    context.set_num_tickets(usize::from(tickets))?;
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    // Without a name of its own a server does not resume sessions.
    context.set_session_id_context(ALPN)?;
    let known = protocols();
    context.set_alpn_select_callback(move |_, offered| {
        let agreed = select_next_proto(&known, offered).is_some();
        // What is chosen has to be a part of what was offered.
        let chosen = agreed.then(|| offered.split_first()).flatten();
        let chosen = chosen.and_then(|(&length, rest)| rest.get(..usize::from(length)));
        chosen.ok_or(AlpnError::ALERT_FATAL)
    });
    Ok(())
}

/// The one application protocol, in the form of RFC 7301, Section 3.1.
fn protocols() -> Vec<u8> {
    let mut list = vec![ALPN.len() as u8];
    list.extend_from_slice(ALPN);
    list
}
