//! The server of the benchmark over tokio, on a runtime of one thread.

use std::net::SocketAddr;
use std::rc::Rc;

use quicket::tokio::{Connection, Listener, RecvStream, SendStream, Stream};
use quicket_workload::bench::{
    Assignment, Counters, EXCHANGE_LENGTH, Failure, HEADER_LENGTH, Pattern, Request, Role,
    usage_answer,
};
use tokio::io::AsyncReadExt;
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};

use super::server_config;

pub(in crate::bench) fn serve(
    assignment: &Assignment,
    ready: &mut dyn FnMut(SocketAddr),
) -> Result<(), Failure> {
    let Role::Server { listen, .. } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = Listener::bind(*listen, server_config(assignment)?).await?;
        ready(listener.local_addr());
        let counters = Rc::new(Counters::default());
        let block = Rc::<[u8]>::from(Pattern::new(false).block());
        loop {
            let connection = listener.accept().await?;
            counters.handshake();
            spawn_local(streams(connection, counters.clone(), block.clone()));
        }
    })
}

async fn streams(connection: Connection, counters: Rc<Counters>, block: Rc<[u8]>) {
    // An error ends the connection for the client to see; it is the client who reports.
    while let Ok(stream) = connection.accept_bi().await {
        let (connection, counters, block) = (connection.clone(), counters.clone(), block.clone());
        spawn_local(async move {
            if let Err(failure) = answer(stream, &counters, &block).await {
                connection.close(1, failure.to_string().as_bytes());
            }
        });
    }
}

async fn answer(stream: Stream, counters: &Counters, block: &[u8]) -> Result<(), Failure> {
    let (mut send, mut recv) = stream.split();
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

/// Reads to the end, in place; returns the number of bytes.
pub(super) async fn receive(recv: &mut RecvStream, pattern: Pattern) -> Result<u64, Failure> {
    let mut offset = 0;
    let mut wrong = None;
    while recv
        .read_chunk(|bytes, _| {
            wrong = wrong.take().or(pattern.check(offset, bytes).err());
            offset += bytes.len() as u64;
            bytes.len()
        })
        .await?
        .is_some()
    {}
    wrong.map_or(Ok(offset), Err)
}

/// Writes `bytes` bytes of the pattern.
pub(super) async fn transmit(
    send: &mut SendStream,
    bytes: u64,
    unique: bool,
    block: &[u8],
) -> Result<(), Failure> {
    let mut own = if unique { vec![0; block.len()] } else { Vec::new() };
    let mut offset = 0;
    while offset < bytes {
        let length = usize::try_from(bytes - offset)?.min(block.len());
        if unique {
            Pattern::new(true).fill(offset, &mut own[..length]);
            send.write_all(&own[..length]).await?;
        } else {
            send.write_all(&block[..length]).await?;
        }
        offset += length as u64;
    }
    Ok(())
}
