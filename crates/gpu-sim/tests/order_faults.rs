//! Planted bugs of order are found, with their lines: races in a warp, in a block, in the grid; threads that diverge,
//! or wait for each other for ever; collective operations of a warp that not all lanes reach.
#![cfg(all(target_arch = "x86_64", unix))]

mod common;

use common::planted::{Planted, all_are_found, planted};
use gpu_sim::Kind;

#[test]
fn races_in_a_warp() {
    all_are_found(&[
        planted(
            Kind::RaceInWarp,
            "KERNEL(k)(float* out, const float* in) {
    SHARED(float, s, 64);
    s[threadIdx.x] = 0;
    __syncthreads();
    s[threadIdx.x] = in[threadIdx.x];  // !
    FIX(__syncwarp();)
    out[threadIdx.x] = s[threadIdx.x ^ 1];  // !
}",
        ),
        // A shuffle orders nothing.
        planted(
            Kind::RaceInWarp,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(float, s);
    s[threadIdx.x] = 0;
    __syncthreads();
    s[threadIdx.x] = in[threadIdx.x];  // !
    float v = __shfl_xor_sync(~0u, in[threadIdx.x], 3);
    FIX(__syncwarp();)
    out[threadIdx.x] = v + s[threadIdx.x ^ 3];  // !
}",
        ),
        planted(
            Kind::RaceInWarp,
            "KERNEL(k)(float* out, const float* in) {
    FIX(if (threadIdx.x % 32 == 0))
    out[threadIdx.x / 32] = 1.0f;  // !
}",
        ),
        // Lanes of the other half have not joined the operation.
        planted(
            Kind::RaceInWarp,
            "KERNEL(k)(float* out, const float* in) {
    SHARED(float, s, 64);
    s[threadIdx.x] = 0;
    __syncthreads();
    s[threadIdx.x] = in[threadIdx.x];  // !
    __syncwarp(threadIdx.x % 32 < 16 ? 0xffffu : 0xffff0000u);
    out[threadIdx.x] = s[threadIdx.x ^ FIX(8) BUG(16)];  // !
}",
        ),
        // Read, then overwritten for the next round.
        planted(
            Kind::RaceInWarp,
            "KERNEL(k)(float* out, const float* in) {
    SHARED(float, s, 64);
    float v = in[threadIdx.x];
    for (int i = 1; i < 32; i *= 2) {
        s[threadIdx.x] = v;  // !
        __syncwarp();
        v += s[threadIdx.x ^ i];  // !
        FIX(__syncwarp();)
    }
    out[threadIdx.x] = v;
}",
        ),
    ]);
}

#[test]
fn races_in_a_block() {
    all_are_found(&[
        planted(
            Kind::RaceInBlock,
            "KERNEL(k)(float* out, const float* in) {
    SHARED(float, s, 64);
    s[threadIdx.x] = 0;
    __syncthreads();
    s[threadIdx.x] = in[threadIdx.x];  // !
    FIX(__syncthreads();)
    out[threadIdx.x] = s[threadIdx.x ^ 32];  // !
}",
        ),
        planted(
            Kind::RaceInBlock,
            "KERNEL(k)(float* out, const float* in) {
    SHARED(float, s, 64);
    float v = in[threadIdx.x];
    for (int i = 0; i < 3; i++) {
        s[threadIdx.x] = v;  // !
        __syncthreads();
        v = s[63 - threadIdx.x];  // !
        FIX(__syncthreads();)
    }
    out[threadIdx.x] = v;
}",
        ),
        // All read it, one writes it.
        planted(
            Kind::RaceInBlock,
            "KERNEL(k)(float* out, const float* in) {
    SHARED(float, total, 1);
    if (threadIdx.x == 0) total[0] = 0;
    __syncthreads();
    float v = threadIdx.x < 32 ? total[0] : 1.0f;  // !
    FIX(__syncthreads();)
    if (threadIdx.x == 40) total[0] = 2;  // !
    out[threadIdx.x] = v;
}",
        ),
        planted(
            Kind::RaceInBlock,
            "KERNEL(k)(float* out, const float* in) {
    out[threadIdx.x] = 1.0f;  // !
    FIX(__syncthreads();)
    float v = out[(threadIdx.x + 32) % 64];  // !
    __syncthreads();
    out[threadIdx.x + 64] = v;
}",
        ),
        // The copy for the next round overwrites what others still read.
        planted(
            Kind::RaceInBlock,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(float, s);
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        if (threadIdx.x < 16) cp_async_16(s + 4 * threadIdx.x, in + 64 * i + 4 * threadIdx.x, true);  // !
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
        if (threadIdx.x >= 32) sum += s[63 - threadIdx.x];  // !
        FIX(__syncthreads();)
    }
    out[threadIdx.x] = sum;
}",
        ),
        // A value that an atomic operation changed is read without a barrier.
        planted(
            Kind::RaceInBlock,
            "KERNEL(k)(float* out, const float* in) {
    SHARED(u32, count, 1);
    if (threadIdx.x == 0) count[0] = 0;
    __syncthreads();
    if (threadIdx.x < 32) atomicAdd(count, 1u);  // !
    FIX(__syncthreads();)
    if (threadIdx.x >= 32) out[threadIdx.x] = (float)count[0];  // !
}",
        ),
    ]);
}

