//! Allocations and copies of the operations' buffers on a device.

use super::device::Device;
use super::seam::Region;
use crate::act::{Act, Precision};
use crate::check::{self, elements};
use crate::error::Result;
use crate::group;
use crate::ops::Groups;
use crate::tensor::{Buffer, View};

/// A zeroed buffer.
pub(crate) fn alloc<T: Copy>(device: &Device, len: usize, what: &'static str) -> Result<Buffer<T>> {
    let bytes = elements(what, &[len, size_of::<T>()])?;
    Ok(Buffer::on_device(Region::zeroed(device.gpu(), bytes, what)?))
}

/// Room for `rows` × `cols` activations; if `rounded`, at [`Precision::Fast`] also as bfloat16 and as int8.
pub(crate) fn alloc_act(device: &Device, precision: Precision, rounded: bool, rows: usize, cols: usize) -> Result<Act> {
    let what = "activations";
    let blocks = match precision {
        Precision::Fast if rounded => elements(what, &[rows, cols.div_ceil(32)])?,
        _ => 0,
    };
    let exact = alloc(device, elements(what, &[rows, cols])?, what)?;
    let int8 = alloc(device, blocks, what)?;
    let bf16 = alloc(device, elements(what, &[blocks, 16])?, what)?;
    Ok(Act { device: device.id(), precision, rows: 0, cols, exact, int8, bf16 })
}

/// Room for grouping, and for so many grids behind the number of tiles; see [`crate::ops::Backend::alloc_groups`].
pub(crate) fn alloc_groups(
    device: &Device,
    experts: usize,
    pairs: usize,
    tile_rows: usize,
    grids: usize,
) -> Result<Groups> {
    check::alloc_groups(experts)?;
    let what = "expert groups";
    let tiles = elements(what, &[group::max_tiles(experts, pairs, tile_rows), 3])?;
    Ok(Groups {
        counts: alloc(device, experts, what)?,
        pairs: alloc(device, pairs, what)?,
        tiles: alloc(device, tiles, what)?,
        tile_count: alloc(device, 1 + 3 * grids, what)?,
        tile_rows,
        live_pairs: 0,
        total_pairs: 0,
    })
}

/// Copies host values into the start of a buffer.
pub(crate) fn upload<T: bytemuck::Pod>(device: &Device, values: &[T], to: &mut Buffer<T>) -> Result<()> {
    check::upload(device.id(), values, to)?;
    to.region().map_or(Ok(()), |region| device.write(region, bytemuck::cast_slice(values)))
}

/// Copies a view to host memory, contiguous. What lies between its rows travels too.
pub(crate) fn download<T: bytemuck::Pod>(device: &Device, from: View<T>, to: &mut [T]) -> Result<()> {
    check::download(device.id(), &from, to)?;
    let Some((region, shape)) = from.region() else { return Ok(()) };
    let span = shape.span();
    let address = region.address() + (span.start * size_of::<T>()) as u64;
    if span.len() == to.len() {
        return device.read(address, bytemuck::cast_slice_mut(to));
    }
    let mut all = vec![T::zeroed(); span.len()];
    device.read(address, bytemuck::cast_slice_mut(&mut all))?;
    for (row, out) in to.chunks_exact_mut(shape.cols()).enumerate() {
        out.copy_from_slice(&all[row * shape.stride()..][..shape.cols()]);
    }
    Ok(())
}
