//! Which kernel serves a cache, and its definitions.

use gristmill_gpu::Properties;
use gristmill_gpu::Unit;
use gristmill_gpu::common::kv::{cells_define, limit};
use gristmill_kernels::act::Precision;
use gristmill_kernels::kv::{KvFormat, KvSpec};
use gristmill_kernels::ops::AttentionOptions;
use gristmill_kernels::tensor::DeviceId;

/// Parts of a split of `attention_decode`, each a warp's, and the query heads that it takes at once.
pub(super) const DECODE_PARTS: u32 = 8;
/// The most shared memory with a fixed size of `attention_decode`, in bytes: queries, a new key and value, sums.
const DECODE_STATIC: u32 = 2 * 8 * 160 * 2 + 2 * 128 * 2 + 8 * 8 * 8 + 8 * 4 + 8 * 4;

/// The most splits of a token's keys: `MAX_SPLITS` of `kernels/attention.cuh`.
pub(super) const MAX_SPLITS: usize = 32;
/// The same of `attention_latent_split`: all heads share a key, so only splits give more thread blocks work.
pub(super) const MAX_LATENT_SPLITS: usize = 64;

/// The widths that a kernel is compiled for, as definitions.
pub(super) struct AttentionVariant {
    defines: Vec<(&'static str, String)>,
    /// Dynamic shared memory, in bytes.
    pub(super) shared: u32,
    /// Thread blocks that are on a multiprocessor at once, as far as `attention_decode` knows.
    pub(super) blocks: u32,
}

/// A kernel whose thread blocks take several rows, and its form.
pub(super) struct RowKernel {
    pub(super) file: &'static str,
    /// Rows of a thread block: query heads that share a KV head, of long runs those of several tokens.
    pub(super) rows: u32,
    pub(super) threads: u32,
    /// Rows of the grid: slices of the values, each with blocks of its own.
    pub(super) slices: u32,
    form: AttentionVariant,
}

impl AttentionVariant {
    /// The definitions of a kernel.
    pub(super) fn defines(&self) -> Vec<(&'static str, &str)> {
        self.defines.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    fn new(keys: usize, values: usize, shared: usize) -> Option<Self> {
        let defines = vec![("KEY_WIDTH", keys.to_string()), ("VALUE_WIDTH", values.to_string())];
        Some(Self { defines, shared: u32::try_from(shared).ok()?, blocks: 1 })
    }

    /// Threads of `attention_decode`.
    pub(super) fn threads(&self) -> u32 {
        DECODE_PARTS / self.blocks * 32
    }
}

/// Whether a device and a cache that has values of its own suit tensor cores.
fn tensor_cores(device: &Properties, spec: KvSpec) -> bool {
    device.architecture >= 80 && spec.format == KvFormat::F16 && !spec.values_in_keys
}

/// Rows of thread blocks, their warps, keys of a tile and stages of `attention_latent`, the fastest first.
const LATENT_LONG_RUNS: [[usize; 4]; 3] = [[64, 8, 64, 2], [64, 8, 32, 2], [32, 4, 32, 1]];
/// The same of `attention_latent_split`.
const LATENT_SPLITS: [[usize; 4]; 3] = [[16, 8, 64, 2], [16, 4, 32, 2], [16, 4, 32, 1]];

/// The first of these forms of a kernel for values in keys that a device has the memory for.
fn latent(
    device: &Properties,
    spec: KvSpec,
    file: &'static str,
    forms: &[[usize; 4]],
    precision: Precision,
) -> Option<RowKernel> {
    if device.architecture < 80 || spec.format != KvFormat::F16 || !spec.values_in_keys {
        return None;
    }
    let values = spec.value_width.next_multiple_of(128);
    let keys = spec.key_width.max(values).next_multiple_of(64);
    // Wider ones do not fit the registers.
    if keys > 640 || values > 512 {
        return None;
    }
    let parts = 1 + usize::from(precision == Precision::Exact);
    forms.iter().find_map(|&[rows, warps, together, stages]| {
        let elements = parts * rows * (keys + together) + stages * together * keys;
        // Scores of four slices of the columns, in padded rows.
        let scores = if rows == 16 { 4 * rows * (together + 8) } else { 0 };
        let bytes = elements * size_of::<u16>() + scores * size_of::<f32>();
        let mut form = AttentionVariant::new(keys, values, bytes)?;
        let numbers =
            [("ROWS", rows), ("WARPS", warps), ("KEYS", together), ("STAGES", stages), ("LOW_PARTS", parts - 1)];
        form.defines.extend(numbers.map(|(name, number)| (name, number.to_string())));
        // Ids of neighbours, and numbers of rows and warps.
        let fits = form.shared.saturating_add(LATENT_STATIC) <= device.shared_bytes;
        // Results of splits, in f32 and padded rows, take the place of keys.
        let results = if rows == 16 { rows * (values + 8) * size_of::<f32>() } else { 0 };
        let has_place = results <= stages * together * keys * size_of::<u16>();
        (fits && has_place).then_some(RowKernel {
            file,
            rows: rows as u32,
            threads: 32 * warps as u32,
            slices: 1,
            form,
        })
    })
}

/// The most shared memory with a fixed size of the kernels for values in keys, in bytes.
const LATENT_STATIC: u32 = 3 * (64 + 2 * 16) * 4 + 64 * 4 + 64 * 4 * 4 + 8 * 4;

/// `attention_latent_split` for a cache, if it can serve it. Products are those of f32 numbers.
pub(super) fn latent_splits(device: &Properties, spec: KvSpec) -> Option<RowKernel> {
    let mut kernel = latent(device, spec, "attention_latent_split.cu", &LATENT_SPLITS, Precision::Exact)?;
    kernel.form.defines.push(("MAX_SPLITS", MAX_LATENT_SPLITS.to_string()));
    Some(kernel)
}

/// `attention_latent` for a cache, if it can serve it.
fn latent_long_runs(device: &Properties, spec: KvSpec, precision: Precision) -> Option<RowKernel> {
    latent(device, spec, "attention_latent.cu", &LATENT_LONG_RUNS, precision)
}

/// What `attention_decode` is compiled for, in addition to the widths of a cache.
#[derive(Clone, Copy)]
pub(super) struct DecodeOptions {
    /// Soft caps, chunks, temperatures, and norms of whole rows.
    pub(super) all: bool,
    /// Units that the device could take side by side. If they are many, thread blocks have fewer warps, and more of them are
    /// on a multiprocessor.
    pub(super) units: u32,
    /// Contexts are cut into splits. Every block then has a workspace for them, which four on each multiprocessor would
    /// make larger than the memory plan's reserve expects.
    pub(super) split: bool,
}

/// The form of `attention_decode` for a cache, if it can serve it.
pub(super) fn decode(device: &Properties, spec: KvSpec, options: DecodeOptions) -> Option<AttentionVariant> {
    let (keys, values) = (spec.key_width.next_multiple_of(32), spec.value_width.next_multiple_of(64));
    // Wider ones do not fit the registers.
    if !tensor_cores(device, spec) || keys > 128 || values > 128 {
        return None;
    }
    // Each part's results: a quarter of the values for each lane, and a column of padding.
    let mut form = AttentionVariant::new(keys, values, DECODE_PARTS as usize * values / 4 * 33 * size_of::<f32>())?;
    let fits = |blocks: u32| blocks * (form.shared + DECODE_STATIC) <= device.shared_bytes;
    let filled = |blocks: u32| options.units > blocks * device.multiprocessors;
    let most = if options.split { 2 } else { 4 };
    form.blocks = [4, 2].into_iter().find(|&blocks| blocks <= most && fits(blocks) && filled(blocks)).unwrap_or(1);
    form.defines.push(("WARPS", (DECODE_PARTS / form.blocks).to_string()));
    form.defines.push(("ALL_OPTIONS", usize::from(options.all).to_string()));
    Some(form)
}

impl RowKernel {
    /// The definitions of a kernel of long runs, for results in f32 or, `rounded`, as bfloat16 activations.
    pub(super) fn defines(&self, rounded: bool) -> Vec<(&'static str, String)> {
        let rounded = ("ROUNDED", usize::from(rounded).to_string());
        self.form.defines.iter().cloned().chain([rounded]).collect()
    }

