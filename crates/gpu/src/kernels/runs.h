// The runs of a batch: the next tokens of one sequence each, with the slots that have and get its state. See `Runs` in
// `ops/recurrent.rs`.
#pragma once
#include "device.h"

struct Run {
    // First row, and rows; the slot that has the state before (PADDING: zeros), and the one that gets it.
    u32 first, rows, read, written;
};

// A run that has rows and lies in the batch and in the slots. If it does not lie there, raises a flag.
DEV bool run_of(const GLOBAL u32* runs, u32 index, u32 rows, u32 slots, GLOBAL u32* flag, THREAD Run& run) {
    run.first = runs[4 * index];
    run.rows = runs[4 * index + 1];
    run.read = runs[4 * index + 2];
    run.written = runs[4 * index + 3];
    if (run.rows == 0) return false;
    u64 last = u64(run.first) + run.rows - 1;
    u32 slot = run.read != PADDING && run.read >= slots ? run.read : run.written;
    if (last >= rows) raise(flag, FLAG_RUN_ROW, u32(smaller(last, u64(PADDING))), index, rows);
    else if (slot >= slots) raise(flag, FLAG_STATE_SLOT, slot, index, slots);
    else return true;
    return false;
}
