//! The path of a layer's experts through the device and the host.
//!
//! # Experts in host memory
//!
//! See `Weight::location`. `program/place.rs` marks the matrices of experts;
//! `Offload::prepare_on_host` gives them to the CPU's backend. So the node of experts stays one operation. The device
//! routes, posts activations and choices to a mailbox in pinned memory, waits, and adds the rows up in the router's
//! order. A thread of the host polls the mailbox and runs the CPU's operations. It polls only while a submitted step
//! has requests left; graphs count their requests when they are replayed. Rows come back, not sums, so the order of a
//! sum does not depend on the placement.
//!
//! Slots are freed when an allocation of a step fails (`Offload::free_slots`), and the step starts again. Graphs that
//! were captured before stay valid: the layer's table then has no expert, so no kernel reads the freed memory whose
//! address it gets. In long batches, a thread copies groups of absent experts ahead of the kernels, also the first
//! groups of the next layer, whose slots keep their experts until then (`copier.rs`, `stream.rs`). The host reads the
//! choices of a batch that fits one request, and gives experts of few tokens to the CPU (`cpu_split.rs`).
//!
//! - *Invariant: a request waits for its answer before the next one is posted; because both launches are in one stream
//!   and do not overlap their neighbours. So one mailbox serves all layers and all steps in flight.*
//! - *A wait ends: with the answer, with a failure of the host (an error or a panic), or at the deadline of 5 s (5
//!   minutes if experts are in the file). After a failure no kernel waits again, and the next copy to the host is an
//!   error. So no token is sampled from missing rows (tests `a_stalled_host_is_an_error_at_the_deadline`,
//!   `a_panic_of_the_host_is_an_error_at_once`).*

use crate::compute::HostLayer;
use crate::cpu_split::{self, CpuSplit, SplitTables};
use crate::inserter::{COUNTED_TOKENS, Inserter};
use crate::mailbox::{Mailbox, SHARED};
use crate::options::HostExperts;
use crate::pinned::PinnedBytes;
use crate::place;
use crate::request::BatchPart;
use crate::slots::{self, LayerSlots};
use crate::stream::Stream;
use crate::vendor::{OffloadVendor, Post};
use crate::weights::{on_host, slots_of};
use crate::worker::Worker;
use gristmill_gpu::common::{elementwise, group, route};
use gristmill_gpu::layout::{self, PlaneRows};
use gristmill_gpu::matmul;
use gristmill_gpu::storage::{EXACT, INT8};
use gristmill_gpu::{Access, Arg, Device, Region, region_of, region_of_view_mut};
use gristmill_kernels::Backend;
use gristmill_kernels::act::{ACT_BLOCK, Int8Words, Precision, Representations};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::offload::{HostWeight, SlotUsage};
use gristmill_kernels::ops::{
    Checked, ExpertWeights, Experts, Graph, MoeCombine, MoeGateUp, MoeMatmul, Operation, PendingRead,
};
use gristmill_kernels::storage::Storage;
use gristmill_kernels::tensor::{Buffer, View};
use gristmill_kernels::weight::Weight;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const OP: &str = Experts::NAME;
/// Words of 32 activations in int8.
const INT8_WORDS: usize = size_of::<Int8Words>() / size_of::<u32>();

/// The path of a backend that was opened with [`HostExperts`].
#[derive(Debug)]
pub(crate) struct HostPath {
    pub(crate) host: HostExperts,
    pub(crate) mailbox: Mailbox,
    /// The slots of pairs, and the experts of pairs without a slot.
    pair_slots: PairWords,
    missed: PairWords,
    stream: Mutex<Stream>,
    share_tables: Mutex<SplitTables>,
    /// Slots keep their experts.
    fixed: bool,
    /// Bytes of slots that were freed, and of experts that could not be pinned.
    freed_bytes: AtomicU64,
    unpinned_bytes: AtomicU64,
    /// Whether a model has slots.
    has_slots: AtomicBool,
    /// `None` in a dry run, where nothing is submitted.
    pub(crate) worker: Option<Arc<Worker>>,
}

