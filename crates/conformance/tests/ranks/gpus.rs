use super::*;

use std::time::{Duration, Instant};

use gpu_sim::Mode;
use gristmill_collective::{Collective, threads};
use gristmill_conformance::simulated::{Copies, Simulator, order};
use gristmill_cuda::{Choice, Cuda, Options};
use gristmill_engine::Limits;
use gristmill_engine::model::{Batch, Outputs, Runner};

const MODELS: &[&str] = &["qwen3moe-q8_0", "gpt-oss-mxfp4", "qwen2moe-q8_0", "llama3-q8_0", "gemma3-q8_0"];

/// Devices whose sums arrive late.
fn simulators(count: usize) -> Vec<Arc<Simulator>> {
    let seed = testing::seed();
    let late = |number: usize| {
        let gpu = Simulator::new(order(1), Mode::Fast);
        gpu.set_copies(Copies::Late(seed.wrapping_add(number as u64)));
        gpu
    };
    (0..count).map(late).collect()
}

fn backends(gpus: &[Arc<Simulator>], choice: Choice) -> Vec<Arc<Backend>> {
    let backend = |gpu: &Arc<Simulator>| Arc::new(Cuda::backend(gpu.clone(), Options { choice }).unwrap());
    gpus.iter().map(backend).collect()
}

fn gpus() -> Vec<Arc<Backend>> {
    backends(&simulators(2), Choice::Fastest)
}

#[test]
fn logits_on_two_simulated_gpus_are_those_of_transformers() {
    let mut wrongs = wrong(MODELS, gpus, Precision::Fast, Split::Experts);
    wrongs.extend(wrong(MODELS, gpus, Precision::Fast, Split::Tensor));
    wrongs.extend(wrong(&IN_A_ROW[..2], gpus, Precision::Fast, Split::Layers));
    assert!(wrongs.is_empty(), "{} wrong:\n{}", wrongs.len(), wrongs.join("\n"));
}

/// The logits of steps of one token each.
fn decode(runner: &mut Runner, steps: usize) -> Vec<Vec<f32>> {
    let sequence = runner.open_sequence().unwrap();
    let step = |token: usize| {
        runner.forward(Batch::new().push(sequence, &[token as u32 + 1], Outputs::Last)).unwrap().to_vec().unwrap()
    };
    (0..steps).map(step).collect()
}

fn runner(model: &Arc<Model>) -> Runner {
    Runner::new(model.clone(), Limits { context: Some(64), ..Limits::default() }).unwrap()
}

#[test]
fn sums_stay_on_the_devices_and_are_captured() {
    let steps = |ranks: usize| {
        let gpus = simulators(ranks);
        let model = load("qwen3moe-q8_0", backends(&gpus, Choice::Fastest), Precision::Fast, Split::Experts);
        let mut runner = runner(&model);
        let sequence = runner.open_sequence().unwrap();
        let mut counts = Vec::new();
        for token in 1..8 {
            let before = (gpus[0].host_copies(), gpus[0].sums());
            runner.forward(Batch::new().push(sequence, &[token], Outputs::Last)).unwrap().to_vec().unwrap();
            counts.push((gpus[0].host_copies() - before.0, gpus[0].sums() - before.1));
        }
        let layers = model.spec().layers.len();
        let library = model.sums().map(|sums| sums.library.clone());
        (runner.graphs().captures, counts, layers, library)
    };
    let (captures, copies, layers, library) = steps(2);
    assert_eq!(library, Some(Some("the simulator".to_owned())));
    let (captures_alone, copies_alone, _, none) = steps(1);
    assert_eq!(none, None);
    assert_eq!(captures, captures_alone);
    assert!(captures > 0);
    for ((found, sums), (expected, _)) in copies.iter().zip(&copies_alone) {
        assert_eq!((found, *sums), (expected, layers), "{copies:?}, alone {copies_alone:?}");
    }
}

