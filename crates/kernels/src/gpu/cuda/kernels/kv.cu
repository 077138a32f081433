// Keys and values to their places in the cache: one block of threads for each token, one warp for each 32 neighbours of a
// key or value.
#include "device.h"

#define KV_BLOCK 16u
#define GROUP_SIZE 32u

// Twin of `WriteParams` in kv.rs.
struct WriteParams {
    u64 key_input_stride, value_input_stride;  // elements from token to token
    u32 heads;
    u32 key_width, value_width;
    u32 key_stride, value_stride;  // elements from token to token in the cache
    u32 table_rows, table_cols, blocks;
};

#ifdef CELLS_Q8_0
typedef i8 Cell;
#else
typedef u16 Cell;
#endif

// Writes a group of up to 32 elements, one for each lane. `row` is that of the cache: (block, head, token).
DEV void put(Cell* cells, u16* scales, u64 row, u32 width, u32 stride, u32 group, float x) {
    u32 i = group * GROUP_SIZE + lane();
#ifdef CELLS_Q8_0
    // As `Q8_0::encode` does it: the scale rounded to a finite f16, codes by division, NaN to the lowest code.
    float largest = warp_max(fabsf(x) > 0.0f ? fabsf(x) : 0.0f);
    u16 scale = float_to_half(fminf(__fdiv_rn(largest, 127.0f), 65504.0f));
    float unit = half_to_float(scale);
    float code = unit == 0.0f ? x * 0.0f : rintf(__fdiv_rn(x, unit));
    if (i < width) cells[row * stride + i] = Cell(int(fminf(fmaxf(code, -127.0f), 127.0f)));
    if (lane() == 0) scales[row * ((width + GROUP_SIZE - 1) / GROUP_SIZE) + group] = scale;
#else
    (void)scales;
    if (i < width) cells[row * stride + i] = float_to_half(x);
#endif
}

KERNEL(kv_write)(
    IN(float, k, 0), IN(float, v, 1), IN(u32, slots, 2), IN(u32, positions, 3), IN(u32, table, 4),
    OUT(Cell, keys, 5), OUT(u16, key_scales, 6), OUT(Cell, values, 7), OUT(u16, value_scales, 8), INOUT(u32, flag, 9),
    PARAMS(WriteParams, p, 10)
) {
    dependency_launch();
    dependency_wait();
    u32 token = block_x(), slot = slots[token], position = positions[token];
    if (slot == PADDING) return;
    if (slot >= p.table_rows) return raise(flag, FLAG_SLOT, slot, token, p.table_rows);
    u32 column = position / KV_BLOCK;
    if (column >= p.table_cols) return raise(flag, FLAG_POSITION, position, token, p.table_cols * KV_BLOCK);
    u64 entry = u64(slot) * p.table_cols + column;
    u32 block = table[entry];
    if (block >= p.blocks) return raise(flag, FLAG_BLOCK, block, u32(entry), p.blocks);

    u32 key_groups = (p.key_width + GROUP_SIZE - 1) / GROUP_SIZE;
    u32 groups = key_groups + (p.value_width + GROUP_SIZE - 1) / GROUP_SIZE;
    for (u32 i = warp(); i < p.heads * groups; i += block_width() / 32) {
        u32 head = i / groups, group = i % groups;
        u64 row = (u64(block) * p.heads + head) * KV_BLOCK + position % KV_BLOCK;
        bool key = group < key_groups;
        u32 width = key ? p.key_width : p.value_width;
        if (!key) group -= key_groups;
        u32 d = group * GROUP_SIZE + lane();
        const float* x = key ? k + token * p.key_input_stride : v + token * p.value_input_stride;
        float value = d < width ? x[u64(head) * width + d] : 0.0f;
        if (key) put(keys, key_scales, row, width, p.key_stride, group, value);
        else put(values, value_scales, row, width, p.value_stride, group, value);
    }
}
