//! Hidden states of golden models, whose logits are those of transformers: a row of logits is the output matrix times
//! the row of hidden states, in f64, on every backend. On a CPU the bits do not depend on how texts are cut and mixed.

use std::sync::Arc;

use gristmill_conformance::golden;
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{Batch, Limits, LoadOptions, Model, Outputs, Precision, Runner};
use gristmill_files::gguf::{Array, GgufFile, Value};
use gristmill_kernels::Backend;
use gristmill_kernels::reference::Reference;

/// Dense and with experts, with an output matrix of their own and without, with norms of both kinds, with biases and
/// scales of logits.
const MODELS: &[&str] = &[
    "qwen3-f32",
    "qwen3moe-f32",
    "qwen3moe-q4_k_m",
    "llama-tied-q8_0",
    "phimoe-q8_0",
    "granite-f32",
    "gpt-oss-mxfp4",
    "odd-f32",
];

/// The error of one product in f32.
const ROUNDING: f64 = 1e-9;

/// Where a GPU's sums depend on how texts are cut, roundings of the f16 cache do too.
const CUT: f64 = 1e-6;

/// The values of a tensor; nothing if it is not there.
fn values(file: &GgufFile, name: &str) -> Option<Vec<f32>> {
    let tensor = file.tensor(name)?;
    let mut values = vec![0.0; tensor.elements() as usize];
    tensor.format.decode(file.data(tensor), &mut values).unwrap();
    Some(values)
}

/// Products of the output matrix with rows of hidden states.
fn logits(file: &GgufFile, scale: f32, hidden: &[f32], width: usize) -> Vec<f64> {
    let matrix = values(file, "output.weight").or_else(|| values(file, "token_embd.weight")).unwrap();
    let bias = values(file, "output.bias");
    let of_row = |row: &[f32]| {
        let dot = |column: (usize, &[f32])| {
            let sum: f64 = column.1.iter().zip(row).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
            f64::from(scale) * (sum + bias.as_ref().map_or(0.0, |bias| f64::from(bias[column.0])))
        };
        matrix.chunks(width).enumerate().map(dot).collect::<Vec<f64>>()
    };
    hidden.chunks(width).flat_map(of_row).collect()
}

/// The three texts of a golden model.
fn texts(name: &str) -> Vec<Vec<u32>> {
    let file = GgufFile::open(golden::models_folder().join(format!("{name}.logits.gguf"))).unwrap();
    let text = |number: usize| match file.metadata().value(&format!("golden.tokens.{number}")) {
        Some(Value::Array(tokens)) => Array::integers(tokens).unwrap().map(|token| token.try_into().unwrap()).collect(),
        other => panic!("{other:?}"),
    };
    (0..3).map(text).collect()
}

fn runner(model: &Arc<Model>, tokens: usize) -> Runner {
    let context = Some(64);
    let output_rows = Some(tokens);
    Runner::new(model.clone(), Limits { context, sequences: 4, batch_tokens: tokens, output_rows, ..Limits::default() })
        .unwrap()
}

