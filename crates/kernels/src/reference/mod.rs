//! Every operation in plain scalar Rust with f64 sums: the oracle of all tests.
//!
//! Written to be read against the contracts in [`crate::ops`]. Weights stay in the file's layout and are decoded on
//! the fly; activations are kept exact. It shares the checks with the other backends (`check.rs`), and
//! deliberately nothing else that computes: its router, grouping and sampler are the obvious ones.

mod attention;
mod elementwise;
mod experts;
mod matrix;
mod rows;
mod sample;

use crate::act::{Act, Precision};
use crate::check;
use crate::error::{Error, Result};
use crate::host::{self, DEVICE};
use crate::kv::{KvCache, KvSpec, Placement};
use crate::ops::{Activation, Attention, Backend, Groups, Rope, Routing, Sampling, SelectionBias};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Footprint, Role, Shape, Storage, TensorView, Weight};
use matrix::Pair;
use rows::{Rows, RowsMut};

/// Rows of a tile of expert pairs.
const TILE_ROWS: usize = 8;

/// The oracle. It has one precision, the exact one, and one thread: the caller's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// The two tensors of a gate and up weight.
fn gate_and_up<'a>(op: &'static str, w: &'a Weight) -> Result<[&'a TensorView; 2]> {
    match matrix::tensors(op, w)? {
        [gate, up] => Ok([gate, up]),
        tensors => Err(Error::Shape { op, what: "tensors of the weight", found: tensors.len(), expected: 2 }),
    }
}

fn both(bias: Option<[&Buffer<f32>; 2]>) -> Option<[&[f32]; 2]> {
    bias.and_then(|[gate, up]| Some([gate.as_host()?, up.as_host()?]))
}

