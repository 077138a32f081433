//! Where one kernel becomes faster than another, for each architecture. All figures are of the cards that
//! [`Thresholds::of`] names.

use super::cut::Cut;
use std::ops::{Range, RangeInclusive};

/// Numbers of rows, pairs and blocks at which the choice changes.
#[derive(Debug)]
pub(super) struct Thresholds {
    /// Rows of activations up to which all representations are prepared: a step of few rows takes launches, not bytes,
    /// and experts of few tokens have kernels of their own.
    pub(super) all_representations: usize,

    /// Rows of X up to which `norm_matmul.cu` reads a small weight, and the most outputs of a small weight: of a larger one
    /// bytes cost time, and one row of X at a time would read them again.
    pub(super) norm_rows: usize,
    pub(super) norm_small_outputs: usize,

    /// Rows of X, in which `gemm_int8.cu` is the fastest.
    pub(super) int8_rows: RangeInclusive<usize>,
    /// The same of quarters of pairs for each of the experts.
    pub(super) int8_quarter_pairs: Range<usize>,
    /// The minimum number of rows of X, and of pairs for each of the experts, for which tensor cores in bfloat16 are
    /// faster than `gemv.cu`.
    pub(super) gemm_rows: usize,
    pub(super) gemm_pairs: usize,
    /// Rows of X from which on `gemm_f32_few` is faster than `gemv.cu`, which reads all weights for every four, and then
    /// `gemm_f32`.
    pub(super) f32_rows: [usize; 2],
    /// Rows of X, and pairs for each of the experts, from which on `gemm_int8_tile.cu` replaces `gemm_int8.cu`. Above both
    /// ranges of `gemm_int8.cu`, so only a backend that takes int8 for any number of rows uses it.
    pub(super) int8_tile_rows: usize,
    pub(super) int8_tile_pairs: usize,

    /// Pairs for each expert below which `gemm.cu` gets the small tiles: in larger tiles, the experts with the most rows
    /// finish after all others.
    pub(super) small_tile_pairs: usize,
    /// Pairs for each expert from which `gemm_wgmma.cu` multiplies large tiles.
    pub(super) large_tile_pairs: usize,
    /// Pairs for each expert above which two tiles of an expert's rows are multiplied at once by `gemm_int8.cu`: 7% of the
    /// experts of an even router have more than 8 then.
    pub(super) two_tiles_pairs: usize,
    /// Tokens whose experts `experts.cu` multiplies, and those where they have at most half a pair for each expert.
    pub(super) few_tokens: [usize; 2],

    /// Blocks of `gemm_int8.cu` that a multiprocessor should have at least, so that its warps hide each other's waiting.
    pub(super) int8_blocks: usize,
    /// The same of experts. They start in several rounds: with more blocks, a smaller part of the device is idle in the
    /// last round.
    pub(super) int8_expert_blocks: usize,
    /// Threads of `gemv.cu` that saturate the memory of a large device; further threads wait until others end.
    pub(super) gemv_threads: usize,
    /// The forms of `gemm.cu` and `gemm_wgmma.cu`, with their times.
    pub(super) cuts: &'static [Cut],
}

impl Thresholds {
    /// Those of all architectures.
    pub(super) const ALL: [&'static Self; 2] = [&HOPPER, &OTHERS];

    /// The numbers of an architecture, by its compute capability.
    pub(super) fn of(capability: u32) -> &'static Self {
        match capability {
            90 => &HOPPER,
            // Not measured.
            _ => &OTHERS,
        }
    }
}

/// Compute capability 9.0, measured on one H100 and one H200 of 132 multiprocessors. Weights are in Q4_K.
///
/// | numbers | card | product | measured |
/// | --- | --- | --- | --- |
/// | `int8_rows` | H200 | 5,120 × 2,048 by GEMV, `gemm_int8.cu`, `gemm.cu` | 6.0, 6.0 and 13 µs for two rows; 8.9, 6.4, 13 for four; 22, 7.2, 13 for eight; 10.7 and 13 (the last two) for 16; both 14 for 32 |
/// | `int8_quarter_pairs` | H200 | gate and up of 768 × 2,048, 128 experts, the same three | 42, 45 and 62 µs for half a pair each; 113, 89, 123 for two; 199, 98, 134 for four, with tiles of 64 rows |
/// | | H100 | steps of Qwen3-30B-A3B (16 layers) | 2.25 ms by GEMV and 2.01 by int8 for half a pair each; 4.56 by int8 and 4.73 by `gemm.cu` for four; 5.35 and 5.28 for five |
/// | | H100 | steps of gpt-oss-20b (6 layers) | 3.02 by int8 and 3.25 by `gemm.cu` for five |
/// | `gemm_rows` | H200 | 5,120 × 2,048, GEMV and `gemm.cu` | 12.2 and 14.7 µs for four rows, 20.9 and 14.4 for eight |
/// | | H200 | 2,048 × 4,096 | 11.2 and 12.4 µs for four rows, 18.3 and 12.3 for eight |
/// | `gemm_pairs` | H200 | gate and up of 768 × 2,048, 128 experts | 99 and 131 µs for two pairs each, 171 and 133 for four |
/// | `large_tile_pairs` | H200 | the same, small and large tiles | 195 and 243 µs for 32 pairs each, 506 and 390 for 128 |
/// | `few_tokens` | H200 | steps of Qwen3-30B-A3B with two launches | 3.85 ms for four tokens, 4.51, 5.09 and 5.73 for five to seven; 5.71 for eight with products by expert |
/// | `two_tiles_pairs` | H100 | decode of Qwen3-30B-A3B in Q4_K_M | two tiles: 1.2% faster for 9 to 16 sequences, 2.7% for 81 to 96; up to 4% slower where blocks are few or experts have 8 pairs |
/// | `gemv_threads` | H200 | one row, 2,048 × 4,096 | 3.7 µs with 65,536 threads, 3.9 with half of them; only reading these bytes takes 1.7 |
/// | `cuts` | H200 | 2,048 columns | the times, relative to each other |
const HOPPER: Thresholds = Thresholds {
    all_representations: 16,
    norm_rows: 8,
    norm_small_outputs: 1024,
    int8_rows: 3..=16,
    int8_quarter_pairs: 2..24,
    gemm_rows: 5,
    gemm_pairs: 3,
    f32_rows: [5, 96],
    int8_tile_rows: 32,
    int8_tile_pairs: 16,
    small_tile_pairs: 24,
    large_tile_pairs: 48,
    two_tiles_pairs: 5,
    few_tokens: [4, 7],
    int8_blocks: 3,
    int8_expert_blocks: 8,
    gemv_threads: 512 * 132,
    // Narrow ones start and end sooner, most of all if their warps share the columns; large ones unpack each weight for
    // more rows of X, and read each row of X for more weights.
    cuts: &[
        Cut::mma(32, 1, 1, 2, 3, 50),
        Cut::mma(32, 1, 4, 1, 2, 20),
        Cut::mma(64, 1, 1, 2, 2, 70),
        Cut::mma(64, 2, 1, 1, 3, 120),
        Cut::wgmma(32, [16, 4], 1, 3, 76),
        Cut::wgmma(64, [12, 8], 1, 3, 63),
        Cut::wgmma(128, [8, 8], 1, 3, 60),
        Cut::wgmma(128, [8, 8], 2, 2, 110),
    ],
};

/// Other cards, on which nothing was measured: the numbers of Hopper, without its instructions.
const OTHERS: Thresholds = Thresholds { cuts: HOPPER.cuts.split_at(4).0, ..HOPPER };
