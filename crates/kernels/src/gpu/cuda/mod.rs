//! The CUDA backend: checks, then the family's host function, then launches.
//!
//! From here: [`matmul`] and [`moe`] decide which kernel multiplies, [`attention`] works on the paged cache; what other
//! GPUs do alike is in [`super::small`]. The kernels' text is in `kernels/`.

mod attention;
pub mod cache;
pub mod driver;
mod experts;
pub mod family;
mod gemm;
mod gemm_f32;
mod gemm_int8;
mod gemv;
mod jit;
mod matmul;
mod moe;
mod norm_matmul;
pub mod nvrtc;
mod rates;
pub mod texts;

use super::small::{activations, argmax, elementwise, embed, group, kv, norm, norm_act, place, rope, route, sample};
use super::{Device, Gpu, ahead, finish, layout, memory, product};
use crate::act::{Act, Precision};
use crate::check;
use crate::compose::{self, key_and_value_columns};
use crate::error::{Error, Result};
use crate::kv::{KvCache, KvSpec, Placement};
use crate::ops::{
    Activation, Attention, Backend, Experts, ExpertsRoom, Finish, Groups, Norm, Norms, Rates, Recording, Rope, Routing,
    Sampling, SelectionBias,
};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Footprint, Role, Shape, TensorView, Weight};
use family::Family;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Steps of more rows than this are not padded, and so hardly ever come again.
const LARGEST_BUCKET: usize = 128;

/// A CUDA device as a backend.
#[derive(Debug)]
pub struct Cuda {
    device: Device,
    options: Options,
    /// [`Backend::turn`].
    turn: Mutex<()>,
}

/// What a backend may be told. The default is what is fastest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The kernels that multiply matrices, for tests of each: instead of the fastest for each product, those of this
    /// family. A product that they cannot do is an [`Error::Range`].
    pub family: Option<Family>,
}

