//! Which kernel serves a cache, and its definitions.

use super::TILE_ROWS;
use gristmill_gpu::Properties;
use gristmill_gpu::Unit;
use gristmill_gpu::common::kv::cells_define;
use gristmill_kernels::act::Precision;
use gristmill_kernels::kv::{KvFormat, KvSpec};

/// Warps of `attention_decode`, and the query heads that it takes at once.
pub(super) const DECODE_WARPS: u32 = 8;

/// The widths that a kernel is compiled for, as definitions.
pub(super) struct Form {
    defines: Vec<(&'static str, String)>,
    /// Dynamic shared memory, in bytes.
    pub(super) shared: u32,
}

impl Form {
    /// The definitions of a kernel.
    pub(super) fn defines(&self) -> Vec<(&'static str, &str)> {
        self.defines.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    fn new(keys: usize, values: usize, shared: usize) -> Option<Self> {
        let defines = vec![("KEY_WIDTH", keys.to_string()), ("VALUE_WIDTH", values.to_string())];
        Some(Self { defines, shared: u32::try_from(shared).ok()? })
    }
}

/// Whether a device and a cache suit tensor cores.
fn tensor_cores(device: &Properties, spec: KvSpec) -> bool {
    device.architecture >= 80 && spec.format == KvFormat::F16
}

/// The form of `attention_decode` for a cache, if it can serve it; with `all_options` for soft caps, chunks and
/// temperatures too.
pub(super) fn decode(device: &Properties, spec: KvSpec, all_options: bool) -> Option<Form> {
    let (keys, values) = (spec.key_width.next_multiple_of(32), spec.value_width.next_multiple_of(64));
    // Wider ones do not fit the registers.
    if !tensor_cores(device, spec) || keys > 128 || values > 128 {
        return None;
    }
    // Each warp's results: a quarter of the values for each lane, and a column of padding.
    let mut form = Form::new(keys, values, DECODE_WARPS as usize * values / 4 * 33 * size_of::<f32>())?;
    form.defines.push(("ALL_OPTIONS", usize::from(all_options).to_string()));
    Some(form)
}

impl Form {
    /// The form of `attention_tile` that writes bfloat16 activations, or results in f32.
    pub(super) fn rounded(mut self, rounded: bool) -> Self {
        self.defines.push(("ROUNDED", usize::from(rounded).to_string()));
        self
    }
}

/// The form of `attention_tile` for a cache, if it can serve it.
pub(super) fn tile(device: &Properties, spec: KvSpec, precision: Precision) -> Option<Form> {
    let (keys, values) = (spec.key_width.next_multiple_of(16), spec.value_width.next_multiple_of(16));
    if !tensor_cores(device, spec) || keys > 256 || values > 256 {
        return None;
    }
    // The registers hold scores and results for so many keys at once.
    let together = match keys.max(values) {
        ..=64 => 64,
        _ if values <= 128 => 32,
        _ => 16,
    };
    // Rows are padded by 16 bytes. Two stages of keys and values; after them the queries' low parts, if there are any,
    // and their high parts where these do not fit the registers.
    let (key_row, value_row, low) = (keys + 8, values + 8, precision == Precision::Exact);
    let queries = (usize::from(low) + usize::from(keys > 128)) * TILE_ROWS as usize * key_row;
    let mut form = Form::new(keys, values, (2 * together * (key_row + value_row) + queries) * size_of::<u16>())?;
    form.defines.extend([("KEYS", together.to_string()), ("LOW_PARTS", usize::from(low).to_string())]);
    (form.shared <= device.shared_bytes).then_some(form)
}

/// The units of attention for common widths of keys and values.
pub(in super::super) fn units() -> Vec<Unit> {
    let device = Properties {
        id: gristmill_kernels::tensor::DeviceId::Cuda(0),
        name: String::new(),
        architecture: 80,
        multiprocessors: 1,
        shared_bytes: u32::MAX,
        memory: 0,
    };
    let mut units = vec![Unit::new("attention_combine.cu", &[])];
    for (rows, format) in ["1", "4", "8"].into_iter().flat_map(|rows| [(rows, KvFormat::F16), (rows, KvFormat::Q8_0)]) {
        units.push(Unit::new("attention_split.cu", &[("ROWS", rows), cells_define(format)]));
    }
    for (key_width, value_width) in [(64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256)] {
        let spec = KvSpec { heads: 1, key_width, value_width, format: KvFormat::F16 };
        let tile = |precision, rounded| {
            ("attention_tile.cu", tile(&device, spec, precision).map(|form| form.rounded(rounded)))
        };
        let decode = |all_options| ("attention_decode.cu", decode(&device, spec, all_options));
        let [exact, fast] = [Precision::Exact, Precision::Fast].map(|precision| tile(precision, false));
        let rounded = tile(Precision::Fast, value_width.is_multiple_of(32));
        let forms = [decode(false), decode(true), exact, fast, rounded];
        units.extend(forms.into_iter().filter_map(|(file, form)| Some(Unit { file, defines: form?.defines })));
    }
    units
}
