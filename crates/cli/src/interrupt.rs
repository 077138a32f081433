//! Signals that end a command: partial files are removed first, and the exit status is the one that shells expect.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::failure::Failure;

/// While it lives, SIGINT, SIGTERM and SIGHUP are recorded; after that they end the process again.
pub(crate) struct Interrupt {
    recorded: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Interrupt {
    /// Records signals from now on.
    pub(crate) fn watch() -> Result<Interrupt, Failure> {
        Interrupt::watch_these([SIGINT, SIGTERM].into_iter().chain(hangup()))
    }

    /// The same without SIGHUP.
    pub(crate) fn watch_but_hangup() -> Result<Interrupt, Failure> {
        Interrupt::watch_these([SIGINT, SIGTERM])
    }

    fn watch_these(signals: impl IntoIterator<Item = i32>) -> Result<Interrupt, Failure> {
        let recorded = Arc::new(AtomicUsize::new(0));
        let over = Arc::new(AtomicBool::new(false));
        for signal in signals {
            flag::register_conditional_default(signal, over.clone())
                .and_then(|_| flag::register_usize(signal, recorded.clone(), signal as usize))
                .map_err(no_handler)?;
        }
        Ok(Interrupt { recorded, over })
    }

    /// The latest recorded signal.
    pub(crate) fn signal(&self) -> Option<i32> {
        i32::try_from(self.recorded.load(Ordering::Relaxed)).ok().filter(|&signal| signal != 0)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// How soon a recorded signal is seen.
const SOON: Duration = Duration::from_millis(50);

/// From now on, Ctrl-C calls this function instead of ending the process.
pub(crate) fn on_ctrl_c(act: impl Fn() + Send + 'static) -> Result<(), Failure> {
    let pressed = Arc::new(AtomicBool::new(false));
    flag::register(SIGINT, pressed.clone()).map_err(no_handler)?;
    thread::spawn(move || {
        loop {
            thread::sleep(SOON);
            if pressed.swap(false, Ordering::Relaxed) {
                act();
            }
        }
    });
    Ok(())
}

/// From now on, SIGHUP sets a flag instead of ending the process.
#[cfg(unix)]
pub(crate) fn on_hangup(received: Arc<AtomicBool>) -> Result<(), Failure> {
    flag::register(signal_hook::consts::SIGHUP, received).map(drop).map_err(no_handler)
}

/// There is no SIGHUP.
#[cfg(not(unix))]
pub(crate) fn on_hangup(_: Arc<AtomicBool>) -> Result<(), Failure> {
    Ok(())
}

fn no_handler(error: io::Error) -> Failure {
    Failure::new(format!("cannot install a signal handler: {error}; try again"))
}

/// SIGHUP, unless this process ignores it, as under `nohup`. Reading a process's own disposition takes unsafe code; a
/// child process inherits the disposition, so the exit status of a shell that sends itself SIGHUP shows it.
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

/// Ends the process by the signal's default action: a shell sees 128 + its number, and stops its loop after Ctrl-C.
pub(crate) fn end(signal: i32) -> ! {
    // Returns only for an unknown signal.
    let _ = low_level::emulate_default_handler(signal);
    process::exit(128 + signal)
}
