//! `prove page`: the page of `gristmill serve` in Chromium.

use std::fs;
use std::process::Command;

use super::clients::{Page, Server, checked, free_port, npm, versions_of_npm};
use super::date::date_and_commit;
use super::report;
use crate::{build, root};

/// npm packages that the report names.
const NPM: [&str; 3] = ["playwright-core", "axe-core", "@modelcontextprotocol/server-everything"];
const SCRIPTS: [&str; 16] = [
    "package.json",
    "test.mjs",
    "harness.mjs",
    "proxy.mjs",
    "attacks.mjs",
    "answers.mjs",
    "context.mjs",
    "conversations.mjs",
    "experts.mjs",
    "failures.mjs",
    "files.mjs",
    "images.mjs",
    "looks.mjs",
    "mcp.mjs",
    "models.mjs",
    "safety.mjs",
];
/// The key of the test.
const KEY: &str = "secret";

/// Runs the test. With `--docs` the screenshots are written into `docs`, otherwise into `target`.
pub(super) fn browser(words: &[&str]) -> Result<(), String> {
    let folder = root().join("target/prove/page");
    let docs = match words {
        [] => folder.clone(),
        ["--docs"] => root().join("docs"),
        [other, ..] => return Err(format!("prove page: unknown option {other}; see cargo xtask")),
    };
    npm(&folder, &SCRIPTS.map(|name| root().join("scripts/page").join(name)))?;
    let gristmill = build("bin", "gristmill")?;
    let keys = folder.join("keys");
    fs::write(&keys, KEY).map_err(|error| format!("cannot write {}: {error}", keys.display()))?;
    let ports = [free_port()?, free_port()?];
    let origins = ports.map(|port| format!("http://127.0.0.1:{port}"));
    let open = Server::start(&gristmill, None, &["--allow-mcp", &origins[0], "--allow-mcp", &origins[1]])?;
    let closed = Server::start(&gristmill, None, &["--keys", &keys.display().to_string()])?;
    let mut page = Page { text: heading(&versions_of_npm(&folder, &NPM)), failed: Vec::new() };
    let mut test = Command::new("node");
    test.arg(folder.join("test.mjs")).args([&open.address, &closed.address]).arg(docs);
    test.env("MCP_PORTS", ports.map(|port| port.to_string()).join(","));
    page.add("Chromium", "", checked, &mut test).map_err(|error| format!("{error}\nthe test takes Node.js"))?;
    report::write("page", &page.text)?;
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
