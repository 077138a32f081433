//! The CPU backend: SIMD levels chosen at run time, a pool of threads, weights in tiles of 16 rows.
//!
//! From here: [`dot`] is the innermost kernel, [`matmul`] and [`moe`] decide what it is given, [`layout`] says how
//! weights lie, [`attention`] works on the paged cache, [`norm`] row by row.

mod attention;
mod dot;
mod kv;
pub mod layout;
mod level;
mod math;
mod matmul;
mod moe;
mod norm;
mod out;
mod pool;
mod prepare;
mod quantise;
mod transcode;

use crate::act::{Act, Precision};
use crate::check;
use crate::error::{Error, Result};
use crate::format::with_format;
use crate::host::{self, DEVICE};
use crate::kv::{KV_BLOCK, KvCache, KvFormat, KvSpec, Placement};
use crate::ops::{Activation, Attention, Backend, Groups, Rope, Routing, Sampling, SelectionBias};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Footprint, Role, Shape, Storage, TensorView, Weight};
use crate::{route, sample};
use kv::{F16Cells, Q8Cells};
use layout::Tiles;
pub use level::Level;
use matmul::Operand;
use moe::{ExpertCall, Grouped};
use out::OutRows;
pub use pool::{MAX_THREADS, Pool};
use std::slice;
use std::sync::Mutex;
pub use transcode::{TranscodeError, Transcoder};

/// The CPU as a backend.
#[derive(Debug)]
pub struct Cpu {
    level: Level,
    pool: Pool,
    /// Room for [`Backend::sample`], used again so that a step does not allocate.
    candidates: Mutex<Vec<sample::Candidate>>,
}

impl Cpu {
    /// A CPU backend at a level, with its own threads (the caller's counts as one).
    pub fn new(level: Level, threads: usize) -> Result<Self> {
        Ok(Self { level, pool: Pool::new(threads)?, candidates: Mutex::default() })
    }

    /// The level it runs at.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
}

/// Takes what must be in host memory. The checks have seen that all buffers are this device's.
macro_rules! host {
    ($e:expr) => {
        match $e {
            Some(value) => value,
            None => return Err(Error::NotHostMemory),
        }
    };
}

/// The tiles of a weight of [`Role::Matrix`] or [`Role::GateUp`].
fn tiles(weight: &Weight) -> Result<&[Tiles]> {
    match &weight.storage {
        Storage::Tiles(parts) => Ok(parts),
        Storage::MappedAndTiles(_, tiles) => Ok(slice::from_ref(tiles)),
        Storage::Mapped(_) => Err(foreign("rows in the file's order")),
        Storage::Rows(_) => Err(foreign("rows of a GPU")),
    }
}

/// Gate and up.
fn pair(weight: &Weight) -> Result<[&Tiles; 2]> {
    match tiles(weight)? {
        [gate, up] => Ok([gate, up]),
        _ => Err(foreign("not a gate and up pair")),
    }
}

