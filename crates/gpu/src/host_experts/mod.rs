//! Layers whose experts are in host memory. The CPU computes the rows of the chosen experts; the device routes before and adds
//! the rows up after, in the router's order. So a sum has the same order wherever its experts are.
//!
//! Some experts can have [`slots`] in the device's memory. Then the device looks the chosen experts up, multiplies those in slots as
//! a layer whose experts are slots, and the CPU computes the others meanwhile. An [`inserter`] copies missed experts to slots, where
//! they replace the least recently chosen ones ([`resident`]). In a deterministic backend, slots keep the first experts. The other
//! experts of a long batch are copied to the device, which multiplies them ([`stream`]).
//!
//! A step stays one stream of launches, which a graph can capture: a kernel posts activations and choices to a [`mailbox`], a
//! [`worker`] thread [`compute`]s the rows, and a kernel polls for them. Of the ways to wait it is the fastest, and the only one
//! with a deadline (docs/performance-notes.md). After the deadline the step is an error.

mod compute;
mod inserter;
mod mailbox;
mod place;
mod request;
mod resident;
mod slots;
mod stream;
mod worker;

use crate::common::{elementwise, group, route};
use crate::device::Device;
use crate::layout::{self, PlaneRows};
use crate::matmul;
use crate::pinned::PinnedBytes;
use crate::seam::{Access, Arg, Region, region_of, region_of_view_mut};
use crate::storage::{EXACT, INT8};
use crate::vendor::Vendor;
use compute::HostLayer;
use gristmill_kernels::Backend;
use gristmill_kernels::act::{ACT_BLOCK, Int8Words, Precision, Representations};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::{
    Checked, ExpertWeights, Experts, Graph, MoeCombine, MoeGateUp, MoeMatmul, Operation, SlotUsage,
};
use gristmill_kernels::storage::Storage;
use gristmill_kernels::tensor::{Buffer, View};
use gristmill_kernels::weight::{HostWeight, Location, Weight};
pub use inserter::STAGING_BYTES;
use inserter::{COUNTED_TOKENS, Inserter};
use mailbox::Mailbox;
pub use mailbox::{ControlWords, DeviceWords};
pub(crate) use place::{PlaceParams, RingParams, SlotMatrix, SlotPlane};
use request::Part;
pub use request::{Post, Receive};
use slots::LayerSlots;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stream::Stream;
use worker::Worker;

const OP: &str = Experts::NAME;
/// Words of 32 activations in int8.
const INT8_WORDS: usize = size_of::<Int8Words>() / size_of::<u32>();

/// Captured batches have at most 256 tokens. A CPU of 16 cores and a link of 50 GB/s compute batches of about 200 tokens equally
/// fast (Qwen3-30B-A3B, calculated).
const STREAM_TOKENS: usize = 257;

/// How a device's backend has experts computed by the CPU.
#[derive(Clone, Debug)]
pub struct HostExperts {
    /// The CPU's backend. No one else should use its threads meanwhile.
    pub backend: Arc<Backend>,
    /// How long the device waits for the rows of a layer.
    pub deadline: Duration,
    /// Bytes of pinned memory for rows. A batch whose rows need more is split.
    pub rows_bytes: usize,
    /// Tokens of the smallest batch whose experts without a slot are copied to the device and multiplied there, in a layer that has
    /// slots. Such a batch is not captured.
    pub stream_tokens: usize,
    /// Bytes of the experts that are copied for such a batch together; one expert if that is larger.
    pub group_bytes: usize,
}

impl HostExperts {
    /// With a deadline of 5 s, groups of 24 MiB, and memory for the rows of 512 tokens of 8 experts with 2,048 elements each.
    pub fn new(backend: Arc<Backend>) -> Self {
        let (deadline, rows_bytes, group_bytes) = (Duration::from_secs(5), 32 << 20, 24 << 20);
        Self { backend, deadline, rows_bytes, stream_tokens: STREAM_TOKENS, group_bytes }
    }
}

