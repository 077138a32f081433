//! `prove replicas`: three replicas behind the routers that `deploy` configures.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::clients::{Page, checked, python};
use super::date::date_and_commit;
use super::report;
use crate::{build, root, sh};

/// The routers, each with the Python environment of its run (`scripts/replicas/ENVIRONMENT.txt`).
const ROUTERS: [(&str, &str); 5] = [
    ("nginx", "routers"),
    ("haproxy", "routers"),
    ("vllm-router", "routers"),
    ("sglang-router", "routers"),
    ("dynamo", "dynamo"),
];

/// Programs that no package of Python has.
const PROGRAMS: [&str; 2] = ["nginx", "haproxy"];
/// Where Debian has programs that a user's PATH lacks.
const FOLDERS: &str = "/usr/sbin:/usr/local/sbin";

/// Packages of Dynamo. They are installed without what they ask for, of which one package does not exist.
const DYNAMO: [&str; 2] = ["ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1"];

const INTRO: &str = "\
`cargo xtask prove replicas`: three replicas with the built-in model on the loopback interface, behind the configurations
of `deploy`; only the ports differ. 30 streams of 600 tokens run when a replica gets the signal, and 30 new requests
follow within two seconds. With Dynamo, SIGKILL ends the replica's worker too, and the text of each stream is compared
with that of a run without a signal. Then 48 conversations of 5 turns run, 12 at a time, first on one replica and then
behind the router, with `--parallel 8`. The scripts are in `scripts/replicas`.
";

/// Runs the script behind each router, and writes the report.
pub(super) fn replicas(words: &[&str]) -> Result<(), String> {
    report::no_options("replicas", words)?;
    let path = format!("{}:{FOLDERS}", env::var("PATH").unwrap_or_default());
    if let Some(missing) = PROGRAMS.iter().find(|program| !has(&path, program)) {
        return Err(format!("{missing} is missing; install it, on Debian with apt-get install nginx-light haproxy"));
    }
    let (folder, scripts) = (root().join("target/prove"), root().join("scripts/replicas"));
    let gristmill = build("bin", "gristmill")?;
    let mut page = Page { text: format!("# Replicas, {}\n\n{INTRO}", date_and_commit()), failed: Vec::new() };
    for (router, environment) in ROUTERS {
        let python = python(&folder, &scripts, environment)?;
        if environment == "dynamo" {
            let words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"];
            sh(&python.display().to_string(), &[&words[..], &DYNAMO].concat())?;
        }
        let mut script = Command::new(&python);
        script.arg(scripts.join("replicas.py")).arg(&gristmill).arg(router);
        let programs = python.parent().unwrap_or(Path::new(".")).display();
        script.env("PATH", format!("{programs}:{path}"));
        page.add(router, "", checked, &mut script)?;
    }
    report::write("replicas", &page.text)?;
    if page.failed.is_empty() { Ok(()) } else { Err(page.failed.join("\n")) }
}

fn has(path: &str, program: &str) -> bool {
    path.split(':').any(|folder| PathBuf::from(folder).join(program).is_file())
}
