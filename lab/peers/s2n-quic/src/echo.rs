//! Streams and datagrams that come back as they went.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{
    ECHO_DATAGRAM_LENGTH, ECHO_STREAM_LENGTH, RESET_CODE, STOP_CODE, echo_payload,
};
use s2n_quic::connection::Handle;
use s2n_quic::provider::datagram::default::{Receiver, Sender};
use s2n_quic::stream::{BidirectionalStream, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// How long a datagram's echo may take before the datagram is sent again.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often one datagram is sent.
const ATTEMPTS: u32 = 5;

pub async fn serve_stream(mut stream: BidirectionalStream) -> Result<(), Failure> {
    loop {
        match stream.receive().await {
            Ok(Some(data)) => stream.send(data).await?,
            Ok(None) => return Ok(stream.finish()?),
            Err(Error::StreamReset { error, .. }) => {
                // The client has given the stream up, and may not have said so of this direction.
                let _ = stream.reset(error);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

pub async fn serve_datagrams(connection: Handle) {
    while let Ok(datagram) = receive(&connection).await {
        if send(&connection, datagram).is_err() {
            return;
        }
    }
}

fn send(connection: &Handle, datagram: Bytes) -> Result<(), Failure> {
    let sent = connection.datagram_mut(|sender: &mut Sender| sender.send_datagram(datagram))?;
    sent.map_err(|error| format!("a datagram could not be sent: {error:?}").into())
}

async fn receive(connection: &Handle) -> Result<Bytes, Failure> {
    poll_fn(|context| {
        let asked =
            connection.datagram_mut(|receiver: &mut Receiver| receiver.poll_recv_datagram(context));
        match asked {
            Ok(polled) => polled.map_err(|error| format!("no datagrams: {error:?}").into()),
            Err(error) => std::task::Poll::Ready(Err(error.into())),
        }
    })
    .await
}

/// Has `count` streams echoed, as many at once as the server permits.
pub async fn streams(connection: &Handle, count: u32) -> Result<(), Failure> {
    let mut tasks = JoinSet::new();
    for number in 0..count {
        tasks.spawn(stream(connection.clone(), number));
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

async fn stream(mut connection: Handle, number: u32) -> Result<(), Failure> {
    let payload = echo_payload(number, ECHO_STREAM_LENGTH);
    let mut stream = connection.open_bidirectional_stream().await?;
    stream.write_all(&payload).await?;
    stream.finish()?;
    let mut echo = Vec::new();
    stream.read_to_end(&mut echo).await?;
    if echo == payload { Ok(()) } else { Err(format!("the echo of {number} differs").into()) }
}

/// Begins `count` streams, and gives each up when a part of its echo has come.
pub async fn resets(connection: &Handle, count: u32) -> Result<(), Failure> {
    let mut connection = connection.clone();
    for number in 0..count {
        let mut stream = connection.open_bidirectional_stream().await?;
        stream.write_all(&echo_payload(number, ECHO_STREAM_LENGTH)).await?;
        if stream.receive().await?.is_none() {
            return Err(format!("the echo of stream {number} ended by itself").into());
        }
        stream.reset(RESET_CODE.into())?;
        stream.stop_sending(STOP_CODE.into())?;
    }
    Ok(())
}

/// Has `count` datagrams echoed; returns how many had to be sent again.
pub async fn datagrams(connection: &Handle, count: u32) -> Result<u32, Failure> {
    let mut lost = 0;
    for number in 0..count {
        let payload = Bytes::from(echo_payload(number, ECHO_DATAGRAM_LENGTH));
        let mut attempt = 0;
        loop {
            send(connection, payload.clone())?;
            let echoed = async {
                // Past late echoes of earlier datagrams.
                while receive(connection).await? != payload {}
                Ok::<_, Failure>(())
            };
            if let Ok(result) = tokio::time::timeout(PATIENCE, echoed).await {
                result?;
                break;
            }
            attempt += 1;
            lost += 1;
            if attempt == ATTEMPTS {
                return Err(format!("datagram {number} was not echoed").into());
            }
        }
    }
    Ok(lost)
}
