//! Signals that end a command: time to remove a partial file, and the exit status that shells expect.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::failure::Failure;

/// Notes a signal instead of ending at once.
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Notes Ctrl-C, a request to terminate and the end of the terminal from now on.
    pub(crate) fn watch() -> Result<Interrupt, Failure> {
        let noted = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup()) {
            flag::register_usize(signal, noted.clone(), signal as usize)
                .map_err(|e| Failure::new(format!("cannot prepare to be interrupted: {e}; try again")))?;
        }
        Ok(Interrupt(noted))
    }

    /// The signal that came.
    pub(crate) fn signal(&self) -> Option<i32> {
        i32::try_from(self.0.load(Ordering::Relaxed)).ok().filter(|&signal| signal != 0)
    }
}

/// SIGHUP, unless this process was started to ignore it, as `nohup` does. A process cannot ask for that without unsafe
/// code, but a child inherits it, so a shell that survives the signal tells.
#[cfg(unix)]
fn hangup() -> Option<i32> {
    use signal_hook::consts::SIGHUP;
    use std::os::unix::process::ExitStatusExt;
    let mut shell = process::Command::new("/bin/sh");
    shell.args(["-c", "kill -HUP $$"]).stdin(process::Stdio::null());
    match shell.status() {
        Ok(status) if status.signal().is_none() => None,
        _ => Some(SIGHUP),
    }
}

#[cfg(not(unix))]
fn hangup() -> Option<i32> {
    None
}

/// Ends the process as the signal does by itself: a shell sees 128 + its number, and stops its loop after Ctrl-C.
pub(crate) fn end(signal: i32) -> ! {
    // Does not come back, except from a signal that is unknown.
    let _ = low_level::emulate_default_handler(signal);
    process::exit(128 + signal)
}
