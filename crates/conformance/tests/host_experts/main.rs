//! Experts in host memory on a simulated GPU: the tokens of a device that has all experts, and what happens if the host is
//! late, fails or stops.
#![cfg(all(target_arch = "x86_64", unix))]

mod disk;
mod full;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gpu_sim::{Language, Mode, Order};
use gristmill_conformance::simulated::{Copies, Simulator, cache_of_changed};
use gristmill_conformance::sources;
use gristmill_cpu::{Cpu, Level};
use gristmill_cuda::{Choice, Cuda, HostExperts, Options};
use gristmill_engine::{
    Batch, Error, ExpertPlacement, Limits, LoadOptions, Model, ModelInfo, Outputs, Plan, Precision, Runner,
    place_experts,
};
use gristmill_files::gguf::{Array, GgufFile, Value};
use gristmill_kernels::act::Act;
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::kv::{KvCache, KvSpec};
use gristmill_kernels::ops::*;
use gristmill_kernels::reference::Reference;
use gristmill_kernels::tensor::DeviceId;
use gristmill_kernels::weight::{Footprint, Prepared, Role, TensorShape, TensorView};
use gristmill_kernels::{Backend, with_operations};
use gristmill_suite::rng::Rng;
use gristmill_suite::testing;

/// Two placements agree if their best tokens do, except where the two best logits are closer than this share of the largest.
const TIE: f32 = 2e-2;
/// Normalised squared error between the logits of two placements, for kernels by the number of rows, some of which have
/// bfloat16 activations, and for kernels that multiply int8 activations only. Then sums differ in their order, and an int8 number
/// of an expert's inner row may differ by one step.
const TOLERANCES: [(Choice, f64); 2] = [(Choice::Fastest, 1e-3), (Choice::Deterministic, 1e-5)];

fn file(name: &str) -> GgufFile {
    GgufFile::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.gguf"))).unwrap()
}

fn cpu() -> Arc<Backend> {
    Arc::new(Cpu::backend(Level::best(), 1).unwrap())
}

fn device(options: Options, host: Option<HostExperts>, mode: Mode) -> gristmill_kernels::Result<Arc<Backend>> {
    let gpu = Simulator::new(Order::Ascending, mode);
    Ok(Arc::new(match host {
        Some(host) => Cuda::backend_with_host_experts(gpu, options, host)?,
        None => Cuda::backend(gpu, options)?,
    }))
}

fn load(name: &str, backend: Arc<Backend>, experts: ExpertPlacement, precision: Precision) -> Arc<Model> {
    let options = LoadOptions { experts, precision, ..LoadOptions::default() };
    Arc::new(Model::with_backend(file(name), backend, options).unwrap())
}

fn limits() -> Limits {
    Limits { context: Some(64), sequences: 3, batch_tokens: 32, output_rows: Some(32), ..Limits::default() }
}

/// The golden tokens of a model, which keep every router far from a tie.
fn tokens(name: &str) -> Vec<Vec<u32>> {
    let file = file(&format!("{name}.logits"));
    let value = |sequence: usize| file.metadata().value(&format!("golden.tokens.{sequence}"));
    let integers = |value: &Value| -> Vec<u32> {
        let Value::Array(tokens) = value else { panic!("{name}: tokens are an array") };
        Array::integers(tokens).unwrap().map(|token| token.try_into().unwrap()).collect()
    };
    (0..3).map(|sequence| integers(value(sequence).expect("three sequences"))).collect()
}

/// Tokens of three sequences in each step: a prompt, single tokens (whose steps are captured and replayed), and all sequences.
const STEPS: [[usize; 3]; 8] =
    [[13, 0, 0], [1, 2, 0], [1, 0, 2], [1, 1, 1], [1, 1, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0]];

/// Logits of these steps.
fn logits(name: &str, model: &Arc<Model>) -> Result<Vec<f32>, Error> {
    logits_of(name, model, &STEPS)
}

