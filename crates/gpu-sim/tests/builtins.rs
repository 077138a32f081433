//! Threads, shuffles, votes, barriers, atomics and shared memory do what CUDA's documentation says.
#![cfg(all(target_arch = "x86_64", unix))]

mod common;

use common::*;
use gpu_sim::{Kind, Mode, Order};

#[test]
fn each_thread_knows_its_place() {
    let text = "KERNEL(places)(u32* out) {
            u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
            u32 thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
            out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] += block * 1000 + thread;
        }";
    everywhere(text, |program, order| {
        let mut out = vec![0_u32; 2 * 3 * 5 * 40];
        let launch = gpu_sim::Launch {
            kernel: "places",
            grid: [2, 3, 5],
            block: [5, 4, 2],
            shared: 0,
            args: &[change(&mut out)],
            order,
            overlaps: false,
        };
        // SAFETY: the kernel keeps to its argument.
        unsafe { program.launch(&launch) }.unwrap();
        let wanted: Vec<u32> = (0..30).flat_map(|block| (0..40).map(move |thread| block * 1000 + thread)).collect();
        assert_eq!(out, wanted, "{order:?}");
    });
}

#[test]
fn shuffles_and_votes() {
    let text = "KERNEL(lanes)(int* out, const int* in) {
            int lane = threadIdx.x, v = in[lane], *o = out + 16 * lane;
            o[0] = __shfl_sync(~0u, v, 5);
            o[1] = __shfl_sync(~0u, v, lane + 1);
            o[2] = __shfl_sync(~0u, v, 3, 8);
            o[3] = __shfl_up_sync(~0u, v, 4);
            o[4] = __shfl_down_sync(~0u, v, 30);
            o[5] = __shfl_down_sync(~0u, v, 3, 16);
            o[6] = __shfl_xor_sync(~0u, v, 17);
            o[7] = __shfl_xor_sync(~0u, v, 8, 8);
            o[8] = __ballot_sync(~0u, v & 1);
            o[9] = __any_sync(~0u, v == 1000) + 2 * __any_sync(~0u, lane == 31);
            o[10] = __all_sync(~0u, v != 1000) + 2 * __all_sync(~0u, lane != 31);
            if (lane < 16) o[11] = __shfl_xor_sync(0xffffu, v, 1);
            else o[11] = __shfl_xor_sync(0xffff0000u, v, 2);
            o[12] = __reduce_max_sync(~0u, v);
            o[13] = __match_any_sync(~0u, v & 3);
            unsigned long long wide = __shfl_xor_sync(~0u, (unsigned long long)v << 32, 1);
            o[14] = (int)(wide >> 32);
            o[15] = __reduce_add_sync(~0u, 1u);
        }";
    let mut random = Random(seed());
    let input: Vec<i32> = (0..32).map(|_| (random.next() % 1000) as i32).collect();
    everywhere(text, |program, order| {
        let mut out = vec![0; 512];
        run(program, "lanes", 1, 32, 0, order, &[write(&mut out), read(&input)]).unwrap();
        let odd: u32 = (0..32).map(|i| ((input[i] & 1) as u32) << i).sum();
        for lane in 0..32 {
            let same: u32 = (0..32).map(|i| u32::from(input[i] & 3 == input[lane] & 3) << i).sum();
            let wanted = [
                input[5],
                input[(lane + 1) % 32],
                input[lane / 8 * 8 + 3],
                input[if lane < 4 { lane } else { lane - 4 }],
                input[if lane < 2 { lane + 30 } else { lane }],
                input[if lane % 16 < 13 { lane + 3 } else { lane }],
                input[lane ^ 17],
                // Lanes of an earlier segment can be read, those of a later one cannot.
                input[if lane & 8 != 0 { lane ^ 8 } else { lane }],
                odd as i32,
                2,
                1,
                input[if lane < 16 { lane ^ 1 } else { lane ^ 2 }],
                *input.iter().max().unwrap(),
                same as i32,
                input[lane ^ 1],
                32,
            ];
            assert_eq!(out[16 * lane..16 * lane + 16], wanted, "{order:?}, lane {lane}");
        }
    });
}

#[test]
fn barriers_and_shared_memory() {
    // A sum over the block, by a tree: variables of a template, an array of fixed size and a dynamic one.
    let text = "template <int N> static int tree(int v) {
            SHARED(int, part, N);
            int i = threadIdx.x;
            part[i] = v;
            __syncthreads();
            for (int half = N / 2; half > 0; half /= 2) {
                if (i < half) part[i] += part[i + half];
                __syncthreads();
            }
            int sum = part[0];
            __syncthreads();
            return sum;
        }
        KERNEL(sums)(int* out, const int* in) {
            DYNAMIC_SHARED(int, kept);
            int i = threadIdx.x, v = in[blockIdx.x * 256 + i];
            kept[255 - i] = v;
            int a = tree<256>(v), b = tree<256>(2 * v);
            out[(blockIdx.x * 256 + i) * 4] = a;
            out[(blockIdx.x * 256 + i) * 4 + 1] = b;
            out[(blockIdx.x * 256 + i) * 4 + 2] = kept[i];
            out[(blockIdx.x * 256 + i) * 4 + 3] =
                __syncthreads_count(v > 500) + 1000 * __syncthreads_or(v == 1) + 2000 * __syncthreads_and(v < 999);
        }";
    let mut random = Random(seed());
    let input: Vec<i32> = (0..768).map(|_| (random.next() % 1000) as i32).collect();
    everywhere(text, |program, order| {
        let mut out = vec![0; 768 * 4];
        run(program, "sums", 3, 256, 1024, order, &[write(&mut out), read(&input)]).unwrap();
        for (block, values) in input.chunks(256).enumerate() {
            let sum: i32 = values.iter().sum();
            let count = values.iter().filter(|&&v| v > 500).count() as i32;
            let votes =
                count + 1000 * i32::from(values.contains(&1)) + 2000 * i32::from(values.iter().all(|&v| v < 999));
            for i in 0..256 {
                let at = (block * 256 + i) * 4;
                assert_eq!(out[at..at + 4], [sum, 2 * sum, values[255 - i], votes], "{order:?}");
            }
        }
    });
}

