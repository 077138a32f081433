//! Gate and up of the experts in one tensor, `ffn_gate_up_exps`, as llama.cpp's converter writes them on request: the same
//! logits as with two tensors, in every family of the golden models with experts.

use std::path::Path;
use std::sync::Arc;

use gristmill_files::gguf::{GgufFile, GgufWriter};
use gristmill_kernels::reference::Reference;
use gristmill_model::{Batch, Limits, LoadOptions, Model, Outputs, Runner};

/// The file with gate and up of these layers in one tensor.
fn fused(file: &GgufFile, is_fused: impl Fn(&str) -> bool) -> GgufFile {
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter().filter(|(key, _)| *key != "general.alignment") {
        writer.set(key, value.clone()).expect(key);
    }
    let mut data = Vec::new();
    for tensor in file.tensors() {
        let bytes = file.data(tensor);
        let up = tensor.name.replace("ffn_gate_exps", "ffn_up_exps");
        if tensor.name.ends_with("ffn_up_exps.weight") && is_fused(&tensor.name) {
            continue;
        }
        match file.tensor(&up).filter(|_| tensor.name.ends_with("ffn_gate_exps.weight") && is_fused(&up)) {
            None => {
                writer.tensor(&tensor.name, tensor.format, &tensor.shape).expect(&tensor.name);
                data.push((tensor.name.clone(), bytes.to_vec()));
            }
            Some(up) => {
                let (name, experts) = (tensor.name.replace("gate_exps", "gate_up_exps"), tensor.shape[2] as usize);
                let up = file.data(up);
                let halves =
                    |expert| [bytes, up].map(|all| &all[all.len() / experts * expert..][..all.len() / experts]);
                writer
                    .tensor(&name, tensor.format, &[tensor.shape[0], 2 * tensor.shape[1], experts as u64])
                    .expect(&name);
                data.push((name, (0..experts).flat_map(|expert| halves(expert).concat()).collect()));
            }
        }
    }
    let mut out = writer.begin(Vec::new()).expect("a header");
    data.iter().for_each(|(name, bytes)| out.write_tensor(name, bytes).expect(name));
    GgufFile::from_bytes(out.finish().expect("it is whole")).expect("it is a model")
}

fn logits(file: GgufFile, name: &str) -> Vec<u32> {
    let backend = Reference::backend().into();
    let model = Model::with_backend(file, backend, LoadOptions::default());
    let model = Arc::new(model.unwrap_or_else(|error| panic!("{name}: {error}")));
    let limits = Limits { context: Some(16), sequences: 1, batch_tokens: 8, output_rows: Some(8), ..Limits::default() };
    let mut runner = Runner::new(model, limits).expect("it fits");
    let sequence = runner.open_sequence().expect("a sequence");
    let mut logits = runner.forward(Batch::new().push(sequence, &[3, 1, 2, 5, 4], Outputs::All)).expect("a pass");
    logits.to_vec().expect("logits").into_iter().map(f32::to_bits).collect()
}

#[test]
fn fused_experts_have_the_logits_of_two_tensors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/golden");
    let mut names: Vec<String> = std::fs::read_dir(folder.canonicalize().expect("golden models"))
        .expect("golden models")
        .filter_map(|entry| entry.expect("an entry").file_name().into_string().ok())
        .filter(|name| name.ends_with("-f32.gguf"))
        .collect();
    names.sort();
    let (mut families, mut dense_first) = (0, 0);
    for name in names {
        let file = GgufFile::open(folder.join(&name)).expect(&name);
        let has_experts = |layer: usize| file.tensor(&format!("blk.{layer}.ffn_gate_exps.weight")).is_some();
        // With a bias for each expert, llama.cpp keeps two tensors.
        let has_bias = file.tensors().iter().any(|tensor| tensor.name.ends_with("ffn_gate_exps.bias"));
        if !file.tensors().iter().any(|tensor| tensor.name.ends_with("ffn_gate_exps.weight")) || has_bias {
            continue;
        }
        families += 1;
        dense_first += usize::from(!has_experts(0));
        let expected = logits(file.clone(), &name);
        assert_eq!(logits(fused(&file, |_| true), &name), expected, "{name}");
        let is_odd = |tensor: &str| tensor.split('.').nth(1).is_some_and(|layer| layer.ends_with(['1', '3', '5']));
        assert_eq!(logits(fused(&file, is_odd), &name), expected, "{name}, every other layer");
    }
    assert!(families > 20 && dense_first > 5, "{families} families, {dense_first} with dense layers first");
}
