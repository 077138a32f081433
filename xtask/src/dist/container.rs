//! The context of an image: a Containerfile, and the program of each architecture.

use std::fs;

use super::archive::tar_gz;
use super::artifacts::Inputs;
use super::product::NAME;
use super::tree::{self, Item};
use crate::root;

pub(super) fn make(inputs: &Inputs) -> Result<(), String> {
    let name = format!("{NAME}-{}-container", inputs.release.version);
    let mut items = vec![Item::file("Containerfile", root().join("deploy/release/Containerfile"))];
    for built in inputs.built.iter().filter(|built| !built.target.image.is_empty()) {
        items.push(Item::file(format!("{NAME}-{}", built.target.image), built.program()).executable());
    }
    let stage = inputs.stage.join("container");
    let _ = fs::remove_dir_all(&stage);
    tree::write(&stage.join(&name), &items, inputs.release)?;
    tar_gz(&stage, &inputs.out.join(format!("{name}.tar.gz")), inputs.release)
}
