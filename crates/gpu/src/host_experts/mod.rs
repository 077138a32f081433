//! Layers whose experts are in host memory. The CPU computes the rows of the chosen experts; the device routes before and adds
//! the rows up after, in the router's order. So a sum has the same order wherever its experts are.
//!
//! A step stays one stream of launches, which a graph can capture: a kernel posts activations and choices to a [`mailbox`], a
//! [`worker`] thread [`compute`]s the rows, and a kernel polls for them. Of the ways to wait it is the fastest, and the only one
//! with a deadline (docs/performance-notes.md). After the deadline the step is an error.

mod compute;
mod mailbox;
mod worker;

use crate::common::{elementwise, route};
use crate::device::Device;
use crate::seam::{Access, Arg, region_of, region_of_view};
use crate::storage::{EXACT, GpuAct, INT8};
use crate::vendor::Vendor;
use compute::HostLayer;
use gristmill_kernels::Backend;
use gristmill_kernels::act::{ACT_BLOCK, Int8Words, Precision, Representations};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::{Checked, ExpertWeights, Experts, Graph, MoeCombine, Operation};
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::{HostWeight, Location, Weight};
use mailbox::Mailbox;
pub use mailbox::{ControlWords, DeviceWords};
use std::sync::Arc;
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
    /// `None` in a dry run, where nothing is submitted.
    worker: Option<Arc<Worker>>,
}

impl HostPath {
    /// Pins the mailbox and starts the worker.
    pub(crate) fn start(device: &Device, host: HostExperts) -> Result<Self> {
        let mailbox = Mailbox::new(device.gpu(), host.rows_bytes)?;
        let worker = Worker::start(Arc::clone(&host.backend), &mailbox, device.host_failure())?;
        Ok(Self { host, mailbox, worker: Some(Arc::new(worker)) })
    }

    /// The same on a device that runs nothing.
    pub(crate) fn dry(&self, device: &Device) -> Result<Self> {
        let host = self.host.clone();
        Ok(Self { mailbox: Mailbox::new(device.gpu(), host.rows_bytes)?, host, worker: None })
    }

    /// The CPU's backend.
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.host.backend
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
        let Experts { route, weights, x, scratch, epilogue, y } = &mut **call;
        if y.rows() == 0 {
            return Ok(());
        }
        let top_k = route.routing.top_k;
        let representation = self.representation(x.precision(), weights.gate_up)?;
        x.expect_filled(OP, representation)?;
        let layer = self.layer(vendor.device(), weights, top_k, x.precision())?;
        route::route(vendor.device(), route)?;

        let act: &GpuAct = x.storage(OP)?;
        let (x, row_words) = match &act.rounded {
            Some(rounded) if representation == INT8 => (Some(&rounded.int8), INT8_WORDS * x.cols().div_ceil(ACT_BLOCK)),
            _ => (region_of(&act.exact), x.cols()),
        };
        let (ids, rows) = (route.ids.as_view(), scratch.out.as_view());
        let (Some(x), Some((ids, ids_at)), Some((out, out_at))) = (x, region_of_view(&ids), region_of_view(&rows))
        else {
            return Err(Error::ForeignLayout { op: OP, what: "a buffer" });
        };
        let (size, width) = (size_of::<f32>(), scratch.out.cols());
        let part = |region, first: usize, elements: usize, access| Arg::Buffer {
            region,
            offset: first * size,
            bytes: elements * size,
            access,
        };
        let most = self.mailbox.tokens(top_k, row_words, width)?;
        for first in (0..y.rows()).step_by(most) {
            let tokens = most.min(y.rows() - first);
            let words = [self.mailbox.words(), self.mailbox.control(Access::Write)];
            let (ids_stride, out_stride) = (ids_at.stride(), out_at.stride());
            let ids_span = (tokens - 1) * ids_stride + top_k;
            let out_span = (tokens * top_k - 1) * out_stride + width;
            if let Some(worker) = &self.worker {
                worker.submit();
            }
            vendor.post_experts(&Post {
                x: part(x, first * row_words, tokens * row_words, Access::Read),
                ids: part(ids, ids_at.span().start + first * ids_stride, ids_span, Access::Read),
                ids_stride,
                mailbox: [words[0], words[1], self.mailbox.ids(), self.mailbox.x()],
                layer,
                tokens,
                top_k,
                words: row_words,
            })?;
            vendor.receive_experts(&Receive {
                mailbox: [words[0], self.mailbox.control(Access::Read), self.mailbox.rows()],
                out: part(out, out_at.span().start + first * top_k * out_stride, out_span, Access::Write),
                out_stride,
                layer,
                rows: tokens * top_k,
                cols: width,
                deadline: self.host.deadline,
            })?;
        }
        let weights = route.weights.as_view();
        let combine = MoeCombine { out: rows, weights, epilogue: *epilogue, y: y.reborrow() };
        elementwise::moe_combine(vendor.device(), combine, false)
    }

    /// The representation of activations that the CPU's products with a weight read.
    pub(crate) fn representation(&self, precision: Precision, weight: &Weight) -> Result<Representations> {
        let HostWeight(weight) = on_host(weight)?;
        Ok(if self.host.backend.reads_int8(precision, weight) { INT8 } else { EXACT })
    }

    /// The number of a layer in the worker's list. A layer is added when it runs for the first time, which is not captured.
    fn layer(&self, device: &Device, weights: &ExpertWeights, top_k: usize, precision: Precision) -> Result<u32> {
        let ExpertWeights { gate_up, down, activation, gate_up_bias, down_bias } = *weights;
        let (HostWeight(gate_up), HostWeight(down)) = (on_host(gate_up)?, on_host(down)?);
        let Some(worker) = &self.worker else { return Ok(0) };
        let download = |bias: &Buffer<f32>| -> Result<Buffer<f32>> {
            let region = region_of(bias).ok_or(Error::ForeignLayout { op: OP, what: "a bias" })?;
            let mut values = vec![0.0; bias.len()];
            device.read_region(region, 0, bytemuck::cast_slice_mut(&mut values))?;
            Ok(Buffer::host(values))
        };
        worker.layer(
            |layer| layer.is([gate_up, down], top_k, precision),
            || {
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
                })
            },
        )
    }
}

fn on_host(weight: &Weight) -> Result<&HostWeight> {
    weight.storage(OP)
}

/// Whether the experts of a call are in host memory.
pub(crate) fn are_on_host(call: &Experts) -> bool {
    [call.weights.gate_up, call.weights.down].iter().any(|weight| weight.location() == Location::Host)
}
