//! On a CPU, and on a deterministic GPU, a sequence's logits have the same bits in a batch of its own and in shared
//! batches.

mod texts;

use std::fs;
use std::sync::Arc;

use gristmill_conformance::golden;
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{LoadOptions, Model, Precision};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_kernels::kv::KvFormat;
use gristmill_suite::rng::Rng;
use gristmill_suite::testing;
use texts::{Batching, Found};

/// A generator that starts at a new seed, which is printed.
fn fresh(test: &str) -> Rng {
    let seed = testing::seed();
    println!("{test}: seed {seed}");
    Rng::new(seed)
}

/// The same model with other weights: the blocks of each matrix in another order, or its rows, if they start with a scale.
fn shuffled(mut bytes: Vec<u8>, rng: &mut Rng) -> GgufFile {
    let file = GgufFile::from_bytes(bytes.clone()).unwrap();
    for tensor in file.tensors().iter().filter(|tensor| tensor.shape.len() > 1) {
        let columns = tensor.shape[0] as usize;
        let size = tensor.rows.map_or(tensor.format.block_bytes(), |rows| rows.row_bytes(columns).unwrap());
        let blocks = &mut bytes[tensor.offset as usize..][..tensor.bytes as usize];
        for last in (1..blocks.len() / size).rev() {
            let (before, from) = blocks.split_at_mut(last * size);
            let other = rng.below(last + 1);
            if other < last {
                before[other * size..][..size].swap_with_slice(&mut from[..size]);
            }
        }
    }
    GgufFile::from_bytes(bytes).unwrap()
}

/// A golden model's file.
fn read(name: &str) -> Vec<u8> {
    fs::read(golden::models_folder().join(format!("{name}.gguf"))).unwrap()
}

/// gpt-oss with a window in which several parts of a context lie, as attention cuts it.
fn windowed() -> Vec<u8> {
    let mut bytes = read("gpt-oss-mxfp4");
    let key = b"gpt-oss.attention.sliding_window";
    let value = bytes.windows(key.len()).position(|part| part == key).unwrap() + key.len();
    // The type of a u32, then the number.
    assert_eq!(bytes[value..][..4], 4_u32.to_le_bytes());
    bytes[value + 4..][..4].copy_from_slice(&150_u32.to_le_bytes());
    bytes
}

/// A golden model with fresh weights, and what texts in this batching are.
fn compare(bytes: Vec<u8>, backend: Arc<Backend>, precision: Precision, batching: Batching, rng: &mut Rng) -> Found {
    let options = LoadOptions { precision, deterministic: backend.deterministic(), ..LoadOptions::default() };
    let model = Arc::new(Model::with_backend(shuffled(bytes, rng), backend, options).unwrap());
    batching.compare(&model, rng).unwrap()
}

/// Each golden model at these levels.
fn on_levels(test: &str, levels: impl Fn(&mut Rng) -> Vec<Level>) {
    let mut rng = fresh(test);
    let names = golden::models();
    assert!(names.len() > 30, "{} golden models", names.len());
    for (number, name) in names.iter().enumerate() {
        for level in levels(&mut rng) {
            let precision = if number % 4 == 0 { Precision::Exact } else { Precision::Fast };
            let kv_format = if number % 3 == 0 { KvFormat::Q8_0 } else { KvFormat::F16 };
            let batching = Batching { texts: 5, length: 45, shared: 25, chunk: 20, kv_format };
            let backend = Arc::new(Cpu::backend(level, 2).unwrap());
            let found = compare(read(name), backend, precision, batching, &mut rng);
            assert_eq!(found.different, 0, "{name} on {}: {found:?}", level.name());
            let reused = found.reused > batching.length || !found.reuses;
            assert!(reused, "{name} on {}: {found:?}", level.name());
        }
    }
}

#[test]
fn on_drawn_levels_of_this_cpu() {
    on_levels("drawn levels", golden::drawn_levels);
}

#[test]
#[ignore = "minutes"]
fn on_every_level_of_this_cpu() {
    on_levels("levels", |_| Level::available().collect());
}

/// Long enough for several parts of a context, which CUDA cuts above 384 tokens.
const LONG: Batching = Batching { texts: 2, length: 410, shared: 270, chunk: 60, kv_format: KvFormat::F16 };

#[test]
fn with_a_window_on_every_level_of_this_cpu() {
    let mut rng = fresh("windows");
    for level in Level::available() {
        let backend = Arc::new(Cpu::backend(level, 2).unwrap());
        let found = compare(windowed(), backend, Precision::Fast, LONG, &mut rng);
        assert_eq!(found.different, 0, "on {}: {found:?}", level.name());
        assert!(found.reused > LONG.length, "on {}: {found:?}", level.name());
    }
}

