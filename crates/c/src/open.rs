//! Opens a model with options, which are checked here.

use std::path::Path;
use std::sync::Arc;

use gristmill_convert::{ConvertOptions, is_model_folder, open_folder};
use gristmill_engine::gguf::GgufFile;
use gristmill_engine::model::ModelInfo;
use gristmill_engine::{Engine, KvFormat, Limits, LoadOptions, machine, open_device, place};

use crate::failure::Failure;

/// The options of a model, read from the caller's struct.
#[derive(Debug, Default)]
pub(crate) struct OpenOptions {
    pub(crate) device: Option<String>,
    pub(crate) threads: u32,
    pub(crate) context: u32,
    pub(crate) sequences: u32,
    pub(crate) queue: u32,
    pub(crate) kv_bits: u32,
    pub(crate) is_deterministic: bool,
    pub(crate) gpu_memory: u64,
    pub(crate) cpu_memory: u64,
}

/// Loads a model and starts its engine.
pub(crate) fn open(path: &str, options: &OpenOptions) -> Result<Engine, Failure> {
    let limits = limits(options)?;
    let load = load_options(options);
    // Wrong options are refused before a large file is read.
    let opened = open_device(&load)?;
    let file = file(Path::new(path))?;
    let info = ModelInfo::read_for(&file, &load)?;
    let placed = place(&file, info, opened, load, limits)?;
    let limits = placed.limits;
    let model = Arc::new(placed.load(file)?);
    model.make_ready(&limits, |_| ())?;
    let engine = Engine::start(model, limits)?;
    Ok(match options.queue {
        0 => engine,
        queue => engine.with_queue(queue as usize),
    })
}

fn file(path: &Path) -> Result<GgufFile, Failure> {
    if !is_model_folder(path) {
        return Ok(GgufFile::open(path)?);
    }
    let opened = open_folder(path, &ConvertOptions::default(), machine::physical_cores());
    opened.map(|(file, _)| file).map_err(|error| Failure::new(crate::abi::gm_status::GM_FILE, error.to_string()))
}

fn load_options(options: &OpenOptions) -> LoadOptions {
    let given = |number: u64| (number > 0).then_some(number);
    LoadOptions {
        device: options.device.clone().unwrap_or_else(|| "auto".to_owned()),
        threads: given(options.threads.into()).map(|threads| threads as usize),
        deterministic: options.is_deterministic,
        gpu_memory: given(options.gpu_memory),
        cpu_memory: given(options.cpu_memory),
        ..LoadOptions::default()
    }
}

fn limits(options: &OpenOptions) -> Result<Limits, Failure> {
    let kv_format = match options.kv_bits {
        0 | 16 => KvFormat::F16,
        8 => KvFormat::Q8_0,
        bits => {
            return Err(Failure::bad(format!(
                "kv_bits: is not a width of the KV cache (found {bits}, expected 8 or 16)"
            )));
        }
    };
    let context = (options.context > 0).then_some(options.context as usize);
    let sequences = options.sequences.max(1) as usize;
    // The tokens of a batch are those that suit the model and the device.
    Ok(Limits { context, sequences, kv_format, batch_tokens: 0, ..Limits::default() })
}
