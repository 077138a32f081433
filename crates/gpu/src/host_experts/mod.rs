//! Layers whose experts are in host memory. The CPU computes the rows of the chosen experts; the device routes before and adds
//! the rows up after, in the router's order. So a sum has the same order wherever its experts are.
//!
//! Some experts can have [`slots`] in the device's memory. Then the device looks the chosen experts up, multiplies those in slots as
//! a layer whose experts are slots, and the CPU computes the others meanwhile. An [`inserter`] copies missed experts to slots, where
//! they replace the least recently chosen ones ([`resident`]). In a deterministic backend, slots keep the first experts.
//!
//! A step stays one stream of launches, which a graph can capture: a kernel posts activations and choices to a [`mailbox`], a
//! [`worker`] thread [`compute`]s the rows, and a kernel polls for them. Of the ways to wait it is the fastest, and the only one
//! with a deadline (docs/performance-notes.md). After the deadline the step is an error.

mod compute;
mod inserter;
mod mailbox;
mod place;
mod resident;
mod slots;
mod worker;

use crate::common::{elementwise, group, route};
use crate::device::Device;
use crate::matmul;
use crate::pinned::PinnedBytes;
use crate::seam::{Access, Arg, Region, region_of, region_of_view_mut};
use crate::storage::{EXACT, GpuAct, INT8};
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
use inserter::Inserter;
pub use inserter::STAGING_BYTES;
use mailbox::Mailbox;
pub use mailbox::{ControlWords, DeviceWords};
pub(crate) use place::{PlaceParams, SlotMatrix, SlotPlane};
use slots::LayerSlots;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use worker::Worker;

const OP: &str = Experts::NAME;
/// Words of 32 activations in int8.
const INT8_WORDS: usize = size_of::<Int8Words>() / size_of::<u32>();

/// How a device's backend has experts computed by the CPU.
#[derive(Clone, Debug)]
pub struct HostExperts {
    /// The CPU's backend. No one else should use its threads meanwhile.
    pub backend: Arc<Backend>,
    /// How long the device waits for the rows of a layer.
    pub deadline: Duration,
    /// Bytes of pinned memory for rows. A batch whose rows need more is split.
    pub rows_bytes: usize,
}

impl HostExperts {
    /// With a deadline of 5 s, and memory for the rows of 512 tokens of 8 experts with 2,048 elements each.
    pub fn new(backend: Arc<Backend>) -> Self {
        Self { backend, deadline: Duration::from_secs(5), rows_bytes: 32 << 20 }
    }
}

