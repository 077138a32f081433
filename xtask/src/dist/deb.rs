//! Packages for Debian and Ubuntu, by dpkg-deb.

use std::fs;

use super::artifacts::Inputs;
use super::build::Built;
use super::pages;
use super::product::{DESCRIPTION, MAINTAINER, NAME, REPOSITORY, SUMMARY};
use super::run_with;
use super::targets::GLIBC;
use super::tree::{self, Item};
use crate::root;

pub(super) fn make(inputs: &Inputs) -> Result<(), String> {
    inputs.built.iter().filter(|built| !built.target.deb.is_empty()).try_for_each(|built| package(inputs, built))
}

fn package(inputs: &Inputs, built: &Built) -> Result<(), String> {
    let (version, architecture) = (&inputs.release.version, built.target.deb);
    let bytes = fs::metadata(built.program()).map_err(|error| format!("the program: {error}"))?.len();
    let control = format!(
        "Package: {NAME}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {}\nDepends: libc6 (>= {GLIBC})\nRecommends: ca-certificates\nSection: science\n\
         Priority: optional\nHomepage: {REPOSITORY}\nDescription: {SUMMARY}\n {DESCRIPTION}\n",
        bytes / 1024,
    );
    let doc = format!("usr/share/doc/{NAME}");
    let mut items = vec![
        Item::text("DEBIAN/control", control),
        Item::file(format!("usr/bin/{NAME}"), built.program()).executable(),
        Item::file(format!("{doc}/changelog"), root().join("CHANGELOG.md")),
        Item::text(format!("{doc}/copyright"), copyright()?),
    ];
    items.extend(pages::generated(inputs.built, "usr/share")?);
    let stage = inputs.stage.join("deb");
    tree::write(&stage, &items, inputs.release)?;
    let to = inputs.out.join(format!("{NAME}_{version}_{architecture}.deb"));
    let (stage, to) = (stage.display().to_string(), to.display().to_string());
    // It gives the files of its own archive this time.
    let time = inputs.release.time.to_string();
    run_with(&[("SOURCE_DATE_EPOCH", &time)], "dpkg-deb", &["--root-owner-group", "-Zxz", "--build", &stage, &to])
}

/// The file that Debian requires: both licences, of which the user chooses one.
fn copyright() -> Result<String, String> {
    let read = |name: &str| fs::read_to_string(root().join(name)).map_err(|error| format!("{name}: {error}"));
    Ok(format!(
        "{NAME} is licensed as MIT or Apache-2.0, at your choice.\n\n{}\n{}",
        read("LICENSE-MIT")?,
        read("LICENSE-APACHE")?
    ))
}
