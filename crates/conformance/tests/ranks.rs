//! Models that are split over devices: their logits are those of transformers, as on one device, and have the same bits in every run
//! and in every batch.

use std::path::PathBuf;
use std::sync::Arc;

use gristmill_conformance::golden::{models, models_folder};
use gristmill_conformance::golden_logits::{Golden, compare};
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::model::{ExpertLoad, Opened, Split, place};
use gristmill_engine::{Error, Limits, LoadOptions, Model, ModelInfo, Precision};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_kernels::kv::KvFormat;
use gristmill_suite::rng::Rng;
use gristmill_suite::testing;

// Not all findings are compared here.
#[allow(dead_code)]
#[path = "batching/texts.rs"]
mod texts;

use texts::Batching;

const SPLITS: [Split; 2] = [Split::Experts, Split::Tensor];

fn path(name: &str) -> PathBuf {
    models_folder().join(format!("{name}.gguf"))
}

fn cpus(count: usize) -> Vec<Arc<Backend>> {
    (0..count).map(|_| Arc::new(Cpu::backend(Level::best(), 1).unwrap())).collect()
}

fn load(name: &str, backends: Vec<Arc<Backend>>, precision: Precision, split: Split) -> Arc<Model> {
    let options = LoadOptions { precision, split: Some(split), ..LoadOptions::default() };
    Arc::new(Model::with_backends(GgufFile::open(path(name)).unwrap(), backends, options).unwrap())
}

/// The models whose logits are further from transformers' than allowed.
fn wrong(names: &[&str], backends: impl Fn() -> Vec<Arc<Backend>>, precision: Precision, split: Split) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in names {
        let golden = Golden::read(name);
        let tolerance = if precision == Precision::Exact { EXACT_TOLERANCE } else { golden.tolerance };
        let model = load(name, backends(), precision, split);
        for (what, found) in compare(&golden, &model) {
            println!("{name:18} {split} {} {what:12} {found:.1e}", model.device_name());
            // Also false for NaN.
            let good = found <= tolerance;
            if !good {
                wrong.push(format!("{name}, {split}, {what}: NMSE {found:.1e} > {tolerance:.0e}"));
            }
        }
    }
    wrong
}

/// As in `models.rs`.
const EXACT_TOLERANCE: f64 = 1e-6;

#[test]
fn logits_on_two_and_four_cpus_are_those_of_transformers() {
    let mut wrongs = Vec::new();
    for (ranks, split) in [(2, Split::Experts), (4, Split::Experts), (2, Split::Tensor), (4, Split::Tensor)] {
        let precision = if ranks == 2 { Precision::Fast } else { Precision::Exact };
        wrongs.extend(wrong(&models(), || cpus(ranks), precision, split));
    }
    wrongs.extend(wrong(IN_A_ROW, || cpus(2), Precision::Fast, Split::Layers));
    assert!(wrongs.is_empty(), "{} wrong:\n{}", wrongs.len(), wrongs.join("\n"));
}

/// Models whose two halves have the same kinds of state.
const IN_A_ROW: &[&str] = &["qwen3moe-q8_0", "llama3-q8_0", "deepseek2-q8_0", "mamba2-q8_0"];

/// GPUs in the simulator, which sum by themselves.
#[cfg(all(target_arch = "x86_64", unix))]
#[path = "ranks/gpus.rs"]
mod gpus;

/// Forks, rejected drafts, shared batches, and texts that start with what others have computed.
#[test]
fn bits_depend_neither_on_the_run_nor_on_the_batch() {
    let seed = testing::seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    for name in SOME {
        for split in SPLITS {
            let kv_format = if rng.chance(0.5) { KvFormat::Q8_0 } else { KvFormat::F16 };
            let batching = Batching { texts: 4, length: 45, shared: 25, chunk: 20, kv_format };
            let model = load(name, cpus(2), Precision::Fast, split);
            let found = batching.compare(&model, &mut rng).unwrap();
            assert_eq!(found.different, 0, "{name}, {split}: {found:?}");
            assert!((found.reused > 0 || !found.reuses) && found.guessed > 0, "{name}, {split}: {found:?}");
        }
    }
}

/// One for each kind of state.
const SOME: &[&str] = &[
    "qwen3moe-q8_0",
    "gpt-oss-mxfp4",
    "deepseek2-q8_0",
    "qwen3next-q8_0",
    "lfm2moe-q8_0",
    "granitehybrid-q8_0",
    "kimi-linear-q8_0",
    "falcon-h1-q8_0",
    "gemma4-moe-q8_0",
    "llama4-q8_0",
];

