//! The keys of a server: the keys of a file, which is read again after SIGHUP, and the key of the environment.

use std::env;
use std::path::{Path, PathBuf};

use clap::Args;
use gristmill_server::{Key, Keys};

use crate::console;
use crate::failure::Failure;
use crate::verbosity::Verbosity;

/// The variable with the key of a server, for one key.
pub(super) const VARIABLE: &str = "GRISTMILL_API_KEY";

#[derive(Args)]
pub(crate) struct KeyArgs {
    /// A file with keys. Each request must send one of them. A line is KEY [NAME] [rpm=N] [concurrent=N]: a key, a name
    /// for logs and /metrics, the maximum number of requests per minute and at the same time. A line that starts with #
    /// is a comment. SIGHUP reads the file again. The environment variable GRISTMILL_API_KEY adds a key.
    #[arg(long, value_name = "FILE", help_heading = "Address and access")]
    keys: Option<PathBuf>,
}

impl KeyArgs {
    /// Keys of the file, and that of the environment.
    pub(super) fn read(&self) -> Result<Vec<Key>, Failure> {
        let mut keys = self.keys.as_deref().map_or(Ok(Vec::new()), of_file)?;
        match env::var(VARIABLE) {
            Ok(key) if key.trim().is_empty() => {
                return Err(Failure::new(format!("{VARIABLE} is empty; set a key or unset it")));
            }
            Ok(key) => keys.push(Key::new(key.trim())),
            Err(env::VarError::NotPresent) => {}
            Err(error) => return Err(Failure::new(format!("{VARIABLE} cannot be read: {error}"))),
        }
        Ok(keys)
    }

    /// Whether SIGHUP reads a file.
    pub(super) fn has_file(&self) -> bool {
        self.keys.is_some()
    }

    /// Replaces the keys. A file that is wrong leaves those that hold.
    pub(super) fn reload(&self, keys: &Keys, log: Verbosity) {
        match self.read() {
            Ok(new) => {
                keys.replace(&new);
                log.info(format_args!("{} keys are valid now", new.len()));
            }
            Err(failure) => tracing::error!("the keys are unchanged: {}", failure.message()),
        }
    }
}

/// The keys in a file, one in each line. Empty lines and lines that start with `#` are none.
fn of_file(path: &Path) -> Result<Vec<Key>, Failure> {
    let text =
        console::read_text(path, console::LONGEST_FORM).map_err(|failure| failure.about("cannot read the keys"))?;
    let (mut keys, mut numbers): (Vec<Key>, Vec<usize>) = Default::default();
    let lines = (1..).zip(text.lines().map(str::trim));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let wrong = |error| Failure::new(format!("{}: line {number} {error}", path.display()));
        let key: Key = line.parse().map_err(wrong)?;
        if keys.iter().any(|other| other.is_same(&key)) {
            return Err(Failure::new(format!(
                "{}: line {number} has the key of an earlier line; remove one of them",
                path.display()
            )));
        }
        if let Some(at) = keys.iter().position(|other| other.contradicts(&key)) {
            return Err(Failure::new(format!(
                "{}: line {number} has other limits than line {} with the same name; write the same limits in both",
                path.display(),
                numbers[at]
            )));
        }
        keys.push(key);
        numbers.push(number);
    }
    if keys.is_empty() {
        return Err(Failure::new(format!("there are no keys in {}; write one in each line", path.display())));
    }
    Ok(keys)
}
