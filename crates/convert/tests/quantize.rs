//! Quantising small files: what is copied, what changes, what is refused, and what memory it takes.

#[path = "../../files/tests/gguf/alloc.rs"]
mod alloc;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gristmill_convert::quantize::{EncodeError, Keep, Mix, QuantizeError, Quantizer, check_output};
use gristmill_files::gguf::{Array, GgufFile, GgufWriter, Value};
use gristmill_kernels::format::Format;
use gristmill_transcode::TranscodeError;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("quantize-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Numbers like weights, the same at every call.
fn weights(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(|_| 0.05 * (next() + next() + next())).collect()
}

const TENSORS: &[(&str, Format, &[u64])] = &[
    ("token_embd.weight", Format::F16, &[512, 40]),
    ("output_norm.weight", Format::F32, &[512]),
    ("output.weight", Format::F16, &[512, 40]),
    ("blk.0.attn_v.weight", Format::BF16, &[512, 33]),
    ("blk.0.ffn_gate_inp.weight", Format::F32, &[512, 4]),
    ("blk.0.ffn_down_exps.weight", Format::F32, &[256, 512, 4]),
    ("blk.0.ffn_up_exps.weight", Format::F32, &[96, 20, 4]),
    ("blk.0.attn_q.weight", Format::Q8_0, &[512, 64]),
];

/// Writes a model; `change` may spoil a tensor's values.
fn model(path: &Path, tensors: &[(&str, Format, &[u64])], change: impl Fn(&str, &mut [f32])) {
    let mut plan = GgufWriter::new();
    plan.set("general.architecture", "llama").unwrap();
    plan.set("general.file_type", 1u32).unwrap();
    plan.set("llama.block_count", 1u32).unwrap();
    plan.set("tokenizer.ggml.tokens", Array::String(vec!["a".into(), "b".into()])).unwrap();
    for (name, format, shape) in tensors {
        plan.tensor(name, *format, shape).unwrap();
    }
    let mut out = plan.begin(Vec::new()).unwrap();
    for (name, format, shape) in tensors {
        let mut values = weights(shape.iter().product::<u64>() as usize);
        change(name, &mut values);
        let mut bytes = vec![0; format.row_bytes(values.len()).unwrap()];
        format.encode(&values, &mut bytes).unwrap();
        out.write_tensor(name, &bytes).unwrap();
    }
    fs::write(path, out.finish().unwrap()).unwrap();
}

fn go_on(_: gristmill_engine::Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn quantise(from: &Path, to: &Path, mix: &str, keep: &[&str], threads: usize) -> Result<(), QuantizeError> {
    let keep = keep.iter().map(|text| Keep::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let file = GgufFile::open(from)?;
    Quantizer::new(&file, Mix::parse(mix)?, &keep)?.write(to, threads, &mut go_on)
}

#[test]
fn a_weight_whose_scale_is_another_tensor_gets_no_other_format() {
    let folder = Folder::new("scaled");
    let (from, to) = (folder.path("in.gguf"), folder.path("out.gguf"));
    let weight: (&str, Format, &[u64]) = ("blk.0.attn_q.weight", Format::NVFP4, &[512, 64]);
    model(&from, &[weight, ("blk.0.attn_q.scale", Format::F32, &[1])], |_, _| {});
    let error = quantise(&from, &to, "Q4_0", &[], 1).unwrap_err();
    assert!(matches!(&error, QuantizeError::Scaled { name, .. } if name == weight.0), "{error}");
    model(&from, &[weight], |_, _| {});
    quantise(&from, &to, "Q4_0", &[], 1).unwrap();
}

#[test]
fn every_mix_gives_a_file_with_the_tensors_near_their_values() {
    let folder = Folder::new("mixes");
    let (from, to) = (folder.path("in.gguf"), folder.path("out.gguf"));
    model(&from, TENSORS, |_, _| {});
    let input = GgufFile::open(&from).unwrap();
    for mix in Mix::all() {
        quantise(&from, &to, mix.name(), &[], 2).unwrap();
        let output = GgufFile::open(&to).unwrap();
        let keys: Vec<&str> = output.metadata().iter().map(|(key, _)| key).collect();
        let mut want: Vec<&str> = input.metadata().iter().map(|(key, _)| key).collect();
        want.push("general.quantization_version");
        assert_eq!(keys, want);
        assert_eq!(output.metadata().required::<u32>("general.file_type").unwrap(), mix.file_type());
        assert_eq!(output.metadata().required::<u32>("general.quantization_version").unwrap(), 2);
        assert_eq!(output.metadata().value("tokenizer.ggml.tokens"), input.metadata().value("tokenizer.ggml.tokens"));
        let scales = output.tensors().iter().filter(|tensor| tensor.name.ends_with(".scale")).count();
        assert_eq!((output.tensors().len(), scales > 0), (TENSORS.len() + scales, mix.name() == "NVFP4"));
        for tensor in output.tensors().iter().filter(|tensor| !tensor.name.ends_with(".scale")) {
            let source = input.tensor(&tensor.name).unwrap();
            assert_eq!(tensor.shape, source.shape);
            if tensor.name.contains("norm") || tensor.name.contains("gate_inp") {
                assert!(tensor.format == Format::F32 && output.data(tensor) == input.data(source));
            }
            let decoded = |file: &GgufFile, tensor: &gristmill_files::gguf::TensorInfo| {
                let mut values = vec![0.0; tensor.elements() as usize];
                tensor.format.decode(file.data(tensor), &mut values).unwrap();
                if let Some(scale) = file.tensor(&tensor.name.replace(".weight", ".scale")) {
                    let each = values.len() / scale.elements() as usize;
                    let scales = bytemuck::cast_slice::<u8, f32>(file.data(scale));
                    values.iter_mut().enumerate().for_each(|(i, value)| *value *= scales[i / each]);
                }
                values
            };
            let (got, want) = (decoded(&output, tensor), decoded(&input, source));
            let square = |x: f32| f64::from(x).powi(2);
            let error: f64 = got.iter().zip(&want).map(|(g, w)| square(g - w)).sum();
            let nmse = error / want.iter().map(|w| square(*w)).sum::<f64>();
            assert!(nmse < 0.07, "{} {}: {nmse}", mix.name(), tensor.name);
        }
    }
}

/// Each weight of which llama.cpp reads a scale is followed by it: one number, or one for each expert. Blocks are those of
/// the values divided by it.
#[test]
fn nvfp4_weights_have_scales_of_tensors_and_experts() {
    let folder = Folder::new("nvfp4");
    let (from, to) = (folder.path("in.gguf"), folder.path("out.gguf"));
    let own: (&str, Format, &[u64]) = ("blk.1.ffn_down_exps.weight", Format::F32, &[64, 128, 3]);
    let tensors: &[(&str, Format, &[u64])] = &[
        ("token_embd.weight", Format::F32, &[128, 40]),
        ("output.weight", Format::F32, &[128, 40]),
        ("blk.0.attn_q.weight", Format::F32, &[128, 64]),
        ("blk.0.attn_kv_b.weight", Format::F32, &[128, 64]),
        ("blk.0.ffn_up_exps.weight", Format::F32, &[128, 64, 3]),
        ("blk.0.ffn_gate.weight", Format::F32, &[96, 64]),
        own,
        ("blk.1.ffn_down_exps.scale", Format::F32, &[3]),
    ];
    // Each expert is four times as large as the one before it.
    model(&from, tensors, |name, values| {
        let expert = values.len() / if name.contains("exps") { 3 } else { 1 };
        values.iter_mut().enumerate().for_each(|(i, value)| *value *= 4f32.powi((i / expert) as i32));
    });
    let (input, quantised) =
        (GgufFile::open(&from).unwrap(), quantise(&from, &to, "NVFP4", &["token_embd.weight=NVFP4"], 2));
    quantised.unwrap();
    let output = GgufFile::open(&to).unwrap();
    let found: Vec<_> = output.tensors().iter().map(|t| (t.name.as_str(), t.format, t.shape.as_slice())).collect();
    let wanted: Vec<(&str, Format, &[u64])> = vec![
        ("token_embd.weight", Format::NVFP4, &[128, 40]),
        ("output.weight", Format::Q8_0, &[128, 40]),
        ("blk.0.attn_q.weight", Format::NVFP4, &[128, 64]),
        ("blk.0.attn_q.scale", Format::F32, &[1]),
        ("blk.0.attn_kv_b.weight", Format::Q8_0, &[128, 64]),
        ("blk.0.ffn_up_exps.weight", Format::NVFP4, &[128, 64, 3]),
        ("blk.0.ffn_up_exps.scale", Format::F32, &[3]),
        ("blk.0.ffn_gate.weight", Format::IQ4_NL, &[96, 64]),
        ("blk.1.ffn_down_exps.weight", Format::Q8_0, own.2),
        ("blk.1.ffn_down_exps.scale", Format::F32, &[3]),
    ];
    assert_eq!(found, wanted);
    assert_eq!(output.metadata().required::<u32>("general.file_type").unwrap(), 39);
    for name in ["blk.0.attn_q", "blk.0.ffn_up_exps"] {
        let data = |file: &'_ GgufFile, name: String| file.data(file.tensor(&name).unwrap()).to_vec();
        let values = data(&input, format!("{name}.weight"));
        let scales = data(&output, format!("{name}.scale"));
        let blocks = data(&output, format!("{name}.weight"));
        let scales: Vec<f32> = scales.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        let matrices = values.chunks(values.len() / scales.len()).zip(blocks.chunks(blocks.len() / scales.len()));
        for ((values, blocks), scale) in matrices.zip(scales) {
            let mut values: Vec<f32> = values.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
            let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
            assert_eq!(scale, largest / 448.0 / 6.0, "{name}");
            values.iter_mut().for_each(|value| *value /= scale);
            let mut want = vec![0; blocks.len()];
            Format::NVFP4.encode(&values, &mut want).unwrap();
            assert!(blocks == want, "{name}");
        }
    }
    // A weight that has a scale in the input cannot get another one.
    let again = quantise(&to, &folder.path("again.gguf"), "NVFP4", &[], 1).unwrap_err();
    assert!(matches!(&again, QuantizeError::Scaled { name, .. } if name == "blk.0.attn_q.weight"), "{again}");
}

#[test]
fn the_bytes_do_not_depend_on_threads() {
    let folder = Folder::new("threads");
    let from = folder.path("in.gguf");
    model(&from, TENSORS, |_, _| {});
    let bytes = [1, 2, 5].map(|threads| {
        let to = folder.path("out.gguf");
        quantise(&from, &to, "Q3_K_M", &[], threads).unwrap();
        fs::read(to).unwrap()
    });
    assert!(bytes[0] == bytes[1] && bytes[0] == bytes[2]);
}

#[test]
fn exceptions_and_rows_that_do_not_fit_are_told() {
    let folder = Folder::new("exceptions");
    let (from, to) = (folder.path("in.gguf"), folder.path("out.gguf"));
    model(&from, TENSORS, |_, _| {});
    let file = GgufFile::open(&from).unwrap();
    let keep = [Keep::parse("blk.*=Q6_K").unwrap(), Keep::parse("*.attn_v.*=F16").unwrap()];
    let quantizer = Quantizer::new(&file, Mix::parse("Q4_K_M").unwrap(), &keep).unwrap();
    let planned = |name: &str| quantizer.tensors().iter().find(|t| t.name == name).unwrap();
    assert_eq!(planned("blk.0.attn_v.weight").to, Format::F16);
    let up = planned("blk.0.ffn_up_exps.weight");
    assert_eq!((up.to, up.instead_of), (Format::Q8_0, Some(Format::Q6_K)));
    assert!(planned("blk.0.attn_q.weight").is_requantised());
    assert_eq!(quantizer.tensors().iter().filter(|t| t.is_requantised()).count(), 1);
    let bytes = quantizer.file_bytes();
    quantizer.write(&to, 2, &mut go_on).unwrap();
    assert_eq!(fs::metadata(&to).unwrap().len(), bytes);
    let error = quantise(&from, &to, "Q4_K_M", &["*norm*=F16"], 1).unwrap_err().to_string();
    assert!(error.contains("*norm*") && error.contains("never quantised"), "{error}");
}

#[test]
fn split_files_become_one() {
    let folder = Folder::new("split");
    let parts = [&TENSORS[..3], &TENSORS[3..]];
    for (number, tensors) in parts.iter().enumerate() {
        let mut plan = GgufWriter::new();
        if number == 0 {
            plan.set("general.architecture", "llama").unwrap();
        }
        plan.set("split.no", number as u16).unwrap();
        plan.set("split.count", 2u16).unwrap();
        plan.set("split.tensors.count", TENSORS.len() as i32).unwrap();
        for (name, format, shape) in *tensors {
            plan.tensor(name, *format, shape).unwrap();
        }
        let mut out = plan.begin(Vec::new()).unwrap();
        for (name, format, shape) in *tensors {
            let values = weights(shape.iter().product::<u64>() as usize);
            let mut bytes = vec![0; format.row_bytes(values.len()).unwrap()];
            format.encode(&values, &mut bytes).unwrap();
            out.write_tensor(name, &bytes).unwrap();
        }
        fs::write(folder.path(&format!("m-0000{}-of-00002.gguf", number + 1)), out.finish().unwrap()).unwrap();
    }
    let whole = folder.path("whole.gguf");
    model(&whole, TENSORS, |_, _| {});
    let (a, b) = (folder.path("a.gguf"), folder.path("b.gguf"));
    let part = folder.path("m-00002-of-00002.gguf");
    quantise(&part, &a, "Q4_0", &[], 2).unwrap();
    quantise(&whole, &b, "Q4_0", &[], 2).unwrap();
    let (a, b) = (GgufFile::open(&a).unwrap(), GgufFile::open(&b).unwrap());
    assert_eq!(a.parts(), 1);
    assert!(a.metadata().iter().all(|(key, _)| !key.starts_with("split.")));
    for tensor in b.tensors() {
        assert!(a.data(a.tensor(&tensor.name).unwrap()) == b.data(tensor), "{}", tensor.name);
    }
    // No part may be the output.
    let file = GgufFile::open(&part).unwrap();
    for path in file.paths() {
        assert!(matches!(check_output(file.paths(), path, true), Err(QuantizeError::SameFile(_))));
    }
}

#[test]
fn weights_that_are_not_finite_are_named_and_leave_nothing() {
    let folder = Folder::new("infinite");
    let from = folder.path("in.gguf");
    // More elements than are encoded at once.
    let large = "blk.0.ffn_down_exps.weight";
    let tensors: &[(&str, Format, &[u64])] =
        &[("output_norm.weight", Format::F32, &[512]), (large, Format::F32, &[256, 512, 12])];
    let place = (1 << 20) + 300_000;
    // F32 is the format that it has already.
    for (bad, mix) in
        [(f32::NAN, "Q4_K_M"), (f32::INFINITY, "F16"), (f32::NEG_INFINITY, "F32"), (f32::INFINITY, "NVFP4")]
    {
        model(&from, tensors, |name, values| {
            if name == large {
                values[place] = bad;
            }
        });
        match quantise(&from, &folder.path("out.gguf"), mix, &[], 2).unwrap_err() {
            QuantizeError::Encode(EncodeError::Weights { name, source: TranscodeError::NotFinite { element, .. } }) => {
                assert_eq!((name.as_str(), element), (large, place), "{mix}");
            }
            other => panic!("{other}"),
        }
        assert_eq!(folder.names(), ["in.gguf"]);
    }
    model(&from, TENSORS, |name, values| {
        if name == "output_norm.weight" {
            values[5] = f32::NAN;
        }
    });
    let error = quantise(&from, &folder.path("out.gguf"), "Q4_0", &[], 2).unwrap_err().to_string();
    assert!(error.contains("`output_norm.weight`") && error.contains("element 5 is NaN"), "{error}");
    model(&from, TENSORS, |name, values| {
        if name == "blk.0.attn_v.weight" {
            values[0] = 1e6;
        }
    });
    let error = quantise(&from, &folder.path("out.gguf"), "F16", &[], 2).unwrap_err().to_string();
    assert!(error.contains("blk.0.attn_v.weight") && error.contains("BF16"), "{error}");
    assert_eq!(folder.names(), ["in.gguf"]);
}

#[test]
fn stopping_leaves_what_was_there() {
    let folder = Folder::new("stop");
    let (from, to) = (folder.path("in.gguf"), folder.path("out.gguf"));
    model(&from, TENSORS, |_, _| {});
    fs::write(&to, "old").unwrap();
    let file = GgufFile::open(&from).unwrap();
    let quantizer = Quantizer::new(&file, Mix::parse("Q4_0").unwrap(), &[]).unwrap();
    let stopped = quantizer.write(&to, 1, &mut |p| match p.done > p.total / 2 {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    assert!(matches!(stopped, Err(QuantizeError::Encode(EncodeError::Stopped))));
    assert_eq!(folder.names(), ["in.gguf", "out.gguf"]);
    assert_eq!(fs::read(&to).unwrap(), b"old");
}

#[test]
fn outputs_are_checked() {
    let folder = Folder::new("outputs");
    let (input, other, link) = (folder.path("in.gguf"), folder.path("other.gguf"), folder.path("link.gguf"));
    fs::write(&input, "x").unwrap();
    let check = |output: &Path, force| check_output([input.as_path()], output, force);
    check(&other, false).unwrap();
    fs::write(&other, "y").unwrap();
    assert!(matches!(check(&other, false), Err(QuantizeError::Exists(_))));
    check(&other, true).unwrap();
    for no_file in [&folder.0, Path::new("/dev/null")].into_iter().filter(|path| path.exists()) {
        assert!(matches!(check(no_file, true), Err(QuantizeError::NoFile(_))), "{}", no_file.display());
    }
    fs::hard_link(&input, &link).unwrap();
    for same in [&input, &folder.path("./in.gguf"), &link] {
        assert!(matches!(check(same, true), Err(QuantizeError::SameFile(_))), "{}", same.display());
    }
}

/// Memory that this process allocates does not grow with a tensor; the pages of the input's map belong to the system,
/// and those of a tensor are returned when it is done.
#[test]
fn memory_does_not_grow_with_the_tensor() {
    let folder = Folder::new("memory");
    let (from, to) = (folder.path("in.gguf"), folder.path("out.gguf"));
    // The largest tensor is 16 MiB as F16.
    let tensors: &[(&str, Format, &[u64])] =
        &[("blk.0.ffn_up.weight", Format::F16, &[4096, 2048]), ("b.weight", Format::F16, &[4096, 512])];
    model(&from, tensors, |_, _| {});
    let file = GgufFile::open(&from).unwrap();
    for mix in ["Q4_K_M", "F32", "NVFP4"] {
        let quantizer = Quantizer::new(&file, Mix::parse(mix).unwrap(), &[]).unwrap();
        let (result, peak) = alloc::peak(|| quantizer.write(&to, 2, &mut go_on));
        result.unwrap();
        assert!(peak < 6 << 20, "{mix}: {peak} bytes");
    }
}

#[test]
fn metadata_values_are_copied_whatever_their_type() {
    let folder = Folder::new("metadata");
    let (from, to) = (folder.path("in.gguf"), folder.path("out.gguf"));
    let mut plan = GgufWriter::with_alignment(64).unwrap();
    let values = [
        ("a", Value::U8(1)),
        ("general.quantization_version", Value::U32(1)),
        ("b", Value::F64(0.5)),
        ("c", Value::Array(Array::Array(vec![Array::I8(vec![-1]), Array::Bool(vec![true])]))),
    ];
    for (key, value) in &values {
        plan.set(key, value.clone()).unwrap();
    }
    plan.tensor("x.weight", Format::F32, &[32, 2]).unwrap();
    let mut out = plan.begin(Vec::new()).unwrap();
    out.write_tensor("x.weight", &[0; 256]).unwrap();
    fs::write(&from, out.finish().unwrap()).unwrap();
    quantise(&from, &to, "Q8_0", &[], 1).unwrap();
    let file = GgufFile::open(&to).unwrap();
    for (key, value) in &values {
        let want = if key.starts_with("general") { &Value::U32(2) } else { value };
        assert_eq!(file.metadata().value(key), Some(want), "{key}");
    }
    assert_eq!(file.alignment(), 32);
}
