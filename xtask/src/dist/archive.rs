//! Archives: `.tar.gz`, and `.zip` for Windows. The same files give the same bytes: sorted by name, owned by root, with the time
//! of the release.

use std::fs;
use std::path::Path;

use super::artifacts::Inputs;
use super::build::Built;
use super::product::{NAME, Release};
use super::targets::System;
use super::tree::{self, Item};
use super::{pages, run_in, sh_in};
use crate::root;

/// An archive of each program.
pub(super) fn programs(inputs: &Inputs) -> Result<(), String> {
    for built in inputs.built {
        let program = Item::file(built.target.program(), built.program()).executable();
        let mut items = pages::documents();
        items.push(program);
        if built.target.system == System::Linux {
            items.extend(pages::generated(inputs.built, "share")?);
        }
        pack(inputs, built, NAME, &items)?;
    }
    Ok(())
}

/// An archive of each C library.
pub(super) fn libraries(inputs: &Inputs) -> Result<(), String> {
    for built in inputs.built {
        let mut items = pages::documents();
        items.push(Item::file("include/gristmill.h", root().join("crates/c/gristmill.h")));
        items.push(Item::file("examples/chat.c", root().join("crates/c/examples/chat.c")));
        items.push(Item::file("examples/main.go", root().join("crates/c/examples/go/main.go")));
        for name in built.target.libraries() {
            items.push(Item::file(format!("lib/{name}"), built.folder.join(name)));
        }
        pack(inputs, built, "libgristmill", &items)?;
    }
    Ok(())
}

/// `NAME-VERSION-TARGET.tar.gz`, or `.zip`, whose files are in a folder of this name.
fn pack(inputs: &Inputs, built: &Built, name: &str, items: &[Item]) -> Result<(), String> {
    let name = file_stem(name, inputs.release, built.target.triple);
    let stage = inputs.stage.join("archive");
    let _ = fs::remove_dir_all(&stage);
    tree::write(&stage.join(&name), items, inputs.release)?;
    match built.target.system {
        System::Linux => tar_gz(&stage, &inputs.out.join(format!("{name}.tar.gz")), inputs.release),
        System::Windows => zip(&stage, &inputs.out.join(format!("{name}.zip"))),
    }
}

pub(super) fn file_stem(name: &str, release: &Release, triple: &str) -> String {
    format!("{name}-{}-{triple}", release.version)
}

/// The contents of a folder.
pub(super) fn tar_gz(folder: &Path, to: &Path, release: &Release) -> Result<(), String> {
    let line = format!(
        "tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@{} --format=ustar -cf - -- * | gzip -9n > {}",
        release.time,
        quoted(to),
    );
    sh_in(folder, &line)
}

fn zip(folder: &Path, to: &Path) -> Result<(), String> {
    let _ = fs::remove_file(to);
    sh_in(folder, &format!("find . -type f | LC_ALL=C sort | TZ=UTC zip -X -9 -q -@ {}", quoted(to)))
}

/// A path in a line of a shell.
pub(super) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// Unpacks an archive into a folder.
pub(super) fn unpack(archive: &Path, folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    run_in(folder, "tar", &["-xzf", &archive.display().to_string()])
}