impl HostPath {
    /// Pins the mailbox and starts the threads. `fixed`: slots keep their experts.
    pub(crate) fn start(device: &Device, host: HostExperts, fixed: bool) -> Result<Self> {
        let (mailbox, end) = Mailbox::new(device.gpu(), host.rows_bytes)?;
        let inserter = Inserter::start(device.gpu(), &host, fixed)?;
        let worker = Worker::start(Arc::clone(&host.backend), inserter, end, device.host_failure())?;
        let worker = Some(Arc::new(worker));
        Ok(Self::new(host, mailbox, fixed, worker))
    }

    /// The same on a device that runs nothing.
    pub(crate) fn dry(&self, device: &Device) -> Result<Self> {
        let host = self.host.clone();
        let (mailbox, _) = Mailbox::new(device.gpu(), host.rows_bytes)?;
        Ok(Self::new(host, mailbox, self.fixed, None))
    }

    fn new(host: HostExperts, mailbox: Mailbox, fixed: bool, worker: Option<Arc<Worker>>) -> Self {
        let (pair_slots, missed, stream, share_tables) = Default::default();
        let (freed_bytes, unpinned_bytes, has_slots) = Default::default();
        Self {
            host,
            mailbox,
            pair_slots,
            missed,
            stream,
            share_tables,
            fixed,
            freed_bytes,
            unpinned_bytes,
            has_slots,
            worker,
        }
    }

    /// See [`gristmill_kernels::offload::Offload::largest_captured`].
    pub(crate) fn largest_captured(&self) -> usize {
        match self.has_slots.load(Ordering::Relaxed) && !self.fixed {
            true => self.host.stream_tokens.saturating_sub(1),
            false => usize::MAX,
        }
    }