/// A text starts with a state of fixed size that another has left, or itself.
#[test]
fn with_checkpoints_on_every_level_of_this_cpu() {
    let mut rng = fresh("checkpoints");
    for level in Level::available() {
        for name in [
            "lfm2-q8_0",
            "lfm2moe-f32",
            "qwen3next-q8_0",
            "qwen35-f32",
            "kimi-linear-q8_0",
            "bailingmoe3-f32",
            "nemotron_h_moe-latent-f32",
            "granitehybrid-q8_0",
            "falcon-h1-f32",
            "mamba2-q8_0",
            "jamba-f32",
        ] {
            let backend = Arc::new(Cpu::backend(level, 2).unwrap());
            let found = compare(read(name), backend, Precision::Fast, LONG, &mut rng);
            assert_eq!(found.different, 0, "{name} on {}: {found:?}", level.name());
            assert!(found.reused > LONG.shared, "{name} on {}: {found:?}", level.name());
        }
    }
}

#[cfg(all(target_arch = "x86_64", unix))]
mod simulated {
    use super::{Batching, Found, KvFormat, LONG, Precision, compare, fresh, read, windowed};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use gpu_sim::{Language, Mode, Order};
    use gristmill_conformance::simulated::Simulator;
    use gristmill_cuda::{Choice, Cuda};
    use gristmill_engine::{Error, LoadOptions, Model};
    use gristmill_files::gguf::GgufFile;
    use gristmill_kernels::Backend;
    use gristmill_metal::Metal;
    use gristmill_suite::rng::Rng;

    /// Experts, odd widths, states of fixed size, windows with sinks, tied and shared weights, formats with and without
    /// minima, floats.
    const SOME: &[(&str, Precision, KvFormat)] = &[
        ("qwen3moe-q4_k_m", Precision::Fast, KvFormat::F16),
        ("gpt-oss-mxfp4", Precision::Fast, KvFormat::F16),
        ("qwen2moe-q8_0", Precision::Fast, KvFormat::Q8_0),
        ("gemma3-q8_0", Precision::Fast, KvFormat::F16),
        ("odd-q4_k_m", Precision::Exact, KvFormat::F16),
        ("odd-f32", Precision::Fast, KvFormat::Q8_0),
        ("lfm2-f32", Precision::Fast, KvFormat::F16),
        ("qwen3next-f32", Precision::Fast, KvFormat::F16),
        ("kimi-linear-f32", Precision::Fast, KvFormat::F16),
        ("nemotron_h_moe-f32", Precision::Fast, KvFormat::F16),
        ("falcon-h1-f32", Precision::Fast, KvFormat::F16),
    ];

    /// Files of kernels that are used only by a choice by the number of rows.
    const BY_ROWS: &[&str] = &[
        "attention_latent.cu",
        "attention_tile.cu",
        "attention_tile.metal",
        "attention_wgmma.cu",
        "experts.cu",
        "gemm.cu",
        "gemm.metal",
        "gemm_f32.cu",
        "gemm_sum.cu",
        "gemm_wgmma.cu",
        "norm_matmul.cu",
    ];

    fn backend(gpu: Arc<Simulator>, language: Language, deterministic: bool) -> Arc<Backend> {
        let choice = if deterministic { Choice::Deterministic } else { Choice::Fastest };
        let backend = match language {
            Language::Cuda => Cuda::backend(gpu, gristmill_cuda::Options { choice }),
            Language::Metal => Metal::backend(gpu, gristmill_metal::Options { deterministic }),
        };
        Arc::new(backend.unwrap())
    }

