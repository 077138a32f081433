//! Prediction heads: the logits of their drafts against transformers', which `scripts/golden/heads.py` wrote, and the same
//! drafts on simulated GPUs.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use gpu_sim::Mode;
use gristmill_conformance::golden;
use gristmill_conformance::simulated::Simulator;
use gristmill_convert::{ConvertOptions, Converter, open_folder};
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::model::{Batch, DraftOrder, Limits, LoadOptions, Model, Outputs, Precision, Runner, Split};
use gristmill_files::gguf::{Array, GgufFile, Value};
use gristmill_kernels::Backend;
use gristmill_kernels::reference::Reference;

/// A text, and the logits of the tokens that follow it most likely.
struct Text {
    tokens: Vec<u32>,
    logits: Vec<Vec<f32>>,
}

impl Text {
    fn drafts(&self) -> Vec<u32> {
        let most_likely = |row: &Vec<f32>| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32;
        self.logits.iter().map(most_likely).collect()
    }
}

/// The texts of a golden model, and the largest error of their logits.
fn texts(name: &str) -> (Vec<Text>, f64) {
    let file = GgufFile::open(golden::heads_folder().join(format!("{name}.logits.gguf"))).unwrap();
    let mut texts = Vec::new();
    while let Some(Value::Array(tokens)) = file.metadata().value(&format!("golden.tokens.{}", texts.len())) {
        let tokens = Array::integers(tokens).unwrap().map(|token| token.try_into().unwrap()).collect();
        let tensor = file.tensor(&format!("logits.{}", texts.len())).unwrap();
        let mut values = vec![0.0; tensor.elements() as usize];
        tensor.format.decode(file.data(tensor), &mut values).unwrap();
        texts.push(Text { tokens, logits: values.chunks(tensor.shape[0] as usize).map(<[f32]>::to_vec).collect() });
    }
    assert_eq!(texts.len(), 3);
    (texts, file.metadata().required::<f32>("golden.tolerance").unwrap().into())
}

fn runner(name: &str, backend: Backend) -> Runner {
    runner_of(GgufFile::open(golden::heads_folder().join(format!("{name}.gguf"))).unwrap(), backend)
}

fn runner_of(file: GgufFile, backend: Backend) -> Runner {
    runner_on(file, vec![Arc::new(backend)], None)
}

fn runner_on(file: GgufFile, backends: Vec<Arc<Backend>>, split: Option<Split>) -> Runner {
    let options = LoadOptions { prediction_heads: true, precision: Precision::Exact, split, ..LoadOptions::default() };
    let architecture: &str = file.metadata().required("general.architecture").unwrap();
    let heads: usize = file.metadata().required(&format!("{architecture}.nextn_predict_layers")).unwrap();
    let model = Arc::new(Model::with_backends(file, backends, options).unwrap());
    assert!(heads > 0 && model.prediction_heads() == heads);
    let limits = Limits { context: Some(64), sequences: 3, batch_tokens: 64, ..Limits::default() };
    Runner::new(model, limits).unwrap()
}

/// Reads a text in parts of this number of tokens, and checks the logits of its drafts.
fn check(runner: &mut Runner, text: &Text, part: usize, tolerance: f64) {
    let sequence = runner.open_sequence().unwrap();
    for tokens in text.tokens[..text.tokens.len() - 1].chunks(part) {
        let mut batch = Batch::new();
        batch.push(sequence, tokens, Outputs::Last);
        runner.forward(&batch).unwrap();
    }
    let order = DraftOrder { sequence, text: &text.tokens, count: text.logits.len() };
    let found = runner.draft_logits(order).unwrap();
    let wanted = text.logits.concat();
    assert_eq!(found.len(), wanted.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = found.iter().zip(&wanted).map(|(a, b)| square(a - b)).sum();
    let error = error / wanted.iter().map(|&x| square(x)).sum::<f64>();
    assert!(error <= tolerance, "an error of {error:e}");
    assert_eq!(runner.draft(&[order]).unwrap(), [text.drafts()]);
    runner.close_sequence(sequence).unwrap();
}

fn check_all(name: &str, backend: Backend, part: usize) {
    let (texts, tolerance) = texts(name);
    let mut runner = runner(name, backend);
    for text in &texts {
        check(&mut runner, text, part, tolerance);
    }
}

/// The folders among the golden models.
fn folders() -> Vec<&'static str> {
    let folders: Vec<_> =
        golden::heads().into_iter().filter(|name| golden::heads_folder().join(name).is_dir()).collect();
    // Qwen 3.5 with experts has the same names as the dense one, within a model that sees.
    let others: Vec<_> = golden::heads().into_iter().filter(|name| !folders.contains(name)).collect();
    assert_eq!(others, ["qwen35moe-f32"]);
    folders
}