#[test]
fn atomics_over_blocks() {
    let text = "KERNEL(count)(u32* bins, const u32* in, u32 n) {
            u32 i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            atomicAdd(bins + in[i] % 7, 1u);
            atomicMax(bins + 7, in[i]);
            atomicCAS(bins + 8, 0u, 5u);
            atomicAdd((float*)bins + 9, 0.5f);
        }";
    let mut random = Random(seed());
    let input: Vec<u32> = (0..1000).map(|_| random.next() as u32).collect();
    everywhere(text, |program, order| {
        let mut bins = vec![0_u32; 10];
        run(program, "count", 8, 128, 0, order, &[change(&mut bins), read(&input), value(&1000_u32)]).unwrap();
        let mut wanted: Vec<u32> = (0..7).map(|bin| input.iter().filter(|&&v| v % 7 == bin).count() as u32).collect();
        wanted.extend([*input.iter().max().unwrap(), 5, 500_f32.to_bits()]);
        assert_eq!(bins, wanted, "{order:?}");
    });
}

#[test]
fn who_waits_for_each_other_is_reported() {
    let program = compile(
        "KERNEL(half)(int* out) {
            if (threadIdx.x < 40)
                __syncthreads();
            else
                __shfl_sync(~0u, 1, 0);
            out[0] = 1;
        }
        KERNEL(gone)(int* out) {
            if (threadIdx.x == 3) return;
            out[threadIdx.x] = __shfl_xor_sync(~0u, 1, 1);
        }
        KERNEL(masked)(int* out) {
            out[threadIdx.x] =
                __ballot_sync(1u, 1);
        }",
        Mode::Fast,
    );
    let mut out = [0; 64];
    let mut fault = |kernel| fault(run(&program, kernel, 1, 64, 0, Order::Ascending, &[write(&mut out)]));
    let deadlock = fault("half");
    assert_eq!(deadlock.kind, Kind::Deadlock);
    assert!(deadlock.message.contains("40 at a barrier (test.cu:3)"), "{deadlock}");
    assert!(deadlock.message.contains("24 at a shuffle (test.cu:5)"), "{deadlock}");
    let gone = fault("gone");
    assert_eq!((gone.kind, innermost(&gone)), (Kind::Collective, 10), "{gone}");
    let masked = fault("masked");
    assert_eq!((masked.kind, innermost(&masked), masked.thread[0]), (Kind::Collective, 14, 1), "{masked}");
    // A fault leaves nothing behind.
    let fine = compile("KERNEL(fine)(int* out) { __syncthreads(); out[threadIdx.x] = 7; }", Mode::Fast);
    run(&fine, "fine", 1, 64, 0, Order::Ascending, &[write(&mut out)]).unwrap();
    assert_eq!(out, [7; 64]);
}

#[test]
fn launches_in_several_threads() {
    let program = compile(
        "KERNEL(turn)(int* out, int rounds) {
            SHARED(int, s, 64);
            s[threadIdx.x] = threadIdx.x;
            for (int i = 0; i < rounds; i++) {
                __syncthreads();
                int v = s[(threadIdx.x + 1) % 64];
                __syncthreads();
                s[threadIdx.x] = v;
            }
            out[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x];
        }",
        Mode::Fast,
    );
    std::thread::scope(|scope| {
        for rounds in 0..6 {
            let program = &program;
            scope.spawn(move || {
                let mut out = vec![0; 64 * 50];
                let args = [write(&mut out), value(&rounds)];
                run(program, "turn", 50, 64, 0, Order::Shuffled(3), &args).unwrap();
                assert!(out.iter().enumerate().all(|(i, &v)| v == (i as i32 + rounds) % 64));
            });
        }
    });
}

#[test]
fn where_threads_have_waited_is_known() {
    let text = "static inline __attribute__((always_inline)) void both() {
    __syncthreads();
}
KERNEL(k)(int* out, int again) {
    both();
    if (again) {
        __syncwarp();
    }
    dependency_wait();
    out[threadIdx.x] = __shfl_sync(~0u, again, 0);
}";
    let passed = |mode, again: i32| {
        let program = compile(text, mode);
        let mut out = [0; 64];
        run(&program, "k", 1, 64, 0, Order::Ascending, &[write(&mut out), value(&again)]).unwrap();
        let lines: Vec<u32> =
            program.passed().into_iter().filter(|(file, _)| file == "test.cu").map(|(_, l)| l).collect();
        lines
    };
    assert_eq!(passed(Mode::Checked, 0), [2, 5, 9, 10]);
    assert_eq!(passed(Mode::Checked, 1), [2, 5, 7, 9, 10]);
    assert!(passed(Mode::Fast, 1).is_empty());
}
