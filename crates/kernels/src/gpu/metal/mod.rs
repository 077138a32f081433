//! The Metal backend: checks, then the family's host function, then launches. Unverified on hardware: a simulator runs its
//! kernels, and the driver is type-checked.
//!
//! From here: [`matmul`], [`moe`] and [`attention`] are host sides of what Metal does in its own way; all else is in
//! [`super::small`]. Weights stay where the file's map has them (`layout::Rows::of_file`), activations are floats.
//! `driver` is Apple's framework, on macOS alone.

mod attention;
#[cfg(target_os = "macos")]
pub mod driver;
mod experts;
mod gemm;
mod gemv;
#[cfg(any(target_os = "macos", test))]
mod hazards;
mod matmul;
mod moe;
mod norm_matmul;
pub mod texts;

use super::small::{activations, argmax, elementwise, embed, group, kv, norm, norm_act, place, rope, route, sample};
use super::{Device, Gpu, ahead, finish, memory};
use crate::act::{Act, Precision};
use crate::check;
use crate::compose;
use crate::error::Result;
use crate::kv::{KvCache, KvSpec, Placement};
use crate::ops::{
    Activation, Attention, Backend, Experts, ExpertsRoom, Finish, Groups, Norm, Norms, Rope, Routing, Sampling,
    SelectionBias,
};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Footprint, Role, Shape, TensorView, Weight};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A Metal device as a backend.
#[derive(Debug)]
pub struct Metal {
    device: Device,
    /// [`Backend::turn`].
    turn: Mutex<()>,
}

impl Metal {
    /// A backend over a device: a real one, or a simulator's.
    pub fn new(gpu: Arc<dyn Gpu>) -> Result<Self> {
        Ok(Self { device: Device::new(gpu)?, turn: Mutex::default() })
    }
}

impl Backend for Metal {
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
        ahead::make_ready(self.device.gpu(), &mut |gpu| work(&Metal::new(gpu)?), progress)
    }

    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        Some(self.turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn notice(&self) -> Option<String> {
        self.device.gpu().notice()
    }

    fn alloc_f32(&self, len: usize, what: &'static str) -> Result<Buffer<f32>> {
        memory::alloc(&self.device, len, what)
    }

    fn alloc_u32(&self, len: usize, what: &'static str) -> Result<Buffer<u32>> {
        memory::alloc(&self.device, len, what)
    }

    fn alloc_act(&self, precision: Precision, rows: usize, cols: usize) -> Result<Act> {
        memory::alloc_act(&self.device, precision, false, rows, cols)
    }

    fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache> {
        check::alloc_kv(&spec)?;
        kv::alloc_kv(&self.device, spec, blocks)
    }

    fn alloc_groups(&self, experts: usize, pairs: usize) -> Result<Groups> {
        memory::alloc_groups(&self.device, experts, pairs, moe::TILE_ROWS, moe::GRIDS)
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
        Footprint { owned: 0, mapped: shape.file_bytes() }
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
        moe::moe_gate_up(&self.device, w, x, groups, top_k, bias, activation, h)
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
        attention::attention(&self.device, q, cache, place, parameters, out, None)
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
        attention::attention(&self.device, q, cache, place, parameters, out, Some(act))
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

    fn norm_act(&self, norm: Norm, normed: ViewMut<f32>, acts: &mut [&mut Act]) -> Result<()> {
        if !norm_act::serves(norm.x.cols(), acts) {
            return compose::norm_act(self, norm, normed, acts);
        }
        check::norm_act(self.device(), &norm, &normed, acts)?;
        norm_act::norm_act(&self.device, norm, normed, acts)
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
        if !norm_matmul::serves(w, norm.x.rows()) {
            return compose::norm_matmul(self, norm, normed, act, other, w, bias, y);
        }
        check::norm_matmul(self.device(), &norm, &normed, act, other.as_deref(), w, bias, &y)?;
        norm_matmul::norm_matmul(&self.device, norm, normed, act, other, w, bias, y)
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
        matmul::gate_up_act(&self.device, w, x, bias, activation, h.rows(), act)
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
        route::route_and_group(&self.device, logits, routing, bias, ids, weights, groups)
    }
}
