//! Every kernel that a step of any size launches was made ready, of every golden model, on a device that computes
//! nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use gristmill_conformance::golden;
use gristmill_cuda::{Choice, Cuda, Options};
use gristmill_engine::model::spec::{BlockInputs, ModelSpec, NormKind};
use gristmill_engine::vision::{ImageSpan, Patches, Prepared};
use gristmill_engine::{Batch, Limits, LoadOptions, Model, Outputs, Precision, Runner, Sampling, SamplingOptions};
use gristmill_files::gguf::GgufFile;
use gristmill_gpu::precompile::make_ready;
use gristmill_gpu::{Gpu, Launch, Properties, Unit};
use gristmill_kernels::Result;
use gristmill_kernels::kv::KvFormat;
use gristmill_kernels::ops::Graph;
use gristmill_kernels::tensor::DeviceId;
use gristmill_suite::ops::ALL;
use gristmill_suite::rng::Rng;
use gristmill_suite::{Extent, run_dry};

/// A device that notes which units were prepared, and which were launched. Reads give zeros.
#[derive(Debug)]
struct Idle {
    properties: Properties,
    prepared: Mutex<BTreeSet<Unit>>,
    launched: Mutex<BTreeSet<Unit>>,
}

impl Idle {
    /// A device of this architecture, with the multiprocessors of an H200.
    fn new(architecture: u32) -> Arc<Self> {
        let properties = Properties {
            id: DeviceId::Cuda(0),
            name: "idle".to_owned(),
            architecture,
            multiprocessors: 132,
            shared_bytes: if architecture < 80 { 64 << 10 } else { 227 << 10 },
            memory: 80 << 30,
        };
        Arc::new(Self { properties, prepared: Mutex::default(), launched: Mutex::default() })
    }
}

impl Gpu for Idle {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn free_memory(&self) -> Result<u64> {
        Ok(self.properties.memory)
    }
    fn allocate(&self, _bytes: usize, _what: &'static str) -> Result<u64> {
        Ok(256)
    }
    fn free(&self, _address: u64) {}
    fn zero(&self, _address: u64, _bytes: usize) -> Result<()> {
        Ok(())
    }
    fn write(&self, _address: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }
    fn read(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        pieces.iter_mut().for_each(|(_, bytes)| bytes.fill(0));
        Ok(())
    }
    fn copy(&self, _from: u64, _to: u64, _bytes: usize) -> Result<()> {
        Ok(())
    }
    fn launch(&self, launch: &Launch) -> Result<()> {
        self.launched.lock().unwrap().insert(launch.kernel.unit());
        Ok(())
    }
    fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
        work().map(|()| None)
    }
    fn prepare(&self, unit: &Unit) -> Result<()> {
        self.prepared.lock().unwrap().insert(unit.clone());
        Ok(())
    }
}

const SAMPLING: Sampling = Sampling {
    mask: None,
    bias: &[],
    counts: &[],
    options: SamplingOptions {
        temperature: 0.5,
        top_k: 40,
        top_p: 0.9,
        min_p: 0.05,
        seed: Some(1),
        ..SamplingOptions::NONE
    },
    position: 0,
};

/// Files of kernels that are chosen by the number of rows alone.
const BY_ROWS: &[&str] = &[
    "attention_latent.cu",
    "attention_tile.cu",
    "attention_wgmma.cu",
    "experts.cu",
    "gemm.cu",
    "gemm_f32.cu",
    "gemm_sum.cu",
    "gemm_wgmma.cu",
    "norm_matmul.cu",
];

/// Whether no product of a quantised dense model reads the root mean square norm of a row.
fn lacks_norm_products(name: &str, spec: &ModelSpec) -> bool {
    let reads = spec.norm == NormKind::Rms && spec.inputs == BlockInputs::Normed;
    !reads && spec.routers().iter().all(|router| router.experts == 0) && !name.ends_with("-f32")
}

