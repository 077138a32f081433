//! What gristmill makes of changed settings of the golden folders, for `cargo xtask prove settings`.
//!
//! `settings THEIRS OURS`: THEIRS is what `scripts/settings/theirs.py` wrote; OURS gets a line of JSON for each of its
//! lines: the loss of each token, or why the folder is refused.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use gristmill_convert::{ConvertOptions, open_folder};
use serde_json::{Value, json};

type Fails = Box<dyn Error>;

fn main() -> Result<(), Fails> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [theirs, ours] = paths.as_slice() else { return Err("settings THEIRS OURS".into()) };
    let work = Work::new()?;
    let mut out = BufWriter::new(File::create(ours)?);
    for line in BufReader::new(File::open(theirs)?).lines() {
        let variant: Value = serde_json::from_str(&line?)?;
        let found = match losses(&work, &variant) {
            Ok(losses) if losses.iter().flatten().all(|loss| loss.is_finite()) => json!({ "losses": losses }),
            Ok(_) => json!({ "refused": "not finite" }),
            Err(error) => json!({ "refused": error.to_string() }),
        };
        writeln!(out, "{found}")?;
    }
    Ok(out.flush()?)
}

/// The end of the names of folders as transformers saves them.
const AS_SAVED: &str = "-saved";

fn copy(from: &Path, to: &Path) -> Result<(), Fails> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        fs::copy(&path, to.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Copies of the golden folders, whose settings change.
struct Work(PathBuf);

impl Work {
    fn new() -> Result<Work, Fails> {
        let path = std::env::temp_dir().join(format!("gristmill-settings-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Work(path))
    }

    /// The copy of a folder, with these settings.
    fn folder(&self, name: &str, config: &Value) -> Result<PathBuf, Fails> {
        let to = self.0.join(name);
        if !to.exists() {
            fs::create_dir_all(&to)?;
            let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
            let published = name.strip_suffix(AS_SAVED).unwrap_or(name);
            copy(&golden.join("convert").join(published), &to)?;
            if published != name {
                let saved = golden.join("saved").join(published);
                if saved.join("model.safetensors").exists() {
                    for entry in fs::read_dir(&to)? {
                        let path = entry?.path();
                        if path.to_string_lossy().contains(".safetensors") {
                            fs::remove_file(path)?;
                        }
                    }
                }
                copy(&saved, &to)?;
            }
        }
        fs::write(to.join("config.json"), config.to_string())?;
        Ok(to)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The loss of each token of each sequence.
fn losses(work: &Work, variant: &Value) -> Result<Vec<Vec<f64>>, Fails> {
    let folder = work.folder(variant["folder"].as_str().unwrap_or_default(), &variant["config"])?;
    // Golden folders have prediction heads in name only, and transformers reads none.
    let options = ConvertOptions { without_heads: true, ..ConvertOptions::default() };
    let (file, _) = open_folder(&folder, &options, 1)?;
    gristmill_conformance::losses::losses(file, &serde_json::from_value::<Vec<Vec<u32>>>(variant["tokens"].clone())?)
}
