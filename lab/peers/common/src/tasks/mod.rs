//! What a peer does over an implementation whose interface is made of futures.

mod echo;
mod http09;
#[cfg(feature = "h3")]
pub mod http3;

pub use echo::{echo, serve_datagrams};
pub use http09::get;

use std::path::PathBuf;

use futures_util::future::try_join_all;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ClientArguments, Event, Role, ServerArguments, emit};
use tokio::task::JoinSet;

use crate::files;

/// Requests under way at once: as many as fit into the early data of a connection.
const CONCURRENCY: usize = 100;

/// A connection; clones lead to the same.
///
/// # Errors
///
/// Everything fails when the connection is over.
pub trait Connection: Clone + Send + Sync + 'static {
    /// What is opened on it.
    type Stream: Stream;

    /// Opens a bidirectional stream, as soon as the other end permits it.
    fn open(&self) -> impl Future<Output = Result<Self::Stream, Failure>> + Send;

    /// Sends a datagram.
    fn send_datagram(&self, data: &[u8]) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Waits for a datagram.
    fn receive_datagram(&self) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send;
}

/// A bidirectional stream.
///
/// # Errors
///
/// Everything fails when the stream or the connection is over.
pub trait Stream: Send + 'static {
    /// Sends all of `data`.
    fn send(&mut self, data: &[u8]) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Says that nothing comes after what was sent.
    fn finish(&mut self) -> Result<(), Failure>;

    /// Waits for bytes, and appends them.
    fn receive(
        &mut self,
        into: &mut Vec<u8>,
    ) -> impl Future<Output = Result<Received, Failure>> + Send;

    /// Sends RESET_STREAM.
    fn reset(&mut self, code: u64) -> Result<(), Failure>;

    /// Sends STOP_SENDING.
    fn stop(&mut self, code: u64) -> Result<(), Failure>;
}

/// What came of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Some bytes.
    Bytes,
    /// Nothing more will come.
    End,
    /// The other end has given the stream up with this code.
    Reset(u64),
}

/// All that comes, which is at most `limit` bytes.
async fn receive_all(stream: &mut impl Stream, limit: usize) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    while all.len() <= limit {
        match stream.receive(&mut all).await? {
            Received::Bytes => {}
            Received::End => return Ok(all),
            Received::Reset(code) => return Err(format!("the stream was reset: {code}").into()),
        }
    }
    Err(format!("more than {limit} bytes have come").into())
}

/// Does what a peer is told.
///
/// # Errors
///
/// Those of its role.
pub fn run(
    role: Role,
    server: impl AsyncFnOnce(ServerArguments) -> Result<(), Failure>,
    client: impl AsyncFnOnce(ClientArguments) -> Result<(), Failure>,
) -> Result<(), Failure> {
    block_on(async {
        match role {
            Role::Server(arguments) => server(arguments).await,
            Role::Client(arguments) => client(arguments).await,
        }
    })
}

/// Runs on a single thread.
///
/// # Errors
///
/// Those of `work`.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A read of standard input may still be under way on a thread that nothing can interrupt.
    runtime.shutdown_background();
    result
}

/// Downloads each file over a connection of its own, one after the other or all at once, if a client
/// is told to; returns whether it is. `download` makes the connection of a number.
///
/// # Errors
///
/// When `download` fails.
pub async fn download_apart(
    arguments: &ClientArguments,
    download: impl AsyncFn(u64, &[String]) -> Result<(), Failure>,
) -> Result<bool, Failure> {
    let connections = (1..).zip(arguments.download.chunks(1));
    if arguments.one_by_one {
        for (number, path) in connections {
            download(number, path).await?;
        }
    } else if arguments.parallel {
        try_join_all(connections.map(|(number, path)| download(number, path))).await?;
    }
    Ok(arguments.one_by_one || arguments.parallel)
}

/// Downloads files over connection `number`, many at once, and stores them in whatever order they
/// come.
///
/// # Errors
///
/// When `get` fails, or a file cannot be written.
pub async fn download<F>(
    arguments: &ClientArguments,
    number: u64,
    paths: &[String],
    get: impl Fn(&str) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<Vec<u8>, Failure>> + Send + 'static,
{
    for group in paths.chunks(CONCURRENCY) {
        let mut tasks = JoinSet::new();
        for path in group {
            let (path, content) = (path.clone(), get(path));
            tasks.spawn(async move { Ok::<_, Failure>((path, content.await?)) });
        }
        while let Some(result) = tasks.join_next().await {
            let (path, content) = result??;
            files::store(arguments.out.as_deref(), number, &path, &content)?;
        }
    }
    Ok(())
}

/// Starts a task that serves a stream: echoes it, or answers with a file over HTTP/0.9.
pub fn serve(mut stream: impl Stream, echoes: bool, folder: Option<PathBuf>) {
    tokio::spawn(async move {
        let result = if echoes {
            echo::serve(&mut stream).await
        } else {
            http09::serve(folder.as_deref(), &mut stream).await
        };
        if let Err(failure) = result {
            emit(&Event::Error { message: failure.to_string() });
        }
    });
}