/// The weight was prepared by another backend of the same device.
fn foreign(found: &str) -> Error {
    let rule = "a weight must be prepared by the backend that reads it";
    Error::Range { op: "matmul", what: "layout of the weight", found: found.into(), rule }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        format!("CPU, {}, {} threads", self.level.name(), self.pool.threads())
    }

    fn device(&self) -> DeviceId {
        DEVICE
    }

    fn alloc_f32(&self, len: usize, what: &'static str) -> Result<Buffer<f32>> {
        Buffer::host_zeroed(len, what)
    }

    fn alloc_u32(&self, len: usize, what: &'static str) -> Result<Buffer<u32>> {
        Buffer::host_zeroed(len, what)
    }

    fn alloc_act(&self, precision: Precision, rows: usize, cols: usize) -> Result<Act> {
        host::alloc_act(precision, self.level.has_bf16(), rows, cols)
    }

    fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache> {
        host::alloc_kv(spec, blocks)
    }

    fn alloc_groups(&self, experts: usize, pairs: usize) -> Result<Groups> {
        host::alloc_groups(experts, pairs, moe::TILE_ROWS)
    }

    fn upload_f32(&self, values: &[f32], to: &mut Buffer<f32>) -> Result<()> {
        host::upload(values, to)
    }

    fn upload_u32(&self, values: &[u32], to: &mut Buffer<u32>) -> Result<()> {
        host::upload(values, to)
    }

    fn download_f32(&self, from: View<f32>, to: &mut [f32]) -> Result<()> {
        host::download(from, to)
    }

    fn download_u32(&self, from: View<u32>, to: &mut [u32]) -> Result<()> {
        host::download(from, to)
    }

    fn footprint(&self, shape: &Shape, role: Role) -> Footprint {
        let (tiles, file) = (layout::bytes(shape), shape.file_bytes());
        match role {
            Role::Table => Footprint { owned: 0, mapped: file },
            Role::Tied => Footprint { owned: tiles, mapped: file },
            Role::Matrix | Role::GateUp => Footprint { owned: tiles, mapped: 0 },
        }
    }

    fn prepare(&self, tensors: &[TensorView], role: Role) -> Result<Weight> {
        let (experts, rows, cols) = check::prepare(tensors, role)?;
        let storage = match role {
            Role::Table => Storage::Mapped(tensors.to_vec()),
            Role::Tied => Storage::MappedAndTiles(tensors[0].clone(), self.tiles(&tensors[0])?),
            Role::Matrix | Role::GateUp => {
                Storage::Tiles(tensors.iter().map(|t| self.tiles(t)).collect::<Result<_>>()?)
            }
        };
        Ok(Weight { device: DEVICE, role, experts, rows, cols, storage })
    }

    fn embed(&self, table: &Weight, rows: View<u32>, scale: f32, mut out: ViewMut<f32>) -> Result<()> {
        check::embed(DEVICE, table, &rows, &out)?;
        let tensor = match &table.storage {
            Storage::Mapped(tensors) => host!(tensors.first()),
            Storage::MappedAndTiles(tensor, _) => tensor,
            Storage::Tiles(_) => return Err(foreign("tiles")),
            Storage::Rows(_) => return Err(foreign("rows of a GPU")),
        };
        let (ids, ids_at) = host!(rows.as_host());
        let out = host!(OutRows::new(&mut out));
        let (format, bytes) = (tensor.format, tensor.bytes.as_slice());
        let row_bytes = format.row_bytes(table.cols).unwrap_or(0);
        self.each_row(rows.rows(), table.cols, &|i| {
            let id = ids[ids_at.row(i)][0] as usize;
            // SAFETY: each row is written by the one chunk that has it.
            let out = unsafe { out.row(i) };
            let row = &bytes[id * row_bytes..][..row_bytes];
            with_format!(format, F => decode_row::<F>(row, out));
            if scale != 1.0 {
                out.iter_mut().for_each(|x| *x *= scale);
            }
        });
        Ok(())
    }

    fn prepare_activations(&self, x: View<f32>, act: &mut Act) -> Result<()> {
        check::prepare_activations(DEVICE, &x, act)?;
        let (rows, cols) = (x.rows(), x.cols());
        (act.rows, act.cols) = (rows, cols);
        let (values, shape) = host!(x.as_host());
        let (blocks, pairs) = (cols.div_ceil(32), cols.div_ceil(2));
        let exact = out::Out::new(host!(act.exact.as_host_mut()));
        let int8 = out::Out::new(host!(act.int8.as_host_mut()));
        let has_bf16 = !act.bf16.is_empty();
        let bf16 = out::Out::new(host!(act.bf16.as_host_mut()));
        let fast = act.precision == Precision::Fast;
        self.each_row(rows, cols, &|row| {
            let x = &values[shape.row(row)];
            // SAFETY: each row is written by the one chunk that has it.
            unsafe { exact.part(row * cols..(row + 1) * cols) }.copy_from_slice(x);
            if fast {
                // SAFETY: as above.
                let out = unsafe { int8.part(row * blocks..(row + 1) * blocks) };
                self.level.run(quantise::QuantiseRow { x, out });
            }
            if has_bf16 {
                // SAFETY: as above.
                let out = unsafe { bf16.part(row * pairs..(row + 1) * pairs) };
                self.level.run(quantise::RoundRow { x, out });
            }
        });
        Ok(())
    }

    fn matmul(&self, w: &Weight, x: &Act, bias: Option<&Buffer<f32>>, mut y: ViewMut<f32>) -> Result<()> {
        check::matmul(DEVICE, w, x, bias, &y)?;
        let (parts, operand) = (tiles(w)?, host!(Operand::new(x, self.level)));
        let bias = bias.and_then(Buffer::as_host);
        self.dense(parts, &operand, x.rows(), &|i| i, bias, host!(OutRows::new(&mut y)));
        Ok(())
    }

    fn matmul_rows(&self, w: &Weight, x: &Act, rows: View<u32>, mut y: ViewMut<f32>) -> Result<()> {
        check::matmul_rows(DEVICE, w, x, &rows, &y)?;
        let (parts, operand) = (tiles(w)?, host!(Operand::new(x, self.level)));
        let (ids, shape) = host!(rows.as_host());
        let row = |i: usize| ids[shape.row(i)][0] as usize;
        self.dense(parts, &operand, rows.rows(), &row, None, host!(OutRows::new(&mut y)));
        Ok(())
    }

    fn gate_up(
        &self,
        w: &Weight,
        x: &Act,
        bias: Option<[&Buffer<f32>; 2]>,
        activation: Activation,
        mut h: ViewMut<f32>,
    ) -> Result<()> {
        check::gate_up(DEVICE, w, x, bias, &h)?;
        check::activation("gate_up", activation)?;
        let (weights, operand) = (pair(w)?, host!(Operand::new(x, self.level)));
        let bias = host_pair(bias);
        self.dense_gated(weights, &operand, x.rows(), bias, activation, host!(OutRows::new(&mut h)));
        Ok(())
    }

    fn route(
        &self,
        logits: View<f32>,
        routing: &Routing,
        bias: SelectionBias,
        mut ids: ViewMut<u32>,
        mut weights: ViewMut<f32>,
    ) -> Result<()> {
        check::route(DEVICE, &logits, routing, bias, &ids, &weights)?;
        let (values, shape) = host!(logits.as_host());
        let bias = bias.and_then(Buffer::as_host);
        let (ids, weights) = (host!(OutRows::new(&mut ids)), host!(OutRows::new(&mut weights)));
        // Routing a row costs some hundred operations for each expert chosen.
        self.each_row(logits.rows(), logits.cols() * routing.top_k, &|row| {
            // SAFETY: each row is written by the one chunk that has it.
            let (ids, weights) = unsafe { (ids.row(row), weights.row(row)) };
            route::route_row(&values[shape.row(row)], routing, bias, ids, weights);
        });
        Ok(())
    }

    fn group_by_expert(&self, ids: View<u32>, experts: usize, groups: &mut Groups) -> Result<()> {
        host::group_by_expert(ids, experts, groups)
    }

    fn moe_matmul(
        &self,
        w: &Weight,
        x: &Act,
        groups: &Groups,
        top_k: usize,
        bias: Option<&Buffer<f32>>,
        mut out: ViewMut<f32>,
    ) -> Result<()> {
        check::moe_matmul(DEVICE, w, x, groups, top_k, bias, &out)?;
        let (parts, operand, groups) = (tiles(w)?, host!(Operand::new(x, self.level)), host!(Grouped::new(groups)));
        let pairs_per_row = if x.rows() == out.rows() { 1 } else { top_k };
        let call = ExpertCall { x: &operand, groups: &groups, pairs_per_row };
        self.experts(parts, &call, bias.and_then(Buffer::as_host), host!(OutRows::new(&mut out)));
        Ok(())
    }

    fn moe_gate_up(
        &self,
        w: &Weight,
        x: &Act,
        groups: &Groups,
        top_k: usize,
        bias: Option<[&Buffer<f32>; 2]>,
        activation: Activation,
        mut h: ViewMut<f32>,
    ) -> Result<()> {
        check::moe_gate_up(DEVICE, w, x, groups, top_k, bias, &h)?;
        check::activation("moe_gate_up", activation)?;
        let (weights, operand, groups) = (pair(w)?, host!(Operand::new(x, self.level)), host!(Grouped::new(groups)));
        let call = ExpertCall { x: &operand, groups: &groups, pairs_per_row: top_k };
        self.experts_gated(weights, &call, host_pair(bias), activation, host!(OutRows::new(&mut h)));
        Ok(())
    }

    fn moe_combine(&self, out: View<f32>, weights: View<f32>, mut y: ViewMut<f32>) -> Result<()> {
        check::moe_combine(DEVICE, &out, &weights, &y)?;
        let ((values, at), (weights, weights_at)) = (host!(out.as_host()), host!(weights.as_host()));
        let rows = y.rows();
        let y = host!(OutRows::new(&mut y));
        self.each_row(rows, out.cols(), &|token| {
            // SAFETY: each row is written by the one chunk that has it.
            let y = unsafe { y.row(token) };
            let weights = &weights[weights_at.row(token)];
            y.fill(0.0);
            for (slot, &weight) in weights.iter().enumerate() {
                let expert = &values[at.row(token * weights.len() + slot)];
                y.iter_mut().zip(expert).for_each(|(y, x)| *y += weight * x);
            }
        });
        Ok(())
    }

    fn rms_norm(&self, x: View<f32>, weight: &Buffer<f32>, eps: f32, mut out: ViewMut<f32>) -> Result<()> {
        check::rms_norm(DEVICE, &x, weight, eps, &out)?;
        let (x_host, weight) = (host!(x.as_host()), host!(weight.as_host()));
        self.norm_rows(x_host, x.rows(), weight, eps, host!(OutRows::new(&mut out)));
        Ok(())
    }

    fn layer_norm(
        &self,
        x: View<f32>,
        weight: &Buffer<f32>,
        bias: &Buffer<f32>,
        eps: f32,
        mut out: ViewMut<f32>,
    ) -> Result<()> {
        check::layer_norm(DEVICE, &x, weight, bias, eps, &out)?;
        let (x_host, weight, bias) = (host!(x.as_host()), host!(weight.as_host()), host!(bias.as_host()));
        self.layer_norm_rows(x_host, x.rows(), [weight, bias], eps, host!(OutRows::new(&mut out)));
        Ok(())
    }

    fn qk_norm(&self, mut x: ViewMut<f32>, weight: &Buffer<f32>, eps: f32) -> Result<()> {
        check::qk_norm(DEVICE, &x, weight, eps)?;
        let (rows, cols) = (x.rows(), x.cols());
        self.norm_stretches(rows, cols, host!(weight.as_host()), eps, host!(OutRows::new(&mut x)));
        Ok(())
    }

    fn rope(&self, mut x: ViewMut<f32>, head_width: usize, positions: View<u32>, rope: &Rope) -> Result<()> {
        check::rope(DEVICE, &x, head_width, &positions, rope)?;
        let positions = host!(positions.as_host());
        self.rope_rows(head_width, positions, rope, host!(OutRows::new(&mut x)));
        Ok(())
    }

    fn add(&self, x: View<f32>, scale: f32, mut y: ViewMut<f32>) -> Result<()> {
        check::add(DEVICE, &x, scale, &y)?;
        let ((values, shape), y) = (host!(x.as_host()), host!(OutRows::new(&mut y)));
        self.each_row(x.rows(), x.cols(), &|row| {
            // SAFETY: each row is written by the one chunk that has it.
            let y = unsafe { y.row(row) };
            y.iter_mut().zip(&values[shape.row(row)]).for_each(|(y, x)| *y += scale * x);
        });
        Ok(())
    }

    fn add_gated(&self, x: View<f32>, gate: View<f32>, mut y: ViewMut<f32>) -> Result<()> {
        check::add_gated(DEVICE, &x, &gate, &y)?;
        let ((values, shape), (gates, gates_at)) = (host!(x.as_host()), host!(gate.as_host()));
        let y = host!(OutRows::new(&mut y));
        self.each_row(x.rows(), x.cols(), &|row| {
            let gate = 1.0 / (1.0 + (-gates[gates_at.row(row)][0]).exp());
            // SAFETY: each row is written by the one chunk that has it.
            let y = unsafe { y.row(row) };
            y.iter_mut().zip(&values[shape.row(row)]).for_each(|(y, x)| *y += gate * x);
        });
        Ok(())
    }

    fn add_bias(&self, bias: &Buffer<f32>, mut y: ViewMut<f32>) -> Result<()> {
        check::add_bias(DEVICE, bias, &y)?;
        let (bias, rows) = (host!(bias.as_host()), y.rows());
        let y = host!(OutRows::new(&mut y));
        self.each_row(rows, bias.len(), &|row| {
            // SAFETY: each row is written by the one chunk that has it.
            let y = unsafe { y.row(row) };
            y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
        });
        Ok(())
    }

    fn scale(&self, scale: f32, mut y: ViewMut<f32>) -> Result<()> {
        check::scale(DEVICE, scale, &y)?;
        let (rows, cols) = (y.rows(), y.cols());
        let y = host!(OutRows::new(&mut y));
        self.each_row(rows, cols, &|row| {
            // SAFETY: each row is written by the one chunk that has it.
            let y = unsafe { y.row(row) };
            y.iter_mut().for_each(|y| *y *= scale);
        });
        Ok(())
    }

    fn argmax(&self, x: View<f32>, mut out: ViewMut<u32>) -> Result<()> {
        check::argmax(DEVICE, &x, &out)?;
        let ((values, shape), out) = (host!(x.as_host()), host!(OutRows::new(&mut out)));
        self.each_row(x.rows(), x.cols(), &|row| {
            // SAFETY: each row is written by the one chunk that has it.
            let out = unsafe { out.row(row) };
            out[0] = sample::argmax(&values[shape.row(row)]);
        });
        Ok(())
    }

    fn sample(&self, mut logits: ViewMut<f32>, parameters: &[Sampling], mut out: ViewMut<u32>) -> Result<()> {
        check::sample(DEVICE, &logits, parameters, &out)?;
        let ((values, shape), (out, out_at)) = (host!(logits.as_host_mut()), host!(out.as_host_mut()));
        let mut scratch = self.candidates.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (row, parameters) in parameters.iter().enumerate() {
            out[out_at.row(row)][0] = sample::sample_row(&mut values[shape.row(row)], parameters, &mut scratch);
        }
        Ok(())
    }

    fn kv_write(&self, cache: &mut KvCache, k: View<f32>, v: View<f32>, place: &Placement) -> Result<()> {
        check::kv_write(DEVICE, cache, &k, &v, place)?;
        let ((keys, keys_at), (values, values_at)) = (host!(k.as_host()), host!(v.as_host()));
        let (slots, positions, table) = host!(placement(place));
        for row in (0..k.rows()).filter(|&row| slots[row] != check::PADDING) {
            let position = positions[row] as usize;
            let block = table[slots[row] as usize * place.table_cols + position / KV_BLOCK] as usize;
            let (k, v) = (&keys[keys_at.row(row)], &values[values_at.row(row)]);
            kv::write(cache, block, position % KV_BLOCK, k, v);
        }
        Ok(())
    }

    fn kv_copy(&self, cache: &mut KvCache, blocks: &[(u32, u32)]) -> Result<()> {
        check::kv_copy(DEVICE, cache, blocks)?;
        host::kv_copy(cache, blocks);
        Ok(())
    }

    fn attention(
        &self,
        q: View<f32>,
        cache: &KvCache,
        place: &Placement,
        parameters: &Attention,
        mut out: ViewMut<f32>,
    ) -> Result<()> {
        check::attention(DEVICE, &q, cache, place, parameters, &out)?;
        let (slots, positions, table) = host!(placement(place));
        let call = attention::Call {
            q: host!(q.as_host()),
            spec: cache.spec,
            slots,
            positions,
            table,
            table_cols: place.table_cols,
            parameters,
            sinks: parameters.sinks.and_then(Buffer::as_host),
        };
        let (rows, out) = (q.rows(), host!(OutRows::new(&mut out)));
        let KvCache { keys, values, .. } = cache;
        match cache.spec.format {
            KvFormat::F16 => self.attend(&call, host!(F16Cells::of(keys)), host!(F16Cells::of(values)), rows, out),
            KvFormat::Q8_0 => self.attend(&call, host!(Q8Cells::of(keys)), host!(Q8Cells::of(values)), rows, out),
        }
        Ok(())
    }
}

fn placement(place: &Placement) -> Option<(&[u32], &[u32], &[u32])> {
    Some((place.slots.as_host()?, place.positions.as_host()?, place.table.as_host()?))
}

fn host_pair(bias: Option<[&Buffer<f32>; 2]>) -> Option<[&[f32]; 2]> {
    let [gate, up] = bias?;
    Some([gate.as_host()?, up.as_host()?])
}

fn decode_row<F: crate::format::BlockFormat>(row: &[u8], out: &mut [f32]) {
    for (block, values) in row.chunks_exact(F::BYTES).zip(out.chunks_exact_mut(F::BLOCK)) {
        F::decode(block, values);
    }
}
