//! The server behind a gateway: two bodies in memory over HTTP/1.1, as cheap as it can be.

use std::io::Read;
use std::process::ExitCode;
use std::rc::Rc;

use quicket_workload::bench::{Failure, Message, pin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

use super::{LARGE, SMALL, body, origin_address};

/// The longest header section of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// Serves on a core until standard input ends.
pub(in crate::bench) fn process(core: &str) -> ExitCode {
    std::thread::spawn(|| {
        while matches!(std::io::stdin().read(&mut [0; 64]), Ok(1..)) {}
        std::process::exit(0);
    });
    match serve(core) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            Message::Failed { reason: failure.to_string() }.emit();
            ExitCode::FAILURE
        }
    }
}

fn serve(core: &str) -> Result<(), Failure> {
    pin(core.parse()?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind(origin_address()).await?;
        let answers = Rc::new(Answers { small: answer(SMALL), large: answer(LARGE) });
        Message::Listening { address: listener.local_addr()? }.emit();
        loop {
            let (stream, _) = listener.accept().await?;
            let answers = Rc::clone(&answers);
            spawn_local(async move {
                // A gateway may end a connection when it likes.
                let _ = hold(stream, &answers).await;
            });
        }
    })
}

/// Whole answers, header sections included.
struct Answers {
    small: Vec<u8>,
    large: Vec<u8>,
}

fn answer(which: (&str, usize)) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\
         Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nCache-Control: max-age=60\r\n\r\n",
        which.1
    );
    [head.as_bytes(), &body(which)].concat()
}

/// Answers requests one after the other. They have no bodies.
async fn hold(mut stream: TcpStream, answers: &Answers) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::with_capacity(MAX_HEAD);
    while read.len() < MAX_HEAD && stream.read_buf(&mut read).await? > 0 {
        while let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            stream.write_all(answers.to(&read)).await?;
            read.drain(..end + 4);
        }
    }
    Ok(())
}

impl Answers {
    fn to(&self, request: &[u8]) -> &[u8] {
        let path = request.split(|&byte| byte == b' ').nth(1);
        match path {
            Some(path) if path == SMALL.0.as_bytes() => &self.small,
            Some(path) if path == LARGE.0.as_bytes() => &self.large,
            _ => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_in_turn_whole_or_in_pieces() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind(origin_address()).await.unwrap();
            let address = listener.local_addr().unwrap();
            spawn_local(async move {
                let answers = Answers { small: answer(SMALL), large: Vec::new() };
                hold(listener.accept().await.unwrap().0, &answers).await
            });
            let mut client = TcpStream::connect(address).await.unwrap();
            let pieces: [&[u8]; 3] =
                [b"GET /small HTTP/1.1\r\nHost: a\r", b"\n\r\nGET /none HTTP/1.1\r\n", b"\r\n"];
            for piece in pieces {
                client.write_all(piece).await.unwrap();
                client.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
            client.shutdown().await.unwrap();
            let mut all = Vec::new();
            client.read_to_end(&mut all).await.unwrap();
            let small = answer(SMALL);
            assert_eq!(all[..small.len()], small);
            assert!(all[small.len()..].starts_with(b"HTTP/1.1 404"));
            assert_eq!(small[small.len() - SMALL.1..], body(SMALL));
        });
    }
}