fn check(name: &str, choice: Choice, architecture: u32, precision: Precision, kv_format: KvFormat) {
    let gpu = Idle::new(architecture);
    let backend = Arc::new(Cuda::backend(gpu.clone(), Options { choice }).unwrap());
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.gguf"));
    let options = LoadOptions { precision, ..LoadOptions::default() };
    let model = Arc::new(Model::with_backend(GgufFile::open(golden).unwrap(), backend, options).unwrap());
    let limits = Limits { sequences: 9, batch_tokens: 300, output_rows: None, kv_format, ..Limits::default() };
    model.make_ready(&limits, |_| ()).unwrap();
    assert!(gpu.launched.lock().unwrap().is_empty());

    let lacks_norm_products = lacks_norm_products(name, model.spec());
    let mut runner = Runner::new(model, limits).unwrap();
    let context = runner.context();
    let sizes = [
        1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 300,
    ];
    for tokens in sizes {
        for sequences in [1, 2, 4, 9].into_iter().filter(|&sequences| sequences <= tokens) {
            let ids: Vec<_> = (0..sequences).map(|_| runner.open_sequence().unwrap()).collect();
            let mut batch = Batch::new();
            for (i, &id) in ids.iter().enumerate() {
                let share = (tokens / sequences + usize::from(i < tokens % sequences)).min(context);
                batch.push(id, &vec![1; share], Outputs::Last);
            }
            let mut logits = runner.forward(&batch).unwrap();
            logits.argmax().unwrap();
            logits.sample(&vec![SAMPLING; sequences]).unwrap();
            ids.into_iter().for_each(|id| runner.close_sequence(id).unwrap());
        }
    }
    let (prepared, launched) = (gpu.prepared.lock().unwrap(), gpu.launched.lock().unwrap());
    let missing: Vec<String> = launched.difference(&prepared).map(Unit::to_string).collect();
    assert!(
        missing.is_empty() && launched.len() > 5,
        "{name}, sm_{architecture}, {precision:?}: not ready: {missing:?}"
    );
    // By default such kernels run in some of these steps. Without tensor cores, which old devices lack and exact
    // activations do not use, these models have none.
    let without = (architecture < 80 || precision == Precision::Exact) && lacks_norm_products;
    let by_rows: Vec<&Unit> = launched.iter().filter(|unit| BY_ROWS.contains(&unit.file)).collect();
    assert_eq!(
        by_rows.is_empty(),
        choice == Choice::Deterministic || without,
        "{name}, {choice:?}, sm_{architecture}, {precision:?}: {by_rows:?}"
    );
}

#[test]
fn of_every_golden_model() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut models = 0;
    for entry in std::fs::read_dir(golden).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = file.strip_suffix(".logits.gguf") else { continue };
        models += 1;
        for choice in [Choice::Fastest, Choice::Deterministic] {
            for architecture in [75, 90] {
                check(name, choice, architecture, Precision::Fast, KvFormat::F16);
            }
            check(name, choice, 90, Precision::Exact, KvFormat::Q8_0);
        }
    }
    assert!(models > 20);
}

/// The kernels of every tower, for images of several sizes, and of steps with images.
#[test]
fn of_every_tower() {
    for name in golden::visions() {
        for architecture in [75, 90] {
            check_tower(name, architecture);
        }
    }
}

fn check_tower(name: &str, architecture: u32) {
    let gpu = Idle::new(architecture);
    let backend = Arc::new(Cuda::backend(gpu.clone(), Options::default()).unwrap());
    let open = |end: &str| GgufFile::open(golden::vision_folder().join(format!("{name}.{end}.gguf"))).unwrap();
    let text = open("golden").metadata().required::<&str>("golden.text").unwrap().to_owned();
    let text = GgufFile::open(golden::models_folder().join(format!("{text}.gguf"))).unwrap();
    let model = Model::with_backend(text, backend, LoadOptions::default()).unwrap();
    let model = Arc::new(model.with_tower(open("mmproj")).unwrap());
    let limits = Limits { context: Some(90), sequences: 2, batch_tokens: 90, ..Limits::default() };
    model.make_ready(&limits, |_| ()).unwrap();
    assert!(gpu.launched.lock().unwrap().is_empty());
    let tower = model.tower().unwrap().clone();
    let (merge, of_patch) = (tower.spec().merge, 3 * tower.spec().patch.pow(2));
    let mut runner = Runner::new(model, limits).unwrap();
    for (high, wide) in [(1, 1), (1, 5), (4, 4), (2, 30), (8, 9)] {
        let (rows, columns) = (high * merge, wide * merge);
        if rows * columns > tower.processor().most_patches() {
            continue;
        }
        let tiles = vec![Patches { rows, columns, values: vec![0.0; rows * columns * of_patch] }];
        let image = Arc::new(Prepared { tiles, hash: [(high * wide) as u8; 32] });
        let spans = [ImageSpan { start: 2, tokens: high * wide, image, tile: 0, first: 0 }];
        let id = runner.open_sequence().unwrap();
        let mut batch = Batch::new();
        batch.push_with_images(id, &vec![1; high * wide + 3], 0, &spans, Outputs::Last);
        runner.forward(&batch).unwrap().argmax().unwrap();
        batch.clear();
        batch.push_with_images(id, &[1], high * wide + 3, &spans, Outputs::Last);
        runner.forward(&batch).unwrap().argmax().unwrap();
        runner.close_sequence(id).unwrap();
    }
    let (prepared, launched) = (gpu.prepared.lock().unwrap(), gpu.launched.lock().unwrap());
    let missing: Vec<String> = launched.difference(&prepared).map(Unit::to_string).collect();
    assert!(missing.is_empty() && launched.len() > 5, "{name}, sm_{architecture}: not ready: {missing:?}");
}

