//! The sources of the commit.

use super::archive::quoted;
use super::artifacts::Inputs;
use super::product::{NAME, Release};
use super::sh_in;
use crate::root;

pub(super) fn make(inputs: &Inputs) -> Result<(), String> {
    let to = quoted(&inputs.out.join(name(inputs.release)));
    let prefix = format!("{NAME}-{}/", inputs.release.version);
    sh_in(root(), &format!("git archive --format=tar --prefix={prefix} HEAD | gzip -9n > {to}"))
}

pub(super) fn name(release: &Release) -> String {
    format!("{NAME}-{}-source.tar.gz", release.version)
}
