// Keys and values to their places in the cache: one block of threads for each token, one warp for each 32 neighbours of a
// key or value.
#include "kv.cuh"

KERNEL(kv_write)(
    IN(float, k, 0), IN(float, v, 1), IN(u32, slots, 2), IN(u32, positions, 3), IN(u32, table, 4),
    OUT(Cell, keys, 5), OUT(u16, key_scales, 6), OUT(Cell, values, 7), OUT(u16, value_scales, 8), INOUT(u32, flag, 9),
    PARAMS(WriteParams, p, 10)
) {
    dependency_launch();
    dependency_wait();
    u32 token = here.block_x(), position = positions[token], block;
    if (!block_of(p, slots, positions, table, token, flag, block)) return;

    u32 key_groups = (p.key_width + GROUP_SIZE - 1) / GROUP_SIZE;
    u32 groups = key_groups + (p.value_width + GROUP_SIZE - 1) / GROUP_SIZE;
    for (u32 i = here.warp(); i < p.heads * groups; i += here.block_width() / 32) {
        u32 head = i / groups, group = i % groups;
        u64 row = (u64(block) * p.heads + head) * KV_BLOCK + position % KV_BLOCK;
        bool key = group < key_groups;
        u32 width = key ? p.key_width : p.value_width;
        if (!key) group -= key_groups;
        u32 d = group * GROUP_SIZE + here.lane();
        const float* x = key ? k + token * p.key_input_stride : v + token * p.value_input_stride;
        float value = d < width ? x[u64(head) * width + d] : 0.0f;
        if (key) put(keys, key_scales, row, width, p.key_stride, group, value);
        else put(values, value_scales, row, width, p.value_stride, group, value);
    }
}
