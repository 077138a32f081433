//! The golden files, in `golden/`: tiny models with logits, and folders of models as Hugging Face publishes them. A
//! file that is there is tested; so the folder is the only list.

use gristmill_cpu::Level;
use gristmill_engine::{Error, ModelInfo};
use gristmill_files::gguf::GgufFile;
use gristmill_suite::rng::Rng;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the tiny models.
pub fn models_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// The folder of the published folders.
pub fn folders_folder() -> PathBuf {
    models_folder().join("convert")
}

/// Names of the tiny models, in order.
pub fn models() -> Vec<&'static str> {
    names(&models_folder(), ".logits.gguf")
}

/// The folder of the tiny models with a prediction head.
pub fn heads_folder() -> PathBuf {
    models_folder().join("heads")
}

/// Names of the tiny models with a prediction head, in order.
pub fn heads() -> Vec<&'static str> {
    names(&heads_folder(), ".logits.gguf")
}

/// The folder of the tiny vision towers.
pub fn vision_folder() -> PathBuf {
    models_folder().join("vision")
}

/// Names of the tiny vision towers, in order.
pub fn visions() -> Vec<&'static str> {
    names(&vision_folder(), ".golden.gguf")
}

/// Names of the published folders, in order.
pub fn folders() -> Vec<&'static str> {
    names(&folders_folder(), ".json")
}

/// The best level of this CPU, and one of the others, drawn anew for each model. All levels of all models:
/// `cargo xtask prove checked`.
pub fn drawn_levels(rng: &mut Rng) -> Vec<Level> {
    let best = Level::best();
    let others: Vec<Level> = Level::available().filter(|level| level.name() != best.name()).collect();
    let drawn = (!others.is_empty()).then(|| rng.pick(&others));
    drawn.into_iter().chain([best]).collect()
}

/// The names of a folder's files that end so. Tests keep them as long as they run.
fn names(folder: &Path, suffix: &str) -> Vec<&'static str> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let file = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    let name = |file: String| file.strip_suffix(suffix).map(|name| &*name.to_owned().leak());
    let names: BTreeSet<&str> = entries.filter_map(file).filter_map(name).collect();
    names.into_iter().collect()
}

/// The architectures that gristmill runs, as it lists them when it refuses another.
///
/// # Panics
/// If the first golden model is not refused under another name.
pub fn architectures() -> BTreeSet<String> {
    let path = models_folder().join(format!("{}.gguf", models()[0]));
    let mut bytes = fs::read(path).expect("the first golden model");
    let file = GgufFile::from_bytes(bytes.clone()).expect("a golden model");
    let name: &str = file.metadata().required("general.architecture").expect("an architecture");
    // A string of a GGUF file is its length in 64 bits, then its bytes.
    let stored = [&(name.len() as u64).to_le_bytes(), name.as_bytes()].concat();
    let at = bytes.windows(stored.len()).position(|window| window == stored).expect("its value") + size_of::<u64>();
    bytes[at] = b'?';
    let file = GgufFile::from_bytes(bytes).expect("the same of another name");
    match ModelInfo::read(&file) {
        Err(Error::Architecture { known, .. }) => known.split(", ").map(str::to_owned).collect(),
        other => panic!("an unknown architecture is {other:?}"),
    }
}
