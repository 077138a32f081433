//! Golden F32 models, quantised to every mix and run: the logits move by what the format costs, and no more.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use gristmill_engine::gguf::GgufFile;
use gristmill_engine::quantize::{Mix, Quantizer};
use gristmill_engine::{Batch, Limits, LoadOptions, Model, Outputs, Precision, Runner};

/// Dense and with experts, with rows of several widths.
const MODELS: &[&str] = &["llama3", "qwen2moe", "qwen3moe", "gpt-oss"];

/// Logits of a few tokens.
fn logits(file: GgufFile) -> Vec<f32> {
    let options = LoadOptions { threads: Some(2), precision: Precision::Exact, ..LoadOptions::default() };
    let model = Arc::new(Model::from_file(file, options).unwrap());
    let limits = Limits { context: Some(16), sequences: 1, batch_tokens: 8, output_rows: Some(8) };
    let mut runner = Runner::new(model, limits).unwrap();
    let sequence = runner.open_sequence().unwrap();
    let mut batch = Batch::new();
    batch.push(sequence, &[1, 7, 3, 12, 5, 2, 9, 4], Outputs::All);
    runner.forward(&batch).unwrap().to_vec().unwrap()
}

#[test]
fn every_mix_runs() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("quantised.gguf");
    for name in MODELS {
        let file = GgufFile::open(golden.join(format!("{name}-f32.gguf"))).unwrap();
        let want = logits(file.clone());
        let power: f64 = want.iter().map(|w| f64::from(*w).powi(2)).sum();
        for mix in Mix::all() {
            let quantizer = Quantizer::new(&file, *mix, &[]).unwrap();
            quantizer.write(&output, 2, &mut |_| ControlFlow::Continue(())).unwrap();
            let got = logits(GgufFile::open(&output).unwrap());
            let error: f64 = got.iter().zip(&want).map(|(g, w)| (f64::from(*g) - f64::from(*w)).powi(2)).sum();
            let nmse = error / power;
            println!("{name} {:9} NMSE {nmse:.1e}", mix.name());
            // The weights' own errors, times the matrices that a token passes; routers may choose another expert.
            let bound = match mix.name() {
                "F32" => 0.0,
                "F16" => 1e-5,
                "BF16" | "Q8_0" => 1e-2,
                _ => 0.5,
            };
            assert!(nmse <= bound, "{name} {}: {nmse}", mix.name());
            assert!(nmse > 0.0 || mix.name() == "F32", "{name} {}: nothing was quantised", mix.name());
        }
    }
    std::fs::remove_file(output).unwrap();
}
