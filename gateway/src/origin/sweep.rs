//! Connections that nobody uses come to their end.

use std::sync::Arc;

use super::MAX_IDLE_TIME;

/// Has a task call `sweep` now and then, which lets go of what was idle for long, until it says that nothing is left,
/// or the pool is gone.
pub(super) fn keep_sweeping<P: Send + Sync + 'static>(pool: &Arc<P>, sweep: fn(&P) -> bool) {
    let pool = Arc::downgrade(pool);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(MAX_IDLE_TIME / 4).await;
            match pool.upgrade() {
                Some(pool) if sweep(&pool) => {}
                _ => return,
            }
        }
    });
}
