//! Matrix products: the host side of `kernels/gemv.metal` and `kernels/gemm.metal`. Kernels of both have the same
//! arguments.
//!
//! # Metal products
//!
//! Metal products are f32: dot products for few rows, simdgroup matrices for many. f16 would save threadgroup memory
//! and lose digits and range; `docs/performance-notes.md` has the rates.

use super::{Metal, gemm, gemv};
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::{Product, ProductParams};
use gristmill_gpu::{Arg, Vendor};
use gristmill_kernels::error::Result;

/// Maximum number of weight parts per launch.
pub(super) const JOINED_PARTS: usize = 3;

/// The parts as arguments.
pub(super) fn part_args<'a>(product: &Product<'a>) -> [Arg<'a>; JOINED_PARTS] {
    std::array::from_fn(|i| product.parts.get(i).map_or(Arg::Null, PlaneRows::arg))
}

/// Launches a product. Tiles and dot products sum in different orders; the order of dot products does not depend on the
/// number of rows.
pub(super) fn multiply(metal: &Metal, product: &Product) -> Result<()> {
    let device = &metal.device;
    let tiled = !metal.deterministic() && gemm::serves(product);
    let params = ProductParams::new(product, if tiled { 0 } else { gemv::threads_log2(product.weight().spans) })?;
    let x = product.exact()?;
    let y = product.y_arg();
    let flag = device.flag();
    let params = Arg::params(&params);
    let [ids, pairs, tiles, tile_count] = product.rows.args();
    let [weight, second, third] = part_args(product);
    let [bias, up_bias] = product.bias_args();
    let args: &[Arg] = match product.up {
        None => &[weight, second, third, x, ids, pairs, tiles, tile_count, bias, y, flag, params],
        Some(up) => &[weight, up.arg(), x, pairs, tiles, tile_count, bias, up_bias, y, params],
    };
    if tiled { gemm::launch(device, product, args) } else { gemv::launch(device, product, args) }
}
