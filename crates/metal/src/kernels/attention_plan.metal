// Lists the tokens of long runs, in tiles of neighbours for `attention_tile`, and the others, for `attention_split`. By one
// block.
//
// Tiles begin with a run and at positions that are multiples of their length, so a tile depends on its sequence alone. Tokens
// whose ids are out of range are in no tile: `attention_split` refuses them.
#include "attention.h"

// Whether token `i` follows the token before it, in the batch and in its sequence.
DEV bool follows(const GLOBAL u32* slots, const GLOBAL u32* positions, u32 i) {
    return i > 0 && slots[i] == slots[i - 1] && positions[i] == positions[i - 1] + 1 && positions[i] != 0;
}

DEV bool in_long_run(constant AttentionParams& p, const GLOBAL u32* slots, const GLOBAL u32* positions, u32 token) {
    u32 length = 1;
    for (u32 i = token; length < LONG_RUN && follows(slots, positions, i); i--) length++;
    for (u32 i = token + 1; length < LONG_RUN && i < p.tokens && follows(slots, positions, i); i++) length++;
    return length == LONG_RUN;
}

// Whether a tile begins with a token of a long run.
DEV bool begins(constant AttentionParams& p, const GLOBAL u32* slots, const GLOBAL u32* positions, u32 token) {
    return !follows(slots, positions, token) || positions[token] % p.tile_tokens == 0;
}

KERNEL(attention_plan)
(IN(u32, slots, 0), IN(u32, positions, 1), OUT(u32, plan, 2), PARAMS(AttentionParams, p, 3)) {
    HERE;
    SHARED(u64, scratch, 32);
    // The tokens listed so far, and the tiles in the upper half.
    u64 before = 0;
    for (u32 chunk = 0; chunk < p.tokens; chunk += here.block_width()) {
        u32 token = chunk + here.thread_x();
        bool there = token < p.tokens, tiled = false, first = false;
        if (there) {
            tiled = stands(p, slots[token], positions[token]) && in_long_run(p, slots, positions, token);
            first = tiled && begins(p, slots, positions, token);
        }
        RunningSum sum = block_running_sum(here, u64(there && !tiled) | u64(first) << 32, scratch);
        u64 listed = before + sum.upto;
        if (there && !tiled) plan[PLAN_TOKENS + u32(listed) - 1] = token;
        if (first) {
            u32 tokens = 1;
            for (u32 i = token + 1; i < p.tokens && !begins(p, slots, positions, i); i++) {
                if (!stands(p, slots[i], positions[i])) break;
                tokens++;
            }
            GLOBAL u32* tile = plan + PLAN_TOKENS + p.tokens + (u32(listed >> 32) - 1) * 2;
            tile[0] = token;
            tile[1] = tokens;
        }
        before += sum.total;
    }
    if (here.thread_x() == 0) {
        plan[0] = u32(before);
        plan[1] = u32(before >> 32);
    }
}
