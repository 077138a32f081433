//! Experts for few tokens: the host side of `kernels/experts.h`.

use super::gemv::{BLOCK, FILE, GATE_ROWS, threads_log2};
use gristmill_gpu::common::route::RouteParams;
use gristmill_gpu::experts::FewTokens;
use gristmill_gpu::product::{Product, ProductParams};
use gristmill_gpu::{Arg, Device, Kernel, Launch, shared_struct};
use gristmill_kernels::error::Result;

/// Maximum SIMD groups of a block that multiplies `down`, and rows of a lane group; equal to the constants in the
/// source.
const DOWN_WARPS: usize = 8;
const DOWN_ROWS: usize = 4;

shared_struct! {
    pub(super) struct ExpertsParams {
        route: RouteParams,
        product: ProductParams,
    }
}

/// Launches one of the two products.
pub(super) fn multiply(device: &Device, few: &FewTokens, product: &Product) -> Result<()> {
    let weight = product.weight().arg();
    let threads_log2 = threads_log2(product.weight().spans);
    let params = ExpertsParams { route: few.route, product: ProductParams::new(product, threads_log2)? };
    let x = product.exact()?;
    let y = product.y_arg();
    let params = Arg::params(&params);
    let (logits, [selection, scales, tokens], [ids, weights]) = (few.logits, few.optional, few.chosen);
    let [bias, up_bias] = product.bias_args();
    let (entry, outputs, block, args): (_, _, _, &[Arg]) = match product.up {
        Some(up) => (
            "experts_gate_up",
            GATE_ROWS * (BLOCK >> threads_log2),
            BLOCK,
            &[weight, up.arg(), x, logits, selection, scales, bias, up_bias, tokens, ids, weights, y, params],
        ),
        None => {
            let block = 32 * few.top_k.min(DOWN_WARPS);
            (
                "experts_down",
                DOWN_ROWS * (32 >> threads_log2),
                block,
                &[weight, x, logits, selection, scales, bias, tokens, y, params],
            )
        }
    };
    let kernel = Kernel { file: FILE, entry, defines: &[("FORMAT", product.format().name())] };
    let grid = [product.output_blocks(outputs)?, product.y.rows() as u32, 1];
    device.launch(&Launch::new(kernel, grid, block as u32, args))
}
