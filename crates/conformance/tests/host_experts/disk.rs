//! Experts in the model's file that the CPU computes for a simulated GPU.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu_sim::Mode;
use gristmill_cuda::{Choice, Cuda, HostExperts, Options};
use gristmill_engine::{Error, ExpertPlacement, LoadOptions, Model, ModelInfo, Plan, Precision, place_experts};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;

use super::{MODELS, NAME, TOLERANCES, compare, cpu, device, experts_of, file, limits, load, logits};
use gristmill_conformance::simulated::Simulator;

/// The bits are those of experts in host memory, however many of them memory keeps.
#[test]
fn experts_in_the_file_change_no_bit() {
    for name in MODELS {
        let (experts, top_k) = experts_of(name);
        for choice in [Choice::Fastest, Choice::Deterministic] {
            let run = |placement| {
                let model = load(name, with_host(Options { choice }), placement, Precision::Fast);
                (logits(name, &model).unwrap(), model.backend().offload().slot_usage().unwrap())
            };
            let (expected, in_memory) = run(ExpertPlacement::Cpu);
            assert_eq!(in_memory.read_bytes, 0);
            for kept in [1, top_k, experts] {
                let (found, usage) = run(ExpertPlacement::disk(kept));
                assert!(found == expected, "{name}, {choice:?}, {kept} of {experts} in memory");
                assert!(usage.read_bytes > 0 && usage.misses > 0, "{usage:?}");
                assert!(usage.hits > 0 || kept < experts, "{usage:?}");
            }
        }
    }
}

/// A copy of a model, removed when it is dropped.
struct TemporaryModel(PathBuf);

impl TemporaryModel {
    fn new(what: &str) -> Self {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{NAME}.gguf"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let copy = folder.join(format!("gristmill-host-{}-{what}.gguf", std::process::id()));
        fs::copy(golden, &copy).unwrap();
        Self(copy)
    }
}