/// The path of a backend that was opened with [`HostExperts`].
#[derive(Debug)]
pub(crate) struct HostPath {
    host: HostExperts,
    mailbox: Mailbox,
    /// The slots of pairs, and the experts of pairs without a slot.
    pair_slots: PairWords,
    missed: PairWords,
    stream: Mutex<Stream>,
    /// Slots keep their experts.
    fixed: bool,
    /// `None` in a dry run, where nothing is submitted.
    worker: Option<Arc<Worker>>,
}

impl HostPath {
    /// Pins the mailbox and starts the threads. `fixed`: slots keep their experts.
    pub(crate) fn start(device: &Device, host: HostExperts, fixed: bool) -> Result<Self> {
        let mailbox = Mailbox::new(device.gpu(), host.rows_bytes)?;
        let inserter = Inserter::start(device.gpu(), &host.backend, fixed)?;
        let worker = Worker::start(Arc::clone(&host.backend), inserter, &mailbox, device.host_failure())?;
        let (pair_slots, missed, stream) = Default::default();
        Ok(Self { host, mailbox, pair_slots, missed, stream, fixed, worker: Some(Arc::new(worker)) })
    }

    /// The same on a device that runs nothing.
    pub(crate) fn dry(&self, device: &Device) -> Result<Self> {
        let host = self.host.clone();
        let mailbox = Mailbox::new(device.gpu(), host.rows_bytes)?;
        let (pair_slots, missed, stream) = Default::default();
        Ok(Self { mailbox, host, pair_slots, missed, stream, fixed: self.fixed, worker: None })
    }

