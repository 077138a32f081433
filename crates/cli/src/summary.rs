//! A model in one line: name, size, context.

use gristmill_engine::Engine;
use gristmill_files::gguf::GgufFile;

use crate::console;

/// `Qwen3-30B-A3B-Q4_K_M: 18.56 GB, context of 40960 tokens`.
pub(crate) fn line(engine: &Engine) -> String {
    let file = engine.model().file();
    let bytes = console::bytes(file.tensors().iter().map(|tensor| tensor.bytes).sum());
    format!("{}: {bytes}, context of {} tokens", name(file), engine.context())
}

/// The name of the file without folder and ending, or of the folder that is the model; that of the built-in model, which
/// has no file.
pub(crate) fn name(file: &GgufFile) -> String {
    // The files of a folder have the same names in every folder.
    let of_folder = file.metadata().optional::<&str>("general.name").ok().flatten().filter(|_| !file.is_gguf());
    if let Some(name) = of_folder {
        return name.to_owned();
    }
    match file.paths().next() {
        Some(path) => path.file_stem().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned()),
        None => "gristmill-stories".to_owned(),
    }
}