    /// The CPU's backend.
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.host.backend
    }

    /// See [`gristmill_kernels::offload::Offload::slot_usage`].
    pub(crate) fn slot_usage(&self) -> SlotUsage {
        let of_worker = || self.worker.as_ref().map_or_else(SlotUsage::default, |worker| worker.slot_usage());
        // Experts in a file have no slots here: the CPU's backend counts them.
        let usage = self.host.backend.offload().slot_usage().unwrap_or_else(of_worker);
        SlotUsage { freed_bytes: self.freed_bytes.load(Ordering::Relaxed), ..usage }
    }

    /// See [`gristmill_kernels::offload::Offload::free_slots`]. The table names no slot any more, so graphs that were captured with the slots
    /// stay valid: their kernels get addresses that they do not use.
    pub(crate) fn free_slots(&self, device: &Device, weights: [&Weight; 2]) -> Result<u64> {
        let (HostWeight(gate_up), HostWeight(down)) = (on_host(weights[0])?, on_host(weights[1])?);
        let (Some(gate_up_slots), Some(down_slots)) = (&gate_up.slots, &down.slots) else { return Ok(0) };
        let parts = slots::parts(gate_up_slots, down_slots)?;
        if parts[0].is_freed() {
            return Ok(0);
        }
        device.synchronize()?;
        let layers = self.worker.iter().flat_map(|worker| worker.layers_of([gate_up, down]));
        layers.filter_map(|layer| layer.slots.as_ref().map(LayerSlots::clear)).collect::<Result<()>>()?;
        let freed = parts.into_iter().map(PlaneRows::free_early).sum::<usize>() as u64;
        self.freed_bytes.fetch_add(freed, Ordering::Relaxed);
        Ok(freed)
    }

    /// A notice if the system refused to pin experts.
    pub(crate) fn notice(&self) -> Option<String> {
        let refused = self.unpinned_bytes.load(Ordering::Relaxed);
        (refused > 0).then(|| {
            format!(
                "experts in host memory: the system refused to pin {:.2} GB, so experts are copied to the GPU more slowly; \
                 raise the limit of locked memory (`ulimit -l`, or memory of the virtual machine), or compute them on the CPU",
                refused as f64 / 1e9
            )
        })
    }

    /// Pins a weight in host memory for copies to slots.
    pub(crate) fn pin(&self, device: &Device, weight: &Weight) -> Result<Storage> {
        let layout = Error::ForeignLayout { op: OP, what: "a weight in host memory" };
        self.has_slots.store(true, Ordering::Relaxed);
        let mut pinned = Vec::new();
        for bytes in self.host.backend.offload().tiles(weight).ok_or(layout)? {
            match PinnedBytes::new(device.gpu(), bytes)? {
                Some(tiles) => pinned.push(tiles),
                // The driver copies through memory of its own.
                None => drop(self.unpinned_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed)),
            }
        }
        Ok(Storage::new(pinned))
    }

    /// Captures a graph whose replays wake the worker.
    pub(crate) fn capture(
        &self,
        capture: impl FnOnce() -> Result<Option<Box<dyn Graph>>>,
    ) -> Result<Option<Box<dyn Graph>>> {
        match &self.worker {
            Some(worker) => worker.capture(capture),
            None => capture(),
        }
    }

    /// [`Experts`] whose weights are in host memory.
    pub(crate) fn experts<V: OffloadVendor>(&self, vendor: &V, call: &mut Checked<Experts>) -> Result<()> {
        let tokens = call.y.rows();
        let top_k = call.route.routing.top_k;
        let width = call.scratch.out.cols();
        if tokens == 0 {
            return Ok(());
        }
        let device = vendor.device();
        let precision = call.x.precision();
        let representation = self.representation(precision, call.weights.gate_up)?;
        let streams = self.streams(tokens, call.weights.gate_up);
        if !streams || self.shares(tokens) {
            call.x.expect_filled(OP, representation)?;
        }
        let (number, layer) = self.layer(device, &call.weights, top_k, precision)?;
        match &self.worker {
            Some(worker) => worker.place_arrived()?,
            None => device.gpu().prepare(&place::unit())?,
        }
        route::route(device, &call.route)?;
        let row_words = match representation {
            INT8 => INT8_WORDS * call.x.cols().div_ceil(ACT_BLOCK),
            _ => call.x.cols(),
        };
        let most = self.mailbox.tokens(top_k, row_words, width)?;
        let slots = layer.slots.as_ref();
        let pair_slots = slots.map(|_| self.pair_slots.buffer(device, tokens * top_k)).transpose()?;
        let part = |first: usize| {
            let tokens = most.min(tokens - first);
            BatchPart { number, first, tokens, row_words, slots: pair_slots.as_deref() }
        };
        let multiply = |call: &mut Checked<Experts>| match (slots, &pair_slots) {
            (Some(slots), Some(pair_slots)) => multiply_slots(vendor, call, slots, pair_slots.view(tokens, top_k)?),
            _ => Ok(()),
        };
        if let (true, Some(slots), Some(pair_slots)) = (streams, slots, &pair_slots) {
            let all = BatchPart { tokens, ..part(0) };
            self.stream(vendor, call, &all, &layer, slots, pair_slots, tokens <= most)?;
        } else if tokens <= most {
            // The CPU and the device multiply at the same time.
            self.post(vendor, call, &part(0), slots)?;
            multiply(call)?;
            self.receive(vendor, call, &part(0))?;
        } else {
            if let Some(slots) = slots {
                let all = BatchPart { tokens, ..part(0) };
                vendor.find_slots(&self.request(call, &all, Some(slots))?, Arg::Null)?;
                multiply(call)?;
            }
            for first in (0..tokens).step_by(most) {
                self.post(vendor, call, &part(first), slots)?;
                self.receive(vendor, call, &part(first))?;
            }
        }
        let Experts { route, scratch, epilogue, y, .. } = &mut **call;
        let (out, weights) = (scratch.out.as_view(), route.weights.as_view());
        let combine = MoeCombine { out, weights, epilogue: *epilogue, y: y.reborrow() };
        elementwise::moe_combine(device, combine, false)
    }

    /// Whether the experts of a batch that have no slot are multiplied by the device. Not in a deterministic backend: where a row is
    /// computed would depend on the batch.
    pub(crate) fn streams(&self, tokens: usize, gate_up: &Weight) -> bool {
        let slots = slots_of(gate_up).and_then(|slots| layout::parts(OP, slots).ok());
        let same_format = |parts: &[PlaneRows]| parts.iter().all(|part| part.format == parts[0].format);
        let captures = self.worker.as_ref().is_some_and(|worker| worker.is_capturing());
        slots.is_some_and(same_format) && !self.fixed && tokens >= self.host.stream_tokens && !captures
    }

    /// The rows of a long batch: by the device, and of experts of few tokens by the CPU, if the batch is one request.
    fn stream<V: OffloadVendor>(
        &self,
        vendor: &V,
        call: &mut Checked<Experts>,
        all: &BatchPart,
        layer: &Arc<HostLayer>,
        slots: &LayerSlots,
        pair_slots: &Buffer<u32>,
        is_one_request: bool,
    ) -> Result<()> {
        let device = vendor.device();
        let tokens = all.tokens;
        let top_k = call.route.routing.top_k;
        let missed = self.missed.buffer(device, tokens * top_k)?;
        vendor.find_slots(&self.request(call, all, Some(slots))?, Arg::buffer(&missed, Access::Write))?;
        let shares = is_one_request && self.shares(tokens);
        // All choices, or those of the last tokens, which are in slots when tokens are sampled.
        let ids = read_ids(device, call, if shares { tokens } else { tokens.min(COUNTED_TOKENS) })?;
        multiply_slots(vendor, call, slots, pair_slots.view(tokens, top_k)?)?;
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = stream.start(device, &self.host, all.number, layer)?;
        if !shares {
            sort_pairs(vendor, call, missed.view(tokens, top_k)?)?;
            stream.multiply(vendor, &self.host, call, |_| false)?;
            return self.streamed(layer, &ids.wait()?);
        }
        let ids = ids.wait()?;
        let absent = slots.resident(|resident| resident.absent());
        let of_experts = cpu_split::tokens_of(ids.iter().copied(), call.route.logits.cols());
        let share = CpuSplit::new(&of_experts, &rest, absent.len() - rest.len());
        let mut copied = vec![false; of_experts.len()];
        absent.iter().for_each(|&expert| copied[expert] = !share.left_out[expert]);
        let mut tables = self.share_tables.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = tables.pairs.buffer(device, tokens * top_k)?;
        let of_cpu = BatchPart { number: all.number | SHARED, slots: Some(&pairs), ..*all };
        let [by_cpu, by_copies] = tables.upload(device, &share, &copied)?;
        let request = self.request(call, &of_cpu, Some(slots))?;
        let with = |table| Post { slots: [table, request.slots[1]], ..request };
        vendor.find_slots(&with(by_copies), Arg::buffer(&missed, Access::Write))?;
        if share.is_shared() {
            self.worker.iter().for_each(|worker| worker.submit());
            vendor.post_experts(&with(by_cpu))?;
        }
        sort_pairs(vendor, call, missed.view(tokens, top_k)?)?;
        stream.multiply(vendor, &self.host, call, |expert| share.left_out[expert])?;
        if share.is_shared() {
            self.receive(vendor, call, &of_cpu)?;
        }
        self.streamed(layer, &ids[ids.len().saturating_sub(COUNTED_TOKENS * top_k)..])
    }

    /// Records the choices of the last tokens of a batch.
    fn streamed(&self, layer: &Arc<HostLayer>, ids: &[u32]) -> Result<()> {
        self.worker.iter().for_each(|worker| worker.streamed(layer, ids));
        Ok(())
    }

    /// Whether the CPU computes experts of few tokens of a batch whose experts are copied.
    pub(crate) fn shares(&self, tokens: usize) -> bool {
        tokens <= self.host.share_tokens
    }

    /// The representation of activations that the CPU's products with a weight read.
    pub(crate) fn representation(&self, precision: Precision, weight: &Weight) -> Result<Representations> {
        let weight = &on_host(weight)?.0.weight;
        Ok(if self.host.backend.offload().reads_int8(precision, weight) { INT8 } else { EXACT })
    }

    /// A layer and its number in the worker's list. A layer is added when it runs for the first time, which is not captured.
    fn layer(
        &self,
        device: &Device,
        weights: &ExpertWeights,
        top_k: usize,
        precision: Precision,
    ) -> Result<(u32, Arc<HostLayer>)> {
        let ExpertWeights { gate_up, down, activation, gate_up_bias, down_bias } = *weights;
        let (HostWeight(gate_up), HostWeight(down)) = (on_host(gate_up)?, on_host(down)?);
        let download = |bias: &Buffer<f32>| -> Result<Buffer<f32>> {
            let region = region_of(bias).ok_or(Error::ForeignLayout { op: OP, what: "a bias" })?;
            let mut values = vec![0.0; bias.len()];
            device.read_region(region, 0, bytemuck::cast_slice_mut(&mut values))?;
            Ok(Buffer::host(values))
        };
        let make = || {
            let gate_up_bias = match gate_up_bias {
                Some([gate, up]) => Some([download(gate)?, download(up)?]),
                None => None,
            };
            Ok(HostLayer {
                gate_up: Arc::downgrade(gate_up),
                down: Arc::downgrade(down),
                activation,
                gate_up_bias,
                down_bias: down_bias.map(download).transpose()?,
                top_k,
                precision,
                slots: LayerSlots::new(device.gpu(), weights)?,
            })
        };
        match &self.worker {
            Some(worker) => worker.layer(|layer| layer.is([gate_up, down], top_k, precision), make),
            None => Ok((0, Arc::new(make()?))),
        }
    }
}

