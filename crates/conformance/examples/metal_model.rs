//! Launches of a model's step on Metal, noted on the host's own path by a device that runs nothing, and the bounds that
//! follow from bytes and operations: a model on paper, not a measurement (`docs/metal.md`).
//!
//! metal_model FILE [DEPTH [PROMPT]]: a GGUF file, whose weights are not read; a token after DEPTH others (512), and a
//! prompt of PROMPT tokens (512).

use gristmill_engine::{Batch, Limits, LoadOptions, Model, Outputs, Runner};
use gristmill_files::gguf::GgufFile;
use gristmill_gpu::{Access, Arg, Gpu, Launch, Properties, Region, Unit};
use gristmill_kernels::ops::Graph;
use gristmill_kernels::tensor::DeviceId;
use gristmill_metal::Metal;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Name, bytes read in a second, float operations in a second (a product and a sum are two), as Apple publishes the
/// first and cores × 128 lanes × clock give the second.
const DEVICES: [(&str, f64, f64); 3] =
    [("M1 Max", 400e9, 10.6e12), ("M2 Ultra", 800e9, 27.2e12), ("M4 Max", 546e9, 18.4e12)];

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

/// A launch, with the ranges of memory that it declares.
#[derive(Clone, Debug)]
struct Note {
    kernel: String,
    block: u32,
    shared: u32,
    ranges: Vec<(u64, usize, Access)>,
}

/// A Metal device that notes launches.
#[derive(Debug)]
struct Noting {
    properties: Properties,
    next: AtomicU64,
    /// The purpose of each allocation, by address.
    memory: Mutex<BTreeMap<u64, &'static str>>,
    launches: Mutex<Vec<Note>>,
}

impl Noting {
    fn new() -> Arc<Self> {
        let id = DeviceId::Metal(DeviceId::SIMULATED);
        let name = "on paper".to_owned();
        let properties =
            Properties { id, name, architecture: 7, multiprocessors: 0, shared_bytes: 32 << 10, memory: 1 << 40 };
        let next = AtomicU64::new(1 << 20);
        let memory = Mutex::default();
        let launches = Mutex::default();
        Arc::new(Self { properties, next, memory, launches })
    }

    /// Launches noted since the last call.
    fn take(&self) -> Vec<Note> {
        std::mem::take(&mut self.launches.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The purpose of the memory at an address, unless it is mapped.
    fn purpose(&self, address: u64) -> Option<&'static str> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        // Addresses of the process are far above those that are given out here.
        memory
            .range(..=address)
            .next_back()
            .filter(|_| address < self.next.load(Ordering::Relaxed))
            .map(|(_, what)| *what)
    }
}

impl Gpu for Noting {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn free_memory(&self) -> gristmill_kernels::Result<u64> {
        Ok(self.properties.memory)
    }
    fn allocate(&self, bytes: usize, what: &'static str) -> gristmill_kernels::Result<u64> {
        let address = self.next.fetch_add(bytes.next_multiple_of(256) as u64, Ordering::Relaxed);
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).insert(address, what);
        Ok(address)
    }
    fn map_host(&self, bytes: &[u8]) -> gristmill_kernels::Result<Option<u64>> {
        Ok(Some(bytes.as_ptr().addr() as u64))
    }
    fn free(&self, _: u64) {}
    fn zero(&self, _: u64, _: usize) -> gristmill_kernels::Result<()> {
        Ok(())
    }
    fn write(&self, _: u64, _: &[u8]) -> gristmill_kernels::Result<()> {
        Ok(())
    }
    fn read(&self, pieces: &mut [(u64, &mut [u8])]) -> gristmill_kernels::Result<()> {
        pieces.iter_mut().for_each(|(_, bytes)| bytes.fill(0));
        Ok(())
    }
    fn copy(&self, _: u64, _: u64, _: usize) -> gristmill_kernels::Result<()> {
        Ok(())
    }
    fn launch(&self, launch: &Launch) -> gristmill_kernels::Result<()> {
        let format = launch.kernel.defines.iter().find(|(name, _)| *name == "FORMAT");
        let kernel = match format {
            Some((_, format)) => format!("{} {format}", launch.kernel.entry),
            None => launch.kernel.entry.to_owned(),
        };
        let range = |arg: &Arg| match *arg {
            Arg::Buffer { region, offset, bytes, access } => Some((region.address() + offset as u64, bytes, access)),
            _ => None,
        };
        let ranges = launch.args.iter().filter_map(range).collect();
        let note = Note { kernel, block: launch.block, shared: launch.shared, ranges };
        self.launches.lock().unwrap_or_else(PoisonError::into_inner).push(note);
        Ok(())
    }
    fn launch_indirect(&self, launch: &Launch, _: &Region, _: usize) -> gristmill_kernels::Result<()> {
        self.launch(launch)
    }
    fn capture(
        &self,
        _: &mut dyn FnMut() -> gristmill_kernels::Result<()>,
    ) -> gristmill_kernels::Result<Option<Box<dyn Graph>>> {
        Ok(None)
    }
    fn prepare(&self, _: &Unit) -> gristmill_kernels::Result<()> {
        Ok(())
    }
}

