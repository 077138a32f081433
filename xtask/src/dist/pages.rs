//! Files that accompany the program: its manual page and completions, which the program itself writes, and licences.

use std::path::Path;
use std::process::Command;

use super::build::Built;
use super::tree::Item;
use crate::root;

/// The scripts of completions: a shell, and the file in `/usr/share`.
pub(super) const SHELLS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/gristmill"),
    ("zsh", "zsh/vendor-completions/_gristmill"),
    ("fish", "fish/vendor_completions.d/gristmill.fish"),
];

/// The documents of the repository that an archive has.
pub(super) fn documents() -> Vec<Item> {
    ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"]
        .map(|name| Item::file(name, root().join(name)))
        .into()
}

/// The manual page and the completions, with paths below `share`. A program of another platform has the same.
pub(super) fn generated(built: &[Built], share: &str) -> Result<Vec<Item>, String> {
    let program = match built.iter().find(|built| built.runs_here()) {
        Some(host) => host.program(),
        // Targets of other machines alone: the program of development writes the same.
        None => crate::build("bin", "gristmill")?,
    };
    let mut items = vec![Item::text(format!("{share}/man/man1/gristmill.1"), output(&program, &["man"])?)];
    for (shell, path) in SHELLS {
        items.push(Item::text(format!("{share}/{path}"), output(&program, &["completions", shell])?));
    }
    Ok(items)
}

fn output(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{}: cannot be started: {error}", program.display()))?;
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(|error| format!("{arguments:?}: {error}")),
        false => Err(format!("{} {arguments:?}: failed", program.display())),
    }
}
