//! A thread that looks after the sums of a device. The device itself would wait for ever for one that is lost.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use gristmill_collective::{Collective, Repeat};
use gristmill_kernels::Backend;

use crate::error::{Error, Result};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Starts the thread: it looks whether the group of ranks or a sum of this rank's device has failed, and then ends both.
pub(crate) fn watch(collective: Arc<dyn Collective>, backend: Arc<Backend>) -> Result<Repeat> {
    let look = move || {
        let Some(ranks) = backend.ranks() else { return ControlFlow::Break(()) };
        let failure = collective.look().err().map(|lost| lost.to_string());
        match failure.or_else(|| ranks.check().err().map(|error| error.to_string())) {
            None => ControlFlow::Continue(()),
            Some(reason) => {
                collective.abort(&reason);
                ranks.abort(&reason);
                ControlFlow::Break(())
            }
        }
    };
    let thread = Repeat::start("sums of a rank", LOOK, look);
    thread.map_err(|error| Error::Split { reason: format!("no thread for a rank ({error})") })
}
