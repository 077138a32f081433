//! Tiny random models of every architecture: their logits against transformers', which `scripts/golden/models.py`
//! wrote.
//!
//! The golden tokens keep every router far from a tie, so no position is excused by the equality rule. To show that
//! the tolerance is not too wide to notice anything, each block's output is zeroed
//! in turn: the logits must then move by more than 100 times the tolerance.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use gristmill_cpu::{Cpu, Level};
use gristmill_cuda::{CudaDevice, Options, driver};
use gristmill_engine::model::spec::{MlpSpec, MoeSpec};
use gristmill_engine::{LoadOptions, Model, ModelInfo, Precision};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_kernels::reference::Reference;
use gristmill_suite::rng::Rng;
use gristmill_suite::testing;

use gristmill_conformance::golden::{architectures, drawn_levels, models, models_folder};
use gristmill_conformance::golden_logits::{Golden, Run, compare};

/// With f32 activations only the f16 cache and rounding is left, whatever the weights' format.
const EXACT_TOLERANCE: f64 = 1e-6;

fn load(file: &GgufFile, backend: Arc<Backend>, precision: Precision) -> Arc<Model> {
    let options = LoadOptions { precision, ..LoadOptions::default() };
    Arc::new(Model::with_backend(file.clone(), backend, options).unwrap())
}

/// The first CUDA device. Without one this says so: it is skipped, not passed.
fn cuda_device() -> Option<Arc<Backend>> {
    match driver::count().unwrap() {
        0 => {
            println!("SKIPPED: no CUDA device");
            None
        }
        _ => Some(Arc::new(CudaDevice::open(0).unwrap().backend(Options::default()).unwrap())),
    }
}

/// The reference, every level of this CPU, and the first CUDA device.
fn all_backends() -> Vec<Arc<Backend>> {
    let mut backends: Vec<Arc<Backend>> = vec![Arc::new(Reference::backend())];
    for &name in Level::NAMES {
        match Level::named(name) {
            Ok(level) => backends.push(Arc::new(Cpu::backend(level, 2).unwrap())),
            Err(error) => println!("SKIPPED: {error}"),
        }
    }
    backends.into_iter().chain(cuda_device()).collect()
}

/// The best level of this CPU, one of the others or the reference, and the first CUDA device.
fn drawn_backends(rng: &mut Rng) -> Vec<Arc<Backend>> {
    let cpu = |level| Arc::new(Cpu::backend(level, 2).unwrap());
    let mut backends: Vec<Arc<Backend>> = drawn_levels(rng).into_iter().map(cpu).collect();
    if rng.below(4) == 0 {
        backends[0] = Arc::new(Reference::backend());
    }
    backends.into_iter().chain(cuda_device()).collect()
}

