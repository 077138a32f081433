// A layer whose experts are in host memory: the device hands activations and choices to threads of the host, and waits for the
// experts' rows (`gristmill_gpu::host_experts`). The mailbox is pinned host memory.
#include "system.cuh"

// The code that the flag has if the rows did not come; it follows the codes of `Flag`.
#define FLAG_HOST_EXPERTS 9u

// Mirrors `ControlWords` in `mailbox.rs`: the first words of the mailbox.
struct ControlWords {
    // Of the device: the number of the newest request, written last, then what it asks for.
    u32 request, layer, tokens;
    u32 padding[29];
    // Of the host, in a cache line of its own: the number of the newest answer, and in the upper half whether the host failed.
    u64 answer;
    u32 end_padding[30];
};

// Mirrors `DeviceWords` in `mailbox.rs`: memory of the device.
struct DeviceWords {
    // The number of the newest request, and whether an answer has failed to come: then none is waited for again.
    u32 request, failed;
};

// Mirrors `PostParams` in `host_experts.rs`.
struct PostParams {
    u64 ids_stride;
    u32 layer, tokens, top_k;
    u32 words;  // of a row of activations
};

// Copies the activations and choices of some tokens to the mailbox and raises the request. One block: the barrier orders the
// copies of all threads before the request.
KERNEL(host_experts_post)
(IN(u32, x, 0), IN(u32, ids, 1), INOUT(DeviceWords, words, 2), OUT(ControlWords, control, 3), OUT(u32, mail_ids, 4),
 OUT(u32, mail_x, 5), PARAMS(PostParams, p, 6)) {
    HERE;
    u64 all = u64(p.tokens) * p.words;
    for (u32 i = here.thread_x(); i < p.tokens * p.top_k; i += here.block_width())
        mail_ids[i] = ids[i / p.top_k * p.ids_stride + i % p.top_k];
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

// Mirrors `ReceiveParams` in `host_experts.rs`.
struct ReceiveParams {
    u64 out_stride;
    u64 deadline;  // nanoseconds
    u32 layer, rows, cols, padding;
};

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

// Waits for the rows of the newest request and copies them from the mailbox. If they do not come, the rows are zero and the flag
// is raised.
KERNEL(host_experts_receive)
(INOUT(DeviceWords, words, 0), IN(ControlWords, control, 1), IN(float, mail_rows, 2), OUT(float, out, 3), INOUT(u32, flag, 4),
 PARAMS(ReceiveParams, p, 5)) {
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
    if (p.cols % 4 == 0 && p.out_stride % 4 == 0) {
        for (u64 i = 4 * first; i < elements; i += 4 * step) {
            uint4 zero = {0, 0, 0, 0};
            *(uint4*)(out + i / p.cols * p.out_stride + i % p.cols) = has_rows ? *(const uint4*)(mail_rows + i) : zero;
        }
    } else {
        for (u64 i = first; i < elements; i += step)
            out[i / p.cols * p.out_stride + i % p.cols] = has_rows ? mail_rows[i] : 0.0f;
    }
}