/// Numbers of a model that the formulas need.
struct Facts {
    layers: f64,
    experts: f64,
    top_k: f64,
    heads: f64,
    /// Elements of the keys of a token in a layer, and of its values.
    keys: f64,
    values: f64,
    key_width: f64,
    value_width: f64,
}

impl Facts {
    fn read(file: &GgufFile) -> Anything<Self> {
        let metadata = file.metadata();
        let architecture = metadata.required::<&str>("general.architecture")?;
        let number = |name: &str| metadata.required::<u64>(&format!("{architecture}.{name}")).map(|n| n as f64);
        let or = |name: &str, other: f64| number(name).unwrap_or(other);
        let (heads, kv_heads) = (number("attention.head_count")?, number("attention.head_count_kv")?);
        let width = number("embedding_length")? / heads;
        let (key_width, value_width) = (or("attention.key_length", width), or("attention.value_length", width));
        Ok(Self {
            layers: number("block_count")?,
            experts: or("expert_count", 1.0),
            top_k: or("expert_used_count", 1.0),
            heads,
            keys: kv_heads * key_width,
            values: kv_heads * value_width,
            key_width,
            value_width,
        })
    }
}

/// The cost of all launches of a kernel in a step.
#[derive(Clone, Copy, Default)]
struct Cost {
    launches: usize,
    block: u32,
    shared: u32,
    bytes: f64,
    operations: f64,
}

/// Tokens of one sequence, after others.
struct Step {
    tokens: f64,
    before: f64,
}

/// The bytes that a launch moves, and its operations. Weights count once, experts by the number that uniform routing is
/// expected to choose; the cache by the visible tokens, once; all else as declared. Operations count products and
/// attention.
fn cost(note: &Note, file: &GgufFile, gpu: &Noting, facts: &Facts, step: &Step) -> (f64, f64) {
    // It finds that no token of a prompt is left to it.
    if step.tokens > 1.0 && note.kernel == "attention_split" {
        return (0.0, 0.0);
    }
    let (mut bytes, mut operations) = (0.0, 0.0);
    let attends = note.kernel == if step.tokens > 1.0 { "attention_tile" } else { "attention_split" };
    for &(address, declared, access) in &note.ranges {
        let both = if access == Access::ReadWrite { 2.0 } else { 1.0 };
        match gpu.purpose(address) {
            Some("the KV cache") if note.kernel.starts_with("attention") => {
                // Keys and values are two ranges.
                let seen = step.before + step.tokens;
                bytes += if attends { seen * (facts.keys + facts.values) / 2.0 * 2.0 } else { 0.0 };
            }
            Some("the KV cache") => bytes += step.tokens * (facts.keys + facts.values) / 2.0 * 2.0,
            Some(_) => bytes += both * declared as f64,
            None => {
                let at =
                    |tensor: &&gristmill_files::gguf::TensorInfo| file.data(tensor).as_ptr().addr() as u64 == address;
                let Some(tensor) = file.tensors().iter().find(at) else { continue };
                let elements = tensor.elements() as f64;
                if note.kernel.starts_with("embed") {
                    bytes += declared as f64 * step.tokens / tensor.shape[1] as f64;
                } else if tensor.shape.len() == 3 {
                    let share = 1.0 - facts.top_k / facts.experts;
                    let pairs = step.tokens * facts.top_k;
                    bytes += declared as f64 * (1.0 - share.powf(step.tokens));
                    operations += 2.0 * elements / facts.experts * pairs;
                } else {
                    let rows = if tensor.name.starts_with("blk.") { step.tokens } else { 1.0 };
                    bytes += declared as f64;
                    operations += 2.0 * elements * rows;
                }
            }
        }
    }
    if attends {
        let seen = step.tokens * step.before + step.tokens * (step.tokens + 1.0) / 2.0;
        operations += 2.0 * facts.heads * (facts.key_width + facts.value_width) * seen;
    }
    (bytes, operations)
}

