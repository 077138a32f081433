//! How fast the simulator runs: `cargo run -p gpu-sim --example speed`.

use gpu_sim::{Access, Arg, Launch, Mode, Order, Program, Source};
use std::time::Instant;

const TEXT: &str = "
#define KERNEL(name) GPU_SIM_KERNEL(name)
KERNEL(add)(float* y, const float* x, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f + y[i];
}
KERNEL(sum)(float* y, const float* x, u32 n) {
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int m = 16; m > 0; m /= 2) v += __shfl_xor_sync(~0u, v, m);
    y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
KERNEL(barriers)(float* y, const float* x, u32 n) {
    GPU_SIM_SHARED(float, s, 256);
    float v = x[threadIdx.x];
    for (u32 i = 0; i < n; i++) {
        s[threadIdx.x] = v;
        __syncthreads();
        v = s[threadIdx.x ^ i & 255];
        __syncthreads();
    }
    y[threadIdx.x] = v;
}
KERNEL(dots)(int* y, const int* x, u32 n) {
    int v = 0;
    for (u32 i = 0; i < n; i++) v = dp4a(x[i * 32 + threadIdx.x % 32], i, v);
    y[threadIdx.x] = v;
}
KERNEL(tiles)(float* y, const u32* x, u32 n) {
    float d[4] = {};
    u32 a[4], b[2];
    for (u32 i = 0; i < n; i++) {
        for (int j = 0; j < 4; j++) a[j] = x[threadIdx.x + 32 * j];
        for (int j = 0; j < 2; j++) b[j] = x[threadIdx.x + 32 * j + 128];
        mma_m16n8k16_bf16(d, a, b);
    }
    for (int j = 0; j < 4; j++) y[threadIdx.x + 32 * j] = d[j];
}";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = format!("{}\n{TEXT}", gpu_sim::PTX);
    let source = Source { name: "speed.cu", text: &text, defines: &[], mode: Mode::Fast, ..Default::default() };
    let folder = std::env::temp_dir().join("gpu-sim-speed");
    let program = Program::compile(&source, &folder)?;
    let (mut y, x) = (vec![0_f32; 1 << 22], vec![1_f32; 1 << 22]);
    for (kernel, grid, block, n, count, what) in [
        ("add", 1 << 14, 256, 1_u32 << 22, 1 << 22, "threads"),
        ("sum", 1 << 11, 256, 0, 5 << 19, "shuffles of a thread"),
        ("barriers", 64, 256, 50, 64 * 256 * 100, "barriers of a thread"),
        ("dots", 64, 256, 4096, 64 * 256 * 4096, "dp4a"),
        ("tiles", 1, 32, 15_000, 15_000 * 2048, "multiplications in mma"),
    ] {
        let args = [
            Arg::Buffer {
                address: y.as_mut_ptr().cast(),
                bytes: y.len() * 4,
                access: Access::ReadWrite,
                settled: false,
            },
            Arg::Buffer {
                address: x.as_ptr().cast_mut().cast(),
                bytes: x.len() * 4,
                access: Access::Read,
                settled: false,
            },
            Arg::Bytes(&n.to_le_bytes()),
        ];
        let launch = Launch {
            kernel,
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared: 0,
            args: &args,
            order: Order::Ascending,
            overlaps: false,
        };
        let start = Instant::now();
        // SAFETY: the kernels touch less than both buffers.
        unsafe { program.launch(&launch) }?;
        let time = start.elapsed();
        println!("{kernel:9} {time:>9.1?}  {:8.1} M/s  {what}", f64::from(count) / time.as_secs_f64() / 1e6);
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
