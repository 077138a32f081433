//! Forced experts: the routers' choices are those of the caller on every backend and wherever the experts are, and a model's own
//! choices give its own logits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{Batch, Error, ForcedExperts, Limits, LoadOptions, Model, Outputs, Runner, SequenceId};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_suite::rng::Rng;
use gristmill_suite::testing;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.gguf"))
}

fn cpu() -> Arc<Backend> {
    Arc::new(Cpu::backend(Level::best(), 1).unwrap())
}

fn load(name: &str, backend: Arc<Backend>, options: LoadOptions) -> Arc<Model> {
    Arc::new(Model::with_backend(GgufFile::open(path(name)).unwrap(), backend, options).unwrap())
}

fn limits() -> Limits {
    Limits { context: Some(64), sequences: 2, batch_tokens: 32, output_rows: Some(32), ..Limits::default() }
}

/// Softmax and sigmoid routers, with and without a selection bias, groups, normalised weights, and scales of experts; a router that
/// weighs inputs; dense layers.
const MODELS: &[&str] = &[
    "qwen3moe-q4_k_m",
    "gpt-oss-mxfp4",
    "qwen2moe-q8_0",
    "glm4moe-q8_0",
    "gemma4-moe-q8_0",
    "deepseek2-q8_0",
    "llama4-q8_0",
    "phimoe-q8_0",
    "olmoe-q4_k_m",
];

/// Tokens of two sequences in each step; those of one token are captured and replayed on a device.
const STEPS: [[usize; 2]; 6] = [[9, 0], [1, 3], [1, 1], [1, 1], [1, 1], [1, 1]];

/// Different experts for each token, with weights or without.
fn random_experts(model: &Model, rng: &mut Rng) -> ForcedExperts {
    let mut experts = ForcedExperts::default();
    let weighted = rng.below(2) == 0;
    for router in model.spec().routers() {
        let mut left: Vec<u32> = (0..router.experts as u32).collect();
        for _ in 0..router.top_k {
            experts.ids.push(left.swap_remove(rng.below(left.len())));
            experts.weights.extend(weighted.then(|| 0.05 + rng.below(100) as f32 / 100.0));
        }
    }
    experts
}

/// The experts that were chosen for each token of a pass.
fn chosen(runner: &Runner) -> Vec<ForcedExperts> {
    let routing = runner.routing().unwrap();
    let of = |token| {
        let (ids, weights) = routing.of_token(token).into_iter().flatten().unzip();
        ForcedExperts { ids, weights }
    };
    (0..routing.tokens()).map(of).collect()
}

/// A batch of a step, with tokens that depend on their positions only.
fn batch(runner: &Runner, sequences: &[SequenceId], step: [usize; 2]) -> Batch {
    let mut batch = Batch::new();
    for (&sequence, count) in sequences.iter().zip(step).filter(|(_, count)| *count > 0) {
        let start = runner.sequence_len(sequence).unwrap();
        let tokens: Vec<u32> = (start..start + count).map(|at| 3 + 7 * at as u32 % 50).collect();
        batch.push(sequence, &tokens, Outputs::All);
    }
    batch
}

/// Logits and choices of all steps, with forced experts in `force`, the first step first.
fn run(model: &Arc<Model>, force: Option<&[Vec<ForcedExperts>]>) -> (Vec<f32>, Vec<Vec<ForcedExperts>>) {
    let mut runner = Runner::new(Arc::clone(model), limits()).unwrap();
    let sequences = [(); 2].map(|()| runner.open_sequence().unwrap());
    let (mut logits, mut choices) = (Vec::new(), Vec::new());
    for (i, &step) in STEPS.iter().enumerate() {
        let batch = batch(&runner, &sequences, step);
        let pass = match force {
            Some(experts) => runner.forward_forced(&batch, &experts[i]),
            None => runner.forward(&batch),
        };
        logits.extend(pass.unwrap().to_vec().unwrap());
        choices.push(chosen(&runner));
    }
    (logits, choices)
}

fn forced(model: &Model) -> Vec<Vec<ForcedExperts>> {
    let seed = testing::seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    STEPS.iter().map(|step| (0..step[0] + step[1]).map(|_| random_experts(model, &mut rng)).collect()).collect()
}

/// Compares the experts of each layer, and the ratios of their weights.
fn assert_chosen(model: &Model, found: &[Vec<ForcedExperts>], expected: &[Vec<ForcedExperts>]) {
    let top_k: Vec<usize> = model.spec().routers().iter().map(|router| router.top_k).collect();
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        let mut first = 0;
        for &k in &top_k {
            let sorted = |experts: &ForcedExperts| {
                let weights = experts.weights.get(first..first + k).map_or(vec![1.0; k], <[f32]>::to_vec);
                let sum: f32 = weights.iter().sum();
                let mut all: Vec<(u32, f32)> =
                    experts.ids[first..first + k].iter().copied().zip(weights.iter().map(|w| w / sum)).collect();
                all.sort_by_key(|pair| pair.0);
                all
            };
            let (found, expected) = (sorted(found), sorted(expected));
            for ((id, weight), (expected_id, expected)) in found.iter().zip(&expected) {
                assert_eq!(id, expected_id, "{found:?}");
                assert!((weight - expected).abs() <= 1e-5, "{found:?}, {expected:?}");
            }
            first += k;
        }
    }
    assert_eq!(found.iter().flatten().count(), STEPS.iter().flatten().sum::<usize>());
}

fn error(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let error: f64 = found.iter().zip(expected).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    error / expected.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>()
}

