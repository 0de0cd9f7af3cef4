//! The server of the benchmark.

use std::net::SocketAddr;
use std::rc::Rc;

use quicket_workload::bench::tasks::{Transport, serve_connection};
use quicket_workload::bench::{Assignment, Counters, Failure, Pattern, Role, server_config};
use s2n_quic::Server;
use s2n_quic::provider::congestion_controller::{Bbr, Cubic};
use s2n_quic::provider::tls::rustls;
use tokio::task::LocalSet;

use super::client::S2n;
use super::{io, is_bbr, limits, runtime};

pub fn serve(assignment: &Assignment, ready: &mut dyn FnMut(SocketAddr)) -> Result<(), Failure> {
    let Role::Server { listen, certificate, key } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    let tls = server_config(assignment.conditions, certificate, key)?;
    let runtime = runtime()?;
    LocalSet::new().block_on(&runtime, async {
        let builder = Server::builder()
            .with_tls(rustls::Server::from(tls))?
            .with_io(io(assignment, *listen)?)?
            .with_limits(limits()?)?;
        let mut server = if is_bbr(assignment) {
            builder.with_congestion_controller(Bbr::default())?.start()?
        } else {
            builder.with_congestion_controller(Cubic::default())?.start()?
        };
        ready(server.local_addr()?);
        let counters = Rc::new(Counters::default());
        let block = S2n::block(Pattern::new(false).block());
        while let Some(connection) = server.accept().await {
            let (handle, acceptor) = connection.split();
            let (counters, block) = (counters.clone(), block.clone());
            S2n::spawn(serve_connection::<S2n>(handle.into(), acceptor, counters, block));
        }
        Err("the endpoint is closed".into())
    })
}
