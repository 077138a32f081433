//! Requests of the device to the host, and the wait for their rows, as launches.

use super::HostPath;
use super::slots::LayerSlots;
use crate::seam::{Access, Arg, region_of, region_of_view_mut};
use crate::storage::GpuAct;
use crate::vendor::Vendor;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::{Experts, Operation};
use gristmill_kernels::tensor::Buffer;
use std::time::Duration;

const OP: &str = Experts::NAME;

/// A request to the host: activations and choices of some tokens of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Post<'a> {
    /// Activations: rows of f32, or of `Int8Words`.
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

/// Tokens of a batch that one request is for.
pub(super) struct Part<'a> {
    /// The layer's number.
    pub(super) number: u32,
    pub(super) first: usize,
    pub(super) tokens: usize,
    pub(super) row_words: usize,
    /// Slots of the pairs.
    pub(super) slots: Option<&'a Buffer<u32>>,
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

impl HostPath {
    /// Hands a part of a batch to the worker.
    pub(super) fn post<V: Vendor>(
        &self,
        vendor: &V,
        call: &Experts,
        part: &Part,
        slots: Option<&LayerSlots>,
    ) -> Result<()> {
        if let Some(worker) = &self.worker {
            worker.submit();
        }
        vendor.post_experts(&self.request(call, part, slots)?)
    }

    pub(super) fn request<'a>(
        &'a self,
        call: &'a Experts,
        part: &'a Part,
        slots: Option<&'a LayerSlots>,
    ) -> Result<Post<'a>> {
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
    pub(super) fn receive<V: Vendor>(&self, vendor: &V, call: &Experts, part: &Part) -> Result<()> {
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
}