#[test]
fn a_models_own_choices_give_its_logits() {
    for name in MODELS {
        let model = load(name, cpu(), LoadOptions::default());
        let (expected, own) = run(&model, None);
        let (found, choices) = run(&model, Some(&own));
        assert_chosen(&model, &choices, &own);
        let error = error(&found, &expected);
        println!("{name}: NMSE {error:.1e}");
        // Only roundings of the weights and the order of the sums differ; an int8 activation may differ by one step.
        assert!(error <= 1e-5, "{name}: NMSE {error:.1e}");
        let (other, _) = run(&model, Some(&forced(&model)));
        assert!(self::error(&other, &expected) > 1e-3, "{name}: other experts, but the same logits");
    }
}

#[cfg(all(target_arch = "x86_64", unix))]
#[test]
fn forced_experts_are_chosen_wherever_they_are() {
    use gpu_sim::{Mode, Order};
    use gristmill_conformance::simulated::Simulator;
    use gristmill_cuda::{Cuda, HostExperts, Options};
    use gristmill_engine::ExpertPlacement::{self, Cpu, Device, Slots};

    for name in MODELS {
        let on_cpu = load(name, cpu(), LoadOptions::default());
        let experts = forced(&on_cpu);
        let (expected, choices) = run(&on_cpu, Some(&experts));
        assert_chosen(&on_cpu, &choices, &experts);
        let top_k = on_cpu.spec().routers().iter().map(|router| router.top_k).max().unwrap();
        let placements: &[ExpertPlacement] =
            if *name == "llama4-q8_0" { &[Device] } else { &[Device, Cpu, Slots(top_k)] };
        for &placement in placements {
            let gpu = Simulator::new(Order::Ascending, Mode::Fast);
            let backend = Cuda::backend_with_host_experts(gpu, Options::default(), HostExperts::new(cpu())).unwrap();
            let options = LoadOptions { experts: placement, ..LoadOptions::default() };
            let model = load(name, Arc::new(backend), options);
            let (found, choices) = run(&model, Some(&experts));
            assert_chosen(&model, &choices, &experts);
            let error = error(&found, &expected);
            println!("{name}, {placement}: NMSE {error:.1e}");
            // Each backend may have 1e-3 from the exact logits.
            assert!(error <= 4e-3, "{name}, {placement}: NMSE {error:.1e}");
            if let Slots(_) = placement {
                let pairs: usize = experts.iter().flatten().map(|experts| experts.ids.len()).sum();
                // The last choices are counted after their rows are sent.
                let start = std::time::Instant::now();
                let counted = || model.backend().offload().slot_usage().map_or(0, |usage| usage.hits + usage.misses);
                while counted() != pairs as u64 {
                    assert!(start.elapsed().as_secs() < 10, "{} of {pairs} choices", counted());
                }
            }
        }
    }
}

/// A pass without forced experts follows one with them, captured or not.
#[test]
fn a_pass_is_forced_alone() {
    let model = load(MODELS[0], cpu(), LoadOptions::default());
    let (expected, own) = run(&model, None);
    let mut runner = Runner::new(Arc::clone(&model), limits()).unwrap();
    let sequences = [(); 2].map(|()| runner.open_sequence().unwrap());
    let prompt = batch(&runner, &sequences, STEPS[0]);
    runner.forward_forced(&prompt, &forced(&model)[0]).unwrap();
    sequences.iter().for_each(|&sequence| runner.truncate(sequence, 0).unwrap());
    let logits = runner.forward(&prompt).unwrap().to_vec().unwrap();
    assert_eq!(logits, expected[..logits.len()]);
    assert_eq!(chosen(&runner), own[0]);
}

#[test]
fn wrong_experts_are_refused_by_name() {
    let model = load(MODELS[0], cpu(), LoadOptions::default());
    let router = model.spec().routers()[0];
    let right = random_experts(&model, &mut Rng::new(1));
    let ids = right.ids.clone();
    let k = router.top_k;
    let with = |change: &dyn Fn(&mut ForcedExperts)| {
        let mut experts = ForcedExperts { weights: vec![0.5; ids.len()], ids: ids.clone() };
        change(&mut experts);
        experts
    };
    let cases = [
        (with(&|e| e.ids[k] = router.experts as u32), "layer 1: there is no expert"),
        (with(&|e| e.ids[1] = e.ids[0]), "layer 0: expert"),
        (with(&|e| e.weights.truncate(1)), "weights (expected"),
        (with(&|e| e.weights[0] = f32::NAN), "layer 0: a weight is NaN"),
        (with(&|e| e.weights[..k].fill(0.0)), "layer 0: the sum of the weights is 0"),
        (
            with(&|e| {
                e.ids.pop();
                e.weights.clear()
            }),
            "experts (expected",
        ),
        (
            with(&|e| {
                e.ids.push(0);
                e.weights.clear()
            }),
            "1 more experts (expected none)",
        ),
    ];
    let mut runner = Runner::new(Arc::clone(&model), limits()).unwrap();
    let sequence = runner.open_sequence().unwrap();
    let mut batch = Batch::new();
    batch.push(sequence, &[5], Outputs::All);
    for (experts, expected) in cases {
        let message = runner.forward_forced(&batch, &[experts]).expect_err("wrong experts").to_string();
        assert!(message.starts_with("forced experts of layer ") && message.contains(expected), "{message}");
    }
    let error = runner.forward_forced(&batch, &[]).expect_err("no experts");
    assert!(matches!(error, Error::ForcedTokens { found: 0, tokens: 1 }), "{error}");
    assert_eq!(runner.sequence_len(sequence).unwrap(), 0);
    runner.forward_forced(&batch, &[right]).unwrap();
}