    /// The CPU's backend.
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.host.backend
    }

    /// See [`gristmill_kernels::Backend::slot_usage`].
    pub(crate) fn slot_usage(&self) -> SlotUsage {
        self.worker.as_ref().map_or_else(SlotUsage::default, |worker| worker.slot_usage())
    }

    /// Pins a weight in host memory for copies to slots.
    pub(crate) fn pin(&self, device: &Device, weight: &Weight) -> Result<Storage> {
        let layout = Error::ForeignLayout { op: OP, what: "a weight in host memory" };
        let tiles = self.host.backend.tiles(weight).ok_or(layout)?;
        let pinned: Vec<_> =
            tiles.into_iter().map(|bytes| PinnedBytes::new(device.gpu(), bytes)).collect::<Result<_>>()?;
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
    pub(crate) fn experts<V: Vendor>(&self, vendor: &V, call: &mut Checked<Experts>) -> Result<()> {
        let (tokens, top_k, width) = (call.y.rows(), call.route.routing.top_k, call.scratch.out.cols());
        if tokens == 0 {
            return Ok(());
        }
        let (device, precision) = (vendor.device(), call.x.precision());
        let representation = self.representation(precision, call.weights.gate_up)?;
        let streams = self.streams(tokens, call.weights.gate_up);
        if !streams {
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
            Part { number, first, tokens, row_words, slots: pair_slots.as_deref() }
        };
        let multiply = |call: &mut Checked<Experts>| match (slots, &pair_slots) {
            (Some(slots), Some(pair_slots)) => multiply_slots(vendor, call, slots, pair_slots.view(tokens, top_k)?),
            _ => Ok(()),
        };
        if let (true, Some(slots), Some(pair_slots)) = (streams, slots, &pair_slots) {
            let all = Part { tokens, ..part(0) };
            self.stream(vendor, call, &all, &layer, slots, pair_slots)?;
        } else if tokens <= most {
            // The CPU and the device multiply at the same time.
            self.post(vendor, call, &part(0), slots)?;
            multiply(call)?;
            self.receive(vendor, call, &part(0))?;
        } else {
            if let Some(slots) = slots {
                let all = Part { tokens, ..part(0) };
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

    /// The rows of a batch, all by the device.
    fn stream<V: Vendor>(
        &self,
        vendor: &V,
        call: &mut Checked<Experts>,
        all: &Part,
        layer: &Arc<HostLayer>,
        slots: &LayerSlots,
        pair_slots: &Buffer<u32>,
    ) -> Result<()> {
        let (device, tokens, top_k) = (vendor.device(), all.tokens, call.route.routing.top_k);
        let missed = self.missed.buffer(device, tokens * top_k)?;
        vendor.find_slots(&self.request(call, all, Some(slots))?, Arg::buffer(&missed, Access::Write))?;
        // The choices of the last tokens, which are in slots when tokens are sampled.
        let last = tokens.min(COUNTED_TOKENS);
        let (ids, at) = region_of_view_mut(&call.route.ids).ok_or(Error::ForeignLayout { op: OP, what: "ids" })?;
        let (stride, size) = (at.stride(), size_of::<u32>());
        let (offset, span) = (at.span().start + (tokens - last) * stride, (last - 1) * stride + top_k);
        let ids = device.start_read_region(ids, offset * size, span * size)?;
        multiply_slots(vendor, call, slots, pair_slots.view(tokens, top_k)?)?;
        sort_pairs(vendor, call, missed.view(tokens, top_k)?)?;
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.multiply(vendor, &self.host, call, layer, slots)?;
        if let Some(worker) = &self.worker {
            let ids: Vec<u32> = ids.wait()?.chunks_exact(size).map(bytemuck::pod_read_unaligned).collect();
            worker.streamed(
                layer,
                &ids.chunks(stride).flat_map(|row| row.iter().take(top_k)).copied().collect::<Vec<_>>(),
            );
        }
        Ok(())
    }

    /// The representation of activations that the CPU's products with a weight read.
    pub(crate) fn representation(&self, precision: Precision, weight: &Weight) -> Result<Representations> {
        let weight = &on_host(weight)?.0.weight;
        Ok(if self.host.backend.reads_int8(precision, weight) { INT8 } else { EXACT })
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

/// A word for each pair of a batch: buffers, the last one for new work. Graphs may name the others.
#[derive(Debug, Default)]
struct PairWords(Mutex<Vec<Arc<Buffer<u32>>>>);

impl PairWords {
    /// Memory for at least this number of pairs.
    fn buffer(&self, device: &Device, pairs: usize) -> Result<Arc<Buffer<u32>>> {
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
fn sort_pairs<V: Vendor>(vendor: &V, call: &mut Checked<Experts>, ids: View<u32>) -> Result<()> {
    let (_, lists) = call.lists();
    *lists.tile_rows = vendor.tile_rows(lists.counts.len(), ids.rows() * ids.cols());
    group::group_by_expert(vendor.device(), ids, &lists)
}

/// The rows of the pairs whose experts are in slots; the others' rows are zero.
fn multiply_slots<V: Vendor>(
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
    let (groups, h) = (&*scratch.groups, scratch.h.reborrow());
    let gate_up = MoeGateUp { weight: gate_up, x, groups, top_k, bias: gate_up_bias, activation, h };
    matmul::moe_gate_up(vendor, gate_up, Some(&mut *scratch.act))?;
    let (x, out) = (&*scratch.act, scratch.out.reborrow());
    matmul::moe_matmul(vendor, MoeMatmul { weight: down, x, groups, top_k, bias: down_bias, out })
}

fn on_host(weight: &Weight) -> Result<&HostWeight> {
    weight.storage(OP)
}

/// Whether the experts of a call are in host memory.
pub(crate) fn are_on_host(call: &Experts) -> bool {
    [call.weights.gate_up, call.weights.down].iter().any(|weight| weight.location() == Location::Host)
}

/// The slots of a weight in host memory, if it has some.
pub(crate) fn slots_of(weight: &Weight) -> Option<&Weight> {
    on_host(weight).ok()?.0.slots.as_ref()
}
