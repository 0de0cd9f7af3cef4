//! The server of the benchmark.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use quicket_workload::bench::tasks::{Transport, serve_connection};
use quicket_workload::bench::{Assignment, Counters, Failure, Pattern, Role, server_config};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming, ServerConfig};
use tokio::task::LocalSet;

use super::client::Quinn;
use super::{endpoint_config, runtime, socket, transport};
use crate::tls::initial_suite;

pub fn serve(assignment: &Assignment, ready: &mut dyn FnMut(SocketAddr)) -> Result<(), Failure> {
    let Role::Server { listen, certificate, key } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    let conditions = assignment.conditions;
    let mut crypto = server_config(conditions, certificate, key)?;
    if conditions.tickets {
        crypto.max_early_data_size = u32::MAX;
    }
    let crypto = QuicServerConfig::with_initial(Arc::new(crypto), initial_suite()?)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport(assignment)?);
    let runtime = runtime()?;
    LocalSet::new().block_on(&runtime, async {
        let endpoint = Endpoint::new(
            endpoint_config(assignment)?,
            Some(config),
            socket(*listen)?,
            Arc::new(quinn::TokioRuntime),
        )?;
        ready(endpoint.local_addr()?);
        let counters = Rc::new(Counters::default());
        let block = Quinn::block(Pattern::new(false).block());
        while let Some(incoming) = endpoint.accept().await {
            let (counters, block) = (counters.clone(), block.clone());
            tokio::task::spawn_local(connection(incoming, conditions.tickets, counters, block));
        }
        Err("the endpoint is closed".into())
    })
}

/// Serves a connection; where there are tickets, early data as soon as it comes.
async fn connection(
    incoming: Incoming,
    early: bool,
    counters: Rc<Counters>,
    block: <Quinn as Transport>::Block,
) -> Result<(), Failure> {
    let connecting = incoming.accept()?;
    let connection = if early {
        match connecting.into_0rtt() {
            Ok((connection, _)) => connection,
            Err(connecting) => connecting.await?,
        }
    } else {
        connecting.await?
    };
    serve_connection::<Quinn>(connection.clone(), connection, counters, block).await;
    Ok(())
}