/// Heads, experts and columns that the number of devices does not divide, and KV heads that several devices have.
#[test]
fn logits_on_three_cpus_are_those_of_transformers() {
    let mut wrongs = Vec::new();
    for split in SPLITS {
        wrongs.extend(wrong(SOME, || cpus(3), Precision::Fast, split));
    }
    assert!(wrongs.is_empty(), "{} wrong:\n{}", wrongs.len(), wrongs.join("\n"));
    let shared = |name: &&str| {
        let spec = ModelInfo::read(&GgufFile::open(path(name)).unwrap()).unwrap().spec;
        spec.layers
            .iter()
            .any(|layer| layer.attention().is_some_and(|it| it.kv_heads < 4 && 4_usize.is_multiple_of(it.kv_heads)))
    };
    assert!(models().iter().any(shared), "no model has fewer KV heads than the four devices above");
}

/// Experts by load: the busiest has few others beside it, on every device other experts, and nothing changes but the order of sums.
#[test]
fn experts_are_shared_by_load() {
    for name in ["qwen3moe-q8_0", "gpt-oss-mxfp4", "qwen2moe-q8_0"] {
        let golden = Golden::read(name);
        let file = || GgufFile::open(path(name)).unwrap();
        let routers = ModelInfo::read(&file()).unwrap().spec.routers();
        // The first expert is as busy as all others, in the last layer the last one.
        let layers = (0..routers.len()).map(|layer| {
            let experts = routers[layer].experts;
            let busy = if layer + 1 == routers.len() { experts.saturating_sub(1) } else { 0 };
            (0..experts).map(|expert| if expert == busy { 1000 } else { 1 }).collect()
        });
        let load = Arc::new(ExpertLoad { layers: layers.collect() });
        for split in SPLITS {
            let expert_load = Some(load.clone());
            let options = LoadOptions { split: Some(split), expert_load, ..LoadOptions::default() };
            let model = Arc::new(Model::with_backends(file(), cpus(2), options).unwrap());
            for (what, found) in compare(&golden, &model) {
                assert!(found <= golden.tolerance, "{name}, {split}, {what}: {found:.1e}");
            }
        }
        let layers = vec![vec![1; 3]; routers.len()];
        let expert_load = Some(Arc::new(ExpertLoad { layers }));
        let options = LoadOptions { split: Some(Split::Experts), expert_load, ..LoadOptions::default() };
        let error = Model::with_backends(file(), cpus(2), options).unwrap_err().to_string();
        assert!(error.contains("has another number of experts (found 3, expected "), "{error}");
    }
}

/// The plan of `fit`, `run` and `serve` without `--split`.
#[test]
fn a_split_is_chosen_from_sizes_and_measured_sums() {
    for (name, expected) in [("qwen3moe-q8_0", Split::Experts), ("llama3-q8_0", Split::Tensor)] {
        let file = GgufFile::open(path(name)).unwrap();
        let mut devices = cpus(2).into_iter();
        let opened = Opened::of(devices.next().unwrap(), devices.collect());
        let (options, limits) = (LoadOptions::default(), Limits { context: Some(64), ..Limits::default() });
        let placed = place(&file, ModelInfo::read(&file).unwrap(), opened, options, limits).unwrap();
        let choice = placed.choice.clone().unwrap();
        // Small models read faster than two devices sum, and experts need fewer sums.
        assert_eq!(choice.split, expected, "{choice}");
        let text = choice.to_string();
        assert!(text.starts_with(&format!("{expected}; a step of 1 token would take ")), "{text}");
        assert!(text.contains(" ms with tensor (4 sums "), "{text}");
        let model = placed.load(file).unwrap();
        let sums = model.sums().unwrap();
        assert_eq!(sums.measured.len(), 3, "{sums}");
    }
}

/// Each rank has its part of the experts, and nothing of what only rank 0 computes.
#[test]
fn ranks_share_the_weights() {
    let whole = load("qwen3moe-q8_0", cpus(1), Precision::Fast, Split::Experts);
    for ranks in [2, 4] {
        let model = load("qwen3moe-q8_0", cpus(ranks), Precision::Fast, Split::Experts);
        let file = GgufFile::open(path("qwen3moe-q8_0")).unwrap();
        let experts = file.tensors().iter().filter(|tensor| tensor.name.contains("_exps."));
        let experts: u64 = experts.map(|tensor| tensor.bytes).sum();
        let bytes = model.bytes_of_ranks();
        assert_eq!(bytes.len(), ranks);
        // Prepared weights have their own layout, so a part is compared with the whole.
        assert!(bytes[0] + experts / 2 <= whole.prepared_bytes(), "{bytes:?} of {}", whole.prepared_bytes());
        assert!(bytes[1] <= bytes[0], "{bytes:?}");
    }
}

#[test]
fn devices_that_compute_other_bits_are_refused() {
    let mut levels = Level::available();
    let (Some(one), Some(other)) = (levels.next(), levels.next()) else { return println!("SKIPPED: one level") };
    let backends = [one, other].map(|level| Arc::new(Cpu::backend(level, 1).unwrap()));
    let file = GgufFile::open(path("qwen3moe-q8_0")).unwrap();
    let error = Model::with_backends(file, backends.to_vec(), LoadOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::Split { .. }), "{error}");
    assert!(error.to_string().contains("name equal devices"), "{error}");
}
