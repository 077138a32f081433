//! `check`: all tests.

use crate::{model, sh};

/// Fetches the model, so that no test has to be skipped for want of it, and runs every test of the workspace.
pub(crate) fn check() -> Result<(), String> {
    model::fetch()
        .map_err(|error| format!("{error}\n`cargo test --workspace` runs the tests that need no real model"))?;
    sh("cargo", &["test", "--workspace", "--no-fail-fast"])
}