/// Decode steps of many sequences, whose contexts are short or reach beyond what attention takes at once.
#[test]
fn of_short_and_long_contexts() {
    let gpu = Idle::new(90);
    let backend = Arc::new(Cuda::backend(gpu.clone(), Options::default()).unwrap());
    let stories = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/model/gristmill-stories.gguf");
    let model = Model::with_backend(GgufFile::open(stories).unwrap(), backend, LoadOptions::default()).unwrap();
    let model = Arc::new(model);
    let limits = Limits { sequences: 300, batch_tokens: 300, output_rows: None, ..Limits::default() };
    model.make_ready(&limits, |_| ()).unwrap();
    let mut runner = Runner::new(model, limits).unwrap();
    let ids: Vec<_> = (0..300).map(|_| runner.open_sequence().unwrap()).collect();
    let count = |launched: &BTreeSet<Unit>| launched.iter().filter(|unit| unit.file == "attention_decode.cu").count();
    let mut forms = Vec::new();
    for long in [0, 250, 250] {
        let mut batch = Batch::new();
        if long > 0 {
            batch.push(ids[0], &vec![1; long], Outputs::Last);
            runner.forward(&batch).unwrap().argmax().unwrap();
            batch.clear();
        }
        for sequences in [100, 200, 300] {
            batch.clear();
            for &id in &ids[..sequences] {
                batch.push(id, &[1], Outputs::Last);
            }
            runner.forward(&batch).unwrap().argmax().unwrap();
        }
        forms.push(count(&gpu.launched.lock().unwrap()));
    }
    assert_eq!(forms[0], 3, "one, two and four blocks on a multiprocessor");
    let (prepared, launched) = (gpu.prepared.lock().unwrap(), gpu.launched.lock().unwrap());
    let missing: Vec<String> = launched.difference(&prepared).map(Unit::to_string).collect();
    assert!(missing.is_empty(), "not ready: {missing:?}");
}

/// What `gristmill doctor` runs by default: the kernels are those that a dry run of the cases collects, and so few that
/// they are compiled within a minute on 16 cores, where a kernel takes 1.3 s of one.
#[test]
fn of_the_quick_suite() {
    let gpu = Idle::new(90);
    let shared: Arc<dyn Gpu> = gpu.clone();
    let seed = Rng::fresh_seed();
    let mut work = |dry: Arc<dyn Gpu>| {
        let make = |_| Cuda::backend(dry.clone(), Options::default());
        ALL.iter().for_each(|(_, part)| run_dry(*part, &make, seed, Extent::Quick).unwrap());
        Ok(())
    };
    make_ready(&shared, &mut work, &mut |_, _| ()).unwrap();
    assert!(gpu.launched.lock().unwrap().is_empty());
    let make = |_| Cuda::backend(gpu.clone(), Options::default());
    ALL.iter().for_each(|(_, part)| run_dry(*part, &make, seed, Extent::Quick).unwrap());
    let (prepared, launched) = (gpu.prepared.lock().unwrap(), gpu.launched.lock().unwrap());
    assert!(*prepared == *launched, "seed {seed}: {} prepared, {} launched", prepared.len(), launched.len());
    assert!((100..=250).contains(&launched.len()), "seed {seed}: {} kernels", launched.len());
    for file in ["attention_decode.cu", "gemm_wgmma.cu", "gemv.cu", "sample.gpu"] {
        assert!(launched.iter().any(|unit| unit.file == file), "seed {seed}: no kernel of {file}");
    }
}