fn logits_of(name: &str, model: &Arc<Model>, steps: &[[usize; 3]]) -> Result<Vec<f32>, Error> {
    let tokens = tokens(name);
    let mut runner = Runner::new(Arc::clone(model), limits())?;
    let sequences: Vec<_> = (0..3).map(|_| runner.open_sequence()).collect::<Result<_, _>>()?;
    let mut all = Vec::new();
    for &counts in steps {
        let mut batch = Batch::new();
        for ((&sequence, tokens), count) in sequences.iter().zip(&tokens).zip(counts).filter(|(_, count)| *count > 0) {
            let start = runner.sequence_len(sequence)?;
            batch.push(sequence, &tokens[start..start + count], Outputs::All);
        }
        all.extend(runner.forward(&batch)?.to_vec()?);
    }
    Ok(all)
}

/// Compares logits by the equality rule; returns the number of excluded positions.
fn compare(name: &str, tolerance: f64, vocab: usize, found: &[f32], expected: &[f32]) -> usize {
    assert_eq!(found.len(), expected.len());
    let (error, norm) = found.iter().zip(expected).fold((0.0, 0.0), |(error, norm), (&found, &expected)| {
        (error + f64::from(found - expected).powi(2), norm + f64::from(expected).powi(2))
    });
    println!("{name}: NMSE {:.1e}", error / norm);
    assert!(error <= tolerance * norm, "{name}: NMSE {:.1e}", error / norm);
    let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a))).unwrap();
    let mut excluded = 0;
    for (found, expected) in found.chunks(vocab).zip(expected.chunks(vocab)) {
        let mut sorted = expected.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let largest = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        if sorted[0] - sorted[1] <= TIE * largest {
            excluded += 1;
            continue;
        }
        assert_eq!(best(found), best(expected), "{name}");
    }
    excluded
}

/// Models with softmax and sigmoid routers, biases, shared experts, dense layers, MXFP4, and experts without gates.
const MODELS: &[&str] = &[
    "qwen3moe-q4_k_m",
    "gpt-oss-mxfp4",
    "qwen2moe-q8_0",
    "glm4moe-q8_0",
    "gemma4-moe-q8_0",
    "deepseek2-q8_0",
    "nemotron_h_moe-q8_0",
    "qwen3moe-f32",
];

/// Compares the model with experts on the CPU with the model that has all on the device.
fn compare_placements(name: &str, choice: Choice, tolerance: f64) {
    let options = Options { choice };
    let on_device = load(name, device(options, None, Mode::Fast).unwrap(), ExpertPlacement::Device, Precision::Fast);
    let expected = logits(name, &on_device).unwrap();
    let vocab = on_device.spec().vocab;
    let first = on_device.spec().routers().iter().position(|router| router.experts > 0).expect("a layer with experts");
    for experts in [ExpertPlacement::Cpu, ExpertPlacement::FirstLayersOnCpu(first + 1)] {
        let backend = device(options, Some(HostExperts::new(cpu())), Mode::Fast).unwrap();
        let on_host = load(name, backend, experts, Precision::Fast);
        let excluded = compare(name, tolerance, vocab, &logits(name, &on_host).unwrap(), &expected);
        let positions = expected.len() / vocab;
        println!("{name}, {choice:?}, {experts}: {positions} positions, {excluded} excluded");
        assert!(excluded < positions, "{name}: nothing was compared");
    }
}

#[test]
fn tokens_are_those_of_all_experts_on_the_device() {
    for name in MODELS {
        for (choice, tolerance) in TOLERANCES {
            compare_placements(name, choice, tolerance);
        }
    }
}

/// With a fixed placement, a token's bits depend on its own sequence only.
#[test]
fn a_deterministic_backend_stays_deterministic() {
    let backend = device(Options { choice: Choice::Deterministic }, Some(HostExperts::new(cpu())), Mode::Fast).unwrap();
    let model = load(NAME, backend, ExpertPlacement::FirstLayersOnCpu(1), Precision::Fast);
    let tokens = tokens(NAME);
    let run = |steps: &[usize], with_others: bool| -> Vec<f32> {
        let mut runner = Runner::new(Arc::clone(&model), limits()).unwrap();
        let [sequence, other] = [(); 2].map(|()| runner.open_sequence().unwrap());
        let (mut all, mut start) = (Vec::new(), 0);
        for (step, &count) in steps.iter().enumerate() {
            let mut batch = Batch::new();
            batch.push(sequence, &tokens[0][start..start + count], Outputs::All);
            if with_others && step < tokens[1].len() {
                batch.push(other, &tokens[1][step..=step], Outputs::None);
            }
            all.extend(runner.forward(&batch).unwrap().to_vec().unwrap());
            start += count;
        }
        all
    };
    let expected = run(&[17], false);
    assert_eq!(run(&[1; 17], false), expected);
    assert_eq!(run(&[5, 1, 1, 1, 9], true), expected);
}

