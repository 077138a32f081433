//! The memory plan against a GPU's memory, and runners that share a device; on a simulated one.
#![cfg(all(target_arch = "x86_64", unix))]

use std::path::Path;
use std::sync::Arc;

use gpu_sim::{Language, Mode, Order};
use gristmill_conformance::simulated::Simulator;
use gristmill_cuda::{Cuda, Options};
use gristmill_engine::vision::{ImageSpan, Patches, Prepared};
use gristmill_engine::{Batch, Limits, LoadOptions, Model, ModelInfo, Outputs, Plan, Precision, Runner};
use gristmill_files::gguf::GgufFile;
use gristmill_gpu::{Gpu, Region};
use gristmill_kernels::Backend;
use gristmill_kernels::format::Format;
use gristmill_kernels::kv::KvFormat;
use gristmill_kernels::ops::{Matmul, PrepareActivations, Scale};
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::{Role, TensorView};
use gristmill_metal::Metal;

const LANGUAGES: [Language; 2] = [Language::Cuda, Language::Metal];

/// A golden model on a device of its own, and its plan, which has the bytes of its weights: CUDA's own, Metal's in the
/// file.
fn loaded(language: Language, name: &str, limits: &Limits, precision: Precision) -> (Arc<Simulator>, Arc<Model>, Plan) {
    let gpu = Simulator::with(language, Order::Ascending, Mode::Fast, Vec::new());
    let backend: Arc<Backend> = match language {
        Language::Cuda => Arc::new(Cuda::backend(gpu.clone(), Options::default()).unwrap()),
        Language::Metal => Arc::new(Metal::backend(gpu.clone(), gristmill_metal::Options::default()).unwrap()),
    };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.gguf"));
    let file = GgufFile::open(golden).unwrap();
    let plan = Plan::new(&ModelInfo::read(&file).unwrap(), limits, precision, &backend).unwrap();
    let before = gpu.taken();
    let model = Model::with_backend(file, backend, LoadOptions { precision, ..LoadOptions::default() }).unwrap();
    assert_eq!((gpu.taken() - before, gpu.mapped()), (plan.weights, plan.mapped), "{name}: weights");
    assert_eq!(plan.mapped > 0, language == Language::Metal);
    assert!(plan.total() >= plan.weights + plan.mapped + plan.state + plan.scratch);
    (gpu, Arc::new(model), plan)
}

/// Weights to the byte, in many formats, tied or not, with rows that planes have to be padded for; caches and the rest
/// not below what is taken, nor far above it.
#[test]
fn a_device_takes_what_was_planned() {
    let names = [
        "odd-f32",
        "odd-q8_0",
        "odd-q4_k_m",
        "llama-tied-f32",
        "llama-tied-q8_0",
        "llama3-q4_k_m",
        "qwen2moe-q8_0",
        "qwen3moe-q4_k_m",
        "gpt-oss-mxfp4",
        "phimoe-q8_0",
        "gemma3-q8_0",
        "deepseek-f32",
    ];
    for name in names {
        for (precision, kv_format, sequences, batch_tokens) in
            [(Precision::Fast, KvFormat::F16, 1, 70), (Precision::Exact, KvFormat::Q8_0, 3, 5)]
        {
            let limits = Limits { context: Some(37), sequences, batch_tokens, kv_format, ..Limits::default() };
            for language in LANGUAGES {
                let (gpu, model, plan) = loaded(language, name, &limits, precision);
                let before = gpu.taken();
                let _runner = Runner::new(model, limits).unwrap();
                let taken = gpu.taken() - before;
                let planned = plan.state + plan.scratch;
                // Metal has no rounded copies of activations, for which the plan reserves memory.
                let least = if language == Language::Cuda { 0.9 } else { 0.5 };
                let near = taken <= planned && taken as f64 >= least * planned as f64;
                assert!(near, "{name}, {language:?}, {precision:?}, {kv_format:?}: {taken} taken, {planned} planned");
            }
        }
    }
}

/// Operations use at most the planned memory, and preparation uses none.
#[test]
fn a_step_takes_what_was_planned() {
    let limits = Limits { context: Some(32), batch_tokens: 7, output_rows: Some(3), ..Limits::default() };
    for language in LANGUAGES {
        let (gpu, model, plan) = loaded(language, "odd-f32", &limits, Precision::Fast);
        let before = gpu.taken();
        let mut seen = Vec::new();
        model.make_ready(&limits, |progress| seen.push((progress.done, progress.total))).unwrap();
        let units = gpu.compiled() as u64;
        assert_eq!(seen, (0..=units).map(|done| (done, units)).collect::<Vec<_>>());
        assert_eq!(gpu.taken(), before);
        let mut runner = Runner::new(model, limits).unwrap();
        let id = runner.open_sequence().unwrap();
        for tokens in [7, 1, 3] {
            runner.forward(Batch::new().push(id, &vec![1; tokens], Outputs::Last)).unwrap().argmax().unwrap();
        }
        assert_eq!(gpu.compiled() as u64, units, "{language:?}");
        assert!(gpu.taken() <= before + plan.state + plan.scratch + plan.reserve);
    }
}

