//! Memory and a stream of another library as operands: `cargo run --release -p gristmill-cuda --example foreign_memory`.
//!
//! The other library is the CUDA driver itself, as cudarc, candle or PyTorch use it. It allocates with `cuMemAlloc` and
//! with `cuMemAllocAsync`, and copies in a stream of its own. Each result must have the bits of the same product in
//! gristmill's own buffers.

use cudarc::driver::sys::{self, CUresult};
use gristmill_cuda::{CudaDevice, Options};
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{Matmul, PrepareActivations};
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::{Role, TensorView, Weight};
use gristmill_kernels::{Backend, Error};
use std::error::Error as AnyError;
use std::ffi::c_void;
use std::ptr;

const HIDDEN: usize = 2048;
const OUTPUTS: usize = 768;
/// Products one after the other in the same memory, each with other inputs.
const ROUNDS: usize = 200;
/// Bytes that the other stream fills before each copy, so that a product that does not wait for it is too early.
const FILLED: usize = 256 << 20;

/// A call of the driver.
fn done(what: &str, code: CUresult) -> Result<(), Box<dyn AnyError>> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("{what}: {code:?}").into()) }
}

/// The other library: device memory, a stream, and pinned host memory.
struct Other {
    stream: sys::CUstream,
    x: u64,
    y: u64,
    filled: u64,
    pinned: *mut f32,
}

impl Other {
    /// Memory for `rows` rows, by `cuMemAllocAsync` or by `cuMemAlloc`.
    fn new(rows: usize, pooled: bool) -> Result<Self, Box<dyn AnyError>> {
        let (mut context, mut stream, mut pinned) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let mut addresses = [0_u64; 3];
        let sizes = [rows * HIDDEN * 4, rows * OUTPUTS * 4, FILLED];
        // SAFETY: the places of the results live through the calls. `CudaDevice::open` has started the driver.
        unsafe {
            done("the primary context", sys::cuDevicePrimaryCtxRetain(&mut context, 0))?;
            done("entering it", sys::cuCtxSetCurrent(context))?;
            let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
            done("a stream", sys::cuStreamCreate(&mut stream, flags))?;
            done("pinned memory", sys::cuMemAllocHost_v2(&mut pinned, sizes[0].max(sizes[1])))?;
            for (address, bytes) in addresses.iter_mut().zip(sizes) {
                done(
                    "memory",
                    match pooled {
                        true => sys::cuMemAllocAsync(address, bytes, stream),
                        false => sys::cuMemAlloc_v2(address, bytes),
                    },
                )?;
            }
            done("allocating", sys::cuStreamSynchronize(stream))?;
        }
        let [x, y, filled] = addresses;
        Ok(Self { stream, x, y, filled, pinned: pinned.cast() })
    }

    /// Starts to copy rows to `x`, after work that takes longer than launching a product.
    fn send(&self, values: &[f32]) -> Result<(), Box<dyn AnyError>> {
        // SAFETY: pinned memory and `x` have room for the values, `filled` for its bytes; no copy is in flight.
        unsafe {
            ptr::copy_nonoverlapping(values.as_ptr(), self.pinned, values.len());
            done("filling", sys::cuMemsetD8Async(self.filled, 1, FILLED, self.stream))?;
            done("copying", sys::cuMemcpyHtoDAsync_v2(self.x, self.pinned.cast(), size_of_val(values), self.stream))
        }
    }

    /// Copies `y` in the stream, and waits for the stream.
    fn receive(&self, len: usize) -> Result<Vec<f32>, Box<dyn AnyError>> {
        let mut values = vec![0.0_f32; len];
        // SAFETY: pinned memory and `y` have this number of elements; the copy is done when it is read.
        unsafe {
            done("copying", sys::cuMemcpyDtoHAsync_v2(self.pinned.cast(), self.y, len * 4, self.stream))?;
            done("waiting", sys::cuStreamSynchronize(self.stream))?;
            ptr::copy_nonoverlapping(self.pinned, values.as_mut_ptr(), len);
        }
        Ok(values)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // SAFETY: the only owner of the handles; the driver waits for work that uses the memory. The context stays
        // retained until the process ends.
        unsafe {
            [self.x, self.y, self.filled].into_iter().for_each(|address| {
                sys::cuMemFree_v2(address);
            });
            sys::cuMemFreeHost(self.pinned.cast());
            sys::cuStreamDestroy_v2(self.stream);
        }
    }
}