#[test]
fn races_in_the_grid() {
    let blocks = |text| Planted { grid: 4, ..planted(Kind::RaceInGrid, text) };
    all_are_found(&[
        blocks(
            "KERNEL(k)(float* out, const float* in) {
    if (threadIdx.x == 0) {
        FIX(atomicAdd(out, 1.0f);)
        BUG(out[0] += 1.0f;)  // !
    }
}",
        ),
        blocks(
            "KERNEL(k)(float* out, const float* in) {
    u32 i = blockIdx.x * 64 + threadIdx.x;
    out[i] = in[i];  // !
    __syncthreads();
    float v = out[i FIX(/ 64 * 64) BUG(% 64)];  // !
    __syncthreads();
    out[i] = v;  // !
}",
        ),
        // A row too many.
        blocks(
            "KERNEL(k)(float* out, const float* in) {
    u32 from = blockIdx.x * 48;
    for (u32 i = threadIdx.x; i < 48 BUG(+ 1); i += 64) out[from + i] = 1.0f;  // !
}",
        ),
        // Read by many blocks, and then written by one.
        blocks(
            "KERNEL(k)(float* out, const float* in) {
    float v = out[threadIdx.x FIX(+ blockIdx.x * 64)];  // !
    __syncthreads();
    if (blockIdx.x == 2) out[threadIdx.x FIX(+ 128)] = v + 1;  // !
}",
        ),
        blocks(
            "KERNEL(k)(float* out, const float* in) {
    if (threadIdx.x > 0) return;
    FIX(if (blockIdx.x == 9) out[0] = 1;)
    BUG(if (blockIdx.x == 1) out[0] = 1;)  // !
    atomicAdd(out, 2.0f);  // !
}",
        ),
    ]);
}

#[test]
fn threads_that_diverge() {
    all_are_found(&[
        planted(
            Kind::Divergence,
            "KERNEL(k)(float* out, const float* in) {
    if (threadIdx.x < FIX(64) BUG(32))
        __syncthreads();  // !
    else
        __syncthreads();  // !
}",
        ),
        // The same line of a helper, from two lines.
        planted(
            Kind::Divergence,
            "static __forceinline__ void converge() { __syncthreads(); }  // !
KERNEL(k)(float* out, const float* in) {
    if (threadIdx.x < FIX(64) BUG(32)) {
        converge();
        out[threadIdx.x] = 1;
    } else {
        converge();
    }
}",
        ),
        planted(
            Kind::Divergence,
            "KERNEL(k)(float* out, const float* in) {
    if (threadIdx.x >= 50 FIX(+ 14)) return;
    __syncthreads();  // !
    out[threadIdx.x] = 1;
}",
        ),
        planted(
            Kind::Divergence,
            "KERNEL(k)(float* out, const float* in) {
    for (u32 i = 0; i < 3 BUG(+ threadIdx.x / 60); i++)
        __syncthreads();  // !
}",
        ),
        planted(
            Kind::Divergence,
            "KERNEL(k)(float* out, const float* in) {
    float d[4] = {};
    u32 a[4] = {}, b[2] = {};
    if (threadIdx.x % 32 < 16 FIX(+ 16))
        mma_m16n8k16_bf16(d, a, b);  // !
    else
        mma_m16n8k16_bf16(d, b == nullptr ? a : a, b);  // !
    out[threadIdx.x] = d[0];
}",
        ),
    ]);
}

#[test]
fn threads_that_wait_for_ever() {
    all_are_found(&[
        planted(
            Kind::Deadlock,
            "KERNEL(k)(float* out, const float* in) {
    if (threadIdx.x != 37) FIX({})
        BUG(__syncwarp();)  // !
    __syncthreads();  // !
}",
        ),
        planted(
            Kind::Deadlock,
            "KERNEL(k)(float* out, const float* in) {
    u32 mask = threadIdx.x % 32 < 16 FIX(+ 16) ? 0xffffffffu : 0xffff0000u;
    out[threadIdx.x] = __shfl_xor_sync(mask, 1.0f, 1);  // !
    __syncthreads();  // !
}",
        ),
        planted(
            Kind::Deadlock,
            "KERNEL(k)(float* out, const float* in) {
    float v = 1;
    if (threadIdx.x % 2 == 0 FIX(|| true))
        v = __shfl_sync(~0u, v, 0);  // !
    else
        v = (float)__ballot_sync(~0u, v > 0);  // !
    out[threadIdx.x] = v;
}",
        ),
    ]);
}

