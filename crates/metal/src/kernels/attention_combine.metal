// Joins the splits of tokens that several blocks have shared: a warp for each query head.
#include "attention.h"

KERNEL_BOUNDED(attention_combine, THREADS, 1)
(IN(float, vectors, 0), IN(float2, stats, 1), IN(u32, slots, 2), IN(u32, positions, 3), IN(float, sinks, 4),
 IN(u32, plan, 5), OUT(float, out, 6), OUT(float, exact, 7), IN(u32, ends, 8), PARAMS(AttentionParams, p, 9)) {
    HERE;
    u32 index = here.block_x(), head = here.block_y() * WARPS + here.warp();
    if (index >= (p.listed ? plan[0] : p.tokens) || head >= p.kv_heads * p.group) return;
    u32 token = p.listed ? plan[PLAN_TOKENS + index] : index, position = positions[token];
    u32 last = last_seen(p, ends, token, position);
    if (!stands(p, slots[token], last)) return;
    Splits splits = splits_of(p, position, last);
    // One split is the result.
    if (splits.count == 1) return;
    Partials partials = {vectors, stats};
    float sink = sink_of(p, sinks, head);
    join(here, p, partials, partial_of(p, index, head), splits.count, sink, {out, exact}, token, head);
}
