// Joins the splits of a token and query head: one block of threads for each. Writes zeros for padding and for ids out of
// range; leaves long runs to `attention_tile`.
#include "attention.cuh"

KERNEL(attention_combine)(
    IN(float, vectors, 0), IN(float2, stats, 1), IN(u32, slots, 2), IN(u32, positions, 3), IN(float, sinks, 4),
    OUT(float, out, 5), INOUT(u32, flag, 6), PARAMS(AttentionParams, p, 7)
) {
    dependency_launch();
    dependency_wait();
    u32 token = block_x() / p.heads, head = block_x() % p.heads;
    u32 in_group = head % p.group, row = in_group % p.rows;
    u32 place = token * units_of_token(p) + in_group / p.rows * p.kv_heads + head / p.group;
    float* result = out + token * p.out_stride + u64(head) * p.value_width;
    Standing standing;
    if (!stand(p, slots, positions, token, flag, standing)) {
        for (u32 d = thread_x(); d < p.value_width; d += block_width()) result[d] = 0.0f;
        return;
    }
    if (p.long_runs && in_long_run(slots, positions, p.tokens, token)) return;
    Partials partials = {const_cast<float*>(vectors), const_cast<float2*>(stats)};
    const float* sink = sinks ? sinks + head : nullptr;
    combine(p, partials, place, row, splits_of(standing).count, sink, result, warp() * 32, block_width());
}
