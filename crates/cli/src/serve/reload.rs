//! Reading files again after SIGHUP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::failure::Failure;
use crate::interrupt;

/// How soon a signal is seen.
const SOON: Duration = Duration::from_millis(50);

/// Set by each SIGHUP from now on, which does not end the process then.
pub(super) fn on_hangup() -> Result<Arc<AtomicBool>, Failure> {
    let received = Arc::new(AtomicBool::new(false));
    interrupt::on_hangup(received.clone())?;
    Ok(received)
}

/// Calls `read` after each SIGHUP, and never returns. Without a flag it does nothing.
pub(super) async fn reload(received: Option<Arc<AtomicBool>>, read: impl Fn()) {
    let Some(received) = received else { return std::future::pending().await };
    loop {
        tokio::time::sleep(SOON).await;
        if received.swap(false, Ordering::Relaxed) {
            read();
        }
    }
}
