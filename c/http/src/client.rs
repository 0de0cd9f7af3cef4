//! A client: what makes requests, and the thread that drives its connections.

use std::ffi::c_int;
use std::future::Future;
use std::time::{Duration, Instant};

use quicket_client::{Client, Config};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{sleep, timeout_at};

use crate::error::Failure;

/// Threads that look names up and read files, at once.
const MAX_BLOCKING: usize = 4;
/// How long the last that has a client waits until its servers have been told of the end.
const LEAVE: Duration = Duration::from_millis(500);
/// How often it looks whether they have.
const LOOK: Duration = Duration::from_millis(1);

/// Until when a call may wait; none without end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) const NEVER: Self = Self(None);

    /// So many milliseconds from now, or never if they are less than 0.
    pub(crate) fn after(milliseconds: c_int) -> Self {
        let time = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        Self(time.map(|time| Instant::now() + time))
    }
}

/// What a client and its exchanges share.
#[derive(Debug)]
pub(crate) struct Http {
    /// None when it ends.
    parts: Option<(Client, Runtime)>,
    /// The process that it belongs to.
    owner: u32,
}

impl Http {
    pub(crate) fn new(config: Config) -> Result<Self, Failure> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_blocking_threads(MAX_BLOCKING);
        builder.thread_name("quicket-http").enable_all();
        // Signals are the program's: its own threads handle them. Threads that come later are begun by the first.
        let runtime = quicket_c::without_signals(|| builder.build())?;
        Ok(Self { parts: Some((Client::new(config), runtime)), owner: std::process::id() })
    }

    /// True in a process that was forked from the one that has made it: the thread is not there.
    pub(crate) fn is_inherited(&self) -> bool {
        self.owner != std::process::id()
    }

    fn parts(&self) -> Result<&(Client, Runtime), Failure> {
        if self.is_inherited() {
            let words = "it belongs to the process from which this one was forked";
            return Err(Failure::new(libc::EBADFD, words));
        }
        self.parts.as_ref().ok_or_else(|| Failure::new(libc::EIO, "the client has ended"))
    }

    pub(crate) fn client(&self) -> Result<&Client, Failure> {
        Ok(&self.parts()?.0)
    }

    pub(crate) fn handle(&self) -> Result<&Handle, Failure> {
        Ok(self.parts()?.1.handle())
    }

    /// Waits for something; what is there already is there after the deadline, too.
    pub(crate) fn wait<T>(
        &self,
        Deadline(deadline): Deadline,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        self.handle()?.block_on(async {
            match deadline {
                None => Ok(work.await),
                Some(at) => timeout_at(at.into(), work).await.map_err(|_| Failure::again()),
            }
        })
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        let Some((client, runtime)) = self.parts.take() else { return };
        if self.is_inherited() {
            // Its locks may be held, and its thread is not there.
            std::mem::forget((client, runtime));
            return;
        }
        drop(client);
        // The tasks of its connections end when they have said so.
        let deadline = Instant::now() + LEAVE;
        runtime.block_on(async {
            while runtime.metrics().num_alive_tasks() > 0 && Instant::now() < deadline {
                sleep(LOOK).await;
            }
        });
        runtime.shutdown_background();
    }
}
