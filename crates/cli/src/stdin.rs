//! Text on stdin that the command line does not name: what a pipe or a redirection gives.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::console::{self, Beginning};
use crate::failure::Failure;

/// The time after which the user learns what the program waits for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Stdin up to `most` bytes if it is a pipe or a file, otherwise `None`: a terminal, `/dev/null` or an inherited socket is not a
/// prompt.
pub(crate) fn piped(most: u64) -> Result<Option<Beginning>, Failure> {
    if !is_pipe_or_file() {
        return Ok(None);
    }
    let (sender, text) = mpsc::channel();
    thread::spawn(move || sender.send(console::read_beginning(Path::new("-"), most)));
    let text = text.recv_timeout(PATIENCE).or_else(|_| {
        console::note(format_args!("waiting for the end of stdin, which is a pipe; without one, add < /dev/null"));
        text.recv()
    });
    text.map_err(|_| Failure::new("cannot read stdin"))?.map(Some)
}

#[cfg(unix)]
fn is_pipe_or_file() -> bool {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileTypeExt;

    let about = std::io::stdin().as_fd().try_clone_to_owned().and_then(|stdin| File::from(stdin).metadata());
    about.is_ok_and(|about| about.is_file() || about.file_type().is_fifo())
}

/// Where the kind of stdin is not known, reading it must end: the null device does at once.
#[cfg(not(unix))]
fn is_pipe_or_file() -> bool {
    use std::io::IsTerminal;

    !std::io::stdin().is_terminal()
}
