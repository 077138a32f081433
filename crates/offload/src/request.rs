//! Requests of the device to the host, and the wait for their rows, as launches.

use crate::path::HostPath;
use crate::slots::LayerSlots;
use crate::vendor::{OffloadVendor, Post, Receive};
use gristmill_gpu::storage::GpuAct;
use gristmill_gpu::{Access, Arg, region_of, region_of_view_mut};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::{Experts, Operation};
use gristmill_kernels::tensor::Buffer;

const OP: &str = Experts::NAME;

/// Tokens of a batch that one request is for.
pub(super) struct BatchPart<'a> {
    /// The layer's number.
    pub(super) number: u32,
    pub(super) first: usize,
    pub(super) tokens: usize,
    pub(super) row_words: usize,
    /// Slots of the pairs.
    pub(super) slots: Option<&'a Buffer<u32>>,
}

impl BatchPart<'_> {
    /// The tokens' ids, and elements from a token's ids to the next token's.
    fn ids<'a>(&self, call: &'a Experts) -> Result<(Arg<'a>, usize)> {
        let (region, at) = region_of_view_mut(&call.route.ids).ok_or(Error::ForeignLayout { op: OP, what: "ids" })?;
        let stride = at.stride();
        let size = size_of::<u32>();
        let offset = at.span().start + self.first * stride;
        let span = (self.tokens - 1) * stride + at.cols();
        let offset = offset * size;
        let bytes = span * size;
        let access = Access::Read;
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
    pub(super) fn post<V: OffloadVendor>(
        &self,
        vendor: &V,
        call: &Experts,
        part: &BatchPart,
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
        part: &'a BatchPart,
        slots: Option<&'a LayerSlots>,
    ) -> Result<Post<'a>> {
        let BatchPart { number: layer, first, tokens, row_words, .. } = *part;
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
    pub(super) fn receive<V: OffloadVendor>(&self, vendor: &V, call: &Experts, part: &BatchPart) -> Result<()> {
        let top_k = call.route.routing.top_k;
        let (out, at) =
            region_of_view_mut(&call.scratch.out).ok_or(Error::ForeignLayout { op: OP, what: "a buffer" })?;
        let stride = at.stride();
        let cols = call.scratch.out.cols();
        let size = size_of::<f32>();
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
