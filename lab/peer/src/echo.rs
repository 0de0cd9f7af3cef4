//! Streams and datagrams that come back as they went.

use std::time::Duration;

use quicket::ReadError;
use quicket::tokio::{Connection, Stream};
use quicket_workload::bench::Failure;
use quicket_workload::peer::{
    ECHO_DATAGRAM_LENGTH, ECHO_STREAM_LENGTH, RESET_CODE, STOP_CODE, echo_payload,
};
use tokio::task::JoinSet;

/// How long a datagram's echo may take before the datagram is sent again.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often one datagram is sent.
const ATTEMPTS: u32 = 5;

pub(crate) async fn serve_stream(stream: Stream) -> Result<(), Failure> {
    let (mut send, mut recv) = stream.split();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match recv.read_some(&mut buffer).await {
            Ok(0) => return Ok(send.finish()?),
            Ok(len) => send.write_all(&buffer[..len]).await?,
            Err(ReadError::Reset(code)) => {
                // The client has given the stream up, and may not have said so of this direction.
                let _ = send.reset(code);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

pub(crate) async fn serve_datagrams(connection: Connection) {
    while let Ok(datagram) = connection.recv_datagram().await {
        if connection.send_datagram(&datagram).await.is_err() {
            return;
        }
    }
}

/// Has `count` streams echoed, as many at once as the server permits.
pub(crate) async fn streams(connection: &Connection, count: u32) -> Result<u32, Failure> {
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let connection = connection.clone();
        tasks.spawn(async move { stream(&connection, number).await });
    }
    let mut done = 0;
    while let Some(result) = tasks.join_next().await {
        result??;
        done += 1;
    }
    Ok(done)
}

async fn stream(connection: &Connection, number: u32) -> Result<(), Failure> {
    let payload = echo_payload(number, ECHO_STREAM_LENGTH);
    let mut stream = connection.open_bi().await?;
    stream.send().write_all(&payload).await?;
    stream.finish()?;
    if stream.read_to_end(payload.len() + 1).await? == payload {
        Ok(())
    } else {
        Err(format!("the echo of stream {number} differs").into())
    }
}

/// Begins `count` streams, and gives each up when a part of its echo has come.
pub(crate) async fn resets(connection: &Connection, count: u32) -> Result<(), Failure> {
    for number in 0..count {
        let mut stream = connection.open_bi().await?;
        stream.send().write_all(&echo_payload(number, ECHO_STREAM_LENGTH)).await?;
        let (mut send, mut recv) = stream.split();
        if recv.read_some(&mut [0; ECHO_STREAM_LENGTH]).await? == 0 {
            return Err(format!("the echo of stream {number} ended by itself").into());
        }
        send.reset(RESET_CODE.into())?;
        recv.stop(STOP_CODE.into())?;
    }
    Ok(())
}

/// Has `count` datagrams echoed; returns how many were, and how many had to be sent again.
pub(crate) async fn datagrams(connection: &Connection, count: u32) -> Result<(u32, u32), Failure> {
    let mut lost = 0;
    for number in 0..count {
        let payload = echo_payload(number, ECHO_DATAGRAM_LENGTH);
        let mut attempt = 0;
        loop {
            connection.send_datagram(&payload).await?;
            if echoed(connection, &payload).await? {
                break;
            }
            attempt += 1;
            lost += 1;
            if attempt == ATTEMPTS {
                return Err(format!("datagram {number} was not echoed").into());
            }
        }
    }
    Ok((count, lost))
}

/// Waits for the echo of `payload`, past late echoes of earlier datagrams.
async fn echoed(connection: &Connection, payload: &[u8]) -> Result<bool, Failure> {
    let wait = async {
        loop {
            if connection.recv_datagram().await? == payload {
                return Ok::<_, Failure>(());
            }
        }
    };
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(result) => result.map(|()| true),
        Err(_) => Ok(false),
    }
}