/// Choices that are being copied to the host.
struct PendingIds {
    pending: Box<dyn PendingRead>,
    stride: usize,
    top_k: usize,
}

impl PendingIds {
    fn wait(self) -> Result<Vec<u32>> {
        let bytes = self.pending.wait()?;
        let ids: Vec<u32> = bytes.chunks_exact(size_of::<u32>()).map(bytemuck::pod_read_unaligned).collect();
        Ok(ids.chunks(self.stride).flat_map(|row| row.iter().take(self.top_k)).copied().collect())
    }
}

/// Starts to copy the choices of the last tokens to the host.
fn read_ids(device: &Device, call: &Experts, tokens: usize) -> Result<PendingIds> {
    let top_k = call.route.routing.top_k;
    let (ids, at) = region_of_view_mut(&call.route.ids).ok_or(Error::ForeignLayout { op: OP, what: "ids" })?;
    let stride = at.stride();
    let size = size_of::<u32>();
    let first = call.y.rows() - tokens;
    let offset = at.span().start + first * stride;
    let span = (tokens - 1) * stride + top_k;
    let pending = device.start_read_region(ids, offset * size, span * size)?;
    Ok(PendingIds { pending, stride, top_k })
}

/// A word for each pair of a batch: buffers, the last one for new work. Graphs may name the others.
#[derive(Debug, Default)]
pub(crate) struct PairWords(Mutex<Vec<Arc<Buffer<u32>>>>);