/// With exact activations, only the order of sums differs.
#[test]
fn exact_activations_are_computed_exactly() {
    for name in ["qwen3moe-q4_k_m", "gpt-oss-mxfp4"] {
        let [expected, found] = [None, Some(HostExperts::new(cpu()))].map(|host| {
            let experts = if host.is_some() { ExpertPlacement::Cpu } else { ExpertPlacement::Device };
            let backend = device(Options::default(), host, Mode::Fast).unwrap();
            logits(name, &load(name, backend, experts, Precision::Exact)).unwrap()
        });
        let error: f64 = found.iter().zip(&expected).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let norm: f64 = expected.iter().map(|x| f64::from(*x).powi(2)).sum();
        assert!(error <= 1e-6 * norm, "{name}: NMSE {:.1e}", error / norm);
    }
}

/// The rows of a batch that does not fit the mailbox come in several requests, with the same bits.
#[test]
fn a_batch_can_be_split_into_requests() {
    let name = "qwen3moe-q4_k_m";
    let found = [32 << 20, 8 << 10, 4 << 10].map(|rows_bytes| {
        let host = HostExperts { rows_bytes, ..HostExperts::new(cpu()) };
        let options = Options { choice: Choice::Deterministic };
        let backend = device(options, Some(host), Mode::Fast).unwrap();
        logits(name, &load(name, backend, ExpertPlacement::Cpu, Precision::Fast)).unwrap()
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}

/// The model of the tests of faults.
const NAME: &str = "qwen3moe-q4_k_m";

/// What the host does before each product of experts.
#[derive(Clone, Copy)]
enum Misbehaviour {
    Nothing,
    /// Waits for up to this number of milliseconds, at random.
    Late(u64),
    /// Waits for this number of milliseconds in the request after the first few.
    Stalled {
        after: u64,
        milliseconds: u64,
    },
    /// Panics in the request after the first few.
    Panics {
        after: u64,
    },
}

/// Kernels that read activations of f32 from the device.
struct Host {
    kernels: Box<dyn Kernels>,
    does: Misbehaviour,
    calls: AtomicU64,
}

impl Host {
    fn before(&self, kernel: &str) {
        if kernel != "moe_matmul" {
            return;
        }
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.does {
            Misbehaviour::Late(most) => thread::sleep(Duration::from_millis(calls.wrapping_mul(7919) % (most + 1))),
            Misbehaviour::Stalled { after, milliseconds } if calls == after => {
                thread::sleep(Duration::from_millis(milliseconds));
            }
            Misbehaviour::Panics { after } if calls == after => panic!("a planned panic"),
            _ => {}
        }
    }
}

macro_rules! operations {
    ($($kernel:ident($Operation:ident),)*) => {
        $(fn $kernel(&self, call: Checked<$Operation>) -> gristmill_kernels::Result<()> {
            self.before(stringify!($kernel));
            self.kernels.$kernel(call)
        })*
    };
}

impl Kernels for Host {
    fn name(&self) -> String {
        self.kernels.name()
    }
    fn device(&self) -> DeviceId {
        self.kernels.device()
    }
    fn deterministic(&self) -> bool {
        self.kernels.deterministic()
    }
    fn alloc_act(&self, precision: Precision, rows: usize, cols: usize) -> gristmill_kernels::Result<Act> {
        self.kernels.alloc_act(precision, rows, cols)
    }
    fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> gristmill_kernels::Result<KvCache> {
        self.kernels.alloc_kv(spec, blocks)
    }
    fn tiling(&self) -> Tiling {
        self.kernels.tiling()
    }
    fn footprint(&self, shape: &TensorShape, role: Role) -> Footprint {
        self.kernels.footprint(shape, role)
    }
    fn prepare(&self, tensors: &[TensorView], role: Role) -> gristmill_kernels::Result<Prepared> {
        self.kernels.prepare(tensors, role)
    }
    with_operations!(operations);
}

/// The model with a host that misbehaves.
fn misbehaving(does: Misbehaviour, deadline: Duration) -> Arc<Model> {
    let backend = Arc::new(Backend::new(Host { kernels: Box::new(Reference), does, calls: AtomicU64::new(0) }));
    let host = HostExperts { deadline, ..HostExperts::new(backend) };
    let backend = device(Options::default(), Some(host), Mode::Fast).unwrap();
    load(NAME, backend, ExpertPlacement::Cpu, Precision::Fast)
}

/// The device's int8 activations are those that the CPU makes of the same numbers, to the bit.
#[test]
fn devices_round_activations_alike() {
    for name in ["qwen3moe-q4_k_m", "gpt-oss-mxfp4"] {
        let kernels = Box::new(Cpu::new(Level::best(), 1).unwrap());
        let in_f32 = Arc::new(Backend::new(Host { kernels, does: Misbehaviour::Nothing, calls: AtomicU64::new(0) }));
        let [int8, in_f32] = [cpu(), in_f32].map(|backend| {
            let device = device(Options::default(), Some(HostExperts::new(backend)), Mode::Fast).unwrap();
            logits(name, &load(name, device, ExpertPlacement::Cpu, Precision::Fast)).unwrap()
        });
        assert_eq!(int8, in_f32, "{name}");
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn late_rows_change_nothing() {
    let [soon, late] = [0, 3].map(|most| logits(NAME, &misbehaving(Misbehaviour::Late(most), LONG)).unwrap());
    assert_eq!(soon, late);
}

/// The first failure ends the step; later layers do not wait again. No step after it has an output.
#[test]
fn a_stalled_host_is_an_error_at_the_deadline() {
    let deadline = Duration::from_millis(200);
    let model = misbehaving(Misbehaviour::Stalled { after: 5, milliseconds: 1500 }, deadline);
    let start = Instant::now();
    let error = logits(NAME, &model).expect_err("rows are missing");
    assert!(error.is_of_device(), "{error}");
    let message = error.to_string();
    assert!(message.contains("the CPU did not return") && message.contains("within 200 ms"), "{message}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    // The host has answered by now; the answer is ignored.
    thread::sleep(Duration::from_millis(1500));
    let start = Instant::now();
    assert!(logits(NAME, &model).is_err());
    assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
}

#[test]
fn a_panic_of_the_host_is_an_error_at_once() {
    for after in [0, 7] {
        let model = misbehaving(Misbehaviour::Panics { after }, LONG);
        let start = Instant::now();
        let error = logits(NAME, &model).expect_err("rows are missing");
        assert!(error.is_of_device() && error.to_string().contains("a planned panic"), "{error}");
        assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
    }
}

#[test]
fn memory_that_is_not_pinned_is_an_error() {
    let host = HostExperts { rows_bytes: 1 << 50, ..HostExperts::new(cpu()) };
    let error = device(Options::default(), Some(host), Mode::Fast).expect_err("too much");
    assert!(error.to_string().contains("the mailbox of the experts on the CPU"), "{error}");
    let gpu = Simulator::with(Language::Metal, Order::Ascending, Mode::Fast, Vec::new());
    let host = HostExperts::new(cpu());
    let error = Cuda::backend_with_host_experts(gpu, Options::default(), host).expect_err("no such memory");
    assert!(error.to_string().contains("cannot wait for threads of the host"), "{error}");
}

/// Every access of the two kernels is checked, in several orders of threads and blocks.
#[test]
fn the_kernels_stay_within_their_arguments() {
    for order in [Order::Ascending, Order::Descending, Order::Shuffled(testing::seed())] {
        println!("{order:?}");
        let host = HostExperts { rows_bytes: 8 << 10, ..HostExperts::new(cpu()) };
        let gpu = Simulator::new(order, Mode::Checked);
        let backend = Arc::new(Cuda::backend_with_host_experts(gpu, Options::default(), host).unwrap());
        let model = load("qwen3moe-q4_k_m", backend, ExpertPlacement::Cpu, Precision::Fast);
        let mut runner = Runner::new(model, limits()).unwrap();
        let sequence = runner.open_sequence().unwrap();
        for tokens in [&[1, 2, 3, 4, 5, 6, 7][..], &[8], &[9], &[10]] {
            runner.forward(Batch::new().push(sequence, tokens, Outputs::Last)).unwrap().to_vec().unwrap();
        }
        assert!(runner.graphs().captures > 0);
    }
}

/// A dry run finds the kernels, and neither asks the host nor counts requests.
#[test]
fn kernels_are_compiled_before_the_first_step() {
    let gpu = Simulator::new(Order::Ascending, Mode::Fast);
    let host = HostExperts::new(cpu());
    let backend = Arc::new(Cuda::backend_with_host_experts(gpu.clone(), Options::default(), host).unwrap());
    let model = load("gpt-oss-mxfp4", backend, ExpertPlacement::Cpu, Precision::Fast);
    let limits = Limits { context: Some(64), batch_tokens: 1, ..Limits::default() };
    model.make_ready(&limits, |_| ()).unwrap();
    let compiled = gpu.compiled();
    assert!(gpu.files().contains("host_experts.cu"));
    let mut runner = Runner::new(model, limits).unwrap();
    let sequence = runner.open_sequence().unwrap();
    for token in 1..4 {
        runner.forward(Batch::new().push(sequence, &[token], Outputs::Last)).unwrap().argmax().unwrap();
    }
    assert_eq!(gpu.compiled(), compiled);
}

#[test]
fn memory_is_planned_and_the_conditions_name_the_mode() {
    let backend = device(Options::default(), Some(HostExperts::new(cpu())), Mode::Fast).unwrap();
    let options = LoadOptions { experts: ExpertPlacement::Cpu, ..LoadOptions::default() };
    let [all, placed] = [&LoadOptions::default(), &options].map(|options| {
        let info = ModelInfo::read_for(&file("qwen3moe-q4_k_m"), options).unwrap();
        Plan::new(&info, &limits(), Precision::Fast, &backend).unwrap()
    });
    assert_eq!(all.host, 0);
    assert!(placed.host > 0 && placed.weights < all.weights);
    assert!(backend.arithmetic().iter().any(|part| part.starts_with("experts on cpu: ")));
    let model = Model::with_backend(file("qwen3moe-q4_k_m"), backend, options).unwrap();
    assert_eq!(model.prepared_bytes(), placed.weights + placed.host - vectors(&model));
}

/// Bytes of the weights that are no matrices.
fn vectors(model: &Model) -> u64 {
    let elements: u64 = model.file().tensors().iter().filter(|t| t.shape.len() == 1).map(|t| t.elements()).sum();
    4 * elements
}

#[test]
fn what_cannot_be_placed_is_refused_by_name() {
    let load = |name, experts, host: Option<HostExperts>| {
        let options = LoadOptions { experts, ..LoadOptions::default() };
        Model::with_backend(file(name), device(Options::default(), host, Mode::Fast).unwrap(), options)
            .expect_err("it cannot be placed")
            .to_string()
    };
    let host = || Some(HostExperts::new(cpu()));
    let refusals = [
        ("qwen3moe-q4_k_m", ExpertPlacement::Cpu, None, "opened without a CPU"),
        ("qwen3-q8_0", ExpertPlacement::Cpu, host(), "the model has no experts"),
        ("glm4moe-q8_0", ExpertPlacement::FirstLayersOnCpu(1), host(), "none of the first 1 layers has experts"),
        ("llama4-q8_0", ExpertPlacement::Cpu, host(), "multiplies the experts' input"),
    ];
    for (name, experts, host, expected) in refusals {
        let message = load(name, experts, host);
        assert!(message.starts_with("placement of experts: ") && message.contains(expected), "{message}");
    }
}

/// Experts and choices of each token in [`NAME`].
fn experts_of(name: &str) -> (usize, usize) {
    let info = ModelInfo::read(&file(name)).unwrap();
    let router = info.spec.routers().into_iter().find(|router| router.experts > 0).unwrap();
    (router.experts, router.top_k)
}

/// A model with slots on a simulator whose copies arrive so.
fn with_slots(name: &str, slots: usize, choice: Choice, copies: Copies) -> Arc<Model> {
    let gpu = Simulator::new(Order::Ascending, Mode::Fast);
    gpu.set_copies(copies);
    let backend = Cuda::backend_with_host_experts(gpu, Options { choice }, HostExperts::new(cpu())).unwrap();
    load(name, Arc::new(backend), ExpertPlacement::Slots(slots), Precision::Fast)
}

/// Single tokens, whose experts are few, between two steps of three sequences.
const SINGLE_TOKENS: [[usize; 3]; 19] = {
    let mut steps = [[1, 0, 0]; 19];
    (steps[2], steps[16]) = ([1, 1, 1], [1, 1, 1]);
    steps
};

/// The tokens of all experts on the device, with few and many slots, whatever experts are in them, and however late copies arrive.
#[test]
fn slots_change_no_tokens() {
    for name in MODELS {
        let (experts, top_k) = experts_of(name);
        // Both choices for two models.
        let choices = if [NAME, "gpt-oss-mxfp4"].contains(name) { &TOLERANCES[..] } else { &TOLERANCES[..1] };
        for &(choice, tolerance) in choices {
            let options = Options { choice };
            let on_device =
                load(name, device(options, None, Mode::Fast).unwrap(), ExpertPlacement::Device, Precision::Fast);
            let expected = logits_of(name, &on_device, &SINGLE_TOKENS).unwrap();
            let vocab = on_device.spec().vocab;
            // All numbers for one model; one of them, another in each run, for the rest.
            let mut numbers = vec![1, top_k, experts / 2, experts - 1, experts];
            if name != &NAME {
                numbers = vec![numbers[Rng::of_part(testing::seed(), name).below(numbers.len())]];
            }
            for slots in numbers {
                let seed = testing::seed();
                println!("{name}, {choice:?}, {slots} of {experts} slots, copies by seed {seed}");
                let model = with_slots(name, slots, choice, Copies::Late(seed));
                // The second time, other experts are in the slots.
                for _ in 0..2 {
                    let found = logits_of(name, &model, &SINGLE_TOKENS).unwrap();
                    let excluded = compare(name, tolerance, vocab, &found, &expected);
                    assert!(excluded < expected.len() / vocab, "{name}: nothing was compared");
                }
                let usage = model.backend().offload().slot_usage().unwrap();
                println!("{usage:?}");
                assert!(usage.hits > 0 && (usage.misses > 0) == (slots < experts), "{usage:?}");
                match choice {
                    Choice::Deterministic => assert_eq!(usage.insertions, 0),
                    _ => assert!(slots < top_k || (usage.insertions > 0) == (slots < experts), "{usage:?}"),
                }
            }
        }
    }
}

/// Layers of several formats have experts of several sizes. Staging memory for two of them changes no tokens.
#[test]
fn staging_memory_fits_experts_of_several_sizes() {
    let on_device =
        load(NAME, device(Options::default(), None, Mode::Fast).unwrap(), ExpertPlacement::Device, Precision::Fast);
    let expected = logits_of(NAME, &on_device, &SINGLE_TOKENS).unwrap();
    let vocab = on_device.spec().vocab;
    let host = HostExperts { staged_bytes: 1, ..HostExperts::new(cpu()) };
    let backend = device(Options::default(), Some(host), Mode::Fast).unwrap();
    let model = load(NAME, backend, ExpertPlacement::Slots(experts_of(NAME).1), Precision::Fast);
    for _ in 0..3 {
        let found = logits_of(NAME, &model, &SINGLE_TOKENS).unwrap();
        compare(NAME, TOLERANCES[0].1, vocab, &found, &expected);
    }
    let usage = model.backend().offload().slot_usage().unwrap();
    assert!(usage.insertions > 0, "{usage:?}");
}

/// With slots that never change, a token's bits depend on its own sequence only, also in a batch that is longer than the mailbox.
#[test]
fn fixed_slots_are_deterministic() {
    let (experts, _) = experts_of(NAME);
    let logits = |rows_bytes| {
        let host = HostExperts { rows_bytes, ..HostExperts::new(cpu()) };
        let backend = device(Options { choice: Choice::Deterministic }, Some(host), Mode::Fast).unwrap();
        let model = load(NAME, backend, ExpertPlacement::Slots(experts / 2), Precision::Fast);
        [&STEPS[..], &SINGLE_TOKENS].map(|steps| logits_of(NAME, &model, steps).unwrap())
    };
    let found = logits(32 << 20);
    assert_eq!(found, logits(4 << 10));
    let row = found[0].len() / STEPS.iter().flatten().sum::<usize>();
    // The first tokens of the first sequence: one prompt here, single tokens there.
    assert_eq!(found[0][..2 * row], found[1][..2 * row]);
}

/// What is copied is what is multiplied: a copy that never arrives is noticed. The CPU computes what cannot be copied.
#[test]
fn lost_copies_are_noticed() {
    let (experts, top_k) = experts_of(NAME);
    let logits = |copies| {
        let model = with_slots(NAME, experts.min(top_k + 1), Choice::Fastest, copies);
        (logits_of(NAME, &model, &SINGLE_TOKENS), model.backend().offload().slot_usage().unwrap().insertions)
    };
    let (found, insertions) = logits(Copies::Refused);
    assert!(found.is_ok() && insertions == 0);
    let (found, insertions) = logits(Copies::Lost);
    assert!(matches!(found, Err(Error::NotFinite { .. })) && insertions > 0, "{found:?}");
}

/// Bugs of the kernels of slots change the logits.
#[test]
fn planted_bugs_of_slots_are_noticed() {
    let bugs = [
        // An evicted expert keeps its entry in the table.
        ("slots.gpu", "table[p.evicted] = PADDING;", "table[p.expert] = p.slot;"),
        // Rows of a tile are mixed up.
        ("slots.gpu", "[unit * 16 + row % 16]", "[unit * 16 + row % 8]"),
        // The rows of experts in slots are taken from the mailbox too.
        ("host_experts.cu", "(slots[row] == PADDING && ids", "(ids"),
        // Experts get the slots of their neighbours.
        (
            "host_experts.cu",
            "u32 slot = id == PADDING ? PADDING : table[id];",
            "u32 slot = id == PADDING ? PADDING : table[id ^ 1];",
        ),
    ];
    let (_, top_k) = experts_of(NAME);
    let all =
        load(NAME, device(Options::default(), None, Mode::Fast).unwrap(), ExpertPlacement::Device, Precision::Fast);
    let expected = logits_of(NAME, &all, &SINGLE_TOKENS).unwrap();
    for (file, right, wrong) in bugs {
        let source = &sources::all().iter().find(|(name, _)| *name == file).expect("a source").1;
        assert!(source.contains(right), "{file}: {right}");
        let instead = vec![(file, source.replace(right, wrong))];
        let gpu = Simulator::with(Language::Cuda, Order::Ascending, Mode::Fast, instead);
        let backend = Cuda::backend_with_host_experts(gpu, Options::default(), HostExperts::new(cpu())).unwrap();
        let model = load(NAME, Arc::new(backend), ExpertPlacement::Slots(top_k), Precision::Fast);
        let Ok(found) = logits_of(NAME, &model, &SINGLE_TOKENS) else { continue };
        let error: f64 = found.iter().zip(&expected).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let norm: f64 = expected.iter().map(|x| f64::from(*x).powi(2)).sum();
        println!("{wrong}: NMSE {:.1e}", error / norm);
        assert!(error.is_nan() || error > 1e-2 * norm, "{wrong}: NMSE {:.1e}", error / norm);
    }
    std::fs::remove_dir_all(cache_of_changed()).unwrap();
}

/// Every access of the kernels is checked, in several orders of threads and blocks; slots are filled while steps run.
#[test]
fn kernels_of_slots_stay_within_their_arguments() {
    let shuffled = Order::Shuffled(testing::seed());
    for (name, orders) in [(NAME, &[Order::Ascending, Order::Descending, shuffled][..]), ("gpt-oss-mxfp4", &[shuffled])]
    {
        for &order in orders {
            println!("{name}, {order:?}");
            let gpu = Simulator::new(order, Mode::Checked);
            let host = HostExperts::new(cpu());
            let backend = Arc::new(Cuda::backend_with_host_experts(gpu, Options::default(), host).unwrap());
            let (_, top_k) = experts_of(name);
            let model = load(name, backend, ExpertPlacement::Slots(top_k), Precision::Fast);
            logits_of(name, &model, &SINGLE_TOKENS).unwrap();
            let usage = model.backend().offload().slot_usage().unwrap();
            assert!(usage.insertions > 0, "{usage:?}");
        }
    }
}

/// Slots are planned as part of the weights; what does not fit is placed, and the plan of the placement fits.
#[test]
fn a_model_that_does_not_fit_gets_slots() {
    let file = file(NAME);
    let limits = limits();
    let (experts, _) = experts_of(NAME);
    let plan = |experts, backend: &Backend| {
        let options = LoadOptions { experts, ..LoadOptions::default() };
        let info = ModelInfo::read_for(&file, &options).unwrap();
        Plan::new(&info, &limits, Precision::Fast, backend).unwrap()
    };
    let backend = |memory| {
        let gpu = Simulator::with_memory(memory);
        Cuda::backend_with_host_experts(gpu, Options::default(), HostExperts::new(cpu())).unwrap()
    };
    let large = backend(80 << 30);
    let [all, cpu, one] = [ExpertPlacement::Device, ExpertPlacement::Cpu, ExpertPlacement::Slots(1)]
        .map(|placement| plan(placement, &large).total());
    let info = ModelInfo::read(&file).unwrap();
    let placed = |memory| place_experts(&file, &info, &LoadOptions::default(), &limits, &backend(memory)).unwrap().0;
    assert_eq!(placed(all), ExpertPlacement::Device);
    // Staging memory makes slots dearer than a small model.
    assert!(cpu < all && all < one);
    assert_eq!([placed(all - 1), placed(cpu)], [ExpertPlacement::Cpu; 2]);
    // Nothing helps.
    assert_eq!(placed(cpu - 1), ExpertPlacement::Device);
    assert!(plan(ExpertPlacement::Slots(experts), &large).total() > one);
    let asked = LoadOptions { experts: ExpertPlacement::Slots(2), ..LoadOptions::default() };
    assert_eq!(
        place_experts(&file, &ModelInfo::read_for(&file, &asked).unwrap(), &asked, &limits, &backend(cpu)).unwrap().0,
        ExpertPlacement::Slots(2)
    );
}

/// A prompt whose experts are copied to the device, in several groups, with all experts on the device by the rule; slots are filled
/// with the experts of its last tokens. Without slots, or if the slots are fixed, nothing is copied.
#[test]
fn prompts_are_streamed() {
    let mut shared = 0;
    for name in MODELS {
        let (experts, top_k) = experts_of(name);
        let on_device =
            load(name, device(Options::default(), None, Mode::Fast).unwrap(), ExpertPlacement::Device, Precision::Fast);
        let expected = logits(name, &on_device).unwrap();
        let vocab = on_device.spec().vocab;
        let checked = if [NAME, "gpt-oss-mxfp4"].contains(name) { Mode::Checked } else { Mode::Fast };
        let slots = [(1, Mode::Fast), (top_k, checked), (experts - 1, Mode::Fast)];
        // The CPU computes the experts of few tokens, or none.
        let cases = slots.into_iter().flat_map(|(slots, mode)| [(slots, mode, 0, 3), (slots, mode, 32, 1)]);
        let mut cases: Vec<_> = cases.collect();
        // All cases for one model; two of them, others in each run, for the rest.
        let mut rng = Rng::of_part(testing::seed(), name);
        while name != &NAME && cases.len() > 2 {
            cases.remove(rng.below(cases.len()));
        }
        for (slots, mode, share_tokens, groups_ahead) in cases {
            println!("{name}: {slots} of {experts} slots, shared up to {share_tokens} tokens");
            let gpu = Simulator::new(Order::Ascending, mode);
            gpu.set_copies(Copies::Late(testing::seed()));
            let host = HostExperts {
                stream_tokens: 13,
                share_tokens,
                group_bytes: 1,
                groups_ahead,
                ring_groups: 1 + rng.below(3),
                ..HostExperts::new(cpu())
            };
            let backend = Arc::new(Cuda::backend_with_host_experts(gpu, Options::default(), host).unwrap());
            let model = load(name, backend, ExpertPlacement::Slots(slots), Precision::Fast);
            let posted = |steps| {
                let found = logits_of(name, &model, steps).unwrap();
                let usage = model.backend().offload().slot_usage().unwrap();
                (found, usage.hits + usage.misses)
            };
            assert_eq!(posted(&STEPS[..1]).1, 0, "{name}: a prompt that was streamed");
            let (found, choices) = posted(&STEPS);
            assert!(choices > 0);
            assert!(compare(name, TOLERANCES[0].1, vocab, &found, &expected) < expected.len() / vocab, "{name}");
            let usage = model.backend().offload().slot_usage().unwrap();
            shared += usage.shared;
            assert!(share_tokens > 0 || usage.shared == 0, "{usage:?}");
        }
    }
    assert!(shared > 0, "the CPU computed no expert of few tokens");
}
