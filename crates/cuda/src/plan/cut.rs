//! A form of `gemm.cu` or `gemm_wgmma.cu`: how a block cuts the work, and the shared memory that it takes for it.

use crate::family::Family;
use gristmill_gpu::layout::plane_bytes;
use gristmill_kernels::format::Format;

/// Rows of the largest full tile of experts for `gemm.cu`.
pub(super) const TILE_ROWS: usize = 64;
/// Columns of X in a stage of `gemm_wgmma.cu`.
const STAGE_COLUMNS: usize = 64;
/// Shared memory of a multiprocessor of compute capability 9.0, and what the system takes for each block.
const MULTIPROCESSOR_SHARED: usize = 228 << 10;
const BLOCK_SHARED: usize = 1 << 10;
/// Columns of a group of weights with one scale, at least, and bytes of the scale and offset of one.
const GROUP_COLUMNS: usize = 16;
const SCALE_BYTES: usize = 8;
/// Stages of X without which the products of `gemm_wgmma.cu` would wait for copies.
const LEAST_STAGES: usize = 3;
/// Chunks of weights: one that is multiplied and one that is copied.
const LEAST_CHUNKS: usize = 2;
/// Stages of X for which it gives up chunks of weights beyond two.
const ENOUGH_STAGES: usize = 5;
/// What the stages of `gemm_wgmma.cu` are aligned to in shared memory.
const STAGES_ALIGNMENT: usize = 1024;

/// How the work is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// `Mma` or `Wgmma`.
    pub(crate) family: Family,
    /// Rows of X at once.
    pub(super) tokens: usize,
    /// Warps of a block that multiply, and that copy.
    warps: usize,
    copiers: usize,
    /// Times 16 rows of weights of a warp.
    fragments: usize,
    /// Parts of a block's warps, which take steps of columns in turns. Not for experts, and not by `wgmma`.
    split: usize,
    /// Blocks that fit a multiprocessor.
    pub(super) blocks: usize,
    /// Rounds of columns of X that are in shared memory: the most, for `wgmma`.
    stages: usize,
    /// Chunks of a warp's weights in shared memory, at most, for `wgmma`.
    chunks: usize,
    /// How long a block takes for [`super::gemm::TIMED_COLUMNS`], relative to the others'.
    pub(super) time: usize,
}

impl Cut {
    pub(super) const fn mma(
        tokens: usize,
        fragments: usize,
        split: usize,
        blocks: usize,
        stages: usize,
        time: usize,
    ) -> Self {
        Self { family: Family::Mma, tokens, warps: 8, copiers: 0, fragments, split, blocks, stages, chunks: 0, time }
    }

    pub(super) const fn wgmma(
        tokens: usize,
        [warps, copiers]: [usize; 2],
        fragments: usize,
        chunks: usize,
        time: usize,
    ) -> Self {
        let family = Family::Wgmma;
        let split = 1;
        let stages = 8;
        let blocks = 1;
        Self { family, tokens, warps, copiers, fragments, split, blocks, stages, chunks, time }
    }