/// A step after others, as a table, and its bounds.
fn show(title: &str, file: &GgufFile, facts: &Facts, step: &Step) -> Anything<()> {
    let gpu = Noting::new();
    let backend = Arc::new(Metal::backend(gpu.clone(), gristmill_metal::Options::default())?);
    let model = Arc::new(Model::with_backend(file.clone(), backend, LoadOptions::default())?);
    let (tokens, before) = (step.tokens as usize, step.before as usize);
    let limits = Limits { context: Some(tokens + before), batch_tokens: tokens, ..Limits::default() };
    let mut runner = Runner::new(model, limits)?;
    let sequence = runner.open_sequence()?;
    for first in (0..before).step_by(tokens) {
        let some = vec![0; tokens.min(before - first)];
        runner.forward(Batch::new().push(sequence, &some, Outputs::Last))?;
    }
    gpu.take();
    runner.forward(Batch::new().push(sequence, &vec![0; tokens], Outputs::Last))?.argmax()?;
    let notes = gpu.take();

    let mut kernels: Vec<(String, Cost)> = Vec::new();
    let mut seconds = DEVICES.map(|_| 0.0);
    for note in &notes {
        let (bytes, operations) = cost(note, file, &gpu, facts, step);
        for (sum, (_, read, compute)) in seconds.iter_mut().zip(DEVICES) {
            *sum += f64::max(bytes / read, operations / compute);
        }
        let known = kernels.iter().position(|(name, _)| *name == note.kernel);
        let at = known.unwrap_or_else(|| {
            kernels.push((note.kernel.clone(), Cost::default()));
            kernels.len() - 1
        });
        let cost = &mut kernels[at].1;
        cost.launches += 1;
        (cost.block, cost.shared) = (note.block, cost.shared.max(note.shared));
        (cost.bytes, cost.operations) = (cost.bytes + bytes, cost.operations + operations);
    }
    println!("### {title}\n");
    println!("| kernel | launches | a layer | threads | dynamic threadgroup bytes | MB | MFLOP |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (name, Cost { launches, block, shared, bytes, operations }) in &kernels {
        let layer = *launches as f64 / facts.layers;
        let (bytes, operations) = (bytes / 1e6, operations / 1e6);
        println!("| `{name}` | {launches} | {layer:.2} | {block} | {shared} | {bytes:.1} | {operations:.0} |");
    }
    let sum = |of: fn(&Cost) -> f64| kernels.iter().map(|(_, cost)| of(cost)).sum::<f64>() / 1e6;
    let (all, bytes, operations) = (notes.len(), sum(|cost| cost.bytes), sum(|cost| cost.operations));
    println!("| all | {all} | {:.2} | | | {bytes:.0} | {operations:.0} |\n", all as f64 / facts.layers);
    for (seconds, (name, ..)) in seconds.iter().zip(DEVICES) {
        println!("- {name}: {:.2} ms at least, {:.0} tokens a second at most", seconds * 1e3, step.tokens / seconds);
    }
    println!();
    Ok(())
}

fn main() -> Anything<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| arguments.get(i).map_or(Ok(512.0), |text| text.parse::<u32>().map(f64::from));
    let (Some(path), (before, prompt)) = (arguments.first(), (number(1)?, number(2)?)) else {
        return Err("usage: metal_model FILE [DEPTH [PROMPT]]".into());
    };
    let file = GgufFile::open(path)?;
    let facts = Facts::read(&file)?;
    show(&format!("A token after {before} others"), &file, &facts, &Step { tokens: 1.0, before })?;
    show(&format!("A prompt of {prompt} tokens"), &file, &facts, &Step { tokens: prompt, before: 0.0 })
}