fn bits(values: Vec<f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

/// Hidden states and logits of each text, in one batch each; then hidden states in shared batches.
fn check(name: &str, backend: &Arc<Backend>) {
    let case = format!("{name} on {}", backend.name());
    let file = GgufFile::open(golden::models_folder().join(format!("{name}.gguf"))).unwrap();
    let options = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
    let model = Arc::new(Model::with_backend(file.clone(), backend.clone(), options).unwrap());
    let spec = model.spec();
    let texts = texts(name);
    let (width, vocab) = (spec.hidden, spec.vocab);
    let mut runner = runner(&model, 64);
    let mut alone = Vec::new();
    for text in &texts {
        let [one, other] = [(); 2].map(|()| runner.open_sequence().unwrap());
        let mut pass = runner.forward(Batch::new().push(one, text, Outputs::AllHidden)).unwrap();
        assert_eq!(pass.rows(), 0, "{case}");
        let hidden = pass.hidden().unwrap();
        assert_eq!(hidden.len(), text.len() * width, "{case}");
        let found = runner.forward(Batch::new().push(other, text, Outputs::All)).unwrap().to_vec().unwrap();
        let expected = logits(&file, spec.logit_scale, &hidden, width);
        assert_eq!(found.len(), text.len() * vocab, "{case}");
        let (mut error, mut all) = (0.0, 0.0);
        for (&found, expected) in found.iter().zip(expected) {
            error += (f64::from(found) - expected).powi(2);
            all += expected.powi(2);
        }
        assert!(error <= ROUNDING * all, "{case}: normalised squared error {:.1e}", error / all);
        alone.push(hidden);
        [one, other].into_iter().for_each(|id| runner.close_sequence(id).unwrap());
    }
    mixed(&case, runner, backend, &texts, &alone, width);
}

/// Hidden states of some texts in chunks, next to the logits of another.
fn mixed(case: &str, mut runner: Runner, backend: &Backend, texts: &[Vec<u32>], alone: &[Vec<f32>], width: usize) {
    let ids: Vec<_> = texts.iter().map(|_| runner.open_sequence().unwrap()).collect();
    let mut found = vec![Vec::new(); 3];
    let mut at = [0; 3];
    while at[0] < texts[0].len() {
        let mut batch = Batch::new();
        let chunks: Vec<usize> = (0..3).map(|text| (5 + 2 * text).min(texts[text].len() - at[text])).collect();
        let last = at[0] + chunks[0] == texts[0].len();
        batch.push(ids[1], &texts[1][at[1]..][..chunks[1]], Outputs::All);
        batch.push(ids[0], &texts[0][at[0]..][..chunks[0]], if last { Outputs::LastHidden } else { Outputs::None });
        batch.push(ids[2], &texts[2][at[2]..][..chunks[2]], Outputs::AllHidden);
        let mut pass = runner.forward(&batch).unwrap();
        assert_eq!(pass.rows(), chunks[1], "{case}");
        let hidden = pass.hidden().unwrap();
        let (of_first, of_third) = hidden.split_at(if last { width } else { 0 });
        found[0].extend_from_slice(of_first);
        found[2].extend_from_slice(of_third);
        (0..3).for_each(|text| at[text] += chunks[text]);
    }
    for (text, expected) in [(0, &alone[0][alone[0].len() - width..]), (2, &alone[2][..found[2].len()])] {
        assert_eq!(found[text].len(), expected.len(), "{case}");
        if backend.deterministic() {
            assert_eq!(bits(found[text].clone()), bits(expected.to_vec()), "{case}, text {text}");
        }
        let pairs = found[text].iter().zip(expected);
        let (error, all) = pairs.fold((0.0, 0.0), |(error, all), (&a, &b)| {
            (error + (f64::from(a) - f64::from(b)).powi(2), all + f64::from(b).powi(2))
        });
        assert!(error <= CUT * all, "{case}, text {text}: normalised squared error {:.1e}", error / all);
    }
}

#[test]
fn logits_are_the_output_matrix_times_hidden_states() {
    let levels = Level::available();
    let cpu = levels.map(|level| Cpu::backend(level, 2).unwrap());
    for backend in cpu.chain([Reference::backend()]).map(Arc::new) {
        MODELS.iter().for_each(|name| check(name, &backend));
    }
}

#[cfg(all(target_arch = "x86_64", unix))]
#[test]
fn on_simulated_gpus_too() {
    use gpu_sim::Mode;
    use gristmill_conformance::simulated::Simulator;
    for backend in [Simulator::cuda(1, Mode::Fast).unwrap(), Simulator::metal(1, Mode::Fast).unwrap()].map(Arc::new) {
        ["qwen3-f32", "qwen3moe-q4_k_m", "phimoe-q8_0"].into_iter().for_each(|name| check(name, &backend));
    }
}