/// A vision tower's weights to the byte, and an image as large as the context not above the plan, nor far below it. All
/// kernels are ready before the first image.
#[test]
fn a_tower_takes_what_was_planned() {
    let limits = Limits { context: Some(37), batch_tokens: 37, ..Limits::default() };
    let open = |name: &str| GgufFile::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)).unwrap();
    let precision = Precision::Fast;
    for (text, tower) in [("lfm2-f32", "lfm2-vl-q8_0"), ("qwen3vl-f32", "qwen3-vl-f32")] {
        for language in LANGUAGES {
            let gpu = Simulator::with(language, Order::Ascending, Mode::Fast, Vec::new());
            let backend: Arc<Backend> = match language {
                Language::Cuda => Arc::new(Cuda::backend(gpu.clone(), Options::default()).unwrap()),
                Language::Metal => Arc::new(Metal::backend(gpu.clone(), gristmill_metal::Options::default()).unwrap()),
            };
            let (file, tower) = (open(&format!("{text}.gguf")), open(&format!("vision/{tower}.mmproj.gguf")));
            let mut info = ModelInfo::read(&file).unwrap();
            let of_text = Plan::new(&info, &limits, precision, &backend).unwrap();
            info.read_tower(&tower).unwrap();
            let plan = Plan::new(&info, &limits, precision, &backend).unwrap();
            assert_eq!((plan.weights, plan.scratch, plan.state), (of_text.weights, of_text.scratch, of_text.state));
            let before = gpu.taken();
            let options = LoadOptions { precision, ..LoadOptions::default() };
            let model = Arc::new(Model::with_backend(file, backend, options).unwrap().with_tower(tower).unwrap());
            assert_eq!((gpu.taken() - before, gpu.mapped()), (plan.weights + plan.tower, plan.mapped), "{text}");
            assert!(plan.tower + plan.mapped > of_text.mapped, "{text}: {plan:?}");

            model.make_ready(&limits, |_| ()).unwrap();
            let (units, before) = (gpu.compiled(), gpu.taken());
            let side = 6 * model.tower().unwrap().spec().merge;
            let values = vec![0.5; side * side * 3 * model.tower().unwrap().spec().patch.pow(2)];
            let image =
                Arc::new(Prepared { tiles: vec![Patches { rows: side, columns: side, values }], hash: [1; 32] });
            let spans = [ImageSpan { start: 1, tokens: 36, image, tile: 0, first: 0 }];
            let mut runner = Runner::new(model, limits).unwrap();
            assert_eq!(runner.plan().pictures, plan.pictures);
            let without = gpu.taken();
            let (id, mut batch) = (runner.open_sequence().unwrap(), Batch::new());
            batch.push_with_images(id, &[1; 37], 0, &spans, Outputs::Last);
            runner.forward(&batch).unwrap().argmax().unwrap();
            assert_eq!(gpu.compiled(), units, "{text}, {language:?}");
            let taken = gpu.taken() - without;
            assert!(taken <= plan.pictures + plan.reserve && taken >= plan.pictures / 3, "{text}: {taken} of {plan:?}");
            assert!(gpu.taken() - before <= plan.state + plan.scratch + plan.pictures + plan.reserve, "{text}");
        }
    }
}

/// Two runners of one model on one device, each on a thread of its own, find what each finds alone.
#[test]
fn runners_on_several_threads_take_turns() {
    let limits = Limits { context: Some(40), batch_tokens: 5, ..Limits::default() };
    let (_gpu, model, _) = loaded(Language::Cuda, "odd-f32", &limits, Precision::Fast);
    let text = |first: u32| {
        let mut runner = Runner::new(model.clone(), limits).unwrap();
        let id = runner.open_sequence().unwrap();
        let mut logits = Vec::new();
        let mut tokens = vec![first, 2, 3, 4, 5];
        for _ in 0..30 {
            let mut found = runner.forward(Batch::new().push(id, &tokens, Outputs::Last)).unwrap();
            logits.extend(found.to_vec().unwrap());
            tokens = found.argmax().unwrap();
        }
        logits
    };
    let alone = [text(7), text(8)];
    for _ in 0..3 {
        let together = std::thread::scope(|scope| {
            [7, 8].map(|first| scope.spawn(move || text(first))).map(|thread| thread.join().unwrap())
        });
        assert!(together == alone);
    }
}

