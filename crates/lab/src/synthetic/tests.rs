mod routing;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::format::Format;

use super::blocks::Pool;
use super::mix::mix_names;
use super::shapes::{Popularity, Values};
use super::{Synthetic, SyntheticError, models};

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("gristmill-synthetic-{}-{name}.gguf", std::process::id()))
}

/// Removes the file at the end of the test, also after a failure.
struct Remove(PathBuf);
impl Drop for Remove {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn every_mix_gives_a_whole_file_of_finite_weights_and_own_bytes() {
    for mix in mix_names() {
        let path = Remove(scratch(mix));
        let synthetic = Synthetic::parse(&format!("mini-moe:{mix}"), Some(2)).unwrap();
        assert!(!synthetic.is_written(&path.0));
        let last = Mutex::new((0, 0));
        synthetic
            .write(&path.0, &|done, total| {
                let mut last = last.lock().unwrap();
                if done > last.0 {
                    *last = (done, total);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(synthetic.is_written(&path.0));
        assert!(!Synthetic::parse(&format!("mini-moe:{mix}"), Some(3)).unwrap().is_written(&path.0));

        let file = GgufFile::open(&path.0).unwrap();
        let (done, total) = *last.lock().unwrap();
        assert_eq!(total, file.file_bytes());
        assert!(total - done < 32 * file.tensors().len() as u64, "all but padding is reported");
        let mut starts = std::collections::HashSet::new();
        for (tensor, plan) in file.tensors().iter().zip(synthetic.plan().unwrap().0) {
            let mut values = vec![0.0; tensor.elements() as usize];
            tensor.format.decode(file.data(tensor), &mut values).unwrap();
            let mean_square = values.iter().map(|v| f64::from(v * v)).sum::<f64>() / values.len() as f64;
            let columns = tensor.shape[0] as f64;
            let expected = match plan.values {
                Values::Norm => 1.01,
                Values::Embedding => 1.0,
                Values::Weights => 1.0 / columns,
                // Two layers have four branches.
                Values::Branch(branches) => 1.0 / (columns * f64::from(branches)),
                Values::Router(popularity) => mean_square_factor(popularity, tensor.shape[1]) / columns,
                other => panic!("{}: {other:?}", tensor.name),
            };
            // The nearest values of one bit, ± the mean size, have 2/π of the mean square of normal values.
            let share = if tensor.format.name() == "Q1_0" { std::f64::consts::FRAC_2_PI } else { 1.0 };
            let relative = mean_square / (share * expected);
            assert!((0.7..1.4).contains(&relative), "{mix} {}: {mean_square}", tensor.name);
            assert!(starts.insert(file.data(tensor)[..64].to_vec()), "{mix} {} has another's bytes", tensor.name);
        }
    }
}

/// The mean square of a router's factors.
fn mean_square_factor(popularity: Popularity, experts: u64) -> f64 {
    (0..experts).map(|rank| f64::from(popularity.factor(rank, experts)).powi(2)).sum::<f64>() / experts as f64
}

#[test]
fn the_published_shapes_have_the_published_sizes() {
    let published = [("qwen3-30b-a3b", 579, 18.55e9), ("qwen3-8b", 399, 5.02e9), ("gpt-oss-20b", 459, 12.1e9)];
    for (name, tensors, bytes) in published {
        let synthetic = Synthetic::parse(name, None).unwrap();
        let (plan, file) = synthetic.plan().unwrap();
        assert_eq!(plan.len(), tensors);
        let found = file.file_bytes() as f64;
        assert!((found / bytes - 1.0).abs() < 0.005, "{name}: {found}");
    }
}

#[test]
fn the_published_shapes_have_the_published_parameters() {
    let published =
        [("mixtral-8x7b", 46.70e9), ("olmoe-1b-7b", 6.92e9), ("smollm2-135m", 134.5e6), ("gpt-oss-20b", 20.91e9)];
    // Published in whole billions.
    let rounded = [
        ("qwen3-235b-a22b", 235e9),
        ("gpt-oss-120b", 117e9),
        ("glm-4.5-air", 106e9),
        ("minimax-m2", 229e9),
        ("qwen3-next-80b-a3b", 80e9),
        ("qwen3.6-35b-a3b", 35e9),
        ("lfm2-8b-a1b", 8.3e9),
        ("gemma4-26b-a4b", 25.2e9),
        ("qwen3-vl-30b-a3b", 30.5e9),
        ("deepseek-v2-lite", 15.7e9),
        ("glm-4.7-flash", 30e9),
        ("deepseek-v3", 671e9),
        ("kimi-k2", 1026e9),
        ("kimi-linear-48b", 49e9),
        ("step-3.5-flash", 196.8e9),
        ("mimo-v2-flash", 309e9),
        ("minimax-m3", 428e9),
    ];
    let all = published.map(|model| (model, 0.001)).into_iter().chain(rounded.map(|model| (model, 0.01)));
    for ((name, parameters), tolerance) in all {
        let synthetic = Synthetic::parse(name, None).unwrap();
        let (plan, _) = synthetic.plan().unwrap();
        let found = plan.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum::<u64>() as f64;
        assert!((found / parameters - 1.0).abs() < tolerance, "{name}: {found}");
    }
}

#[test]
fn every_model_is_one_that_runs() {
    for model in models::MODELS {
        let synthetic = Synthetic::parse(model.name, Some(1)).unwrap();
        let (_, file) = synthetic.plan().unwrap();
        // The data are a hole in the file: the largest model would fill the disk.
        let mut header = Vec::new();
        let bytes = file.file_bytes();
        file.begin(&mut header).unwrap();
        let path = Remove(scratch(model.name));
        std::fs::write(&path.0, &header).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path.0).unwrap().set_len(bytes).unwrap();
        let info = gristmill_engine::ModelInfo::read(&GgufFile::open(&path.0).unwrap()).unwrap();
        assert_eq!(info.spec.layers.len(), 1, "{}", model.name);
    }
}

/// Some layers of Gemma 4 have heads of another width, and some neither keys nor values, at any depth.
#[test]
fn layers_of_gemma4_differ() {
    let lacks = |name: &str, layers: Option<u32>, what: &str| {
        let (plan, file) = Synthetic::parse(name, layers).unwrap().plan().unwrap();
        let info = gristmill_engine::ModelInfo::read(&file.preview()).unwrap();
        let has = |layer| plan.iter().any(|tensor| tensor.name == format!("blk.{layer}.{what}.weight"));
        (0..info.spec.layers.len()).filter(|&layer| !has(layer)).collect::<Vec<usize>>()
    };
    assert_eq!(lacks("gemma4-26b-a4b", None, "attn_v"), [5, 11, 17, 23, 29]);
    assert!(lacks("gemma4-26b-a4b", None, "attn_k").is_empty());
    assert_eq!(lacks("gemma4-e4b", None, "attn_k"), (24..42).collect::<Vec<usize>>());
    for (layers, shared) in [(1, 0), (4, 0), (6, 0), (7, 1), (8, 2), (14, 6)] {
        let expected: Vec<usize> = (layers as usize - shared..layers as usize).collect();
        assert_eq!(lacks("gemma4-e4b", Some(layers), "attn_k"), expected, "{layers}");
    }
    let (plan, _) = Synthetic::parse("gemma4-26b-a4b", None).unwrap().plan().unwrap();
    let shape = |name: &str| &plan.iter().find(|tensor| tensor.name == name).unwrap().shape[..];
    assert_eq!((shape("blk.4.attn_q.weight"), shape("blk.5.attn_q.weight")), (&[2816, 4096][..], &[2816, 8192][..]));
    assert_eq!((shape("blk.4.attn_k.weight"), shape("blk.5.attn_k.weight")), (&[2816, 2048][..], &[2816, 1024][..]));
}

/// Layers with a window have other heads than those with full attention.
#[test]
fn layers_with_windows_differ() {
    for (name, full, windowed) in [
        ("step-3.5-flash", ("blk.4", [8192, 1024, 1024, 8192]), ("blk.5", [12_288, 1024, 1024, 12_288])),
        ("mimo-v2-flash", ("blk.5", [12_288, 768, 512, 8192]), ("blk.4", [12_288, 1536, 1024, 8192])),
    ] {
        let (plan, file) = Synthetic::parse(name, None).unwrap().plan().unwrap();
        let rows = |layer: &str, what: &str| {
            let shape = &plan.iter().find(|tensor| tensor.name == format!("{layer}.{what}.weight")).unwrap().shape;
            if what == "attn_output" { shape[0] } else { shape[1] }
        };
        for (layer, expected) in [full, windowed] {
            assert_eq!(
                ["attn_q", "attn_k", "attn_v", "attn_output"].map(|what| rows(layer, what)),
                expected,
                "{layer}"
            );
        }
        let info = gristmill_engine::ModelInfo::read(&file.preview()).unwrap();
        let windows = info.spec.layers.iter().filter(
            |layer| matches!(&layer.mixer, gristmill_engine::model::spec::Mixer::Attention(it) if it.window.is_some()),
        );
        assert_eq!(windows.count(), if name == "step-3.5-flash" { 33 } else { 39 });
    }
    for name in ["step-3.5-flash-mtp", "granite-4-h-small-mtp", "falcon-h1-7b-mtp"] {
        assert!(Synthetic::parse(name, None).is_err(), "{name}");
    }
}

/// The prediction head of Nemotron 3 is a layer of attention and experts, after the last layer of a model of any depth.
#[test]
fn a_head_of_nemotron_has_attention_and_experts() {
    for layers in [3, 52] {
        let (plan, file) = Synthetic::parse("nemotron-3-nano-30b-a3b-mtp", Some(layers)).unwrap().plan().unwrap();
        let has = |part: &str| plan.iter().any(|tensor| tensor.name == format!("blk.{layers}.{part}.weight"));
        assert!(["attn_q", "post_attention_norm", "ffn_up_exps", "nextn.eh_proj"].into_iter().all(has));
        assert!(!has("ssm_in"));
        // The preview has no tensors, so the head is declared only.
        let file = file.preview();
        assert_eq!(file.metadata().required::<u32>("nemotron_h_moe.nextn_predict_layers").unwrap(), 1);
        assert_eq!(gristmill_engine::ModelInfo::read(&file).unwrap().spec.layers.len(), layers as usize);
    }
}

/// llama.cpp requires this key of gpt-oss, also for experts as wide as the stated dense MLP.
#[test]
fn every_model_with_experts_says_how_wide_they_are() {
    for model in models::MODELS {
        let (_, file) = Synthetic::parse(model.name, Some(1)).unwrap().plan().unwrap();
        let file = file.preview();
        let (metadata, architecture) =
            (file.metadata(), file.metadata().required::<&str>("general.architecture").unwrap());
        let has = |key: &str| metadata.contains(&format!("{architecture}.{key}"));
        assert_eq!(has("expert_feed_forward_length"), has("expert_count"), "{}", model.name);
    }
}

#[test]
fn more_bits_go_where_llama_cpp_puts_them() {
    let synthetic = Synthetic::parse("qwen3-30b-a3b", None).unwrap();
    let (plan, _) = synthetic.plan().unwrap();
    let format = |name: &str| plan.iter().find(|t| t.name == name).unwrap().format;
    let wide: Vec<u32> = (0..48).filter(|l| format(&format!("blk.{l}.ffn_down_exps.weight")) == Format::Q6_K).collect();
    let expected: Vec<u32> = (0..6).chain((8..42).step_by(3)).chain(42..48).collect();
    assert_eq!(wide, expected);
    assert_eq!(format("blk.5.attn_v.weight"), Format::Q6_K);
    assert_eq!(format("blk.6.attn_v.weight"), Format::Q4_K);
    assert_eq!(format("output.weight"), Format::Q6_K);
    assert_eq!(format("token_embd.weight"), Format::Q4_K);
    assert_eq!(format("blk.0.ffn_gate_inp.weight"), Format::F32);
}

#[test]
fn the_same_name_gives_the_same_bytes() {
    let paths = ["once", "again"].map(|name| Remove(scratch(name)));
    for path in &paths {
        Synthetic::parse("mini-moe", Some(1)).unwrap().write(&path.0, &|_, _| ControlFlow::Continue(())).unwrap();
    }
    let [a, b] = paths.each_ref().map(|path| std::fs::read(&path.0).unwrap());
    assert!(a == b);
}

#[test]
fn the_vocabulary_is_of_its_size_without_duplicates_and_every_merge_is_of_earlier_tokens() {
    let path = Remove(scratch("vocabulary"));
    Synthetic::parse("mini-moe", Some(1)).unwrap().write(&path.0, &|_, _| ControlFlow::Continue(())).unwrap();
    let file = GgufFile::open(&path.0).unwrap();
    let strings = |key: &str| match file.metadata().value(key) {
        Some(gristmill_files::gguf::Value::Array(gristmill_files::gguf::Array::String(v))) => v.clone(),
        other => panic!("{key}: {other:?}"),
    };
    let (tokens, merges) = (strings("tokenizer.ggml.tokens"), strings("tokenizer.ggml.merges"));
    assert_eq!(tokens.len(), 4096);
    assert_eq!(merges.len(), 4096 - 256 - 3);
    let mut known = std::collections::HashSet::new();
    for (i, token) in tokens.iter().enumerate() {
        if let Some(merge) = i.checked_sub(256).and_then(|m| merges.get(m)) {
            let (left, right) = merge.split_once(' ').unwrap();
            assert!(known.contains(left) && known.contains(right), "{merge}");
            assert_eq!(*token, format!("{left}{right}"));
        }
        assert!(known.insert(token.as_str()), "{token} twice");
    }
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    let refused = |spec: &str, layers| Synthetic::parse(spec, layers).unwrap_err().to_string();
    let text = refused("qwen9", None);
    assert!(text.contains("`qwen9`") && text.contains("mini-moe"), "{text}");
    let text = refused("mini-moe:Q9", None);
    assert!(text.contains("`Q9`") && text.contains("Q4_K_M"), "{text}");
    for layers in [0, u32::MAX] {
        assert!(refused("mini-moe", Some(layers)).contains(&layers.to_string()));
    }
}

#[test]
fn a_write_that_is_stopped_leaves_nothing() {
    let path = Remove(scratch("stopped"));
    let stopped = Synthetic::parse("mini-moe", Some(2)).unwrap().write(&path.0, &|_, _| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(SyntheticError::Stopped)), "{stopped:?}");
    assert!(!path.0.exists());
}

/// A folder has the published names and shapes: it opens, its weights have the deviations of the file's, and it runs.
#[test]
fn folders_are_models() {
    for (codes, format) in [("GPTQ", Format::Q4_0), ("FP8", Format::FP8_64)] {
        let mut synthetic = Synthetic::parse(&format!("qwen3-30b-a3b:{codes}"), Some(2)).unwrap();
        let model = &mut synthetic.model;
        (model.hidden, model.inner, model.vocabulary) = (256, 128, 4096);
        (model.heads, model.kv_heads, model.head_width) = (4, 2, 64);
        let experts = model.experts.as_mut().unwrap();
        (experts.count, experts.used, experts.inner) = (16, 2, 128);
        let folder = std::env::temp_dir().join(format!("gristmill-{}-{codes}", std::process::id()));
        assert!(!synthetic.is_written(&folder));
        synthetic.write(&folder, &|_, _| ControlFlow::Continue(())).unwrap();
        assert!(synthetic.is_written(&folder));
        let bytes = std::fs::metadata(folder.join("model.safetensors")).unwrap().len();
        assert!(bytes - synthetic.file_bytes().unwrap() < 1 << 17);
        let (file, notes) = gristmill_convert::open_folder(&folder, &Default::default(), 1).unwrap();
        assert_eq!(notes, Vec::<String>::new());
        let (plans, _) = synthetic.plan().unwrap();
        let preview = synthetic.preview().unwrap();
        for plan in &plans {
            let found = file.tensor(&plan.name).unwrap();
            let coded = plan.name.contains("_exps") || plan.name.contains(".attn_") && !plan.name.contains("norm");
            assert_eq!(found.format, if coded { format } else { plan.format }, "{}", plan.name);
            assert_eq!((found.format, &found.shape), (preview.tensor(&plan.name).unwrap().format, &plan.shape));
            let mut values = vec![0.0; found.elements() as usize];
            found.format.decode(file.load(found).unwrap().as_slice(), &mut values).unwrap();
            if coded {
                let mean_square = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
                let wanted = Pool::deviation(plan).powi(2);
                assert!((0.9..1.1).contains(&(mean_square / wanted)), "{}: {mean_square}, {wanted}", plan.name);
            }
        }
        let options = gristmill_engine::LoadOptions { threads: Some(1), ..Default::default() };
        gristmill_engine::Model::from_file(file, options).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
    let error = Synthetic::parse("mixtral-8x7b:GPTQ", None).unwrap_err().to_string();
    assert!(error.contains("GPTQ and FP8 are for the architectures qwen3, qwen3moe"), "{error}");
}