impl Drop for TemporaryModel {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A file that loses its end while the model runs is an error that names it; no step waits until the deadline.
#[test]
fn a_truncated_file_is_an_error() {
    let copy = TemporaryModel::new("truncated");
    let options = LoadOptions { experts: ExpertPlacement::disk(1), ..LoadOptions::default() };
    let file = GgufFile::open(&copy.0).unwrap();
    let model = Arc::new(Model::with_backend(file, with_host(Options::default()), options).unwrap());
    logits(NAME, &model).unwrap();
    OpenOptions::new().write(true).open(&copy.0).unwrap().set_len(1 << 12).unwrap();
    let error = logits(NAME, &model).expect_err("experts are missing");
    assert!(error.is_of_device() && error.to_string().contains("_exps"), "{error}");
    assert!(!error.to_string().contains("did not return"), "{error}");
    // The device has failed: later steps are errors too.
    assert!(logits(NAME, &model).is_err());
}

fn plan(experts: ExpertPlacement, backend: &Backend) -> Plan {
    let options = LoadOptions { experts, ..LoadOptions::default() };
    let info = ModelInfo::read_for(&file(NAME), &options).unwrap();
    Plan::new(&info, &limits(), Precision::Fast, backend).unwrap()
}

/// Layers behind those on the device: the tokens of all experts on the device.
#[test]
fn the_first_layers_can_be_on_the_device() {
    for (choice, tolerance) in TOLERANCES {
        let options = Options { choice };
        let on_device = device(options, None, Mode::Fast).unwrap();
        let on_device = load(NAME, on_device, ExpertPlacement::Device, Precision::Fast);
        let expected = logits(NAME, &on_device).unwrap();
        let vocab = on_device.spec().vocab;
        let placement = ExpertPlacement::Disk { kept: 2, device_layers: 1 };
        let model = load(NAME, with_host(options), placement, Precision::Fast);
        let excluded = compare(NAME, tolerance, vocab, &logits(NAME, &model).unwrap(), &expected);
        assert!(excluded < expected.len() / vocab);
        let usage = model.backend().offload().slot_usage().unwrap();
        let all = load(NAME, with_host(options), ExpertPlacement::disk(2), Precision::Fast);
        logits(NAME, &all).unwrap();
        let all = all.backend().offload().slot_usage().unwrap();
        assert!(usage.misses > 0 && usage.hits + usage.misses < all.hits + all.misses, "{usage:?}, {all:?}");
    }
}

/// A device whose experts the CPU computes.
fn with_host(options: Options) -> Arc<Backend> {
    device(options, Some(HostExperts::new(cpu())), Mode::Fast).unwrap()
}

/// Experts that host memory has no room for stay in the file, as many in memory as fit. The device has what it has with experts in
/// host memory; a layer more only with the memory that a runner plans for.
#[test]
fn a_model_larger_than_host_memory_stays_in_the_file() {
    let backend = |memory| {
        let gpu = Simulator::with_memory(memory);
        Cuda::backend_with_host_experts(gpu, Options::default(), HostExperts::new(cpu())).unwrap()
    };
    let large = backend(80 << 30);
    let [on_cpu, one] = [ExpertPlacement::Cpu, ExpertPlacement::disk(1)].map(|placement| plan(placement, &large));
    assert_eq!((on_cpu.total(), on_cpu.streamed), (one.total(), 0));
    assert!(one.streamed > 0 && one.host < on_cpu.host && one.host_available.is_some());
    let (experts, _) = experts_of(NAME);
    let placed = |memory| {
        let options = LoadOptions { cpu_memory: Some(memory), ..LoadOptions::default() };
        let file = file(NAME);
        let info = ModelInfo::read(&file).unwrap();
        place_experts(&file, &info, &options, &limits(), &backend(on_cpu.total())).unwrap().0
    };
    assert_eq!(placed(on_cpu.host), ExpertPlacement::Cpu);
    let mut in_file = 0;
    for count in 1..experts {
        let bytes = plan(ExpertPlacement::disk(count), &large).host;
        if bytes < on_cpu.host {
            assert_eq!(placed(bytes), ExpertPlacement::disk(count));
            in_file += 1;
        }
    }
    assert!(in_file > 0);
    // Nothing helps.
    assert_eq!(placed(one.host - 1), ExpertPlacement::Device);

    let with_layer = ExpertPlacement::Disk { kept: 1, device_layers: 1 };
    let of_layer = plan(with_layer, &large);
    assert!(of_layer.total() > on_cpu.total() && of_layer.host < one.host);
    // A layer on the device leaves the runner's part free, which is more than all of a golden model.
    let options = LoadOptions { cpu_memory: Some(one.host), ..LoadOptions::default() };
    let info = ModelInfo::read(&file(NAME)).unwrap();
    let (found, _) = place_experts(&file(NAME), &info, &options, &limits(), &backend(of_layer.total())).unwrap();
    assert_eq!(found, ExpertPlacement::disk(1));

    let options = LoadOptions { experts: ExpertPlacement::disk(1), ..LoadOptions::default() };
    let model = Model::with_backend(file(NAME), Arc::new(large), options).unwrap();
    assert!(model.prepared_bytes() <= one.weights + one.host);
}

#[test]
fn what_cannot_stay_in_the_file_is_refused_by_name() {
    let refused = |name, host: Option<HostExperts>| {
        let options = LoadOptions { experts: ExpertPlacement::disk(1), ..LoadOptions::default() };
        let backend = device(Options::default(), host, Mode::Fast).unwrap();
        match Model::with_backend(file(name), backend, options) {
            Err(error @ Error::ExpertPlacement { .. }) => error.to_string(),
            other => panic!("{name}: {other:?}"),
        }
    };
    let host = || Some(HostExperts::new(cpu()));
    assert!(refused("llama4-q8_0", host()).contains("multiplies the experts' input"));
    assert!(refused("qwen3-q8_0", host()).contains("the model has no experts"));
    let all_on_device = ExpertPlacement::Disk { kept: 1, device_layers: 100 };
    let options = LoadOptions { experts: all_on_device, ..LoadOptions::default() };
    let error = ModelInfo::read_for(&file(NAME), &options).expect_err("nothing is left for the file").to_string();
    assert!(error.contains("name fewer layers"), "{error}");
    assert!(refused(NAME, None).contains("opened without a CPU"));
}