    pub(super) fn file(&self) -> &'static str {
        if self.family == Family::Wgmma { "gemm_wgmma.cu" } else { "gemm.cu" }
    }

    /// Rows of weights of a block.
    pub(super) fn weight_rows(&self) -> usize {
        16 * self.warps * self.fragments / self.split
    }

    /// Threads of a block.
    pub(crate) fn threads(&self) -> u32 {
        32 * (self.warps + self.copiers) as u32
    }

    /// Whether it may multiply experts. Their tiles are short: with two blocks at a time, one computes while the other
    /// starts or ends, 10% faster.
    pub(super) fn is_for_experts(&self) -> bool {
        self.family == Family::Wgmma || self.blocks > 1
    }

    /// Whether it multiplies weights of a format: for `wgmma`, whether enough stages of X are left beside them.
    pub(super) fn takes(&self, format: Format) -> bool {
        self.family.takes(format) && (self.family == Family::Mma || self.stages(format) >= LEAST_STAGES)
    }

    /// Columns of a step: `STEP` in the kernels.
    fn step_columns(&self, format: Format) -> usize {
        match self.family {
            Family::Wgmma if format.is_bf16() => 128,
            Family::Wgmma => 256,
            _ if format.is_bf16() => 64,
            _ => 256,
        }
    }

    /// Columns that a block multiplies between two barriers.
    pub(super) fn round_columns(&self, format: Format) -> usize {
        self.step_columns(format) * self.split
    }

    /// Stages of X: for `wgmma` as many as there is shared memory.
    fn stages(&self, format: Format) -> usize {
        if self.family == Family::Mma { self.stages } else { self.stages_beside(format, self.chunks(format)) }
    }

    /// Stages of X beside this number of chunks of weights.
    fn stages_beside(&self, format: Format, chunks: usize) -> usize {
        // A stage has a tile's rows of Y too, and two barriers; one tile more is known.
        let known = self.tokens * size_of::<u32>();
        let stage = self.stage_bytes(format) + known + 16;
        let most = MULTIPROCESSOR_SHARED / self.blocks - BLOCK_SHARED - STAGES_ALIGNMENT - known;
        let fit = (most.saturating_sub(self.weight_bytes(format, chunks)) / stage).clamp(1, self.stages);
        // Each stage is copied by one warp, always the same: of five stages and four warps, one warp would copy all.
        let owners = |stages: usize| (1..=self.copiers).rev().find(|warps| stages.is_multiple_of(*warps)).unwrap_or(1);
        (1..=fit).rev().find(|&stages| 2 * owners(stages) >= stages.min(self.copiers)).unwrap_or(fit)
    }

    /// Chunks of a warp's weights in shared memory.
    fn chunks(&self, format: Format) -> usize {
        let enough = |chunks: &usize| self.stages_beside(format, *chunks) >= ENOUGH_STAGES;
        (LEAST_CHUNKS..=self.chunks).rev().find(enough).unwrap_or(LEAST_CHUNKS)
    }

    fn stage_bytes(&self, format: Format) -> usize {
        let columns = if self.family == Family::Wgmma { STAGE_COLUMNS } else { self.round_columns(format) };
        self.tokens * columns * size_of::<u16>()
    }

    /// Bytes of shared memory for weights and their scales, for `wgmma`.
    fn weight_bytes(&self, format: Format, chunks: usize) -> usize {
        let rows = self.warps * self.fragments * 16;
        let groups = if format.is_bf16() { 1 } else { self.step_columns(format) / GROUP_COLUMNS };
        rows * (chunks * self.staged_row(format) + groups * SCALE_BYTES)
    }

    /// Bytes of a row of a chunk in shared memory: all units of 16 bytes of which its planes can have a part, and an odd
    /// number of them, so that the same columns of several rows are in different banks.
    fn staged_row(&self, format: Format) -> usize {
        let blocks = self.step_columns(format) / format.block_len();
        let window = |bytes: usize| match bytes {
            _ if bytes.is_multiple_of(16) || 16 % bytes == 0 => bytes.next_multiple_of(16),
            _ => (bytes + 30) / 16 * 16,
        };
        let units = plane_bytes(format).into_iter().map(|bytes| window(blocks * bytes) / 16).sum::<usize>();
        (units | 1) * 16
    }

    /// Dynamic shared memory of a block, in bytes.
    pub(crate) fn shared_bytes(&self, format: Format) -> usize {
        let stages = self.stages(format) * self.stage_bytes(format);
        let weights = self.weight_bytes(format, self.chunks(format));
        stages + if self.family == Family::Wgmma { STAGES_ALIGNMENT + weights } else { 0 }
    }

    /// The definitions that follow from the form and the format.
    pub(super) fn defines(&self, format: Format) -> Vec<(&'static str, String)> {
        let mut numbers = vec![
            ("TOKENS", self.tokens),
            ("WARPS", self.warps),
            ("FRAGMENTS", self.fragments),
            ("STAGES", self.stages(format)),
        ];
        if self.family == Family::Mma {
            numbers.extend([("TILE", TILE_ROWS), ("BLOCKS", self.blocks), ("SPLIT", self.split)]);
            return numbers.into_iter().map(|(name, value)| (name, value.to_string())).collect();
        }
        let mut defines: Vec<_> = numbers.into_iter().map(|(name, value)| (name, value.to_string())).collect();
        let planes: Vec<_> = plane_bytes(format).iter().map(usize::to_string).collect();
        defines.push(("PLANE_BYTES", planes.join(",")));
        let more =
            [("STAGED_ROW", self.staged_row(format)), ("CHUNKS", self.chunks(format)), ("COPIERS", self.copiers)];
        defines.extend(more.map(|(name, value)| (name, value.to_string())));
        defines
    }
}
