// A layer whose experts are in host memory: the device hands activations and choices to threads of the host, and waits for the
// experts' rows (`gristmill_offload`). The mailbox is pinned host memory. If some experts have slots on the device, the
// host computes the others only.
#include "system.cuh"

#include "ControlWords"
#include "DeviceWords"
#include "PostParams"
#include "ReceiveParams"

// The code that the flag has if the rows did not come; it follows the codes of `Flag`.
#define FLAG_HOST_EXPERTS 10u


// In an id of the mailbox: the expert is in a slot. As in `inserter.rs`.
#define HIT 0x80000000u

// The slot of each pair, or PADDING; and its expert if that has no slot, or PADDING. For batches that are not one request.
KERNEL(host_experts_find)
(IN(u32, ids, 0), IN(u32, table, 1), OUT(u32, slots, 2), OUT(u32, missed, 3), PARAMS(PostParams, p, 4)) {
    HERE;
    u32 step = here.grid_x() * here.block_width();
    for (u32 i = here.block_x() * here.block_width() + here.thread_x(); i < p.tokens * p.top_k; i += step) {
        u32 id = ids[i / p.top_k * p.ids_stride + i % p.top_k];
        u32 slot = id == PADDING ? PADDING : table[id];
        slots[i] = slot;
        if (missed != nullptr) missed[i] = slot == PADDING ? id : PADDING;
    }
}

// Copies the activations and choices of some tokens to the mailbox and raises the request. With a table of slots, writes the slot
// of each pair too, or PADDING; then activations are copied only if an expert has none. One block: the barrier orders the copies
// of all threads before the request.
KERNEL(host_experts_post)
(IN(u32, x, 0), IN(u32, ids, 1), IN(u32, table, 2), OUT(u32, slots, 3), INOUT(DeviceWords, words, 4),
 OUT(ControlWords, control, 5), OUT(u32, mail_ids, 6), OUT(u32, mail_x, 7), PARAMS(PostParams, p, 8)) {
    HERE;
    SHARED(u32, missed, 1);
    if (here.thread_x() == 0) missed[0] = table == nullptr;
    barrier();
    for (u32 i = here.thread_x(); i < p.tokens * p.top_k; i += here.block_width()) {
        u32 id = ids[i / p.top_k * p.ids_stride + i % p.top_k];
        if (table != nullptr) {
            u32 slot = id == PADDING ? PADDING : table[id];
            slots[i] = slot;
            if (slot != PADDING) id |= HIT;
            else if (id != PADDING) claim(&missed[0], 1);
        }
        mail_ids[i] = id;
    }
    barrier();
    u64 all = missed[0] ? u64(p.tokens) * p.words : 0;
    if (p.words % 4 == 0) {
        for (u64 i = 4 * here.thread_x(); i < all; i += 4 * here.block_width())
            *(uint4*)(mail_x + i) = *(const uint4*)(x + i);
    } else {
        for (u64 i = here.thread_x(); i < all; i += here.block_width()) mail_x[i] = x[i];
    }
    barrier_global();
    if (here.thread_x() != 0) return;
    control->layer = p.layer;
    control->tokens = p.tokens;
    u32 number = words->request + 1;
    words->request = number;
    store_release_system(&control->request, number);
}

// Waits for the answer to the newest request. False if the host failed or the deadline has passed.
DEV bool await_answer(DeviceWords* words, const ControlWords* control, u64 deadline) {
    u32 number = words->request;
    u64 start = nanoseconds();
    while (add_atomic(&words->failed, 0) == 0) {
        u64 answer = load_acquire_system(&control->answer);
        if (answer >> 32 != 0) break;
        if (u32(answer) == number) return true;
        if (nanoseconds() - start > deadline) break;
        pause_shortly();
    }
    claim(&words->failed, 1);
    return false;
}

// Waits for the rows of the newest request and copies them from the mailbox: all, or those of experts without a slot. If they do
// not come, the rows are zero and the flag is raised.
KERNEL(host_experts_receive)
(INOUT(DeviceWords, words, 0), IN(ControlWords, control, 1), IN(float, mail_rows, 2), IN(u32, ids, 3), IN(u32, slots, 4),
 OUT(float, out, 5), INOUT(u32, flag, 6), PARAMS(ReceiveParams, p, 7)) {
    HERE;
    SHARED(u32, arrived, 1);
    if (here.thread_x() == 0) {
        arrived[0] = await_answer(words, control, p.deadline);
        if (!arrived[0]) raise(flag, FLAG_HOST_EXPERTS, p.layer, p.rows, u32(p.deadline / 1000000));
    }
    barrier();
    bool has_rows = arrived[0];
    u64 elements = u64(p.rows) * p.cols, step = u64(here.grid_x()) * here.block_width();
    u64 first = u64(here.block_x()) * here.block_width() + here.thread_x();
    auto is_sent = [&](u32 row) {
        return slots == nullptr || (slots[row] == PADDING && ids[row / p.top_k * p.ids_stride + row % p.top_k] != PADDING);
    };
    if (p.cols % 4 == 0 && p.out_stride % 4 == 0) {
        for (u64 i = 4 * first; i < elements; i += 4 * step) {
            if (!is_sent(u32(i / p.cols))) continue;
            uint4 zero = {0, 0, 0, 0};
            *(uint4*)(out + i / p.cols * p.out_stride + i % p.cols) = has_rows ? *(const uint4*)(mail_rows + i) : zero;
        }
    } else {
        for (u64 i = first; i < elements; i += step)
            if (is_sent(u32(i / p.cols))) out[i / p.cols * p.out_stride + i % p.cols] = has_rows ? mail_rows[i] : 0.0f;
    }
}
