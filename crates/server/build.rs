//! Compresses the files of the page: the program has 2 MB less, and a browser receives them as they are.

use std::env;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=page");
    let [from, to] = ["CARGO_MANIFEST_DIR", "OUT_DIR"].map(|name| env::var_os(name).map(PathBuf::from));
    let (Some(from), Some(to)) = (from, to) else { return Err("cargo sets both folders".into()) };
    compress(&from.join("page"), &to.join("page"))
}

/// Writes each file of a folder as `NAME.gz`. The same file gives the same bytes: without a name and a time.
fn compress(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if path.is_dir() {
            compress(&path, &to.join(name))?;
        } else {
            let mut writer = GzBuilder::new().write(Vec::new(), Compression::default());
            writer.write_all(&fs::read(&path)?)?;
            fs::write(to.join(format!("{name}.gz")), writer.finish()?)?;
        }
    }
    Ok(())
}
