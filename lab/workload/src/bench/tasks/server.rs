//! The server of the benchmark: a task for each stream.

use std::rc::Rc;

use super::{Transport, transmit};
use crate::bench::{Arrival, Counters, Failure, HEADER_LENGTH, Request, Transfer, usage_answer};

/// Answers whatever is asked on a connection, until it is over.
pub async fn serve_connection<T: Transport + 'static>(
    connection: T::Connection,
    mut acceptor: T::Acceptor,
    counters: Rc<Counters>,
    block: T::Block,
) {
    counters.handshake();
    // An error ends the connection for the client to see; it is the client who reports.
    while let Ok((mut send, mut recv)) = T::accept(&mut acceptor).await {
        let (connection, counters, block) = (connection.clone(), counters.clone(), block.clone());
        T::spawn(async move {
            if let Err(failure) = answer::<T>(&mut send, &mut recv, &counters, &block).await {
                T::close(&connection, 1, failure.to_string().as_bytes());
            }
        });
    }
}

/// What comes on a stream.
#[derive(Default)]
struct Incoming {
    /// The header, and of anything but an upload all that follows.
    message: Vec<u8>,
    request: Option<Result<Request, Failure>>,
    upload: Option<Arrival>,
}

impl Incoming {
    fn take(&mut self, mut bytes: &[u8]) {
        if let Some(upload) = &mut self.upload {
            return upload.take(bytes);
        }
        if self.request.is_none() {
            let missing = (HEADER_LENGTH - self.message.len()).min(bytes.len());
            let (header, rest) = bytes.split_at(missing);
            self.message.extend_from_slice(header);
            bytes = rest;
            let Ok(header) = self.message.as_slice().try_into() else { return };
            let request = Request::decode(header);
            if let Ok(Request::Upload { bytes: length, unique }) = request {
                let transfer = Transfer { unique, ..Transfer::new(length) };
                let mut arrival = Arrival::of(transfer);
                arrival.take(bytes);
                self.upload = Some(arrival);
                bytes = &[];
            }
            self.request = Some(request);
        }
        self.message.extend_from_slice(bytes);
    }
}

async fn answer<T: Transport>(
    send: &mut T::Send,
    recv: &mut T::Recv,
    counters: &Counters,
    block: &T::Block,
) -> Result<(), Failure> {
    let mut incoming = Incoming::default();
    while T::read(recv, &mut |bytes| incoming.take(bytes)).await? {}
    match incoming.request.ok_or("the stream ended within the request")?? {
        Request::Upload { bytes, .. } => {
            incoming.upload.map_or(Ok(()), Arrival::finish)?;
            T::write(send, &bytes.to_be_bytes()).await?;
        }
        Request::Download { bytes, unique, write } => {
            transmit::<T>(send, Transfer { bytes, unique, write }, block).await?;
        }
        Request::Usage => T::write(send, &usage_answer(counters)?).await?,
        Request::Exchange { .. } | Request::Hold => T::write(send, &incoming.message).await?,
    }
    T::finish(send)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Pattern;

    #[test]
    fn requests_are_put_together_from_pieces_of_any_size() {
        for size in [1, 7, 16, 17, 5000] {
            let mut incoming = Incoming::default();
            let mut sent = Request::Upload { bytes: 3000, unique: true }.encode().to_vec();
            let mut data = vec![0; 3000];
            Pattern::new(true).fill(0, &mut data);
            sent.extend(data);
            for piece in sent.chunks(size) {
                incoming.take(piece);
            }
            incoming.upload.unwrap().finish().unwrap();

            let mut incoming = Incoming::default();
            let message = Request::exchange(9);
            for piece in message.chunks(size) {
                incoming.take(piece);
            }
            assert_eq!(incoming.message, message);
            assert_eq!(incoming.request.unwrap().unwrap(), Request::Exchange { number: 9 });
        }
    }
}