/// Each model on the backends that `backends` gives for it.
fn check(
    models: &[&str],
    mut backends: impl FnMut() -> Vec<Arc<Backend>>,
    precision: Precision,
    tolerance: impl Fn(&Golden) -> f64,
) {
    let mut wrong = Vec::new();
    for name in models {
        let golden = Golden::read(name);
        let file = GgufFile::open(golden_path(name)).unwrap();
        for backend in backends() {
            let device = backend.name();
            for (what, found) in compare(&golden, &load(&file, backend.clone(), precision)) {
                println!("{name:18} {device:24} {what:12} {found:.1e}");
                // Also false for NaN.
                let good = found <= tolerance(&golden);
                if !good {
                    wrong.push(format!("{name} on {device}, {what}: NMSE {found:.1e} > {:.0e}", tolerance(&golden)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong, 0 positions excused:\n{}", wrong.len(), wrong.join("\n"));
}

/// Each model on [`drawn_backends`].
fn check_on_drawn(models: &[&str], precision: Precision, tolerance: impl Fn(&Golden) -> f64) {
    let seed = testing::seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    check(models, || drawn_backends(&mut rng), precision, tolerance);
}

/// Each model on [`all_backends`].
fn check_on_all(models: &[&str], precision: Precision, tolerance: impl Fn(&Golden) -> f64) {
    let backends = all_backends();
    check(models, || backends.clone(), precision, tolerance);
}

fn golden_path(name: &str) -> PathBuf {
    models_folder().join(format!("{name}.gguf"))
}

#[test]
fn every_architecture_has_a_golden_model() {
    let architecture = |name| {
        let file = GgufFile::open(golden_path(name)).unwrap();
        file.metadata().required::<&str>("general.architecture").unwrap().to_owned()
    };
    assert_eq!(models().into_iter().map(architecture).collect::<BTreeSet<_>>(), architectures());
}

#[test]
fn logits_are_those_of_transformers() {
    check_on_drawn(&models(), Precision::Fast, |golden| golden.tolerance);
}

#[test]
#[ignore = "a minute"]
fn logits_are_those_of_transformers_on_every_level() {
    check_on_all(&models(), Precision::Fast, |golden| golden.tolerance);
}

/// Only one of them, for machines on which all take too long (`scripts/cross.sh`).
#[test]
fn one_small_model() {
    check_on_all(&["qwen3moe-q4_k_m"], Precision::Fast, |golden| golden.tolerance);
}

/// GPUs in the simulator: for CUDA steps that are padded, recorded and replayed; a model with experts and one with odd
/// widths, and one with windows, sinks and biases.
#[cfg(all(target_arch = "x86_64", unix))]
mod simulated {
    use super::{Backend, EXACT_TOLERANCE, Golden, Precision, check, golden_path, load};
    use gpu_sim::Mode;
    use gristmill_conformance::golden::models;
    use gristmill_conformance::simulated::Simulator;
    use gristmill_cpu::{Cpu, Level};
    use gristmill_engine::{Batch, Limits, Outputs, Runner};
    use gristmill_files::gguf::GgufFile;
    use std::sync::Arc;

    /// `gemma3-f32` comes closest to its tolerance.
    const SOME: &[&str] = &[
        "qwen3moe-q4_k_m",
        "odd-f32",
        "gemma3-f32",
        "gpt-oss-mxfp4",
        "lfm2-f32",
        "qwen3next-f32",
        "qwen35-f32",
        "nemotron_h-f32",
        "nemotron_h_moe-q8_0",
        "falcon-h1-plain-f32",
        "granitehybrid-q8_0",
        "mamba2-f32",
        "jamba-f32",
        "gemma2-q8_0",
        "mistral3-q8_0",
        "llama4-q8_0",
        "smollm3-q8_0",
        "gemma4-q8_0",
        "gemma4-moe-q8_0",
        "gemma4-e-f32",
        "gemma4-e-q8_0",
        "phi3-q8_0",
        "glm4-q8_0",
        "olmo3-q8_0",
        "exaone4-q8_0",
        "cohere2-q8_0",
        "cohere2moe-q8_0",
        "muse-glimmer-q8_0",
        "mimo2-q8_0",
        "minimax-m3-q8_0",
        "step35-q8_0",
    ];
    /// Routers with a bias, and norms of queries and keys after their rotation.
    const BIASED: &[&str] = &[
        "dots1-q8_0",
        "ernie4_5-moe-q8_0",
        "glm4moe-q8_0",
        "hunyuan-moe-q8_0",
        "minimax-m2-q8_0",
        "exaone-moe-q8_0",
        "bailingmoe2-q8_0",
        "afmoe-q8_0",
        "laguna-q8_0",
        "hy_v3-q8_0",
        "deepseek2-q8_0",
        "kimi-linear-f32",
        "bailingmoe3-q8_0",
    ];

    /// The device is locked during a pass that counts.
    #[test]
    fn experts_are_counted_as_on_a_cpu() {
        const NAME: &str = "qwen3moe-f32";
        let golden = Golden::read(NAME);
        let file = GgufFile::open(golden_path(NAME)).unwrap();
        let counts = |backend: Arc<Backend>| {
            let model = load(&file, backend, Precision::Fast);
            let mut runner = Runner::new(model, Limits { context: Some(64), ..Limits::default() }).unwrap();
            runner.count_experts(true);
            let sequence = runner.open_sequence().unwrap();
            runner.forward(Batch::new().push(sequence, &golden.sequences[0][..13], Outputs::Last)).unwrap();
            runner.expert_counts().to_vec()
        };
        let expected = counts(Arc::new(Cpu::backend(Level::best(), 1).unwrap()));
        assert!(expected.iter().flatten().sum::<u32>() > 0);
        assert_eq!(counts(Arc::new(Simulator::cuda(1, Mode::Fast).unwrap())), expected);
        assert_eq!(counts(Arc::new(Simulator::metal(1, Mode::Fast).unwrap())), expected);
    }

    #[test]
    fn some_models_on_cuda() {
        on_cuda(&[SOME, BIASED].concat());
    }

    #[test]
    #[ignore = "a minute"]
    fn all_models_on_cuda() {
        on_cuda(&models());
    }

    fn on_cuda(models: &[&str]) {
        let backend: [Arc<Backend>; 1] = [Arc::new(Simulator::cuda(1, Mode::Fast).unwrap())];
        check(models, || backend.to_vec(), Precision::Fast, |golden| golden.tolerance);
    }

    /// Metal multiplies floats also where it may round.
    fn on_metal(models: &[&str]) {
        let backend: [Arc<Backend>; 1] = [Arc::new(Simulator::metal(1, Mode::Fast).unwrap())];
        check(models, || backend.to_vec(), Precision::Fast, |_| EXACT_TOLERANCE);
    }

    #[test]
    fn some_models_on_metal() {
        on_metal(SOME);
    }

    #[test]
    #[ignore = "ten seconds"]
    fn all_models_on_metal() {
        on_metal(&models());
    }
}

#[test]
fn with_exact_activations_every_format_is_as_good_as_f32() {
    check_on_drawn(&models(), Precision::Exact, |_| EXACT_TOLERANCE);
}

#[test]
#[ignore = "a minute"]
fn with_exact_activations_every_format_is_as_good_as_f32_on_every_level() {
    check_on_all(&models(), Precision::Exact, |_| EXACT_TOLERANCE);
}

#[test]
fn zeroing_any_block_moves_the_logits_far() {
    let backend: Arc<Backend> = Arc::new(Cpu::backend(Level::best(), 2).unwrap());
    for name in models() {
        let golden = Golden::read(name);
        let bytes = std::fs::read(golden_path(name)).unwrap();
        let file = GgufFile::open(golden_path(name)).unwrap();
        // A block's output is the product of its last weight; zero bytes decode to zero in every format.
        let last = |name: &str| {
            let parts =
                ["attn_output.", "shortconv.out_proj.", "ssm_out.", "ffn_down.", "ffn_down_exps.", "ffn_down_shexp."];
            let of_input = name.starts_with("blk.") && name.ends_with(".proj.weight");
            parts.iter().any(|part| name.contains(part)) || of_input
        };
        let spec = ModelInfo::read(&file).unwrap().spec;
        let loaded = file.tensors().iter().filter(|t| last(&t.name) && !spec.leaves_out(&t.name));
        let blocks: BTreeSet<&str> = loaded.map(|t| t.name.rsplit_once('.').unwrap().0).collect();
        let shared = blocks.iter().filter(|block| block.ends_with("shexp")).count();
        let beside = |mlp: &Option<MlpSpec>| matches!(mlp, Some(MlpSpec::Moe(MoeSpec { beside: Some(_), .. })));
        let mixers = spec.layers.iter().map(|layer| layer.mixer.parts().len()).sum::<usize>();
        let mlps = |mlp: &Option<MlpSpec>| usize::from(mlp.is_some()) + usize::from(beside(mlp));
        let mlps = spec.layers.iter().map(|layer| mlps(&layer.mlp)).sum::<usize>();
        let inputs = if spec.layer_inputs.is_some() { spec.layers.len() } else { 0 };
        assert_eq!(blocks.len() - shared, mixers + mlps + inputs);
        let expected = [
            "afmoe",
            "bailingmoe2",
            "bailingmoe3",
            "deepseek",
            "dots1",
            "ernie4_5-moe-f32",
            "exaone-moe",
            "glm4-lite",
            "glm4moe",
            "glm4v-moe",
            "granitehybrid-f32",
            "granitemoe-q8_0",
            "hunyuan-moe",
            "hy_v3",
            "kimi-linear",
            "laguna",
            "llama4",
            "minimax-m3",
            "mistral4",
            "nemotron_h_moe",
            "qwen2moe",
            "qwen35moe",
            "qwen3next",
            "step35",
        ]
        .iter()
        .any(|start| name.starts_with(start));
        assert_eq!(shared > 0, expected);
        for block in blocks {
            let mut bytes = bytes.clone();
            for tensor in file.tensors().iter().filter(|t| t.name.starts_with(&format!("{block}."))) {
                bytes[tensor.offset as usize..][..tensor.bytes as usize].fill(0);
            }
            let model = load(&GgufFile::from_bytes(bytes).unwrap(), backend.clone(), Precision::Fast);
            let mut run = Run::new(&golden, &model);
            let moved = run.step(&[(0, golden.sequences[0].len())]).value();
            assert!(moved > 100.0 * golden.tolerance, "{name}: without {block} the logits move by only {moved:.1e}");
        }
    }
}