/// A request to the host: activations and choices of some tokens of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Post<'a> {
    /// Activations: rows of f32, or of [`Int8Words`].
    pub x: Arg<'a>,
    /// Chosen experts.
    pub ids: Arg<'a>,
    /// Elements from a token's ids to the next token's.
    pub ids_stride: usize,
    /// The slot of each expert, and where the slots of the chosen experts go; both are null without slots.
    pub slots: [Arg<'a>; 2],
    /// Device words, control words, ids and activations of the mailbox.
    pub mailbox: [Arg<'a>; 4],
    /// The layer's number in the worker's list.
    pub layer: u32,
    /// Tokens.
    pub tokens: usize,
    /// Experts of each token.
    pub top_k: usize,
    /// Words of 32 bits of an activation row.
    pub words: usize,
}

/// The wait for the rows of a request.
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    /// Device words, control words and rows of the mailbox.
    pub mailbox: [Arg<'a>; 3],
    /// Chosen experts, as in [`Post`].
    pub ids: Arg<'a>,
    /// Elements from a token's ids to the next token's.
    pub ids_stride: usize,
    /// The slots of the chosen experts: rows of experts in slots are not sent. Null without slots.
    pub slots: Arg<'a>,
    /// Experts of each token.
    pub top_k: usize,
    /// Receives the rows.
    pub out: Arg<'a>,
    /// Elements from row to row.
    pub out_stride: usize,
    /// The layer's number, for the flag.
    pub layer: u32,
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
    /// How long to wait.
    pub deadline: Duration,
}

/// The path of a backend that was opened with [`HostExperts`].
#[derive(Debug)]
pub(crate) struct HostPath {
    host: HostExperts,
    mailbox: Mailbox,
    /// Slots of pairs, the last buffer for new work. Graphs may name the others.
    pair_slots: Mutex<Vec<Arc<Buffer<u32>>>>,
    /// `None` in a dry run, where nothing is submitted.
    worker: Option<Arc<Worker>>,
}

impl HostPath {
    /// Pins the mailbox and starts the threads. `fixed`: slots keep their experts.
    pub(crate) fn start(device: &Device, host: HostExperts, fixed: bool) -> Result<Self> {
        let mailbox = Mailbox::new(device.gpu(), host.rows_bytes)?;
        let inserter = Inserter::start(device.gpu(), &host.backend, fixed)?;
        let worker = Worker::start(Arc::clone(&host.backend), inserter, &mailbox, device.host_failure())?;
        Ok(Self { host, mailbox, pair_slots: Mutex::default(), worker: Some(Arc::new(worker)) })
    }

    /// The same on a device that runs nothing.
    pub(crate) fn dry(&self, device: &Device) -> Result<Self> {
        let host = self.host.clone();
        let mailbox = Mailbox::new(device.gpu(), host.rows_bytes)?;
        Ok(Self { mailbox, host, pair_slots: Mutex::default(), worker: None })
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
        call.x.expect_filled(OP, representation)?;
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
        let pair_slots = slots.map(|_| self.pair_slots(device, tokens * top_k)).transpose()?;
        let part = |first: usize| {
            let tokens = most.min(tokens - first);
            Part { number, first, tokens, row_words, slots: pair_slots.as_deref() }
        };
        let multiply = |call: &mut Checked<Experts>| match (slots, &pair_slots) {
            (Some(slots), Some(pair_slots)) => multiply_slots(vendor, call, slots, pair_slots.view(tokens, top_k)?),
            _ => Ok(()),
        };
        if tokens <= most {
            // The CPU and the device multiply at the same time.
            self.post(vendor, call, &part(0), slots)?;
            multiply(call)?;
            self.receive(vendor, call, &part(0))?;
        } else {
            if let Some(slots) = slots {
                let all = Part { tokens, ..part(0) };
                vendor.find_slots(&self.request(call, &all, Some(slots))?)?;
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

    /// Hands a part of a batch to the worker.
    fn post<V: Vendor>(&self, vendor: &V, call: &Experts, part: &Part, slots: Option<&LayerSlots>) -> Result<()> {
        if let Some(worker) = &self.worker {
            worker.submit();
        }
        vendor.post_experts(&self.request(call, part, slots)?)
    }

    fn request<'a>(&'a self, call: &'a Experts, part: &'a Part, slots: Option<&'a LayerSlots>) -> Result<Post<'a>> {
        let Part { number: layer, first, tokens, row_words, .. } = *part;
        let act: &GpuAct = call.x.storage(OP)?;
        let region = match &act.rounded {
            Some(rounded) if row_words != call.x.cols() => Some(&rounded.int8),
            _ => region_of(&act.exact),
        };
        let region = region.ok_or(Error::ForeignLayout { op: OP, what: "a buffer" })?;
        let row_bytes = row_words * size_of::<f32>();
        let (ids, ids_stride) = part.ids(call)?;
        Ok(Post {
            x: Arg::Buffer { region, offset: first * row_bytes, bytes: tokens * row_bytes, access: Access::Read },
            ids,
            ids_stride,
            slots: [slots.map_or(Arg::Null, LayerSlots::table), part.slots(call, Access::Write)],
            mailbox: [self.mailbox.words(), self.mailbox.control(Access::Write), self.mailbox.ids(), self.mailbox.x()],
            layer,
            tokens,
            top_k: call.route.routing.top_k,
            words: row_words,
        })
    }

    /// Waits for the rows of a part of a batch.
    fn receive<V: Vendor>(&self, vendor: &V, call: &Experts, part: &Part) -> Result<()> {
        let top_k = call.route.routing.top_k;
        let (out, at) =
            region_of_view_mut(&call.scratch.out).ok_or(Error::ForeignLayout { op: OP, what: "a buffer" })?;
        let (stride, cols, size) = (at.stride(), call.scratch.out.cols(), size_of::<f32>());
        let span = (part.tokens * top_k - 1) * stride + cols;
        let (ids, ids_stride) = part.ids(call)?;
        vendor.receive_experts(&Receive {
            mailbox: [self.mailbox.words(), self.mailbox.control(Access::Read), self.mailbox.rows()],
            ids: if part.slots.is_some() { ids } else { Arg::Null },
            ids_stride,
            slots: part.slots(call, Access::Read),
            top_k,
            out: Arg::Buffer {
                region: out,
                offset: (at.span().start + part.first * top_k * stride) * size,
                bytes: span * size,
                access: Access::Write,
            },
            out_stride: stride,
            layer: part.number,
            rows: part.tokens * top_k,
            cols,
            deadline: self.host.deadline,
        })
    }

    /// Memory for the slots of at least this number of pairs.
    fn pair_slots(&self, device: &Device, pairs: usize) -> Result<Arc<Buffer<u32>>> {
        let mut buffers = self.pair_slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = buffers.last().filter(|buffer| buffer.len() >= pairs) {
            return Ok(Arc::clone(buffer));
        }
        let bytes = pairs.next_power_of_two() * size_of::<u32>();
        let region = Region::new(device.gpu(), bytes, "slots of chosen experts")?;
        let buffer = Arc::new(Buffer::on_device(Box::new(region)));
        buffers.push(Arc::clone(&buffer));
        Ok(buffer)
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

/// Tokens of a batch that one request is for.
struct Part<'a> {
    /// The layer's number.
    number: u32,
    first: usize,
    tokens: usize,
    row_words: usize,
    /// Slots of the pairs.
    slots: Option<&'a Buffer<u32>>,
}

impl Part<'_> {
    /// The tokens' ids, and elements from a token's ids to the next token's.
    fn ids<'a>(&self, call: &'a Experts) -> Result<(Arg<'a>, usize)> {
        let (region, at) = region_of_view_mut(&call.route.ids).ok_or(Error::ForeignLayout { op: OP, what: "ids" })?;
        let (stride, size) = (at.stride(), size_of::<u32>());
        let (offset, span) = (at.span().start + self.first * stride, (self.tokens - 1) * stride + at.cols());
        let (offset, bytes, access) = (offset * size, span * size, Access::Read);
        Ok((Arg::Buffer { region, offset, bytes, access }, stride))
    }

    /// The slots of the tokens' pairs; null without slots.
    fn slots(&self, call: &Experts, access: Access) -> Arg<'_> {
        let row = call.route.routing.top_k * size_of::<u32>();
        let part = |region| Arg::Buffer { region, offset: self.first * row, bytes: self.tokens * row, access };
        self.slots.and_then(region_of).map_or(Arg::Null, part)
    }
}

/// The rows of the pairs whose experts are in slots; the others' rows are zero.
fn multiply_slots<V: Vendor>(
    vendor: &V,
    call: &mut Checked<Experts>,
    slots: &LayerSlots,
    pair_slots: View<u32>,
) -> Result<()> {
    let (top_k, pairs) = (pair_slots.cols(), pair_slots.rows() * pair_slots.cols());
    let (_, lists) = call.lists();
    *lists.tile_rows = vendor.tile_rows(lists.counts.len(), pairs);
    group::group_by_expert(vendor.device(), pair_slots, &lists)?;
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