    /// Sources among these that a run launches.
    fn by_rows(files: &BTreeSet<&'static str>) -> BTreeSet<&'static str> {
        files.iter().copied().filter(|file| BY_ROWS.contains(file)).collect()
    }

    /// The findings of a run, and the files of the kernels that it launches.
    fn run(
        language: Language,
        deterministic: bool,
        (name, precision, kv_format): (&str, Precision, KvFormat),
        batching: Batching,
        rng: &mut Rng,
    ) -> (Found, BTreeSet<&'static str>) {
        let gpu = Simulator::with(language, Order::Ascending, Mode::Fast, Vec::new());
        let backend = backend(gpu.clone(), language, deterministic);
        let found = compare(read(name), backend, precision, Batching { kv_format, ..batching }, rng);
        println!("{name} on {language:?}, deterministic {deterministic}, {} texts: {found:?}", batching.texts);
        (found, gpu.files())
    }

    /// More and more texts. Each is tried, with other models in each run.
    const BATCHINGS: [Batching; 4] = [batching(2, 45), batching(5, 45), batching(17, 24), batching(33, 18)];

    const fn batching(texts: usize, length: usize) -> Batching {
        Batching { texts, length, shared: 17, chunk: 20, kv_format: KvFormat::F16 }
    }

    /// The files of the kernels that were launched.
    fn alone_and_in_company(language: Language, test: &str) -> BTreeSet<&'static str> {
        let mut rng = fresh(test);
        let first = rng.below(BATCHINGS.len());
        let mut guessed = 0;
        let mut launched = BTreeSet::new();
        for (number, &case) in SOME.iter().enumerate() {
            let batching = BATCHINGS[(first + number) % BATCHINGS.len()];
            let (found, files) = run(language, true, case, batching, &mut rng);
            assert_eq!(found.different, 0, "{case:?}, {batching:?}: {found:?}");
            assert!(found.reused > 0 || !found.reuses, "{case:?}, {batching:?}: {found:?}");
            assert_eq!(by_rows(&files), BTreeSet::new(), "{case:?}, {batching:?}");
            guessed += found.guessed;
            launched.extend(files);
        }
        assert!(guessed > 0, "no guess was taken back");
        launched
    }

    #[test]
    fn on_cuda() {
        let launched = alone_and_in_company(Language::Cuda, "CUDA");
        // Few and many rows of one sum.
        assert!(["gemm_int8.cu", "gemm_int8_tile.cu"].iter().all(|file| launched.contains(file)), "{launched:?}");
    }

    #[test]
    fn on_metal() {
        alone_and_in_company(Language::Metal, "Metal");
    }

    /// Without tensor cores that the kernels know, dot products multiply int8 activations too.
    #[test]
    fn on_an_older_cuda_device() {
        let mut rng = fresh("sm_75");
        let gpu = Simulator::of_capability(75, Order::Ascending, Mode::Fast);
        let options = gristmill_cuda::Options { choice: Choice::Deterministic };
        let backend = Arc::new(Cuda::backend(gpu.clone(), options).unwrap());
        let found = compare(read("qwen3moe-q4_k_m"), backend, Precision::Fast, BATCHINGS[2], &mut rng);
        assert_eq!(found.different, 0, "{found:?}");
        assert!(gpu.files().contains("gemv.cu") && !gpu.files().contains("gemm_int8.cu"));
    }

    /// Contexts that are split into splits, which some launches join themselves.
    fn with_long_contexts(language: Language, test: &str) {
        let mut rng = fresh(test);
        for kv_format in [KvFormat::F16, KvFormat::Q8_0] {
            let (found, files) = run(language, true, ("qwen3-q8_0", Precision::Fast, kv_format), LONG, &mut rng);
            assert_eq!(found.different, 0, "{language:?}, {kv_format:?}: {found:?}");
            let shares = language == Language::Cuda && kv_format == KvFormat::F16;
            assert_eq!(files.contains("attention_neighbours.cu"), shares, "{language:?}, {kv_format:?}: {files:?}");
        }
        let gpu = Simulator::with(language, Order::Ascending, Mode::Fast, Vec::new());
        let found = compare(windowed(), backend(gpu, language, true), Precision::Fast, LONG, &mut rng);
        assert_eq!(found.different, 0, "{language:?}, with a window: {found:?}");
    }

    // Tests start in the order of their names: these take longest.
    #[test]
    fn a_long_context_on_cuda() {
        with_long_contexts(Language::Cuda, "long contexts on CUDA");
    }

    #[test]
    fn a_long_context_on_metal() {
        with_long_contexts(Language::Metal, "long contexts on Metal");
    }

    /// A backend that chooses by the number of rows does not pass for another.
    #[test]
    fn another_backend_is_refused() {
        let backend = Arc::new(Simulator::metal(1, Mode::Fast).unwrap());
        let path = gristmill_conformance::golden::models_folder().join("qwen3-q8_0.gguf");
        let options = LoadOptions { deterministic: true, ..LoadOptions::default() };
        let refused = Model::with_backend(GgufFile::open(path).unwrap(), backend, options);
        assert!(matches!(refused, Err(Error::NotDeterministic { .. })), "{refused:?}");
    }

    /// The tests above can fail: by default kernels are chosen by the number of rows, and bits differ.
    #[test]
    fn by_default_company_shows() {
        let mut rng = fresh("by default");
        for language in [Language::Cuda, Language::Metal] {
            let (found, files) = run(language, false, SOME[0], BATCHINGS[rng.below(2)], &mut rng);
            assert!(found.different > 0, "{language:?}: {found:?}");
            assert!(by_rows(&files).len() > 1, "{language:?}: {files:?}");
        }
    }
}
