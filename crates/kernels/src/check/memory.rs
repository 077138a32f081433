//! Allocations, copies and the preparation of weights.

use super::{MAX_EXPERTS, at_least, elements, home, range, require};
use crate::error::{Error, Result, expect};
use crate::kv::KvSpec;
use crate::tensor::{Buffer, DeviceId, View};
use crate::weight::{Role, TensorView};

/// [`crate::ops::Backend::upload_f32`] and `upload_u32`.
pub(crate) fn upload<T: Copy>(device: DeviceId, values: &[T], to: &Buffer<T>) -> Result<()> {
    home("upload", device, to.device())?;
    at_least("upload", "length of the buffer", to.len(), values.len())
}

/// [`crate::ops::Backend::download_f32`] and `download_u32`.
pub(crate) fn download<T: Copy>(device: DeviceId, from: &View<T>, to: &[T]) -> Result<()> {
    home("download", device, from.device())?;
    expect("download", "length of the target", to.len(), elements("download", &[from.rows(), from.cols()])?)
}

/// [`crate::ops::Backend::alloc_kv`].
pub(crate) fn alloc_kv(spec: &KvSpec) -> Result<()> {
    let rule = "must not be 0";
    require(spec.heads > 0, "alloc_kv", "heads", spec.heads, rule)?;
    require(spec.key_width > 0, "alloc_kv", "key width", spec.key_width, rule)?;
    require(spec.value_width > 0, "alloc_kv", "value width", spec.value_width, rule)
}

/// [`crate::ops::Backend::alloc_groups`].
pub(crate) fn alloc_groups(experts: usize) -> Result<()> {
    require((1..=MAX_EXPERTS).contains(&experts), "alloc_groups", "experts", experts, "1 to 1024 are supported")
}

/// [`crate::ops::Backend::prepare`]. Returns (experts, rows, cols) of the weight.
pub(crate) fn prepare(tensors: &[TensorView], role: Role) -> Result<(usize, usize, usize)> {
    let op = "prepare";
    tensors.iter().try_for_each(TensorView::check)?;
    let Some(first) = tensors.first() else { return range(op, "tensors", 0, "at least one is needed") };
    for other in tensors {
        expect(op, "columns of a joined tensor", other.cols, first.cols)?;
        expect(op, "experts of a joined tensor", other.experts, first.experts)?;
    }
    match role {
        Role::Matrix => {
            let rows = tensors.iter().try_fold(0_usize, |n, t| n.checked_add(t.rows));
            let rows = rows.ok_or(Error::OutOfMemory { what: "joined weights", bytes: usize::MAX })?;
            Ok((first.experts, rows, first.cols))
        }
        Role::GateUp => {
            expect(op, "tensors of a gate and up pair", tensors.len(), 2)?;
            expect(op, "rows of the up tensor", tensors[1].rows, first.rows)?;
            Ok((first.experts, first.rows, first.cols))
        }
        Role::Table | Role::Tied => {
            expect(op, "tensors of a table", tensors.len(), 1)?;
            expect(op, "experts of a table", first.experts, 1)?;
            Ok((1, first.rows, first.cols))
        }
    }
}