impl PairWords {
    /// Memory for at least this number of pairs.
    pub(crate) fn buffer(&self, device: &Device, pairs: usize) -> Result<Arc<Buffer<u32>>> {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = buffers.last().filter(|buffer| buffer.len() >= pairs) {
            return Ok(Arc::clone(buffer));
        }
        let bytes = pairs.next_power_of_two() * size_of::<u32>();
        let region = Region::new(device.gpu(), bytes, "slots of chosen experts")?;
        let buffer = Arc::new(Buffer::on_device(Box::new(region)));
        buffers.push(Arc::clone(&buffer));
        Ok(buffer)
    }
}

/// Groups pairs by these ids, one for each.
fn sort_pairs<V: OffloadVendor>(vendor: &V, call: &mut Checked<Experts>, ids: View<u32>) -> Result<()> {
    let (_, lists) = call.lists();
    *lists.tile_rows = vendor.tile_rows(lists.counts.len(), ids.rows() * ids.cols(), false);
    group::group_by_expert(vendor.device(), ids, &lists)
}

/// The rows of the pairs whose experts are in slots; the others' rows are zero.
fn multiply_slots<V: OffloadVendor>(
    vendor: &V,
    call: &mut Checked<Experts>,
    slots: &LayerSlots,
    pair_slots: View<u32>,
) -> Result<()> {
    let top_k = pair_slots.cols();
    sort_pairs(vendor, call, pair_slots)?;
    let Experts { weights, x, scratch, .. } = &mut **call;
    let weights = slots.weights(weights)?;
    let ExpertWeights { gate_up, down, activation, gate_up_bias, down_bias } = weights;
    let groups = &*scratch.groups;
    let h = scratch.h.reborrow();
    let gate_up = MoeGateUp { weight: gate_up, x, groups, top_k, bias: gate_up_bias, activation, h };
    matmul::moe_gate_up(vendor, gate_up, Some(&mut *scratch.act))?;
    let x = &*scratch.act;
    let out = scratch.out.reborrow();
    matmul::moe_matmul(vendor, MoeMatmul { weight: down, x, groups, top_k, bias: down_bias, out })
}