    /// The definitions of a kernel of splits.
    pub(super) fn split_defines(&self) -> Vec<(&'static str, &str)> {
        self.form.defines()
    }

    /// Dynamic shared memory, in bytes.
    pub(super) fn shared(&self) -> u32 {
        self.form.shared
    }

    fn unit(&self, rounded: bool) -> Unit {
        Unit { file: self.file, defines: self.defines(rounded) }
    }
}

/// The kernel for long runs of a cache with these options, if one can serve it.
pub(super) fn long_runs(device: &Properties, spec: KvSpec, options: &AttentionOptions) -> Option<RowKernel> {
    let wgmma = wgmma(device, spec).filter(|_| options.precision == Precision::Fast && options.softcap.is_none());
    let latent = || latent_long_runs(device, spec, options.precision);
    wgmma.or_else(|| tile(device, spec, options.precision)).or_else(latent)
}

/// Warps of `attention_wgmma` that multiply, and half as many if keys are wider than 256; and those that copy.
const WARPS: u32 = 8;
const COPIERS: u32 = 4;
/// Tiles of keys and values that it has in shared memory.
const STAGES: usize = 2;
/// Keys that it multiplies at once, or a half or a quarter if the registers or the shared memory do not suffice for them.
const KEYS: usize = 128;

/// The widest keys of kernels of long runs other than those of values in keys.
const WIDEST_KEYS: usize = 512;

/// The width of a slice of values whose sums the registers hold, and the number of slices.
fn slices(values: usize) -> (usize, u32) {
    let width = values.min(256);
    (width, limit(values.div_ceil(width.max(1))))
}

/// The form of `attention_wgmma` for a cache, if it can serve it.
fn wgmma(device: &Properties, spec: KvSpec) -> Option<RowKernel> {
    // Later capabilities have other instructions instead.
    if device.architecture != 90 || !tensor_cores(device, spec) || spec.key_width > WIDEST_KEYS {
        return None;
    }
    // Matrices are in panels of 64 columns, and products have 64, 128 or 256.
    let keys = spec.key_width.next_multiple_of(64);
    let (values, slices) = slices(spec.value_width.next_power_of_two().max(64));
    let (warps, together) = match (keys, values) {
        (257.., _) => (WARPS / 2, KEYS / 4),
        (193.., _) | (_, 129..) => (WARPS, KEYS / 2),
        _ => (WARPS, KEYS),
    };
    let rows = 16 * warps;
    let elements = STAGES * together * (keys + values) + rows as usize * keys;
    // Stages start at a multiple of 1,024.
    let mut form = AttentionVariant::new(keys, values, elements * size_of::<u16>() + 1024)?;
    let numbers = [("KEYS", together), ("WARPS", warps as usize), ("BLOCKS", 1), ("STAGES", STAGES)];
    form.defines.extend(numbers.map(|(name, number)| (name, number.to_string())));
    let kernel = RowKernel { file: "attention_wgmma.cu", rows, threads: 32 * (warps + COPIERS), slices, form };
    (kernel.form.shared <= device.shared_bytes).then_some(kernel)
}

/// The form of `attention_tile` for a cache, if it can serve it.
fn tile(device: &Properties, spec: KvSpec, precision: Precision) -> Option<RowKernel> {
    let (keys, values) = (spec.key_width.next_multiple_of(16), spec.value_width.next_multiple_of(16));
    if !tensor_cores(device, spec) || keys > WIDEST_KEYS {
        return None;
    }
    let (values, slices) = slices(values);
    // The registers hold scores and results for this number of keys at once.
    let together = match keys.max(values) {
        ..=64 => 64,
        65..=128 => 32,
        _ => 16,
    };
    let low = precision == Precision::Exact;
    [4, 2].into_iter().find_map(|warps: u32| {
        let rows = 16 * warps;
        // Rows are padded by 16 bytes. Two stages of keys and values; after them the queries' low parts, if there are any,
        // and their high parts where these do not fit the registers.
        let (key_row, value_row) = (keys + 8, values + 8);
        let queries = (usize::from(low) + usize::from(keys > 128)) * rows as usize * key_row;
        let elements = 2 * together * (key_row + value_row) + queries;
        let mut form = AttentionVariant::new(keys, values, elements * size_of::<u16>())?;
        let numbers = [("KEYS", together), ("WARPS", warps as usize), ("LOW_PARTS", usize::from(low))];
        form.defines.extend(numbers.map(|(name, number)| (name, number.to_string())));
        let kernel = RowKernel { file: "attention_tile.cu", rows, threads: 32 * warps, slices, form };
        (kernel.form.shared <= device.shared_bytes).then_some(kernel)
    })
}

/// A device of a compute capability with this much shared memory for a block.
fn device(architecture: u32, shared_bytes: u32) -> Properties {
    Properties { id: DeviceId::Cuda(0), name: String::new(), architecture, multiprocessors: 1, shared_bytes, memory: 0 }
}

/// The units of attention for common widths of keys and values.
pub(in super::super) fn units() -> Vec<Unit> {
    let any = device(80, u32::MAX);
    let small = device(89, 99 << 10);
    let hopper = device(90, 227 << 10);
    let combine =
        |splits: usize| Unit { file: "attention_combine.cu", defines: vec![("MAX_SPLITS", splits.to_string())] };
    let mut units = vec![combine(MAX_SPLITS), combine(MAX_LATENT_SPLITS)];
    for (rows, format) in ["1", "4", "8"].into_iter().flat_map(|rows| [(rows, KvFormat::F16), (rows, KvFormat::Q8_0)]) {
        units.push(Unit::new("attention_split.cu", &[("ROWS", rows), cells_define(format)]));
    }
    for (key_width, value_width) in [(64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256), (512, 512)] {
        let spec = KvSpec { heads: 1, key_width, value_width, format: KvFormat::F16, values_in_keys: false };
        // Units for one, two and four thread blocks on the only multiprocessor.
        for units_of in [1, 3, 5] {
            let forms =
                [false, true].map(|all| decode(&hopper, spec, DecodeOptions { all, units: units_of, split: false }));
            let defines = forms.into_iter().flatten().map(|form| form.defines);
            units.extend(defines.map(|defines| Unit { file: "attention_decode.cu", defines }));
        }
        let neighbours = decode(&any, spec, DecodeOptions { all: true, units: 1, split: false });
        units.extend(neighbours.map(|form| Unit { file: "attention_neighbours.cu", defines: form.defines }));
        let tiles = |precision| [&any, &small].map(|device| tile(device, spec, precision));
        units.extend(tiles(Precision::Exact).into_iter().flatten().map(|kernel| kernel.unit(false)));
        for kernel in tiles(Precision::Fast).into_iter().chain([wgmma(&hopper, spec)]).flatten() {
            let rounded = value_width.is_multiple_of(32);
            units.extend([false, true].into_iter().filter(|&it| rounded || !it).map(|it| kernel.unit(it)));
        }
    }
    // Latent attention of most models, and of Mistral 4.
    for (key_width, value_width) in [(576, 512), (320, 256)] {
        let spec = KvSpec { heads: 1, key_width, value_width, format: KvFormat::F16, values_in_keys: true };
        let splits = latent_splits(&hopper, spec);
        units.extend(splits.map(|kernel| Unit { file: kernel.file, defines: kernel.form.defines }));
        for precision in [Precision::Fast, Precision::Exact] {
            let kernel = latent_long_runs(&hopper, spec, precision);
            units.extend(kernel.iter().flat_map(|kernel| [false, true].map(|rounded| kernel.unit(rounded))));
        }
    }
    // Devices share most forms.
    units.sort();
    units.dedup();
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workspace of splits stays within 64 MB, as `plan.rs` of the model crate counts it.
    #[test]
    fn blocks_of_splits_are_at_most_two() {
        let spec = KvSpec { heads: 1, key_width: 128, value_width: 128, format: KvFormat::F16, values_in_keys: false };
        let hopper = Properties { multiprocessors: 132, ..device(90, 227 << 10) };
        let blocks = |units, split| decode(&hopper, spec, DecodeOptions { all: false, units, split }).unwrap().blocks;
        assert_eq!([128, 265, 529].map(|units| blocks(units, false)), [1, 2, 4]);
        assert_eq!([128, 265, 529].map(|units| blocks(units, true)), [1, 2, 2]);
        let rows = blocks(529, true) * hopper.multiprocessors * DECODE_PARTS;
        assert!(rows as usize * MAX_SPLITS * (128 * size_of::<f32>() + size_of::<[f32; 2]>()) <= 64 << 20);
    }

    /// Results of splits take the place of keys: where one stage of them is too small, `attention_split` serves the cache.
    #[test]
    fn results_of_latent_splits_fit() {
        let spec = KvSpec { heads: 1, key_width: 512, value_width: 512, format: KvFormat::F16, values_in_keys: true };
        assert!(latent_splits(&device(86, 99 << 10), spec).is_none());
        assert!(latent_splits(&device(90, 227 << 10), spec).is_some());
        assert!(latent_splits(&device(86, 99 << 10), KvSpec { key_width: 576, ..spec }).is_some());
    }

    /// Heads of 512, as of Gemma 4, have a kernel on tensor cores wherever there are some.
    #[test]
    fn wide_heads_have_kernels() {
        let spec = |value_width| KvSpec {
            heads: 1,
            key_width: 512,
            value_width,
            format: KvFormat::F16,
            values_in_keys: false,
        };
        let small = device(89, 99 << 10);
        let form = |device: &Properties, precision, value_width| {
            let kernel = tile(device, spec(value_width), precision)?;
            Some((kernel.rows, kernel.slices))
        };
        assert_eq!(form(&small, Precision::Fast, 512), Some((32, 2)));
        assert_eq!(form(&small, Precision::Fast, 520), Some((32, 3)));
        assert_eq!(form(&small, Precision::Fast, 256), Some((32, 1)));
        assert_eq!(form(&device(80, 163 << 10), Precision::Exact, 512), Some((32, 2)));
        assert_eq!(form(&device(80, 163 << 10), Precision::Fast, 512), Some((64, 2)));
        assert_eq!(form(&device(75, 64 << 10), Precision::Fast, 512), None);
        let wgmma = wgmma(&device(90, 227 << 10), spec(512)).map(|kernel| (kernel.rows, kernel.slices));
        assert_eq!(wgmma, Some((64, 2)));
        assert!(super::wgmma(&device(89, 99 << 10), spec(512)).is_none());
    }
}
