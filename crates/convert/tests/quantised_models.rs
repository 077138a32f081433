//! Golden F32 models, quantised to every mix and run: the logits move by what the format costs, and no more.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use gristmill_conformance::golden;
use gristmill_convert::quantize::{Mix, Quantizer};
use gristmill_engine::{Batch, Limits, LoadOptions, Model, Outputs, Precision, Runner};
use gristmill_files::gguf::GgufFile;

/// Dense and with experts, with rows of several widths.
const MODELS: &[&str] = &["llama3", "qwen2moe", "qwen3moe", "gpt-oss"];

const TOKENS: [u32; 8] = [1, 7, 3, 12, 5, 2, 9, 4];

/// Logits of the tokens.
fn logits(file: GgufFile) -> Vec<f32> {
    let options = LoadOptions { threads: Some(2), precision: Precision::Exact, ..LoadOptions::default() };
    let model = Arc::new(Model::from_file(file, options).unwrap());
    let limits = Limits { context: Some(16), sequences: 1, batch_tokens: 8, output_rows: Some(8), ..Limits::default() };
    let mut runner = Runner::new(model, limits).unwrap();
    let sequence = runner.open_sequence().unwrap();
    let mut batch = Batch::new();
    batch.push(sequence, &TOKENS, Outputs::All);
    runner.forward(&batch).unwrap().to_vec().unwrap()
}

#[test]
fn every_mix_runs() {
    let golden = golden::models_folder();
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("quantised.gguf");
    for name in MODELS {
        let file = GgufFile::open(golden.join(format!("{name}-f32.gguf"))).unwrap();
        let want = logits(file.clone());
        for mix in Mix::all() {
            let quantizer = Quantizer::new(&file, *mix, &[]).unwrap();
            quantizer.write(&output, 2, &mut |_| ControlFlow::Continue(())).unwrap();
            let got = logits(GgufFile::open(&output).unwrap());
            // One position after the other: where a router chooses another expert, a position may move far.
            let vocab = want.len() / TOKENS.len();
            let square = |x: f64| x * x;
            let mut nmse: Vec<f64> = (0..TOKENS.len())
                .map(|row| {
                    let pairs = got[row * vocab..][..vocab].iter().zip(&want[row * vocab..][..vocab]);
                    let (error, power) = pairs.fold((0.0, 0.0), |(error, power), (g, w)| {
                        (error + square(f64::from(*g) - f64::from(*w)), power + square(f64::from(*w)))
                    });
                    error / power
                })
                .collect();
            nmse.sort_by(f64::total_cmp);
            let median = nmse[TOKENS.len() / 2];
            let worst = nmse[TOKENS.len() - 1];
            println!("{name} {:9} NMSE {median:.1e} in the median position, {worst:.1e} at worst", mix.name());
            // The weights' own errors, times the matrices that a token passes.
            let bound = match mix.name() {
                "F32" => 0.0,
                "F16" => 1e-5,
                "BF16" | "Q8_0" => 1e-2,
                _ => 0.5,
            };
            assert!(median <= bound, "{name} {}: {nmse:?}", mix.name());
            assert!(worst > 0.0 || mix.name() == "F32", "{name} {}: nothing was quantised", mix.name());
        }
    }
    std::fs::remove_file(output).unwrap();
}