impl Backend for Reference {
    fn name(&self) -> String {
        "reference".into()
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

    /// Exact, whatever precision is asked for: the reference has no faster one.
    fn alloc_act(&self, _precision: Precision, rows: usize, cols: usize) -> Result<Act> {
        host::alloc_act(Precision::Exact, false, rows, cols)
    }

    fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache> {
        host::alloc_kv(spec, blocks)
    }

    fn alloc_groups(&self, experts: usize, pairs: usize) -> Result<Groups> {
        host::alloc_groups(experts, pairs, TILE_ROWS)
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

    fn footprint(&self, shape: &Shape, _role: Role) -> Footprint {
        Footprint { owned: 0, mapped: shape.file_bytes() }
    }

    fn prepare(&self, tensors: &[TensorView], role: Role) -> Result<Weight> {
        let (experts, rows, cols) = check::prepare(tensors, role)?;
        Ok(Weight { device: DEVICE, role, experts, rows, cols, storage: Storage::Mapped(tensors.to_vec()) })
    }

    fn embed(&self, table: &Weight, rows: View<u32>, scale: f32, mut out: ViewMut<f32>) -> Result<()> {
        check::embed(DEVICE, table, &rows, &out)?;
        let tensors = matrix::tensors("embed", table)?;
        let ids = Rows::new("embed", rows)?;
        RowsMut::new("embed", &mut out)?.each(|t, out| {
            for tensor in tensors {
                matrix::decode(tensor, 0, ids.row(t)[0] as usize, out);
            }
            out.iter_mut().for_each(|x| *x *= scale);
        });
        Ok(())
    }

    fn prepare_activations(&self, x: View<f32>, act: &mut Act) -> Result<()> {
        check::prepare_activations(DEVICE, &x, act)?;
        if act.precision != Precision::Exact {
            let (op, what, found) = ("prepare_activations", "precision", format!("{:?}", act.precision));
            return Err(Error::Range { op, what, found, rule: "the reference fills its own activations only" });
        }
        (act.rows, act.cols) = (x.rows(), x.cols());
        host::download(x, act.exact.as_host_mut().map_or(&mut [], |m| &mut m[..x.rows() * x.cols()]))
    }

    fn matmul(&self, w: &Weight, x: &Act, bias: Option<&Buffer<f32>>, mut y: ViewMut<f32>) -> Result<()> {
        check::matmul(DEVICE, w, x, bias, &y)?;
        let (tensors, x) = (matrix::tensors("matmul", w)?, matrix::activations("matmul", x)?);
        let pairs: Vec<Pair> = (0..x.len).map(|t| Pair { x: t, y: t }).collect();
        matrix::multiply(tensors, 0, x, matrix::vector(bias), &pairs, &mut RowsMut::new("matmul", &mut y)?);
        Ok(())
    }

    fn matmul_rows(&self, w: &Weight, x: &Act, rows: View<u32>, mut y: ViewMut<f32>) -> Result<()> {
        check::matmul_rows(DEVICE, w, x, &rows, &y)?;
        let (tensors, x) = (matrix::tensors("matmul_rows", w)?, matrix::activations("matmul_rows", x)?);
        let rows = Rows::new("matmul_rows", rows)?.elements();
        let pairs: Vec<Pair> = rows.enumerate().map(|(y, x)| Pair { x: x as usize, y }).collect();
        matrix::multiply(tensors, 0, x, None, &pairs, &mut RowsMut::new("matmul_rows", &mut y)?);
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
        let (tensors, x) = (gate_and_up("gate_up", w)?, matrix::activations("gate_up", x)?);
        let pairs: Vec<Pair> = (0..x.len).map(|t| Pair { x: t, y: t }).collect();
        let mut h = RowsMut::new("gate_up", &mut h)?;
        matrix::multiply_gate_up(tensors, 0, x, both(bias), activation, &pairs, &mut h);
        Ok(())
    }

    fn route(
        &self,
        logits: View<f32>,
        routing: &Routing,
        bias: SelectionBias,
        ids: ViewMut<u32>,
        weights: ViewMut<f32>,
    ) -> Result<()> {
        check::route(DEVICE, &logits, routing, bias, &ids, &weights)?;
        experts::route(logits, routing, matrix::vector(bias), ids, weights)
    }

    fn group_by_expert(&self, ids: View<u32>, experts: usize, groups: &mut Groups) -> Result<()> {
        check::group_by_expert(DEVICE, &ids, experts, groups)?;
        experts::group(ids, groups)
    }

    fn moe_matmul(
        &self,
        w: &Weight,
        x: &Act,
        groups: &Groups,
        top_k: usize,
        bias: Option<&Buffer<f32>>,
        out: ViewMut<f32>,
    ) -> Result<()> {
        check::moe_matmul(DEVICE, w, x, groups, top_k, bias, &out)?;
        experts::moe_matmul(w, x, groups, top_k, bias, out)
    }

    fn moe_gate_up(
        &self,
        w: &Weight,
        x: &Act,
        groups: &Groups,
        top_k: usize,
        bias: Option<[&Buffer<f32>; 2]>,
        activation: Activation,
        h: ViewMut<f32>,
    ) -> Result<()> {
        check::moe_gate_up(DEVICE, w, x, groups, top_k, bias, &h)?;
        check::activation("moe_gate_up", activation)?;
        experts::moe_gate_up(gate_and_up("moe_gate_up", w)?, x, groups, top_k, both(bias), activation, h)
    }

    fn moe_combine(&self, out: View<f32>, weights: View<f32>, y: ViewMut<f32>) -> Result<()> {
        check::moe_combine(DEVICE, &out, &weights, &y)?;
        experts::moe_combine(out, weights, y)
    }

    fn rms_norm(&self, x: View<f32>, weight: &Buffer<f32>, eps: f32, out: ViewMut<f32>) -> Result<()> {
        check::rms_norm(DEVICE, &x, weight, eps, &out)?;
        elementwise::rms_norm(x, weight, eps, out)
    }

    fn layer_norm(
        &self,
        x: View<f32>,
        weight: &Buffer<f32>,
        bias: &Buffer<f32>,
        eps: f32,
        out: ViewMut<f32>,
    ) -> Result<()> {
        check::layer_norm(DEVICE, &x, weight, bias, eps, &out)?;
        elementwise::layer_norm(x, weight, bias, eps, out)
    }

    fn qk_norm(&self, x: ViewMut<f32>, weight: &Buffer<f32>, eps: f32) -> Result<()> {
        check::qk_norm(DEVICE, &x, weight, eps)?;
        elementwise::qk_norm(x, weight, eps)
    }

    fn rope(&self, x: ViewMut<f32>, head_width: usize, positions: View<u32>, rope: &Rope) -> Result<()> {
        check::rope(DEVICE, &x, head_width, &positions, rope)?;
        elementwise::rope(x, head_width, positions, rope)
    }

    fn add(&self, x: View<f32>, scale: f32, y: ViewMut<f32>) -> Result<()> {
        check::add(DEVICE, &x, scale, &y)?;
        elementwise::add("add", x, y, |_| scale.into())
    }

    fn scale(&self, scale: f32, y: ViewMut<f32>) -> Result<()> {
        check::scale(DEVICE, scale, &y)?;
        elementwise::scale(scale, y)
    }

    fn add_gated(&self, x: View<f32>, gate: View<f32>, y: ViewMut<f32>) -> Result<()> {
        check::add_gated(DEVICE, &x, &gate, &y)?;
        elementwise::add_gated(x, gate, y)
    }

    fn add_bias(&self, bias: &Buffer<f32>, y: ViewMut<f32>) -> Result<()> {
        check::add_bias(DEVICE, bias, &y)?;
        elementwise::add_bias(bias, y)
    }

    fn argmax(&self, x: View<f32>, mut out: ViewMut<u32>) -> Result<()> {
        check::argmax(DEVICE, &x, &out)?;
        let x = Rows::new("argmax", x)?;
        RowsMut::new("argmax", &mut out)?.each(|t, out| {
            let wide: Vec<f64> = x.row(t).iter().map(|&x| f64::from(x)).collect();
            out.fill(experts::ranking(&wide)[0] as u32);
        });
        Ok(())
    }

    fn sample(&self, mut logits: ViewMut<f32>, parameters: &[Sampling], mut out: ViewMut<u32>) -> Result<()> {
        check::sample(DEVICE, &logits, parameters, &out)?;
        let mut out = RowsMut::new("sample", &mut out)?;
        RowsMut::new("sample", &mut logits)?.each(|r, row| out.row(r)[0] = sample::sample_row(row, &parameters[r]));
        Ok(())
    }

    fn kv_write(&self, cache: &mut KvCache, k: View<f32>, v: View<f32>, place: &Placement) -> Result<()> {
        check::kv_write(DEVICE, cache, &k, &v, place)?;
        attention::write(cache, k, v, place)
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
        out: ViewMut<f32>,
    ) -> Result<()> {
        check::attention(DEVICE, &q, cache, place, parameters, &out)?;
        attention::attention(q, cache, place, parameters, out)
    }
}
