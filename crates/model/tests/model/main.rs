//! The model runner: tiny random models on the reference and on every CPU level, hostile metadata, limits.

mod channels;
mod columns;
mod disk;
mod fused;
mod gemma4;
mod heads;
mod heads_file;
mod hybrid_windows;
mod indexed;
mod latent;
mod limits;
mod load;
mod read_once;
mod recurrent;
mod rollback;
mod routed;
mod run;
mod scales;
mod tiny;

use std::sync::Arc;

use gristmill_kernels::reference::Reference;
use gristmill_model::gguf::GgufFile;
use gristmill_model::{Limits, LoadOptions, Model, Precision, Runner};

/// The file on the reference backend.
fn reference(file: &GgufFile) -> Arc<Model> {
    let model = Model::with_backend(file.clone(), Arc::new(Reference::backend()), LoadOptions::default());
    Arc::new(model.expect("a good model"))
}

/// The file on the CPU at a level, with three threads.
fn cpu(file: &GgufFile, level: &str, precision: Precision) -> Result<Arc<Model>, gristmill_model::Error> {
    let options = LoadOptions {
        device: "cpu".to_owned(),
        threads: Some(3),
        level: Some(level.to_owned()),
        precision,
        ..LoadOptions::default()
    };
    Model::from_file(file.clone(), options).map(Arc::new)
}

/// Room for three sequences of 64 tokens.
fn runner(model: &Arc<Model>) -> Runner {
    let limits =
        Limits { context: Some(64), sequences: 3, batch_tokens: 100, output_rows: Some(100), ..Limits::default() };
    Runner::new(model.clone(), limits).expect("it fits")
}
