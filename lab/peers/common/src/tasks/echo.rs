//! Streams and datagrams that come back as they went.

use std::time::Duration;

use quicket_workload::bench::Failure;
use quicket_workload::peer::{
    ClientArguments, ECHO_DATAGRAM_LENGTH, ECHO_STREAM_LENGTH, Event, RESET_CODE, STOP_CODE,
    echo_payload, emit,
};
use tokio::task::JoinSet;

use super::{Connection, Received, Stream, receive_all};

/// How long a datagram's echo may take before the datagram is sent again.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often one datagram is sent.
const ATTEMPTS: u32 = 5;

pub(super) async fn serve(stream: &mut impl Stream) -> Result<(), Failure> {
    let mut data = Vec::new();
    loop {
        match stream.receive(&mut data).await? {
            Received::Bytes => stream.send(&data).await?,
            Received::End => return stream.finish(),
            Received::Reset(code) => {
                // The client has given the stream up, and may not have said so of this direction.
                let _ = stream.reset(code);
                return Ok(());
            }
        }
        data.clear();
    }
}

/// Echoes datagrams until the connection is over.
pub async fn serve_datagrams(connection: impl Connection) {
    while let Ok(datagram) = connection.receive_datagram().await {
        if connection.send_datagram(&datagram).await.is_err() {
            return;
        }
    }
}

/// Has streams and datagrams echoed over connection `number`, as many as a client is told.
///
/// # Errors
///
/// When an echo differs or does not come.
pub async fn echo(
    connection: &impl Connection,
    number: u64,
    arguments: &ClientArguments,
) -> Result<(), Failure> {
    let ClientArguments { resets, streams, datagrams, .. } = *arguments;
    for number in 0..resets {
        give_up(connection, number).await?;
    }
    let mut tasks = JoinSet::new();
    for number in 0..streams {
        let connection = connection.clone();
        tasks.spawn(async move { stream(&connection, number).await });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    let mut datagrams_lost = 0;
    for number in 0..datagrams {
        datagrams_lost += datagram(connection, number).await?;
    }
    emit(&Event::Echo { connection: number, streams, datagrams, datagrams_lost });
    Ok(())
}

/// Has a stream echoed, as soon as the server permits it.
async fn stream(connection: &impl Connection, number: u32) -> Result<(), Failure> {
    let payload = echo_payload(number, ECHO_STREAM_LENGTH);
    let mut stream = connection.open().await?;
    stream.send(&payload).await?;
    stream.finish()?;
    if receive_all(&mut stream, payload.len()).await? == payload {
        Ok(())
    } else {
        Err(format!("the echo of stream {number} differs").into())
    }
}

/// Begins a stream, and gives it up when a part of its echo has come.
async fn give_up(connection: &impl Connection, number: u32) -> Result<(), Failure> {
    let mut stream = connection.open().await?;
    stream.send(&echo_payload(number, ECHO_STREAM_LENGTH)).await?;
    if stream.receive(&mut Vec::new()).await? != Received::Bytes {
        return Err(format!("the echo of stream {number} ended by itself").into());
    }
    stream.reset(RESET_CODE.into())?;
    stream.stop(STOP_CODE.into())
}

/// Has a datagram echoed; returns how often it had to be sent again.
async fn datagram(connection: &impl Connection, number: u32) -> Result<u32, Failure> {
    let payload = echo_payload(number, ECHO_DATAGRAM_LENGTH);
    for attempt in 0..ATTEMPTS {
        connection.send_datagram(&payload).await?;
        let echoed = async {
            // Past late echoes of earlier datagrams.
            while connection.receive_datagram().await? != payload {}
            Ok::<_, Failure>(())
        };
        if let Ok(result) = tokio::time::timeout(PATIENCE, echoed).await {
            return result.map(|()| attempt);
        }
    }
    Err(format!("datagram {number} was not echoed").into())
}
