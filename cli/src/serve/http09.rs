//! HTTP/0.9 (`hq-interop`): a request line on a stream, the file as the answer, no headers. There
//! is no status either: what is not a file is answered with a reset.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use quicket_files::{Answer, Body, Chunks, Question, Room, Tree, answer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// The longest request line, in bytes.
const MAX_LINE: u64 = 8 << 10;
/// How long to wait for the end of a request that was answered.
const PATIENCE: Duration = Duration::from_secs(1);
/// Code of resets and stops: the protocol has none of its own.
pub(crate) const REFUSED: u64 = 1;

/// Reads the request line; the path it names, or `None` if it makes no sense.
pub(crate) async fn request<R: AsyncRead + Unpin>(recv: &mut R) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut limited = recv.take(MAX_LINE);
    // Clients end the line, the stream, or both.
    let mut piece = [0; 512];
    while !line.contains(&b'\n') {
        match limited.read(&mut piece).await? {
            0 => break,
            read => line.extend_from_slice(&piece[..read]),
        }
    }
    if line.len() as u64 == MAX_LINE {
        return Ok(None);
    }
    Ok(parse(&line))
}

/// Reads the end of a stream whose request was answered, if it comes soon: clients take it ill
/// when they are stopped at that point.
pub(crate) async fn read_rest<R: AsyncRead + Unpin>(recv: &mut R) {
    let mut rest = recv.take(MAX_LINE);
    let _ = timeout(PATIENCE, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

fn parse(line: &[u8]) -> Option<String> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let path = std::str::from_utf8(line).ok()?.trim_end_matches('\r').strip_prefix("GET ")?;
    path.starts_with('/').then(|| path.to_owned())
}

/// Finds the file; `None` if there is none.
pub(crate) async fn find(tree: &Arc<Tree>, target: &str) -> io::Result<Option<Body>> {
    let (tree, target) = (Arc::clone(tree), target.to_owned());
    let answer = spawn_blocking(move || {
        let path = target.split('?').next().unwrap_or_default();
        let headers = HeaderMap::new();
        answer(&tree, &Question { method: &Method::GET, path, headers: &headers, early: false })
    });
    let Answer { status, body, .. } = answer.await.map_err(io::Error::other)??;
    Ok(status.is_success().then_some(body))
}

/// Sends a body; counts in `sent` what was written. The caller ends the stream.
pub(crate) async fn send<W: AsyncWrite + Unpin>(
    body: Body,
    send: &mut W,
    room: &Room,
    sent: &mut u64,
) -> io::Result<()> {
    match body {
        Body::Empty => {}
        Body::Bytes(bytes) => {
            send.write_all(&bytes).await?;
            *sent += bytes.len() as u64;
        }
        Body::File(file, len) => {
            let mut chunks = Chunks::new(file, len, room);
            while let Some(chunk) = chunks.next().await? {
                send.write_all(&chunk).await?;
                *sent += chunk.len() as u64;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn request_lines_are_read_with_and_without_their_end() {
        for (bytes, path) in [
            (&b"GET /a.txt\r\n"[..], Some("/a.txt")),
            (b"GET /a.txt\nmore", Some("/a.txt")),
            (b"GET /a.txt", Some("/a.txt")),
            (b"POST /a.txt\r\n", None),
            (b"GET a.txt\r\n", None),
            (b"GET /\xff\r\n", None),
            (b"", None),
        ] {
            let read = request(&mut &bytes[..]).await.unwrap();
            assert_eq!(read.as_deref(), path, "{}", bytes.escape_ascii());
        }
        let endless = vec![b'a'; 100_000];
        assert_eq!(request(&mut &endless[..]).await.unwrap(), None);
    }

    #[tokio::test]
    async fn files_are_sent_whole_and_nothing_else() {
        let sample = tempfile::tempdir().unwrap();
        std::fs::write(sample.path().join("private"), "private").unwrap();
        std::fs::create_dir_all(sample.path().join("root/sub")).unwrap();
        std::fs::write(sample.path().join("root/a.txt"), "hello, world").unwrap();
        let options = quicket_files::Options::default();
        let tree = Arc::new(Tree::open(&sample.path().join("root"), options).unwrap());
        let mut out = Vec::new();
        let mut sent = 0;
        let body = find(&tree, "/a.txt?x").await.unwrap().unwrap();
        send(body, &mut out, &Room::new(1), &mut sent).await.unwrap();
        assert_eq!((out.as_slice(), sent), (&b"hello, world"[..], 12));
        assert!(find(&tree, "/../private").await.unwrap().is_none());
        assert!(find(&tree, "/sub").await.unwrap().is_none());
    }
}
