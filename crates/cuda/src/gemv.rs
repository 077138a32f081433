//! Products of weights with few rows of activations: the host side of `kernels/gemv.cu`.

use super::Cuda;
use super::plan::GemvPlan;
use gristmill_gpu::product::{Product, ProductParams};
use gristmill_gpu::{Arg, Kernel, Launch};
use gristmill_kernels::error::Result;

/// Launches a product.
pub(super) fn multiply(cuda: &Cuda, product: &Product, plan: &GemvPlan) -> Result<()> {
    let weight = product.weight();
    let grid = [product.output_blocks(plan.outputs)?, product.tasks(plan.at_once), 1];
    let params = ProductParams::new(product, plan.cut)?;
    let weight_arg = weight.arg();
    let x = x_arg(product, plan.int8)?;
    let params = Arg::params(&params);
    let [ids, pairs, tiles, tile_count] = product.rows.args();
    let [bias, up_bias] = product.bias_args();
    let [y, exact, int8, bf16] = product.output_args();
    let args: &[Arg] = match product.up {
        None => &[weight_arg, x, ids, pairs, tiles, tile_count, bias, y, cuda.device.flag(), params],
        Some(up) => &[weight_arg, up.arg(), x, pairs, tiles, tile_count, bias, up_bias, y, exact, int8, bf16, params],
    };
    let kernel = Kernel { file: plan.file(), entry: plan.entry, defines: &plan.defines(weight.format) };
    cuda.device.launch(&Launch::new(kernel, grid, plan.block as u32, args))
}

/// The activations that a product reads.
pub(super) fn x_arg<'a>(product: &Product<'a>, int8: bool) -> Result<Arg<'a>> {
    if int8 { product.int8() } else { product.exact() }
}