impl Cuda {
    /// A backend over a device: a real one, or a simulator's.
    pub fn new(gpu: Arc<dyn Gpu>) -> Result<Self> {
        Self::with(gpu, Options::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// [`Error::Device`] if the device has no kernels of the family that is asked for.
    pub fn with(gpu: Arc<dyn Gpu>, options: Options) -> Result<Self> {
        let properties = gpu.properties();
        if let Some(family) = options.family.filter(|family| !family.runs_on(properties.architecture)) {
            let (what, capability) = (format!("kernels of the family {family}"), properties.architecture);
            let reason = format!("they are not for compute capability {}.{}", capability / 10, capability % 10);
            return Err(Error::Device { device: properties.id, what, reason });
        }
        Ok(Self { device: Device::with(gpu, options.family)?, options, turn: Mutex::default() })
    }
}

impl Backend for Cuda {
    fn name(&self) -> String {
        let properties = self.device.gpu().properties();
        format!("{}, {}", properties.id, properties.name)
    }

    fn device(&self) -> DeviceId {
        self.device.id()
    }

    fn free_memory(&self) -> Result<Option<u64>> {
        self.device.gpu().free_memory().map(Some)
    }

    fn make_ready(
        &self,
        work: &mut dyn FnMut(&dyn Backend) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        ahead::make_ready(self.device.gpu(), &mut |gpu| work(&Cuda::with(gpu, self.options)?), progress)
    }

    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        Some(self.turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn notice(&self) -> Option<String> {
        self.device.gpu().notice()
    }

    fn rates(&self) -> Result<Option<Rates>> {
        rates::measure(&self.device).map(Some)
    }

    fn bucket(&self, rows: usize) -> usize {
        if rows == 0 || rows > LARGEST_BUCKET { rows } else { rows.next_power_of_two() }
    }

    fn reach(&self, columns: usize) -> usize {
        attention::reach(columns)
    }

    fn record(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Recording>>> {
        self.device.record(work)
    }

    fn alloc_f32(&self, len: usize, what: &'static str) -> Result<Buffer<f32>> {
        memory::alloc(&self.device, len, what)
    }

    fn alloc_u32(&self, len: usize, what: &'static str) -> Result<Buffer<u32>> {
        memory::alloc(&self.device, len, what)
    }

    fn alloc_act(&self, precision: Precision, rows: usize, cols: usize) -> Result<Act> {
        memory::alloc_act(&self.device, precision, true, rows, cols)
    }

    fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache> {
        check::alloc_kv(&spec)?;
        kv::alloc_kv(&self.device, spec, blocks)
    }

    fn alloc_groups(&self, experts: usize, pairs: usize) -> Result<Groups> {
        memory::alloc_groups(&self.device, experts, pairs, moe::TILE_ROWS, 0)
    }

    fn upload_f32(&self, values: &[f32], to: &mut Buffer<f32>) -> Result<()> {
        memory::upload(&self.device, values, to)
    }

    fn upload_u32(&self, values: &[u32], to: &mut Buffer<u32>) -> Result<()> {
        memory::upload(&self.device, values, to)
    }

    fn download_f32(&self, from: View<f32>, to: &mut [f32]) -> Result<()> {
        memory::download(&self.device, from, to)
    }

    fn download_u32(&self, from: View<u32>, to: &mut [u32]) -> Result<()> {
        memory::download(&self.device, from, to)
    }

    fn footprint(&self, shape: &Shape, _role: Role) -> Footprint {
        Footprint { owned: layout::bytes(shape), mapped: 0 }
    }

    fn kv_bytes(&self, spec: KvSpec, blocks: usize) -> u64 {
        kv::bytes(spec, blocks)
    }

    fn prepare(&self, tensors: &[TensorView], role: Role) -> Result<Weight> {
        matmul::prepare(&self.device, tensors, role)
    }

    fn embed(&self, table: &Weight, rows: View<u32>, scale: f32, out: ViewMut<f32>) -> Result<()> {
        check::embed(self.device(), table, &rows, &out)?;
        embed::embed(&self.device, table, rows, scale, out)
    }

    fn prepare_activations(&self, x: View<f32>, act: &mut Act) -> Result<()> {
        check::prepare_activations(self.device(), &x, act)?;
        activations::prepare_activations(&self.device, x, act)
    }

    fn matmul(&self, w: &Weight, x: &Act, bias: Option<&Buffer<f32>>, y: ViewMut<f32>) -> Result<()> {
        check::matmul(self.device(), w, x, bias, &y)?;
        matmul::matmul(&self.device, w, x, bias, y)
    }

    fn matmul_rows(&self, w: &Weight, x: &Act, rows: View<u32>, y: ViewMut<f32>) -> Result<()> {
        check::matmul_rows(self.device(), w, x, &rows, &y)?;
        matmul::matmul_rows(&self.device, w, x, rows, y)
    }

    fn gate_up(
        &self,
        w: &Weight,
        x: &Act,
        bias: Option<[&Buffer<f32>; 2]>,
        activation: Activation,
        h: ViewMut<f32>,
    ) -> Result<()> {
        check::gate_up(self.device(), w, x, bias, &h)?;
        check::activation("gate_up", activation)?;
        matmul::gate_up(&self.device, w, x, bias, activation, h)
    }

    fn route(
        &self,
        logits: View<f32>,
        routing: &Routing,
        bias: SelectionBias,
        ids: ViewMut<u32>,
        weights: ViewMut<f32>,
    ) -> Result<()> {
        check::route(self.device(), &logits, routing, bias, &ids, &weights)?;
        route::route(&self.device, logits, routing, bias, ids, weights)
    }

    fn group_by_expert(&self, ids: View<u32>, experts: usize, groups: &mut Groups) -> Result<()> {
        check::group_by_expert(self.device(), &ids, experts, groups)?;
        groups.tile_rows = moe::tile_rows(&self.device, experts, ids.rows() * ids.cols());
        group::group_by_expert(&self.device, ids, experts, groups)
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
        check::moe_matmul(self.device(), w, x, groups, top_k, bias, &out)?;
        moe::moe_matmul(&self.device, w, x, groups, top_k, bias, out)
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
        check::moe_gate_up(self.device(), w, x, groups, top_k, bias, &h)?;
        check::activation("moe_gate_up", activation)?;
        moe::moe_gate_up(&self.device, w, x, groups, top_k, bias, activation, h, None)
    }

    fn moe_combine(&self, out: View<f32>, weights: View<f32>, y: ViewMut<f32>) -> Result<()> {
        check::moe_combine(self.device(), &out, &weights, &y)?;
        elementwise::moe_combine(&self.device, out, weights, finish::Finish::Store, y)
    }

    fn rms_norm(&self, x: View<f32>, weight: &Buffer<f32>, eps: f32, out: ViewMut<f32>) -> Result<()> {
        check::rms_norm(self.device(), &x, weight, eps, &out)?;
        norm::rms_norm(&self.device, x, weight, eps, out)
    }

    fn layer_norm(
        &self,
        x: View<f32>,
        weight: &Buffer<f32>,
        bias: &Buffer<f32>,
        eps: f32,
        out: ViewMut<f32>,
    ) -> Result<()> {
        check::layer_norm(self.device(), &x, weight, bias, eps, &out)?;
        norm::layer_norm(&self.device, x, weight, bias, eps, out)
    }

    fn qk_norm(&self, x: ViewMut<f32>, weight: &Buffer<f32>, eps: f32) -> Result<()> {
        check::qk_norm(self.device(), &x, weight, eps)?;
        norm::qk_norm(&self.device, x, weight, eps)
    }

    fn rope(&self, x: ViewMut<f32>, head_width: usize, positions: View<u32>, rope: &Rope) -> Result<()> {
        check::rope(self.device(), &x, head_width, &positions, rope)?;
        rope::rope(&self.device, x, head_width, positions, rope)
    }

    fn add(&self, x: View<f32>, scale: f32, y: ViewMut<f32>) -> Result<()> {
        check::add(self.device(), &x, scale, &y)?;
        elementwise::add(&self.device, x, scale, y)
    }

    fn add_gated(&self, x: View<f32>, gate: View<f32>, y: ViewMut<f32>) -> Result<()> {
        check::add_gated(self.device(), &x, &gate, &y)?;
        elementwise::add_gated(&self.device, x, gate, y)
    }

    fn add_bias(&self, bias: &Buffer<f32>, y: ViewMut<f32>) -> Result<()> {
        check::add_bias(self.device(), bias, &y)?;
        elementwise::add_bias(&self.device, bias, y)
    }

    fn scale(&self, scale: f32, y: ViewMut<f32>) -> Result<()> {
        check::scale(self.device(), scale, &y)?;
        elementwise::scale(&self.device, scale, y)
    }

    fn argmax(&self, x: View<f32>, out: ViewMut<u32>) -> Result<()> {
        check::argmax(self.device(), &x, &out)?;
        argmax::argmax(&self.device, x, out)
    }

    fn sample(&self, logits: ViewMut<f32>, parameters: &[Sampling], out: ViewMut<u32>) -> Result<()> {
        check::sample(self.device(), &logits, parameters, &out)?;
        sample::sample(&self.device, logits, parameters, out)
    }

    fn kv_write(&self, cache: &mut KvCache, k: View<f32>, v: View<f32>, place: &Placement) -> Result<()> {
        check::kv_write(self.device(), cache, &k, &v, place)?;
        kv::kv_write(&self.device, cache, k, v, place)
    }

    fn kv_copy(&self, cache: &mut KvCache, blocks: &[(u32, u32)]) -> Result<()> {
        check::kv_copy(self.device(), cache, blocks)?;
        kv::kv_copy(&self.device, cache, blocks)
    }

    fn attention(
        &self,
        q: View<f32>,
        cache: &KvCache,
        place: &Placement,
        parameters: &Attention,
        out: ViewMut<f32>,
    ) -> Result<()> {
        check::attention(self.device(), &q, cache, place, parameters, &out)?;
        attention::attention(&self.device, q, cache, place, parameters, out)
    }

    fn norm_act(&self, norm: Norm, normed: ViewMut<f32>, acts: &mut [&mut Act]) -> Result<()> {
        if !norm_act::serves(norm.x.cols(), acts) {
            return compose::norm_act(self, norm, normed, acts);
        }
        check::norm_act(self.device(), &norm, &normed, acts)?;
        norm_act::norm_act(&self.device, norm, normed, acts)
    }

    fn norm_matmul(
        &self,
        norm: Norm,
        normed: ViewMut<f32>,
        act: &mut Act,
        other: Option<&mut Act>,
        w: &Weight,
        bias: Option<&Buffer<f32>>,
        y: ViewMut<f32>,
    ) -> Result<()> {
        let serves = self.device.may(Family::Gemv)
            && norm_matmul::serves(layout::parts("norm_matmul", w)?, norm.x.rows(), act, other.as_deref());
        if serves {
            check::norm_matmul(self.device(), &norm, &normed, act, other.as_deref(), w, bias, &y)?;
            return norm_matmul::norm_matmul(&self.device, norm, normed, act, other, w, bias, y);
        }
        compose::norm_matmul(self, norm, normed, act, other, w, bias, y)
    }

    fn matmul_finish(
        &self,
        w: &Weight,
        x: &Act,
        bias: Option<&Buffer<f32>>,
        finish: Finish,
        y: ViewMut<f32>,
    ) -> Result<()> {
        check::matmul(self.device(), w, x, bias, &y)?;
        check::finish(self.device(), &finish, &y)?;
        matmul::matmul_finish(&self.device, w, x, bias, finish.into(), y)
    }

    fn gate_up_act(
        &self,
        w: &Weight,
        x: &Act,
        bias: Option<[&Buffer<f32>; 2]>,
        activation: Activation,
        h: ViewMut<f32>,
        act: &mut Act,
    ) -> Result<()> {
        check::gate_up(self.device(), w, x, bias, &h)?;
        check::activation("gate_up_act", activation)?;
        check::prepare_activations(self.device(), &h.as_view(), act)?;
        matmul::gate_up_act(&self.device, w, x, bias, activation, h, act)
    }

    fn experts(
        &self,
        experts: &Experts,
        x: &Act,
        logits: View<f32>,
        routing: &Routing,
        room: ExpertsRoom,
        finish: Finish,
        y: ViewMut<f32>,
    ) -> Result<()> {
        check::experts(self.device(), experts, x, &logits, routing, &room, &finish, &y)?;
        experts::experts(&self.device, experts, x, logits, routing, room, finish.into(), y)
    }

    fn place_qkv(
        &self,
        mut qkv: ViewMut<f32>,
        heads: usize,
        norms: Norms,
        rope: &Rope,
        cache: &mut KvCache,
        place: &Placement,
    ) -> Result<()> {
        if place::serves(heads, &norms, cache) {
            check::place_qkv(self.device(), &mut qkv, heads, norms, rope, cache, place)?;
            return place::place_qkv(&self.device, qkv, heads, norms, rope, cache, place);
        }
        compose::place_qkv(self, qkv, heads, norms, rope, cache, place)
    }

    fn attention_act(
        &self,
        q: View<f32>,
        cache: &KvCache,
        place: &Placement,
        parameters: &Attention,
        out: ViewMut<f32>,
        act: &mut Act,
    ) -> Result<()> {
        check::attention(self.device(), &q, cache, place, parameters, &out)?;
        check::prepare_activations(self.device(), &out.as_view(), act)?;
        attention::attention_act(&self.device, q, cache, place, parameters, out, act)
    }

    fn attend(
        &self,
        mut qkv: ViewMut<f32>,
        norms: Norms,
        rope: &Rope,
        cache: &mut KvCache,
        place: &Placement,
        parameters: &Attention,
        out: ViewMut<f32>,
        act: &mut Act,
    ) -> Result<()> {
        let heads = parameters.heads;
        if attention::places(&self.device, heads, &norms, cache, place) {
            check::place_qkv(self.device(), &mut qkv, heads, norms, rope, cache, place)?;
            let [queries, _] = key_and_value_columns(heads, cache.spec())?;
            let q = qkv.as_view().columns(0..queries)?;
            check::attention(self.device(), &q, cache, place, parameters, &out)?;
            check::prepare_activations(self.device(), &out.as_view(), act)?;
            let placing = attention::Placing { norms, rope };
            return attention::attend(&self.device, qkv.as_view(), placing, cache, place, parameters, out, act);
        }
        compose::attend(self, qkv, norms, rope, cache, place, parameters, out, act)
    }

    fn route_and_group(
        &self,
        logits: View<f32>,
        routing: &Routing,
        bias: SelectionBias,
        ids: ViewMut<u32>,
        weights: ViewMut<f32>,
        groups: &mut Groups,
    ) -> Result<()> {
        check::route(self.device(), &logits, routing, bias, &ids, &weights)?;
        check::group_by_expert(self.device(), &ids.as_view(), logits.cols(), groups)?;
        groups.tile_rows = moe::tile_rows(&self.device, logits.cols(), ids.rows() * ids.cols());
        route::route_and_group(&self.device, logits, routing, bias, ids, weights, groups)
    }
}