/// Memory of the caller as inputs and outputs: the bits are those of own buffers, and dropping the buffer frees nothing.
#[test]
fn memory_of_the_caller_is_an_operand() {
    let (rows, cols, outputs) = (3, 256, 32);
    let bytes = outputs * Format::Q8_0.row_bytes(cols).unwrap();
    // Blocks of a scale of 1/16 in f16 and 32 codes.
    let scale = |n: usize| if n % 34 == 1 { 0x2c } else { 0 };
    let blocks: Vec<u8> = (0..bytes).map(|n| if n % 34 < 2 { scale(n) } else { (n * 7 % 251) as u8 }).collect();
    let values: Vec<f32> = (0..rows * cols).map(|n| (n % 37) as f32 / 37.0 - 0.5).collect();
    for language in LANGUAGES {
        let gpu = Simulator::with(language, Order::Ascending, Mode::Checked, Vec::new());
        let backend = match language {
            Language::Cuda => Cuda::backend(gpu.clone(), Options::default()).unwrap(),
            Language::Metal => Metal::backend(gpu.clone(), gristmill_metal::Options::default()).unwrap(),
        };
        let tensor = TensorView::new("w", Format::Q8_0, [1, outputs, cols], blocks.clone());
        let weight = backend.prepare(&[tensor], Role::Matrix).unwrap();
        let run = |x: &mut Buffer<f32>, y: &mut Buffer<f32>| {
            backend.upload(&values, x).unwrap();
            let mut act = backend.alloc_act(gristmill_engine::Precision::Fast, rows, cols).unwrap();
            backend.run(PrepareActivations { x: x.view(rows, cols).unwrap(), act: &mut act }).unwrap();
            backend.run(Matmul::new(&weight, &act, y.view_mut(rows, outputs).unwrap())).unwrap();
            backend.run(Scale { factor: 0.5, y: y.view_mut(1, outputs).unwrap() }).unwrap();
        };
        let mut own = (backend.alloc(rows * cols, "x").unwrap(), backend.alloc(rows * outputs, "y").unwrap());
        run(&mut own.0, &mut own.1);
        let expected = backend.into_host(own.1).unwrap();

        // Four floats are 16 bytes, the alignment that kernels need.
        let mut memory = vec![[f32::NAN; 4]; rows * (cols + outputs) / 4 + 1];
        let before = gpu.taken();
        let device: Arc<dyn Gpu> = gpu.clone();
        let start = memory.as_mut_ptr().expose_provenance() as u64;
        let first = start.next_multiple_of(16);
        let buffer = |at: usize, len: usize| {
            // SAFETY: both parts are inside `memory`, which outlives the buffers, and do not overlap; the host reads
            // them after they are dropped.
            let region = unsafe { Region::from_raw(&device, first + 4 * at as u64, 4 * len) };
            Buffer::on_device(Box::new(region.unwrap()))
        };
        let mut x = buffer(0, rows * cols);
        let mut y = buffer(rows * cols, rows * outputs);
        run(&mut x, &mut y);
        backend.synchronize().unwrap();
        drop((x, y));
        assert_eq!(gpu.taken(), before);
        let skip = (first - start) as usize / 4;
        let floats: &[f32] = memory.as_flattened();
        assert_eq!(&floats[skip..skip + rows * cols], values, "{language:?}");
        assert_eq!(&floats[skip + rows * cols..][..rows * outputs], expected, "{language:?}");
    }
}

/// Large batches use at most a sixteenth of what the weights and a usual batch leave, with caches that grow with a batch.
#[test]
fn a_large_batch_has_memory() {
    for name in ["qwen3moe-q4_k_m", "gpt-oss-mxfp4"] {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.gguf"));
        let info = ModelInfo::read(&GgufFile::open(golden).unwrap()).unwrap();
        let limits = Limits { context: Some(8192), sequences: 4, ..Limits::default() };
        let on = |memory: u64| Cuda::backend(Simulator::with_memory(memory), Options::default()).unwrap();
        let total = |batch_tokens| {
            Plan::new(&info, &Limits { batch_tokens, ..limits }, Precision::Fast, &on(80 << 30)).unwrap().total()
        };
        let usual = |limits: Limits, memory| limits.usual_batch(&info, Precision::Fast, &on(memory)).unwrap();
        let [first, second, third] = [2048, 4096, 8192].map(total);
        let needs = |more: u64| first + 16 * (more - first);
        for (memory, expected) in [
            (80 << 30, 8192),
            (needs(third), 8192),
            (needs(third) - 16, 4096),
            (needs(second), 4096),
            (needs(second) - 16, 2048),
        ] {
            assert_eq!(usual(limits, memory), expected, "{name}, {memory} bytes");
        }
        let short = Limits { context: Some(1500), ..limits };
        assert_eq!(
            [1, 2, 4, 6].map(|sequences| usual(Limits { sequences, ..short }, 80 << 30)),
            [2048, 2048, 4096, 8192]
        );
        let cache = Limits { context: Some(4096), kv_tokens: Some(8000), ..limits };
        assert_eq!(usual(cache, 80 << 30), 4096);
    }
}
