//! The server of the benchmark.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use quicket_workload::bench::{
    Assignment, Counters, EXCHANGE_LENGTH, Failure, HEADER_LENGTH, Pattern, Request, Role,
    server_config, usage_answer,
};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Connection, Endpoint, RecvStream, SendStream, ServerConfig};
use tokio::task::LocalSet;

use super::{endpoint_config, runtime, socket, transport};
use crate::tls::initial_suite;

pub fn serve(assignment: &Assignment, ready: &mut dyn FnMut(SocketAddr)) -> Result<(), Failure> {
    let Role::Server { listen, certificate, key } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    let crypto = server_config(assignment.cipher, certificate, key)?;
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
        while let Some(incoming) = endpoint.accept().await {
            let counters = counters.clone();
            tokio::task::spawn_local(async move {
                let connection = incoming.accept()?.await?;
                counters.handshake();
                streams(connection, counters).await
            });
        }
        Err("the endpoint is closed".into())
    })
}

async fn streams(connection: Connection, counters: Rc<Counters>) -> Result<(), Failure> {
    let block = Bytes::from(Pattern::new(false).block());
    // An error ends the connection for the client to see; it is the client who reports.
    while let Ok((send, recv)) = connection.accept_bi().await {
        let (connection, counters, block) = (connection.clone(), counters.clone(), block.clone());
        tokio::task::spawn_local(async move {
            if let Err(failure) = answer(send, recv, &counters, &block).await {
                connection.close(1_u32.into(), failure.to_string().as_bytes());
            }
        });
    }
    Ok(())
}

async fn answer(
    mut send: SendStream,
    mut recv: RecvStream,
    counters: &Counters,
    block: &Bytes,
) -> Result<(), Failure> {
    let mut header = [0; HEADER_LENGTH];
    recv.read_exact(&mut header).await?;
    let request = Request::decode(&header)?;
    if let Request::Upload { bytes, unique } = request {
        let received = receive(&mut recv, Pattern::new(unique)).await?;
        if received != bytes {
            return Err(format!("{received} bytes came of {bytes}").into());
        }
        send.write_all(&received.to_be_bytes()).await?;
        return Ok(send.finish()?);
    }
    let mut message = recv.read_to_end(EXCHANGE_LENGTH).await?;
    match request {
        Request::Download { bytes, unique } => transmit(&mut send, bytes, unique, block).await?,
        Request::Usage => send.write_all(&usage_answer(counters)?).await?,
        Request::Upload { .. } | Request::Exchange { .. } | Request::Hold => {
            message.splice(..0, header);
            send.write_all(&message).await?;
        }
    }
    Ok(send.finish()?)
}

/// Reads to the end; returns the number of bytes.
pub async fn receive(recv: &mut RecvStream, pattern: Pattern) -> Result<u64, Failure> {
    let mut offset = 0;
    while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
        pattern.check(offset, &chunk.bytes)?;
        offset += chunk.bytes.len() as u64;
    }
    Ok(offset)
}

/// Writes `bytes` bytes, in the repeating pattern without a copy.
pub async fn transmit(
    send: &mut SendStream,
    bytes: u64,
    unique: bool,
    block: &Bytes,
) -> Result<(), Failure> {
    let mut offset = 0;
    while offset < bytes {
        let length = usize::try_from(bytes - offset)?.min(block.len());
        let chunk = if unique {
            let mut chunk = vec![0; length];
            Pattern::new(true).fill(offset, &mut chunk);
            chunk.into()
        } else {
            block.slice(..length)
        };
        send.write_chunk(chunk).await?;
        offset += length as u64;
    }
    Ok(())
}
