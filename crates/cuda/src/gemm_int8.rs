//! Products of weights with int8 activations, on tensor cores: the host side of `kernels/gemm_int8.cu` and
//! `kernels/gemm_int8_tile.cu`.

use super::Cuda;
use super::plan::Int8Plan;
use gristmill_gpu::product::{Product, ProductParams};
use gristmill_gpu::{Arg, Kernel, Launch};
use gristmill_kernels::error::Result;

/// Launches a product.
pub(super) fn multiply(cuda: &Cuda, product: &Product, plan: &Int8Plan) -> Result<()> {
    let params = ProductParams::new(product, plan.cut as u32)?;
    let [ids, pairs, tiles, tile_count] = product.rows.args();
    let ([bias, up_bias], [y, exact, int8, bf16]) = (product.bias_args(), product.output_args());
    let weight = product.weight().arg();
    let up = product.up_arg();
    let x = product.int8()?;
    let flag = cuda.device.flag();
    let params = Arg::params(&params);
    let args = [weight, up, x, ids, pairs, tiles, tile_count, bias, up_bias, y, exact, int8, bf16, flag, params];
    let grid = [product.output_blocks(plan.outputs)?, product.tasks(plan.rows), 1];
    let defines = plan.defines(product.format());
    let kernel = Kernel { file: plan.file, entry: plan.file.trim_end_matches(".cu"), defines: &defines };
    let launch = Launch::new(kernel, grid, 32 * plan.warps as u32, &args);
    cuda.device.launch(&Launch { shared: plan.shared as u32, ..launch })
}
