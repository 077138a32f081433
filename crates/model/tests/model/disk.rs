//! Experts in the model's file: logits have the bits of a model in memory, with any number of experts in memory, and a file that
//! changes while the model runs is an error.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use gristmill_cpu::{Cpu, Level};
use gristmill_kernels::Backend;
use gristmill_model::gguf::{GgufError, GgufFile};
use gristmill_model::{
    Batch, Error, ExpertPlacement, Limits, LoadOptions, Model, ModelInfo, Outputs, Plan, Precision, Runner,
    open_device, place_experts,
};

use crate::scales::scaled;
use crate::tiny::Random;

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/golden").join(format!("{name}.gguf"))
}

pub(crate) fn cpu() -> Arc<Backend> {
    Arc::new(Cpu::backend(Level::best(), 2).unwrap())
}

fn load(path: &Path, experts: ExpertPlacement, precision: Precision) -> Arc<Model> {
    let options = LoadOptions { experts, precision, ..LoadOptions::default() };
    Arc::new(Model::with_backend(GgufFile::open(path).unwrap(), cpu(), options).unwrap())
}

fn limits() -> Limits {
    Limits { context: Some(64), sequences: 3, batch_tokens: 32, output_rows: Some(32), ..Limits::default() }
}

/// Tokens of three sequences in each step: prompts, single tokens, and all sequences.
const STEPS: [[usize; 3]; 8] =
    [[13, 0, 0], [1, 2, 0], [1, 0, 19], [1, 1, 1], [1, 1, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0]];

/// Logits of these steps.
fn logits(model: &Arc<Model>) -> Result<Vec<u32>, Error> {
    let mut runner = Runner::new(Arc::clone(model), limits())?;
    let sequences: Vec<_> = (0..3).map(|_| runner.open_sequence()).collect::<Result<_, _>>()?;
    let mut all = Vec::new();
    for counts in STEPS {
        let mut batch = Batch::new();
        for (number, (&sequence, count)) in sequences.iter().zip(counts).enumerate().filter(|(_, (_, n))| *n > 0) {
            let start = runner.sequence_len(sequence)?;
            let tokens: Vec<u32> = (start..start + count).map(|at| ((3 + number + 7 * at) % 40) as u32).collect();
            batch.push(sequence, &tokens, Outputs::All);
        }
        all.extend(runner.forward(&batch)?.to_vec()?.into_iter().map(f32::to_bits));
    }
    Ok(all)
}

/// Experts of a layer, and those of a token.
fn experts_of(path: &Path) -> (usize, usize) {
    let info = ModelInfo::read(&GgufFile::open(path).unwrap()).unwrap();
    let router = info.spec.routers().into_iter().max_by_key(|router| router.experts).unwrap();
    (router.experts, router.top_k)
}

/// Fails if the work takes two minutes.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    result.recv_timeout(Duration::from_secs(120)).expect("it must end within two minutes, without a panic")
}

/// A copy of a golden model, removed when it is dropped.
struct TemporaryModel(PathBuf);

impl TemporaryModel {
    fn new(folder: &Path, name: &str, what: &str) -> Self {
        let copy = folder.join(format!("gristmill-disk-{}-{what}.gguf", std::process::id()));
        fs::copy(path(name), &copy).unwrap();
        Self(copy)
    }
}

