// Rows of a table, decoded. Compiled for a format (FORMAT). A block of the grid takes a row.
#include "formats.h"

typedef FORMAT Format;

// Twin of `EmbedParams` in `gpu/cuda/embed.rs`.
struct EmbedParams {
    // Bytes of a row of the table; elements from an id to the next and from a row of the output to the next.
    u64 row_bytes, ids_stride, out_stride;
    // Rows of the table and blocks of the format in one; columns.
    u32 rows, blocks, cols;
    float scale;
};

template <class F, bool IS_FLOAT>
struct Decode {
    static DEV void row(Row row, u32 cols, float scale, float* out) {
        for (u32 span = here.thread_x(); span < row.blocks * F::SPANS; span += here.block_width()) {
            typename F::Raw raw = F::load(row, span);
#pragma unroll
            for (int piece = 0; piece < F::PIECES; piece++) {
                float part[16];
                values<F>(raw, piece, part);
#pragma unroll
                for (int i = 0; i < 16; i++) out[16 * F::at(span, piece) + i] = __fmul_rn(part[i], scale);
            }
        }
    }
};
template <class F>
struct Decode<F, true> {
    static DEV void row(Row row, u32 cols, float scale, float* out) {
        for (u32 first = here.thread_x() * F::SPAN; first < cols; first += here.block_width() * F::SPAN) {
            float part[F::SPAN];
            F::elements(F::load(row, first / F::SPAN), part);
#pragma unroll
            for (int i = 0; i < F::SPAN; i++) {
                if (first + i < cols) out[first + i] = __fmul_rn(part[i], scale);
            }
        }
    }
};

KERNEL(embed)(IN(u8, table, 0), IN(u32, ids, 1), OUT(float, out, 2), INOUT(u32, flag, 3), PARAMS(EmbedParams, p, 4)) {
    dependency_launch();
    dependency_wait();
    u32 id = ids[here.block_x() * p.ids_stride];
    out += here.block_x() * p.out_stride;
    if (id < p.rows) {
        Decode<Format, Format::IS_FLOAT>::row({table + id * p.row_bytes, p.blocks}, p.cols, p.scale, out);
        return;
    }
    for (u32 column = here.thread_x(); column < p.cols; column += here.block_width()) out[column] = 0.0f;
    if (id != PADDING && here.thread_x() == 0) raise(flag, FLAG_EMBED_ROW, id, here.block_x(), p.rows);
}