/// Published folders, converted and opened: the heads have the logits of transformers, and keys that say how many there
/// are.
#[test]
fn heads_of_folders_are_converted() {
    for name in folders() {
        let (texts, tolerance) = texts(name);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("heads-{name}.gguf"));
        let folder = golden::heads_folder().join(name);
        let converter = Converter::new(&folder, &ConvertOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(converter.notes().iter().all(|note| !note.contains("left out")), "{:?}", converter.notes());
        converter.write(&path, 2, &mut |_| ControlFlow::Continue(())).unwrap();
        let converted = GgufFile::from_bytes(fs::read(&path).unwrap()).unwrap();
        fs::remove_file(&path).unwrap();
        let golden = GgufFile::open(golden::heads_folder().join(format!("{name}.gguf"))).unwrap();
        let names = |file: &GgufFile| file.tensors().iter().map(|tensor| tensor.name.clone()).collect::<BTreeSet<_>>();
        assert_eq!(names(&converted), names(&golden), "{name}");
        // The model's own tensors are those of `tests/convert`.
        let layers: BTreeSet<_> =
            names(&golden).iter().filter_map(|name| Some(format!("{}.", name.split_once(".nextn.")?.0))).collect();
        let of_heads = |name: &str| layers.iter().any(|layer| name.starts_with(layer));
        for tensor in converted.tensors().iter().filter(|tensor| of_heads(&tensor.name)) {
            let theirs = golden.tensor(&tensor.name).unwrap();
            let same = tensor.format == theirs.format && converted.data(tensor) == golden.data(theirs);
            assert!(tensor.shape == theirs.shape && same, "{name}: {}", tensor.name);
        }
        for key in ["block_count", "nextn_predict_layers"] {
            let value = |file: &GgufFile| {
                let architecture: &str = file.metadata().required("general.architecture").unwrap();
                file.metadata().required::<u32>(&format!("{architecture}.{key}")).unwrap()
            };
            assert_eq!(value(&converted), value(&golden), "{name}: {key}");
        }
        let opened = open_folder(&folder, &ConvertOptions::default(), 2).unwrap().0;
        for file in [converted, opened] {
            let mut runner = runner_of(file, Reference::backend());
            texts.iter().for_each(|text| check(&mut runner, text, 7, tolerance));
        }
        let options = ConvertOptions { without_heads: true, ..ConvertOptions::default() };
        let without = Converter::new(&folder, &options).unwrap();
        assert!(
            without.notes().iter().any(|note| note.contains("predict further tokens; they are left out")),
            "{name}"
        );
    }
}

#[test]
fn the_logits_are_those_of_transformers() {
    for name in golden::heads() {
        for part in [64, 7, 1] {
            check_all(name, Reference::backend(), part);
        }
        check_all(name, Cpu::backend(Level::best(), 2).unwrap(), 11);
    }
}

/// Each rank drafts the same tokens, of which the next ones depend.
#[test]
fn ranks_draft_the_same() {
    for name in golden::heads() {
        for (ranks, split) in [(2, Split::Experts), (2, Split::Tensor), (3, Split::Tensor)] {
            let (texts, tolerance) = texts(name);
            let file = GgufFile::open(golden::heads_folder().join(format!("{name}.gguf"))).unwrap();
            let cpus = (0..ranks).map(|_| Arc::new(Cpu::backend(Level::best(), 1).unwrap())).collect();
            let mut runner = runner_on(file, cpus, Some(split));
            for text in &texts {
                check(&mut runner, text, 7, tolerance);
            }
        }
    }
}

#[test]
fn simulated_gpus_draft_the_same() {
    for name in golden::heads() {
        check_all(name, Simulator::cuda(3, Mode::Fast).unwrap(), 9);
        check_all(name, Simulator::metal(3, Mode::Fast).unwrap(), 9);
    }
}
