//! `run`: builds the program and runs it with a real model.

use crate::{model, sh};

/// Builds the program and passes it the model and the arguments of its `run`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let model = model::fetch()?;
    let model = model.to_str().ok_or_else(|| format!("{}: not a path in UTF-8", model.display()))?;
    let mut words = vec!["run", "--release", "--package", "gristmill", "--", "run", "-m", model];
    words.extend(arguments);
    sh("cargo", &words)
}
