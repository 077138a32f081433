//! `prove replicas`: three replicas behind the proxies that `deploy` configures.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::clients::{Page, checked};
use super::date::date_and_commit;
use crate::{build, root};

/// A proxy, its configuration, and the options with which this configuration wants its replicas.
const PROXIES: [(&str, &str, &[&str]); 2] =
    [("nginx", "deploy/nginx.conf", &[]), ("haproxy", "deploy/haproxy.cfg", &["--drain-delay", "3"])];

/// Where Debian has programs that a user's PATH lacks.
const FOLDERS: &str = "/usr/sbin:/usr/local/sbin";

/// Runs the script behind each proxy, and writes the page at this path.
pub(crate) fn replicas(output: Option<&str>) -> Result<(), String> {
    let path = format!("{}:{FOLDERS}", std::env::var("PATH").unwrap_or_default());
    if let Some((missing, ..)) = PROXIES.iter().find(|(proxy, ..)| !has(&path, proxy)) {
        return Err(format!("{missing} is missing; install it, on Debian with apt-get install nginx-light haproxy"));
    }
    let gristmill = build("bin", "gristmill")?;
    let mut text = format!("# Replicas, {}\n\n", date_and_commit());
    text += "`cargo xtask prove replicas`: three replicas with the built-in model on the loopback interface, behind the\n\
             configurations of `deploy`; only the ports differ. 30 streams of 1,200 tokens run when a replica gets the \
             signal, and\n30 new requests follow within two seconds. The script is `scripts/replicas/replicas.py`.\n";
    let mut page = Page { text, failed: Vec::new() };
    for (proxy, configuration, options) in PROXIES {
        let mut script = Command::new("python3");
        script.arg(root().join("scripts/replicas/replicas.py")).arg(&gristmill).arg(proxy);
        script.arg(root().join(configuration)).args(options).env("PATH", &path);
        page.add(proxy, "", checked, &mut script)?;
    }
    println!("{}", page.text);
    if let Some(path) = output {
        fs::write(path, &page.text).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    if page.failed.is_empty() { Ok(()) } else { Err(page.failed.join("\n")) }
}

fn has(path: &str, program: &str) -> bool {
    path.split(':').any(|folder| PathBuf::from(folder).join(program).is_file())
}