impl Drop for TemporaryModel {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn temporary() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// Softmax and sigmoid routers, biases, shared experts, dense layers, gate and up in one tensor, a router that weighs its input,
/// states of fixed size; F32, Q8_0, K-quants, MXFP4, formats below 4 bits, and rows that start with a scale.
const MODELS: &[&str] = &[
    "qwen3moe-q4_k_m",
    "qwen3moe-low",
    "qwen3moe-ik",
    "qwen3moe-f32",
    "gpt-oss-mxfp4",
    "qwen2moe-q8_0",
    "glm4moe-q8_0",
    "gemma4-moe-q8_0",
    "granitemoe-q8_0",
    "deepseek2-q8_0",
    "llama4-q8_0",
    "qwen35moe-q8_0",
];

#[test]
fn logits_are_those_of_a_model_in_memory() {
    in_time(|| {
        for (index, name) in MODELS.iter().enumerate() {
            let (path, precision) = (path(name), if index % 4 == 1 { Precision::Exact } else { Precision::Fast });
            let expected = logits(&load(&path, ExpertPlacement::Device, precision)).unwrap();
            let (experts, top_k) = experts_of(&path);
            let mut counts = [1, top_k, experts / 2, experts - 1, experts].map(|count| count.max(1)).to_vec();
            counts.dedup();
            for count in counts {
                let model = load(&path, ExpertPlacement::disk(count), precision);
                // Twice: experts of the first time are in memory.
                for turn in 0..2 {
                    assert_eq!(logits(&model).unwrap(), expected, "{name}, {count} of {experts}, turn {turn}");
                }
                let usage = model.backend().offload().slot_usage().unwrap();
                println!("{name}, {count} of {experts} experts in memory: {usage:?}");
                assert!(usage.misses > 0 && usage.read_bytes > 0, "{name}: {usage:?}");
                assert!(usage.hits > 0 || count < experts, "{name}: {usage:?}");
            }
        }
    });
}

/// Scales of experts, which are next to their tensor.
#[test]
fn scales_of_experts_are_those_in_memory() {
    let model = TemporaryModel(temporary().join(format!("gristmill-disk-{}-scales.gguf", std::process::id())));
    fs::write(&model.0, scaled().bytes(&mut Random::fresh())).unwrap();
    let expected = logits(&load(&model.0, ExpertPlacement::Device, Precision::Fast)).unwrap();
    for count in [1, 3, 5] {
        let found = logits(&load(&model.0, ExpertPlacement::disk(count), Precision::Fast)).unwrap();
        assert_eq!(found, expected, "{count} experts in memory");
    }
}

/// What a pass says of a file that `change` has changed.
fn after(what: &str, change: impl FnOnce(&Path) + Send + 'static) -> Result<Vec<u32>, Error> {
    let what = what.to_owned();
    in_time(move || {
        let copy = TemporaryModel::new(&temporary(), "qwen3moe-q4_k_m", &what);
        let model = load(&copy.0, ExpertPlacement::disk(1), Precision::Fast);
        logits(&model).unwrap();
        change(&copy.0);
        let first = logits(&model);
        // It stays an error.
        assert_eq!(first.is_ok(), logits(&model).is_ok());
        first
    })
}

#[test]
fn a_file_that_changes_is_an_error() {
    let message = |result: Result<Vec<u32>, Error>| match result {
        Err(Error::Kernel(error @ gristmill_kernels::Error::Read { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let truncated = after("truncated", |path| {
        OpenOptions::new().write(true).open(path).unwrap().set_len(5000).unwrap();
    });
    let truncated = message(truncated);
    assert!(
        truncated.contains("_exps.weight, expert ") && truncated.contains("has 5000 bytes instead of "),
        "{truncated}"
    );
    let empty = message(after("empty", |path| OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap()));
    assert!(empty.contains("has 0 bytes instead of ") && empty.contains("load the model again"), "{empty}");
    let written = message(after("written", |path| {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..].iter_mut().for_each(|byte| *byte ^= 1);
        fs::write(path, bytes).unwrap();
    }));
    assert!(written.contains("was written while it was in use"), "{written}");
}

#[test]
fn a_file_can_be_replaced_or_deleted() {
    let expected = logits(&load(&path("qwen3moe-q4_k_m"), ExpertPlacement::Device, Precision::Fast)).unwrap();
    let replaced = after("replaced", |path| {
        let other = path.with_extension("other");
        fs::write(&other, b"nothing").unwrap();
        fs::rename(other, path).unwrap();
    });
    assert!(cfg!(windows) || replaced.unwrap() == expected);
    let deleted = after("deleted", |path| fs::remove_file(path).unwrap());
    assert!(cfg!(windows) || deleted.unwrap() == expected);
}

/// A file that was replaced between opening the model and its experts.
#[test]
fn another_file_is_noticed_at_once() {
    let copy = TemporaryModel::new(&temporary(), "qwen3moe-q4_k_m", "other");
    let file = GgufFile::open(&copy.0).unwrap();
    let other = copy.0.with_extension("other");
    fs::copy(path("qwen3moe-q8_0"), &other).unwrap();
    fs::rename(other, &copy.0).unwrap();
    let options = LoadOptions { experts: ExpertPlacement::disk(1), ..LoadOptions::default() };
    let error = Model::with_backend(file, cpu(), options).unwrap_err();
    assert!(matches!(error, Error::Gguf(GgufError::Changed { .. })), "{error}");
}

/// A file system in memory: some kernels refuse reads past the page cache there.
#[cfg(target_os = "linux")]
#[test]
fn a_file_system_in_memory_serves_too() {
    let folder = Path::new("/dev/shm");
    if !folder.is_dir() {
        return println!("skipped: no {}", folder.display());
    }
    let copy = TemporaryModel::new(folder, "qwen3moe-q4_k_m", "memory");
    println!("direct: {}", GgufFile::open(&copy.0).unwrap().readers().unwrap()[0].is_direct());
    let expected = logits(&load(&path("qwen3moe-q4_k_m"), ExpertPlacement::Device, Precision::Fast)).unwrap();
    assert_eq!(logits(&load(&copy.0, ExpertPlacement::disk(2), Precision::Fast)).unwrap(), expected);
}

/// Ranges of a file, aligned or not, at its end and behind it.
#[test]
fn ranges_are_read_exactly() {
    let bytes = fs::read(path("qwen3moe-q4_k_m")).unwrap();
    let readers = GgufFile::open(path("qwen3moe-q4_k_m")).unwrap().readers().unwrap();
    let (len, mut checked) = (bytes.len() as u64, 0);
    for start in [0, 1, 4095, 4096, 4097, 8192, len - 4097, len - 1, len] {
        for size in [0, 1, 17, 4096, 5000, 20_000] {
            let range = start..start + size;
            let mut found = None;
            let result = readers[0].read(range.clone(), &mut |bytes| found = Some(bytes.to_vec()));
            if range.end > len {
                assert!(result.is_err() && found.is_none(), "{range:?}");
            } else {
                result.unwrap();
                assert!(found.as_deref() == Some(&bytes[start as usize..range.end as usize]), "{range:?}");
                checked += 1;
            }
        }
    }
    assert!(checked > 20);
    #[expect(clippy::reversed_empty_ranges, reason = "refused")]
    let reversed = readers[0].read(5..3, &mut |_| panic!("nothing is read"));
    assert!(reversed.is_err());
}

fn plan(file: &GgufFile, experts: ExpertPlacement, backend: &Backend) -> Plan {
    let options = LoadOptions { experts, ..LoadOptions::default() };
    let info = ModelInfo::read_for(file, &options).unwrap();
    Plan::new(&info, &limits(), Precision::Fast, backend).unwrap()
}

/// A model gets as many experts in memory as fit into the limit; one that fits is left as it is.
#[test]
fn a_model_that_does_not_fit_stays_in_the_file() {
    let path = path("qwen3moe-q4_k_m");
    let (file, (experts, _)) = (GgufFile::open(&path).unwrap(), experts_of(&path));
    let total = |experts| plan(&file, experts, &cpu()).total();
    let options = |memory| LoadOptions { device: "cpu".to_owned(), cpu_memory: Some(memory), ..LoadOptions::default() };
    let placed = |memory| {
        let backend = open_device(&options(memory)).unwrap().backend;
        let info = ModelInfo::read(&file).unwrap();
        place_experts(&file, &info, &options(memory), &limits(), &backend).unwrap().0
    };
    let (all, one) = (total(ExpertPlacement::Device), total(ExpertPlacement::disk(1)));
    assert!(one < all, "{one} {all}");
    assert_eq!(placed(all), ExpertPlacement::Device);
    for count in 1..experts {
        let bytes = total(ExpertPlacement::disk(count));
        let expected = if bytes >= all { ExpertPlacement::Device } else { ExpertPlacement::disk(count) };
        assert_eq!(placed(bytes), expected, "{count}");
    }
    // Nothing helps, and the plan has the error.
    assert_eq!(placed(one - 1), ExpertPlacement::Device);

    let memory = total(ExpertPlacement::disk(2));
    let (model, ..) = Model::open_for(&path, options(memory), limits()).unwrap();
    assert_eq!(model.experts(), ExpertPlacement::disk(2));
    // The table is copied, so that nothing is read from the map.
    let planned = plan(&file, ExpertPlacement::disk(2), &cpu());
    assert_eq!((planned.mapped, planned.slots, planned.experts), (0, 2, experts));
    assert!(planned.streamed > 0 && model.prepared_bytes() < planned.weights);
    let expected = logits(&load(&path, ExpertPlacement::Device, Precision::Fast)).unwrap();
    assert_eq!(logits(&Arc::new(model)).unwrap(), expected);
}

#[test]
fn what_cannot_stay_in_the_file_is_refused_by_name() {
    let disk = |name: &str| {
        let options = LoadOptions { experts: ExpertPlacement::disk(1), ..LoadOptions::default() };
        Model::with_backend(GgufFile::open(path(name)).unwrap(), cpu(), options).unwrap_err().to_string()
    };
    let dense = disk("qwen3-q8_0");
    assert!(dense.contains("the model has no experts"), "{dense}");
    let bytes: &'static [u8] = Box::leak(fs::read(path("qwen3moe-q4_k_m")).unwrap().into_boxed_slice());
    let options =
        || LoadOptions { experts: ExpertPlacement::disk(1), device: "cpu".to_owned(), ..LoadOptions::default() };
    let error = Model::from_static(bytes, options()).unwrap_err();
    assert!(matches!(error, Error::Gguf(GgufError::NotOnDisk)), "{error}");
    let error = open_device(&LoadOptions { device: "metal".to_owned(), ..options() }).unwrap_err().to_string();
    assert!(error.contains("only the CPU and CUDA can"), "{error}");
}
