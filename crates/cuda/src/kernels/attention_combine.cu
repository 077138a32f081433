// Joins the splits of a token (x) and query head (y), 128 columns for each thread block (z). Tokens with one split, padding and long runs
// have their output already. Sums are taken in the order of `combine`.
//
// MAX_SPLITS: that of the kernel that computed the splits.
#include "attention.cuh"

// A warp for each chunk of the splits.
#define CHUNKS (MAX_SPLITS / CHUNK)
#define THREADS (CHUNKS * 32)

KERNEL_BOUNDED(attention_combine, THREADS, 1)(
    IN(float, vectors, 0), IN(float2, stats, 1), IN(u32, slots, 2), IN(u32, positions, 3), IN(float, sinks, 4),
    OUT(float, out, 5), OUT(float, exact, 6), OUT(Int8Block, int8, 7), OUT(u32, bf16, 8),
    IN(u32, ends, 9), PARAMS(AttentionParams, p, 10)
) {
    SHARED(Four, sums, CHUNKS * 32);
    dependency_launch();
    u32 token = here.block_x(), head = here.block_y(), kv_head = head / p.group, in_group = head - kv_head * p.group;
    u32 chunk_of_rows = in_group >> (__ffs(int(p.rows)) - 1), row = in_group & (p.rows - 1);
    u64 first = partial_of(p, token * p.units + chunk_of_rows * p.kv_heads + kv_head, row, 0);
    // No kernel writes ids and sinks.
    Context context;
    u32 splits = find_context(p, slots, positions, ends, token, context) ? splits_of(p, context).count : 0;
    bool tiled = p.long_runs && in_long_run(slots, positions, p.tokens, token);
    float sink = sink_of(sinks, head);
    dependency_wait();
    if (splits < 2 || tiled) return;

    const float* of_row = vectors + first * p.value_stride;
    float2 own[LANE_SPLITS];
    load_stats(stats + first, splits, own);
    const u32 base = here.block_z() * 128;
    Four values[CHUNK];
    load_chunk(of_row, p.value_stride, here.warp(), splits, base + here.lane() * 4, values);
    const Shares shares = shares_of(own, splits, sink);
    sums[here.thread_x()] = chunk_sum(values, shares, here.warp(), splits);
    barrier();
    if (here.warp() > 0) return;
    Four total = sums[here.lane()];
    for (u32 i = 1; i * CHUNK < splits; i++) {
        for (u32 e = 0; e < 4; e++) total.at[e] += sums[i * 32 + here.lane()].at[e];
    }
    write_result(p, {out, exact, int8, bf16}, token, head, base, shares.bad ? Four{} : total);
}