#[test]
fn collectives_that_not_all_lanes_reach() {
    all_are_found(&[
        planted(
            Kind::Collective,
            "KERNEL(k)(float* out, const float* in) {
    if (threadIdx.x % 32 == 31 FIX(+ 1)) return;
    out[threadIdx.x] = __shfl_down_sync(~0u, 1.0f, 1);  // !
}",
        ),
        planted(
            Kind::Collective,
            "KERNEL(k)(float* out, const float* in) {
    out[threadIdx.x] = (float)__ballot_sync(FIX(~0u) BUG(0xffff), 1);  // !
}",
        ),
        Planted {
            block: 48,
            ..planted(
                Kind::Collective,
                "KERNEL(k)(float* out, const float* in) {
    float d[4] = {};
    u32 a[4] = {}, b[2] = {};
    FIX(if (threadIdx.x < 32)) mma_m16n8k16_f16(d, a, b);  // !
    out[threadIdx.x] = d[0];
}",
            )
        },
    ]);
}

#[test]
fn launches_before_that_were_not_waited_for() {
    let overlapping = |text| Planted { overlaps: true, ..planted(Kind::Early, text) };
    all_are_found(&[
        overlapping(
            "KERNEL(k)(float* out, const float* in) {
    FIX(dependency_wait();)
    out[threadIdx.x] = in[threadIdx.x];  // !
}",
        ),
        // Memory that is read too early is written later.
        overlapping(
            "KERNEL(k)(float* out, const float* in) {
    BUG(float v = in[threadIdx.x];)  // !
    dependency_wait();
    FIX(float v = in[threadIdx.x];)
    out[threadIdx.x] = v;
}",
        ),
        // Half of the threads, and no barrier before the others continue.
        overlapping(
            "KERNEL(k)(float* out, const float* in) {
    if (threadIdx.x < 32) dependency_wait();
    FIX(__syncthreads();)
    out[threadIdx.x] = 1;  // !
}",
        ),
        // Memory that nobody writes may be read before, and not written: launches before may still read it.
        Planted {
            settled: true,
            ..overlapping(
                "KERNEL(k)(float* out, const float* in) {
    float w = in[threadIdx.x] + out[threadIdx.x];
    BUG(out[threadIdx.x] = w;)  // !
    dependency_wait();
    out[threadIdx.x] = w;
}",
            )
        },
        // Memory that the launch writes, or another before, is no constant, not even after the wait.
        Planted {
            settled: true,
            ..overlapping(
                "KERNEL(k)(float* out, const float* in) {
    dependency_wait();
    uint4 v = load_stream_16((FIX(in) BUG(out)) + threadIdx.x % 4 * 4);  // !
    __syncthreads();
    out[threadIdx.x] = __uint_as_float(v.x);
}",
            )
        },
        overlapping(
            "KERNEL(k)(float* out, const float* in) {
    dependency_wait();
    out[threadIdx.x] = 0;
    BUG(out[threadIdx.x] = __uint_as_float(load_stream_16(in).x);)  // !
}",
        ),
    ]);
    // A block that does nothing waits too.
    let text = "KERNEL(k)(int n) { if (n == threadIdx.x) dependency_wait(); }";
    let program = common::compile(text, gpu_sim::Mode::Checked);
    for (n, found) in [(3, false), (64, true)] {
        let args = [common::value(&n)];
        let grid = [1; 3];
        let block = [64, 1, 1];
        let order = gpu_sim::Order::Ascending;
        let launch = gpu_sim::Launch { kernel: "k", grid, block, shared: 0, args: &args, order, overlaps: true };
        // SAFETY: the kernel touches no memory.
        let outcome = unsafe { program.launch(&launch) };
        assert_eq!(outcome.is_err_and(|error| error.to_string().contains("(Early)")), found);
    }
}

#[test]
fn a_fault_tells_the_other_access_and_who_called() {
    let text = "static __forceinline__ void put(float* s, float v) {
    s[threadIdx.x] = v;
}
KERNEL(k)(float* out, const float* in) {
    SHARED(float, s, 64);
    s[threadIdx.x] = 0;
    __syncthreads();
    put(s, in[threadIdx.x]);
    out[threadIdx.x] = s[threadIdx.x ^ 33];
}";
    let program = common::compile_with("calls.cu", text, &[], gpu_sim::Mode::Checked).unwrap();
    let (mut out, input) = ([0_f32; 64], [0_f32; 64]);
    let args = [common::write(&mut out), common::read(&input)];
    let fault = common::fault(common::run(&program, "k", 1, 64, 0, gpu_sim::Order::Descending, &args));
    assert_eq!(
        fault.to_string(),
        "calls.cu:2 from calls.cu:8: writes shared memory that another warp has touched, without a barrier; before: \
         thread [62, 0, 0] at calls.cu:9 (RaceInBlock); block [0, 0, 0], thread [31, 0, 0]"
    );
}
