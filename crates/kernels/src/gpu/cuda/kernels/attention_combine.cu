// Joins the splits of a token and query head: one block of threads for each (x, y). Writes zeros for padding and for ids out of
// range; leaves long runs to `attention_tile`. The order of sums is that of `combine`.
#include "attention.cuh"

// Columns at a time, a warp for 32 of them and a chunk of the splits.
#define COLUMNS 128u
#define CHUNKS (MAX_SPLITS / CHUNK)
#define THREADS (COLUMNS * CHUNKS)

KERNEL_BOUNDED(attention_combine, THREADS, 1)(
    IN(float, vectors, 0), IN(float2, stats, 1), IN(u32, slots, 2), IN(u32, positions, 3), IN(float, sinks, 4),
    OUT(float, out, 5), INOUT(u32, flag, 6), PARAMS(AttentionParams, p, 7)
) {
    SHARED(float, sums, COLUMNS * CHUNKS);
    dependency_launch();
    u32 token = block_x(), head = block_y(), kv_head = head / p.group, in_group = head - kv_head * p.group;
    u32 chunk_of_rows = in_group >> (__ffs(int(p.rows)) - 1), row = in_group & (p.rows - 1);
    u64 first = partial_of(p, token * p.units + chunk_of_rows * p.kv_heads + kv_head, row, 0);
    dependency_wait();
    // Loaded before it is known how many splits there are: two waits less.
    const float* of_row = vectors + first * p.value_width;
    u32 chunk = thread_x() / COLUMNS, d = thread_x() % COLUMNS;
    float2 own = lane() < p.splits ? stats[first + lane()] : make_float2(0.0f, 0.0f);
    float values[CHUNK];
    load_chunk(of_row, p.value_width, chunk, p.splits, d, values);

    float* result = out + token * p.out_stride + u64(head) * p.value_width;
    Standing standing;
    if (!stand(p, slots, positions, token, flag, standing)) {
        for (u32 d = thread_x(); d < p.value_width; d += THREADS) result[d] = 0.0f;
        return;
    }
    if (p.long_runs && in_long_run(slots, positions, p.tokens, token)) return;
    u32 splits = splits_of(standing).count;
    Shares shares = shares_of(own, splits, sinks ? sinks + head : nullptr);
    for (;;) {
        sums[thread_x()] = chunk_sum(values, shares.own, chunk, splits);
        barrier();
        if (chunk == 0 && d < p.value_width) {
            float total = sums[thread_x()];
            for (u32 i = 1; i * CHUNK < splits; i++) total += sums[i * COLUMNS + thread_x()];
            result[d] = shares.bad ? 0.0f : total;
        }
        barrier();
        d += COLUMNS;
        if (d / COLUMNS * COLUMNS >= p.value_width) break;
        load_chunk(of_row, p.value_width, chunk, splits, d, values);
    }
}