/// Submits `y = x · Wᵀ`.
fn multiply(
    backend: &Backend,
    weight: &Weight,
    act: &mut Act,
    rows: usize,
    [x, y]: [&mut Buffer<f32>; 2],
) -> gristmill_kernels::Result<()> {
    backend.run(PrepareActivations { x: x.view(rows, HIDDEN)?, act })?;
    backend.run(Matmul::new(weight, act, y.view_mut(rows, OUTPUTS)?))
}

/// Random numbers between −1 and 1.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64 ^ seed as u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn main() -> Result<(), Box<dyn AnyError>> {
    let device = CudaDevice::open(0)?;
    let backend = device.backend(Options::default())?;
    println!("{}", backend.name());
    // Blocks of Q8_0: a scale of 1/16 in f16, and 32 codes.
    let blocks = numbers(0, OUTPUTS * HIDDEN / 32).into_iter().flat_map(|number| {
        let code = (number * 127.0) as i8 as u8;
        [0x00, 0x2c].into_iter().chain((0..32).map(move |n| code.wrapping_mul(2 * n + 1)))
    });
    let tensor = TensorView::new("w", Format::Q8_0, [1, OUTPUTS, HIDDEN], blocks.collect::<Vec<u8>>());
    let weight = backend.prepare(&[tensor], Role::Matrix)?;

    for (rows, pooled) in [(1, false), (64, false), (1, true), (64, true)] {
        let mut act = backend.alloc_act(Precision::Fast, rows, HIDDEN)?;
        let mut own = [backend.alloc::<f32>(rows * HIDDEN, "x")?, backend.alloc::<f32>(rows * OUTPUTS, "y")?];
        let mut expected = Vec::new();
        for round in 0..ROUNDS {
            let [x, y] = &mut own;
            backend.upload(&numbers(round + 1, rows * HIDDEN), x)?;
            multiply(&backend, &weight, &mut act, rows, [x, y])?;
            let mut values = vec![0.0; rows * OUTPUTS];
            backend.download(y.view(rows, OUTPUTS)?, &mut values)?;
            expected.push(values);
        }

        let other = Other::new(rows, pooled)?;
        // SAFETY: parts of two allocations that live until the end of this block, where the stream was waited for; the
        // stream's copies are ordered with the products by events.
        let [mut x, mut y] = unsafe {
            [device.buffer_from_raw(other.x, rows * HIDDEN)?, device.buffer_from_raw(other.y, rows * OUTPUTS)?]
        };
        let stream: *mut c_void = other.stream.cast();
        for (round, expected) in expected.iter().enumerate() {
            other.send(&numbers(round + 1, rows * HIDDEN))?;
            // SAFETY: a stream of the primary context, alive.
            unsafe { device.wait_for(stream) }?;
            multiply(&backend, &weight, &mut act, rows, [&mut x, &mut y])?;
            // SAFETY: as above.
            unsafe { device.make_wait(stream) }?;
            let found = other.receive(rows * OUTPUTS)?;
            let differ = found.iter().zip(expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            if differ > 0 {
                return Err(format!("{rows} rows, round {round}: {differ} of {} numbers differ", found.len()).into());
            }
        }
        let how = if pooled { "cuMemAllocAsync" } else { "cuMemAlloc" };
        println!("{rows:>2} rows in memory of {how}: {ROUNDS} products with the bits of own buffers");

        // SAFETY: none of these buffers is made.
        let refused = unsafe {
            let on_host = expected[0].as_ptr().addr() as u64 & !15;
            [device.buffer_from_raw::<f32>(other.x + 4, 4), device.buffer_from_raw::<f32>(on_host, 4)]
        };
        if refused.iter().any(Result::is_ok) {
            return Err("a misaligned address or one of host memory was accepted".into());
        }
        let graph = backend.capture(&mut || {
            // SAFETY: a stream of the primary context, alive.
            match unsafe { device.make_wait(stream) } {
                Err(Error::Range { .. }) => multiply(&backend, &weight, &mut act, rows, [&mut x, &mut y]),
                other => panic!("a stream joined a capture: {other:?}"),
            }
        })?;
        other.send(&numbers(1, rows * HIDDEN))?;
        // SAFETY: as above.
        unsafe { device.wait_for(stream) }?;
        graph.ok_or("no graph")?.replay()?;
        // SAFETY: as above.
        unsafe { device.make_wait(stream) }?;
        if other.receive(rows * OUTPUTS)? != expected[0] {
            return Err("a graph with memory of the caller has another result".into());
        }
    }
    println!("passed");
    Ok(())
}