/// Each rank's sums are matched by their order, which must be that of rank 0, whichever runner they are of.
#[test]
fn runners_of_one_model_take_turns() {
    let model = load("qwen3moe-q8_0", gpus(), Precision::Fast, Split::Experts);
    let alone = decode(&mut runner(&model), 12);
    let mut runners = [runner(&model), runner(&model)];
    let found = std::thread::scope(|scope| {
        let threads = runners.each_mut().map(|runner| scope.spawn(|| decode(runner, 12)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(found, [alone.clone(), alone]);
}

#[test]
fn devices_without_a_library_sum_through_the_host() {
    let simulators = simulators(2);
    simulators[0].refuse_ranks("libnccl.so.2: not found");
    let model = load("qwen3moe-q8_0", backends(&simulators, Choice::Fastest), Precision::Fast, Split::Experts);
    let refusal = model.sums().and_then(|sums| sums.refusal.clone()).unwrap();
    assert!(refusal.contains("libnccl.so.2: not found"), "{refusal}");
    let notices = model.notices().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(notices.contains("the devices sum through host memory") && notices.contains("not found"), "{notices}");
    let golden = Golden::read("qwen3moe-q8_0");
    for (what, found) in compare(&golden, &model) {
        assert!(found <= golden.tolerance, "{what}: {found}");
    }
    assert_eq!(simulators[1].sums(), 0);
}

#[test]
fn devices_whose_sums_are_wrong_sum_through_the_host() {
    let simulators = simulators(2);
    simulators[1].sum_wrongly();
    let model = load("qwen3moe-q8_0", backends(&simulators, Choice::Fastest), Precision::Fast, Split::Experts);
    let sums = model.sums().unwrap();
    let refusal = sums.refusal.clone().unwrap();
    assert!(refusal.contains("a sum is wrong (found ") && refusal.contains(", expected 3)"), "{refusal}");
    assert!(sums.to_string().starts_with("through host memory, which is slower, because "), "{sums}");
    let alone = load("qwen3moe-q8_0", gpus(), Precision::Fast, Split::Experts);
    assert_eq!(decode(&mut runner(&model), 4), decode(&mut runner(&alone), 4));
}

/// The order of ranks, as through the host, although a library has an order of its own.
#[test]
fn deterministic_sums_of_four_devices_are_in_the_order_of_ranks() {
    let logits = |refuses: bool| {
        let simulators = simulators(4);
        if refuses {
            simulators[0].refuse_ranks("a test");
        }
        let model = load("llama3-q8_0", backends(&simulators, Choice::Deterministic), Precision::Fast, Split::Tensor);
        assert_eq!(model.sums().unwrap().library.is_none(), refuses);
        let sums = simulators[0].sums();
        let logits = decode(&mut runner(&model), 4);
        // They are gathered.
        assert_eq!(simulators[0].sums(), sums);
        logits
    };
    assert_eq!(logits(false), logits(true));
}

#[test]
fn a_device_that_is_lost_is_an_error_of_all_ranks_at_once() {
    let backends = backends(&simulators(2), Choice::Fastest);
    let model = load("qwen3moe-q8_0", backends.clone(), Precision::Fast, Split::Experts);
    let mut runner = runner(&model);
    let sequence = runner.open_sequence().unwrap();
    for _ in 0..3 {
        runner.forward(Batch::new().push(sequence, &[1], Outputs::Last)).unwrap().to_vec().unwrap();
    }
    let start = Instant::now();
    backends[1].ranks().unwrap().abort("the device is lost");
    let mut last = String::new();
    while !last.contains("the device is lost") {
        let step = runner.forward(Batch::new().push(sequence, &[1], Outputs::Last)).map(|mut logits| logits.to_vec());
        match step {
            Ok(Ok(_)) => {}
            Ok(Err(error)) | Err(error) => last = error.to_string(),
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{last}");
    }
    drop(runner);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

/// Parts are alike, so the device with less memory decides: the context is shorter, and a part for which it has no room is an error
/// that names it.
#[test]
fn the_device_with_less_memory_is_the_limit() {
    let context = |bytes: u64| -> Result<usize, Error> {
        let gpus = [Simulator::with_memory(bytes), Simulator::with_memory(80 << 30)];
        let options = LoadOptions { split: Some(Split::Tensor), ..LoadOptions::default() };
        let file = GgufFile::open(path("llama3-q8_0")).unwrap();
        let model = Arc::new(Model::with_backends(file, backends(&gpus, Choice::Fastest), options)?);
        Ok(Runner::new(model, Limits::default())?.context())
    };
    let (long, driver) = (context(80 << 30).unwrap(), 256 << 20);
    let short = context(driver + (1 << 20)).unwrap();
    assert!(short < long, "{short} of {long}");
    let error = context(driver).unwrap_err();
    assert!(error.is_out_of_memory() && error.to_string().contains("simulated"), "{error}");
}

/// As `--ranks mpi` with a GPU for each process.
#[test]
fn devices_of_several_processes_sum_by_themselves() {
    let simulators = simulators(2);
    let group = threads(2, Duration::from_secs(60)).into_iter().map(|rank| Arc::new(rank) as Arc<dyn Collective>);
    let alone = load("qwen3moe-q8_0", backends(&simulators, Choice::Fastest), Precision::Fast, Split::Experts);
    let expected = decode(&mut runner(&alone), 4);
    drop(alone);
    let load = |group: Arc<dyn Collective>, backend: Arc<Backend>| {
        let options = LoadOptions { group: Some(group), ..LoadOptions::default() };
        Arc::new(Model::with_backend(GgufFile::open(path("qwen3moe-q8_0")).unwrap(), backend, options).unwrap())
    };
    let ranks = group.zip(backends(&simulators, Choice::Fastest)).collect::<Vec<_>>();
    let found = std::thread::scope(|scope| {
        let mut ranks = ranks.into_iter();
        let (first, other) = (ranks.next().unwrap(), ranks.next().unwrap());
        scope.spawn(move || load(other.0, other.1).follow().unwrap());
        let model = load(first.0, first.1);
        assert!(model.sums().unwrap().library.is_some(), "{:?}", model.sums());
        decode(&mut runner(&model), 4)
    });
    assert_eq!(found, expected);
}
