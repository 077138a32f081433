//! `prove page`: the page of `gristmill serve` in Chromium.

use std::fs;
use std::process::Command;

use super::clients::{Page, Server, checked, npm, versions_of_npm};
use super::date::date_and_commit;
use crate::{build, root};

/// npm packages that the report names.
const NPM: [&str; 2] = ["playwright-core", "axe-core"];
const SCRIPTS: [&str; 12] = [
    "package.json",
    "test.mjs",
    "harness.mjs",
    "proxy.mjs",
    "attacks.mjs",
    "answers.mjs",
    "conversations.mjs",
    "experts.mjs",
    "failures.mjs",
    "files.mjs",
    "looks.mjs",
    "safety.mjs",
];
/// The key of the test.
const KEY: &str = "secret";

/// Runs the test. With `output` the report is written there, and the screenshots into `docs`; otherwise these are left
/// in `target`.
pub(crate) fn browser(output: Option<&str>) -> Result<(), String> {
    let folder = root().join("target/prove/page");
    npm(&folder, &SCRIPTS.map(|name| root().join("scripts/page").join(name)))?;
    let gristmill = build("bin", "gristmill")?;
    let keys = folder.join("keys");
    fs::write(&keys, KEY).map_err(|error| format!("cannot write {}: {error}", keys.display()))?;
    let open = Server::start(&gristmill, None, &[])?;
    let closed = Server::start(&gristmill, None, &["--keys", &keys.display().to_string()])?;
    let mut page = Page { text: heading(&versions_of_npm(&folder, &NPM)), failed: Vec::new() };
    let docs = if output.is_some() { root().join("docs") } else { folder.clone() };
    let mut test = Command::new("node");
    test.arg(folder.join("test.mjs")).args([&open.address, &closed.address]).arg(docs);
    page.add("Chromium", "", checked, &mut test).map_err(|error| format!("{error}\nthe test takes Node.js"))?;
    println!("{}", page.text);
    if let Some(path) = output {
        fs::write(path, &page.text).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    if page.failed.is_empty() { Ok(()) } else { Err(page.failed.join("\n")) }
}

fn heading(versions: &str) -> String {
    format!(
        "# The page in a browser, {}\n\n`cargo xtask prove page`: `scripts/page` drives headless Chromium against \
         `gristmill serve` with the built-in model.\nReplies with Markdown, tools and attacks are scripted, because that \
         model only continues stories.\n\n{versions}",
        date_and_commit()
    )
}
